(function () {
  "use strict";
  var $ = function (id) { return document.getElementById(id); };
  var all = function (q, from) { return Array.prototype.slice.call((from || document).querySelectorAll(q)); };
  var tables = $("data"), data = tables && JSON.parse(tables.textContent), zoom = 1;
  all("[hidden].tools,[hidden].filter,#copy[hidden]").forEach(function (e) { e.hidden = false; });

  function human(us) {
    var s = us / 1e6, two = function (n) { return (n < 10 ? "0" : "") + n; };
    if (us < 1e4) return (us / 1e3).toFixed(1) + " ms";
    if (us < 1e6) return Math.floor(us / 1e3) + " ms";
    if (s < 60) return s.toFixed(2) + " s";
    s = Math.floor(s);
    if (s < 3600) return Math.floor(s / 60) + " m " + two(s % 60) + " s";
    return Math.floor(s / 3600) + " h " + two(Math.floor(s / 60) % 60) + " m " + two(s % 60) + " s";
  }

  // Words only where they fit.
  function Drawing(tl) {
    var svg = tl.querySelector("svg.lanes"), wide = tl.querySelector(".wide"), scroll = tl.querySelector(".scroll");
    var hair = tl.querySelector(".hair"), length = Number(tl.dataset.length) * 1.012, origin = Number(tl.dataset.origin);
    var spans = all("svg.s", svg).map(function (e) {
      var text = e.querySelector("text");
      return { width: parseFloat(e.getAttribute("width")), text: text, word: text.textContent, letter: e.getAttribute("height") === "13" ? 5.4 : 6.3 };
    });
    var marks = all("svg.m", svg).map(function (e) {
      return { e: e, x: parseFloat(e.getAttribute("x")), row: e.getAttribute("y"), chars: e.querySelector("text").textContent.length };
    }).sort(function (a, b) { return b.x - a.x; });
    this.layout = function () {
      var px = wide.getBoundingClientRect().width, next = {};
      spans.forEach(function (s) {
        var room = Math.floor((s.width / 100 * px - 9) / s.letter), n = s.word.length;
        var word = room >= n ? s.word : room >= 5 ? s.word.slice(0, room - 1) + "…" : "";
        if (s.shown !== word) s.text.textContent = s.shown = word;
      });
      marks.forEach(function (m) {
        var end = next[m.row] === undefined ? 100 : next[m.row];
        m.e.classList.toggle("fits", (end - m.x) / 100 * px > m.chars * 6.1 + 18);
        next[m.row] = m.x;
      });
    };
    // Where the middle of what can be seen is, of the whole width; and to put it there.
    this.zoom = function (z, at) {
      var box = scroll.getBoundingClientRect(), x = at === undefined ? box.width / 2 : at - box.left;
      var where = (scroll.scrollLeft + x) / wide.getBoundingClientRect().width;
      wide.style.width = z * 100 + "%";
      scroll.scrollLeft = where * box.width * z - x;
      this.layout();
    };
    this.scroll = scroll;
    this.words = function () { return spans.filter(function (s) { return s.text.textContent; }).length; };
    this.isSeen = function () { return wide.getBoundingClientRect().width > 0; };
    scroll.addEventListener("wheel", function (e) {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      setZoom(zoom * Math.exp(-e.deltaY / 300), e.clientX);
    }, { passive: false });
    scroll.addEventListener("mousemove", function (e) {
      var box = wide.getBoundingClientRect(), x = e.clientX - box.left, t = x / box.width * length - origin;
      hair.hidden = false;
      hair.style.left = x + "px";
      hair.classList.toggle("left", x > box.width - 90);
      hair.firstChild.textContent = (t < 0 ? "−" : "") + human(Math.abs(t));
    });
    scroll.addEventListener("mouseleave", function () { hair.hidden = true; });
  }
  var drawings = all(".tl").map(function (tl) { return new Drawing(tl); });
  function layout() { drawings.forEach(function (d) { d.layout(); }); }
  function setZoom(z, at) {
    zoom = Math.max(1, Math.min(200, z));
    drawings.forEach(function (d) { d.zoom(zoom, at); });
  }
  // Drawings over one axis show the same part of it.
  drawings.forEach(function (d) {
    d.scroll.addEventListener("scroll", function () {
      drawings.forEach(function (other) { if (other !== d && other.scroll.scrollLeft !== d.scroll.scrollLeft) other.scroll.scrollLeft = d.scroll.scrollLeft; });
    });
  });
  $("zi").onclick = function () { setZoom(zoom * 1.6); };
  $("zo").onclick = function () { setZoom(zoom / 1.6); };
  $("zf").onclick = function () { setZoom(1); };
  addEventListener("resize", layout);

  // The colour of a status or stage, as the drawing has it.
  var colour = {};
  all("svg.s").forEach(function (e) {
    var t = e.querySelector("title").textContent.split("\n")[0];
    colour[t] = e.getAttribute("class").split(" ")[1];
  });

  function table(id) {
    var view = document.querySelector('table[data-table="' + id + '"]');
    if (!view) return;
    var section = $(id), input = section.querySelector("input"), count = section.querySelector(".filter span");
    var body = view.tBodies[0], most = 300, more = document.createElement("button");
    var rows = data[id], lower = null;
    function words(row) { return row.map(function (n) { return data.strings[n]; }); }
    more.className = "more";
    more.type = "button";
    section.appendChild(more);
    function show() {
      var wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean), found = rows;
      if (wanted.length) {
        lower = lower || rows.map(function (r) { return words(r).join(" ").toLowerCase(); });
        found = rows.filter(function (r, i) { return wanted.every(function (w) { return lower[i].indexOf(w) >= 0; }); });
      }
      var piece = document.createDocumentFragment();
      found.slice(0, most).forEach(function (row) {
        var tr = document.createElement("tr");
        words(row).forEach(function (cell, n) {
          var td = document.createElement("td");
          if (id === "transitions" && (n === 3 || n === 4) && colour[cell]) {
            var dot = document.createElement("span");
            dot.className = "d " + colour[cell];
            td.appendChild(dot);
          }
          td.appendChild(document.createTextNode(cell));
          tr.appendChild(td);
        });
        piece.appendChild(tr);
      });
      body.textContent = "";
      body.appendChild(piece);
      count.textContent = wanted.length ? found.length + " of " + rows.length + " rows" : "";
      more.hidden = found.length <= most;
      more.textContent = "Show more (" + (found.length - most) + ")";
    }
    more.onclick = function () { most += 2000; show(); };
    input.oninput = function () { most = 300; show(); };
    show();
  }
  if (data) {
    table("transitions");
    table("events");
  }

  var copy = $("copy");
  if (copy) copy.onclick = function () {
    var text = $("repeat").textContent, done = function () { copy.textContent = "Copied"; };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, function () { getSelection().selectAllChildren($("repeat")); });
    else getSelection().selectAllChildren($("repeat"));
  };

  layout();
  // For those who test the page: it is laid out, and this is what was drawn.
  document.body.dataset.lanes = all("rect.lane").length;
  document.body.dataset.words = drawings.reduce(function (sum, d) { return sum + d.words(); }, 0);
  document.body.dataset.ready = drawings.every(function (d) { return d.isSeen(); }) ? "1" : "0";
})();
