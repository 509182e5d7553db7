// Fetches the page's fragment again and again, and puts it in the place of the old one when it has changed.
(function () {
  "use strict";
  var live = document.getElementById("live"), state = document.getElementById("state"), hold = document.getElementById("hold");
  var tag = "", held = false, timer = 0, looks = 0;
  // What a hand is on stays under it: the element with the focus, and how far a drawing was scrolled.
  function place(text) {
    var focused = live.contains(document.activeElement) ? document.activeElement : null;
    var link = focused && focused.getAttribute("href"), kind = focused && focused.className;
    var scroll = live.querySelector(".scroll"), left = scroll ? scroll.scrollLeft : 0;
    live.innerHTML = text;
    scroll = live.querySelector(".scroll");
    if (scroll) scroll.scrollLeft = left;
    if (!focused) return;
    var again = null;
    if (link) again = Array.prototype.find.call(live.querySelectorAll("a"), function (a) { return a.getAttribute("href") === link; });
    else if (kind) again = live.getElementsByClassName(kind)[0];
    if (again) again.focus({ preventScroll: true });
  }
  function next(ms) { clearTimeout(timer); if (!held) timer = setTimeout(look, ms); }
  function look() {
    fetch("now", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" }).then(function (answer) {
      looks += 1;
      document.body.dataset.looks = looks;
      if (answer.headers.get("Vlab-Standing") === "ended") { location.reload(); return null; }
      state.textContent = "";
      if (answer.status === 304) { next(1000); return null; }
      if (!answer.ok) return answer.text().then(function (why) { throw new Error(why); });
      tag = answer.headers.get("ETag") || "";
      return answer.text().then(function (text) { place(text); next(1000); });
    }).catch(function (error) {
      state.textContent = "Not up to date: " + (error.message || "vlab does not answer") + ". Trying again.";
      next(3000);
    });
  }
  hold.onclick = function () {
    held = !held;
    hold.textContent = held ? "Follow" : "Pause";
    hold.setAttribute("aria-pressed", String(held));
    state.textContent = held ? "Paused." : "";
    next(0);
  };
  look();
  document.body.dataset.ready = "1";
})();
