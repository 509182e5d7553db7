// The time machine. Columns become typed arrays once; what was at a moment is looked up in them by halves.
(function () {
  "use strict";
  var $ = function (id) { return document.getElementById(id); };
  var all = function (q, from) { return Array.prototype.slice.call((from || document).querySelectorAll(q)); };
  var section = $("moment");
  if (!section) return;
  var AROUND = 12, CARDS = 24, WAIT = 200;
  var drawings = all(".tl"), first = drawings[0].dataset;
  // Milliseconds of the axis; `origin` is where its zero is.
  var length = Math.ceil(Number(first.length) / 1000), origin = Math.round(Number(first.origin) / 1000);
  var range = $("mr"), output = $("mt"), input = $("mh"), now = 0, most = CARDS, wanted = "", kept = null;
  // What there may be much of; the reader may leave it out of what is shown around the moment.
  var MUCH = { validation: "validations", event: "events", step: "steps", request: "requests", log: "log lines", console: "consoles", resource: "resources" };
  var out = {}, boxes = {};

  function make(tag, name, text) {
    var e = document.createElement(tag);
    if (name) e.className = name;
    if (text !== undefined) e.textContent = text;
    return e;
  }
  function human(ms) {
    var sign = ms < 0 ? "−" : "", t = Math.abs(ms), two = function (n) { return (n < 10 ? "0" : "") + n; };
    var s = Math.floor(t / 1000), m = Math.floor(s / 60), rest = "." + (t % 1000 + 1000 + "").slice(1);
    if (s < 60) return sign + s + rest + " s";
    if (m < 60) return sign + m + ":" + two(s % 60) + rest;
    return sign + Math.floor(m / 60) + ":" + two(m % 60) + ":" + two(s % 60) + rest;
  }
  function count(n) { return String(n).replace(/\B(?=(\d{3})+$)/g, ","); }

  // A column: numbers to the base 32, the lowest digit first; digits from 32 on say that more follow.
  var digits = new Uint8Array(128);
  "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$".split("").forEach(function (c, i) { digits[c.charCodeAt(0)] = i; });
  function numbers(text, size) {
    var out = new Uint32Array(size), n = 0, value = 0, shift = 0;
    for (var i = 0; i < text.length && n < size; i++) {
      var d = digits[text.charCodeAt(i) & 127];
      value |= (d & 31) << shift;
      if (d & 32) { shift += 5; } else { out[n++] = value; value = 0; shift = 0; }
    }
    return out;
  }
  // How many of the sorted `times` (of the items in `list`, where there is one) are not after `t`.
  function until(times, t, list) {
    var low = 0, high = list ? list.length : times.length;
    while (low < high) {
      var mid = (low + high) >> 1;
      if (times[list ? list[mid] : mid] <= t) low = mid + 1; else high = mid;
    }
    return low;
  }

  // Colours of statuses and stages, as the drawings have them.
  var colours = {};
  all("svg.s").forEach(function (e) { colours[e.querySelector("title").textContent.split("\n")[0]] = e.getAttribute("class").split(" ")[1]; });
  all(".area path").forEach(function (e) { colours[e.querySelector("title").textContent.split(": at most")[0]] = e.getAttribute("class"); });

  function Side(root) {
    var script = root.querySelector(".columns"), data = JSON.parse(script.textContent);
    var size = data.count, shift = Math.round(Number(root.dataset.shift) / 1000);
    var times = numbers(data.times, size), who = numbers(data.who, size), what = numbers(data.what, size);
    var facts = numbers(data.facts, data.facts.length), kinds = data.kinds, strings = data.strings, names = data.names;
    var kind = {}, i;
    kinds.forEach(function (word, n) { kind[word] = n; });
    script.textContent = "";
    for (i = 1; i < size; i++) times[i] += times[i - 1];
    // The items of each, in order of time: where they begin in `items`.
    var begins = new Uint32Array(names.length + 1), items = new Uint32Array(size);
    for (i = 0; i < size; i++) begins[who[i] + 1]++;
    for (i = 0; i < names.length; i++) begins[i + 1] += begins[i];
    var fill = begins.slice();
    for (i = 0; i < size; i++) items[fill[who[i]]++] = i;
    // Of these only the statuses, in the same way: all hosts are counted at every move.
    var ends = new Uint32Array(names.length + 1), statuses = new Uint32Array(size), filled = 0;
    for (i = 0; i < names.length; i++) {
      for (var j = begins[i]; j < begins[i + 1]; j++) {
        var is = facts[what[items[j]] * 4];
        if (is === kind.status || is === kind.deleted) statuses[filled++] = items[j];
      }
      ends[i + 1] = filled;
    }
    var tracks = {}, lower = null;

    function of(w) { return items.subarray(begins[w], begins[w + 1]); }
    // The tracks of one: for each kind, and each key of it, the items that say it.
    function tracksOf(w) {
      if (tracks[w]) return tracks[w];
      var found = {}, list = of(w);
      for (var n = 0; n < list.length; n++) {
        var f = what[list[n]] * 4, k = kinds[facts[f]];
        var key = k === "validation" || k === "operator" || k === "fault" || k === "resource" ? strings[facts[f + 1]] : "";
        var keys = found[k] = found[k] || new Map();
        if (!keys.has(key)) keys.set(key, []);
        keys.get(key).push(list[n]);
      }
      return tracks[w] = found;
    }
    function told(n) {
      var f = what[n] * 4;
      return { at: times[n], kind: kinds[facts[f]], key: strings[facts[f + 1]], value: strings[facts[f + 2]], info: strings[facts[f + 3]], n: n };
    }
    // The last of each key of a kind that was said until `t`.
    function last(w, k, t) {
      var keys = tracksOf(w)[k], found = [];
      if (keys) keys.forEach(function (list) {
        var n = until(times, t, list);
        if (n) found.push(told(list[n - 1]));
      });
      return found;
    }
    function one(w, k, t) { return last(w, k, t)[0]; }
    function local(t) { return Math.max(0, t - shift); }

    function line(card, name, parts, trouble) {
      var p = make("p", trouble ? "trouble" : "");
      if (name) p.appendChild(make("i", "", name + " "));
      parts.forEach(function (part) { p.appendChild(typeof part === "string" ? document.createTextNode(part) : part); });
      card.appendChild(p);
    }
    function dot(value) { return make("span", "d " + (colours[value] || "k-other")); }
    function card(w, t) {
      var sort = data.sorts[w], status = one(w, "status", t), gone = one(w, "deleted", t);
      var is = status && !(gone && gone.n > status.n) ? status.value : gone ? "removed" : "";
      var e = make("article", "state" + (status ? " " + (colours[is] || "") : "")), h = make("h5", "", names[w]);
      if (wanted === names[w]) e.className += " named";
      var role = one(w, "role", t), machine = one(w, "machine", t), stage = one(w, "stage", t), percent = one(w, "percent", t);
      h.appendChild(make("i", "", sort === "c" ? "cluster" : sort === "r" ? "" : role ? role.value + (role.info ? ", " + role.info : "") : "host"));
      e.appendChild(h);
      if (is) line(e, "", [dot(is), make("b", "", is), make("i", "", " for " + human(t - (is === "removed" ? gone : status).at))]);
      else if (sort !== "r") line(e, "", [make("i", "", "not there yet")]);
      if (stage && stage.value) {
        line(e, "", [dot(stage.value), stage.value + (stage.info ? ": " + stage.info : "")]);
      }
      if (percent && +percent.value > 0) {
        var bar = make("progress");
        bar.max = 100; bar.value = +percent.value; bar.setAttribute("aria-label", "installed");
        line(e, "installed", [percent.value + " %"]);
        e.appendChild(bar);
      }
      var words = one(w, "words", t), say = words && status && words.n > status.n ? words.value : status ? status.info : "";
      if (say && is && is !== "removed") line(e, "", [say]);
      var failing = last(w, "validation", t).filter(function (v) { return v.value && v.value !== "success" && v.value !== "disabled"; });
      if (failing.length) line(e, "validations", [failing.map(function (v) { return v.key + " (" + v.value + ")"; }).join(", ")], failing.some(function (v) { return v.value !== "pending"; }));
      var operators = last(w, "operator", t);
      if (operators.length) line(e, "operators", [operators.map(function (o) { return o.key + " " + (o.value || "unknown"); }).join(", ")]);
      var resources = last(w, "resource", t).filter(function (r) { return r.value; });
      if (resources.length) line(e, "resources", [resources.map(function (r) { return r.key + " " + r.value + (r.info ? " (" + r.info + ")" : ""); }).join(", ")]);
      var logs = one(w, "logs", t), step = one(w, "step", t), did = one(w, "did", t);
      if (machine) line(e, "machine", [machine.value + (machine.info ? ": " + machine.info : "")]);
      if (logs && logs.value) line(e, "logs", [logs.value]);
      if (step) line(e, "last step", [step.value + " " + step.info]);
      if (did) line(e, "last did", [did.value]);
      var faults = last(w, "fault", t).filter(function (f) { return f.value; });
      if (faults.length) line(e, "faults", [faults.map(function (f) { return f.key; }).join(", ")], true);
      return e;
    }

    function matches() {
      var words = input.value.toLowerCase().split(/\s+/).filter(Boolean), found = [];
      if (words.length && !lower) lower = names.map(function (name) { return name.toLowerCase(); });
      // Who is asked for comes first; clusters stand before hosts anyway.
      for (var w = 1; w < names.length; w++) {
        var n = w;
        if (words.length && !words.every(function (word) { return lower[n].indexOf(word) >= 0; })) continue;
        if (wanted && names[w] === wanted) found.unshift(w); else found.push(w);
      }
      return found;
    }
    function observation(n, t) {
      var o = told(n), li = make("li", o.at > t ? "later" : ""), go = make("button", "go", human(o.at + shift - origin));
      go.type = "button";
      go.dataset.to = o.at + shift;
      li.appendChild(go);
      li.appendChild(make("b", "", names[who[n]]));
      var word = o.kind === "did" || o.kind === "note" ? "" : o.kind + " ", text = make("span");
      if (o.kind === "warning") { word = o.key + " "; o.key = ""; li.className += " trouble"; }
      if (word) text.appendChild(make("i", "", word));
      var value = o.value || (o.kind === "fault" ? "" : "none"), key = o.key && o.kind !== "event" ? o.key + " " : "";
      text.appendChild(document.createTextNode(key + value + (o.info ? ": " + o.info : "")));
      li.appendChild(text);
      return li;
    }
    function around(t, found, filtered) {
      var list = root.querySelector(".around"), own = null, piece = document.createDocumentFragment();
      if (filtered || without()) {
        var words = input.value + "&" + without();
        if (kept && kept.side === root && kept.words === words) own = kept.own; else {
          var chosen = new Uint8Array(names.length), hidden = kinds.map(function (word) { return out[word] ? 1 : 0; });
          if (!filtered) chosen.fill(1);
          found.forEach(function (w) { chosen[w] = 1; });
          own = [];
          for (var n = 0; n < size; n++) if (chosen[who[n]] && !hidden[facts[what[n] * 4]]) own.push(n);
          kept = { side: root, words: words, own: own };
        }
      }
      var total = own ? own.length : size, place = until(times, t, own), at = function (p) { return own ? own[p] : p; };
      var from = Math.max(0, place - AROUND), to = Math.min(total, place + AROUND);
      for (var p = from; p < to; p++) {
        if (p === place) piece.appendChild(make("li", "now", human(t + shift - origin)));
        piece.appendChild(observation(at(p), t));
      }
      if (place === to) piece.appendChild(make("li", "now", human(t + shift - origin)));
      list.textContent = "";
      list.appendChild(piece);
    }
    function counts(t) {
      var e = root.querySelector(".counts"), found = new Map();
      for (var w = 1; w < names.length; w++) {
        if (data.sorts[w] !== "h") continue;
        var low = ends[w], high = ends[w + 1];
        while (low < high) {
          var mid = (low + high) >> 1;
          if (times[statuses[mid]] <= t) low = mid + 1; else high = mid;
        }
        var f = low > ends[w] ? what[statuses[low - 1]] * 4 : -1;
        var value = f < 0 ? "not there yet" : facts[f] === kind.deleted ? "removed" : strings[facts[f + 2]];
        found.set(value, (found.get(value) || 0) + 1);
      }
      e.textContent = "";
      found.forEach(function (n, value) {
        var s = make("span");
        s.appendChild(make("b", "", count(n)));
        s.appendChild(document.createTextNode(" " + value));
        e.appendChild(s);
      });
    }
    this.show = function (axis) {
      var t = local(axis), found = matches(), filtered = input.value.trim() !== "";
      var states = root.querySelector(".states"), pages = root.querySelector(".pages"), piece = document.createDocumentFragment();
      found.slice(0, most).forEach(function (w) { piece.appendChild(card(w, t)); });
      if (last(0, "fault", t).some(function (f) { return f.value; })) piece.appendChild(card(0, t));
      states.textContent = "";
      states.appendChild(piece);
      pages.textContent = "";
      if (found.length > most) {
        var more = make("button", "", "Show more");
        more.type = "button";
        more.onclick = function () { most += 96; show(); };
        pages.appendChild(document.createTextNode(count(most) + " of " + count(found.length) + " are shown. "));
        pages.appendChild(more);
      } else if (!found.length) pages.textContent = "No host has such a name.";
      counts(t);
      around(t, found, filtered);
    };
    this.has = function (word) {
      for (var f = 0; f < facts.length; f += 4) if (kinds[facts[f]] === word) return true;
      return false;
    };
    // The next moment on the axis, forwards or back, at which something of those that are shown is said.
    this.step = function (axis, by) {
      var t = axis - shift, own = (input.value.trim() !== "" || without()) && kept && kept.side === root ? kept.own : null;
      var p = by > 0 ? until(times, t, own) : until(times, t - 1, own) - 1, n = own ? own[p] : p;
      return p < 0 || p >= (own ? own.length : size) ? null : times[n] + shift;
    };
  }

  var sides = null, timer = 0;
  var cursors = drawings.map(function (tl) {
    var e = make("div", "cursor");
    tl.querySelector(".wide").appendChild(e);
    return e;
  });
  function show() {
    if (!sides) {
      sides = all(".side", section).map(function (root) { return new Side(root); });
      Object.keys(MUCH).forEach(choose);
    }
    range.value = now;
    output.textContent = human(now - origin);
    range.setAttribute("aria-valuetext", human(now - origin));
    cursors.forEach(function (e) { e.style.left = now / (length * 1.012) * 100 + "%"; });
    sides.forEach(function (side) { side.show(now); });
    document.body.dataset.moment = now - origin;
    clearTimeout(timer);
    timer = setTimeout(keep, WAIT);
  }
  function without() { return Object.keys(out).filter(function (word) { return out[word]; }).join(","); }
  // A box for a kind that there is.
  function choose(word) {
    if (!sides.some(function (side) { return side.has(word); })) return;
    var label = make("label"), box = boxes[word] = make("input");
    box.type = "checkbox";
    box.checked = !out[word];
    box.onchange = function () { out[word] = !box.checked; moved = true; show(); };
    label.appendChild(box);
    label.appendChild(document.createTextNode(MUCH[word]));
    $("mk").appendChild(label);
    $("mk").hidden = false;
  }
  function fragment() {
    return "#t=" + (now - origin) + (input.value.trim() ? "&of=" + encodeURIComponent(input.value.trim()) : "") + (without() ? "&no=" + without() : "");
  }
  var moved = false;
  function keep() {
    if (moved && location.hash !== fragment()) history.replaceState(null, "", fragment());
  }
  function go(t) {
    now = Math.max(0, Math.min(length, Math.round(t)));
    moved = true;
    show();
  }
  function read() {
    var t = /[#&]t=(-?\d+)/.exec(location.hash), of = /[#&]of=([^&]*)/.exec(location.hash), no = /[#&]no=([^&]*)/.exec(location.hash);
    Object.keys(MUCH).forEach(function (word) {
      out[word] = Boolean(no) && no[1].split(",").indexOf(word) >= 0;
      if (boxes[word]) boxes[word].checked = !out[word];
    });
    if (of) try { input.value = decodeURIComponent(of[1]); } catch (e) { input.value = ""; }
    if (t) now = Math.max(0, Math.min(length, Number(t[1]) + origin));
    return Boolean(t);
  }

  range.max = length;
  var coarse = Math.max(1, Math.round(length / 500));
  range.oninput = function () { go(Number(range.value)); };
  range.onkeydown = function (e) {
    var by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 10, PageDown: -10 }[e.key];
    if (e.key === "Home" || e.key === "End") { e.preventDefault(); go(e.key === "Home" ? 0 : length); }
    if (!by || e.ctrlKey || e.altKey || e.metaKey) return;
    e.preventDefault();
    go(now + by * (e.shiftKey ? 1 : coarse));
  };
  input.oninput = function () { most = CARDS; wanted = ""; moved = true; show(); };
  function step(by) {
    var found = sides.map(function (side) { return side.step(now, by); }).filter(function (t) { return t !== null; });
    if (found.length) go(by > 0 ? Math.min.apply(null, found) : Math.max.apply(null, found));
  }
  $("mb").onclick = function () { step(-1); };
  $("mf").onclick = function () { step(1); };
  section.addEventListener("click", function (e) {
    if (e.target.dataset && e.target.dataset.to) go(Number(e.target.dataset.to));
  });
  drawings.forEach(function (tl) {
    var wide = tl.querySelector(".wide");
    wide.addEventListener("click", function (e) {
      var box = wide.getBoundingClientRect();
      go((e.clientX - box.left) / box.width * length * 1.012);
    });
  });
  // From what went wrong to its moment.
  var shift = Math.round(Number(all(".side", section)[0].dataset.shift) / 1000);
  all("[data-at]").forEach(function (e) {
    var b = make("button", "show", "Show this moment");
    b.type = "button";
    b.onclick = function () {
      input.value = "";
      wanted = e.dataset.of || "";
      go(Number(e.dataset.at) / 1000 + shift);
      section.scrollIntoView();
      range.focus({ preventScroll: true });
    };
    (e.tagName === "TR" ? e.lastElementChild : e).appendChild(b);
  });
  addEventListener("hashchange", function () { if (read() || location.hash.indexOf("of=") > 0) show(); });

  section.hidden = false;
  var failed = document.querySelector(".card[data-at]");
  now = failed ? Math.max(0, Math.min(length, Math.round(Number(failed.dataset.at) / 1000 + shift))) : length;
  if (failed) wanted = failed.dataset.of || "";
  var linked = read();
  show();
  if (linked) section.scrollIntoView();
  // For those who test the page: how long after its opening everything could be used, in milliseconds.
  document.body.dataset.took = Math.round(performance.now());
})();
