/*
 * Counts down to the moment a refused request may be tried again, and then lets it be tried.
 *
 * An element says how long in data-retry-after (whole seconds); a page may have several. Each
 * holds back the form it stands in, or else the page's first one. The end is fixed once, on the
 * monotonic clock, so that neither a throttled tab nor a changed wall clock moves it. The wait
 * is kept by the server: this script only saves a person from asking too early.
 */
(() => {
  "use strict";

  // Seconds left at which a screen reader is told; every second would be a torment.
  const STEPS = [10, 30, 60, 120, 300, 600, 900, 1800, 3600];
  const stepAt = (left) => STEPS.find((step) => left <= step) ?? Infinity;

  const pad = (number) => String(number).padStart(2, "0");

  function digits(left) {
    const hours = Math.floor(left / 3600);
    const minutes = Math.floor(left / 60) % 60;
    return hours ? `${hours}:${pad(minutes)}:${pad(left % 60)}` : `${minutes}:${pad(left % 60)}`;
  }

  function words(left) {
    const [size, unit] = left < 60 ? [1, "second"] : left < 3600 ? [60, "minute"] : [3600, "hour"];
    const format = { style: "unit", unit, unitDisplay: "long" };
    return Math.ceil(left / size).toLocaleString(document.documentElement.lang, format);
  }

  // Whom a form asks for. Another account may well be admitted, or the same one on another
  // channel: their limits are their own.
  function asked(form) {
    const fields = new FormData(form);
    return `${fields.get("identifier")} ${fields.get("channel")}`;
  }

  function countdown(root) {
    const seconds = Number(root.dataset.retryAfter);
    if (!(seconds > 0)) return;

    const end = performance.now() + seconds * 1000;
    const bar = root.querySelector("[data-bar]");
    const announcer = root.nextElementSibling?.closest("[data-announce]");
    const form = root.closest("form") ?? document.querySelector("main form");
    const submit = form?.querySelector("[type=submit]");
    const refused = form && asked(form);
    let step = stepAt(seconds);
    let timer;

    function show(left) {
      const over = left === 0;
      root.querySelector("[data-clock]").textContent = digits(left);
      if (bar) bar.value = left;
      for (const part of root.querySelectorAll("[data-while]")) {
        part.hidden = (part.dataset.while === "over") !== over;
      }
      if (over && root.dataset.tone) { // the notice, whose wait the title tells too
        root.dataset.tone = "over";
        document.title = document.title.replace(/^Wait: /, "");
      }
      if (submit) submit.disabled = !over && asked(form) === refused;
    }

    function announce(left) {
      if (!announcer || (left > 0 && stepAt(left) >= step)) return;
      step = stepAt(left);
      announcer.textContent = left > 0
        ? root.dataset.say.replace("{time}", words(left))
        : root.querySelector("[data-while=over]").textContent;
    }

    function tick() {
      clearTimeout(timer);
      const leftMs = Math.max(0, end - performance.now());
      const left = Math.ceil(leftMs / 1000);
      show(left);
      announce(left);
      if (left > 0) timer = setTimeout(tick, leftMs % 1000 || 1000);
    }

    root.querySelector("[data-still]").hidden = true;
    tick();
    form?.addEventListener("input", tick);
    addEventListener("pageshow", tick); // also when Back brings the page out of the cache
    document.addEventListener("visibilitychange", tick); // timers sleep in hidden tabs
  }

  document.querySelectorAll("[data-retry-after]").forEach(countdown);
})();
