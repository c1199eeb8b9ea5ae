/*
 * Counts down to the moment a refused request may be tried again, and then lets it be tried.
 *
 * The page says how long in data-retry-after (whole seconds). The end is fixed once, on the
 * monotonic clock, so that neither a throttled tab nor a changed wall clock moves it. The wait
 * is kept by the server: this script only saves a person from asking too early.
 */
(() => {
  "use strict";

  const notice = document.querySelector("[data-retry-after]");
  const seconds = Number(notice?.dataset.retryAfter);
  if (!(seconds > 0)) return;

  const end = performance.now() + seconds * 1000;
  const clock = notice.querySelector("[data-clock]");
  const bar = notice.querySelector("[data-bar]");
  const announcer = document.querySelector("[data-announce]");
  const submit = document.querySelector("main form [type=submit]");
  const identifier = document.querySelector("main form [name=identifier]");
  const refused = identifier?.value;

  // Seconds left at which a screen reader is told; every second would be a torment.
  const STEPS = [10, 30, 60, 120, 300, 600, 900, 1800, 3600];
  const stepAt = (left) => STEPS.find((step) => left <= step) ?? Infinity;
  let step = stepAt(seconds);
  let timer;

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

  function show(left) {
    const over = left === 0;
    clock.textContent = digits(left);
    bar.value = left;
    for (const part of notice.querySelectorAll("[data-while]")) {
      part.hidden = (part.dataset.while === "over") !== over;
    }
    if (over) {
      notice.dataset.tone = "over";
      document.title = document.title.replace(/^Wait: /, "");
    }
    // Another account may well be admitted: its limits are its own.
    if (submit) submit.disabled = !over && identifier?.value === refused;
  }

  function announce(left) {
    if (left > 0 && stepAt(left) >= step) return;
    step = stepAt(left);
    announcer.textContent = left > 0
      ? notice.dataset.say.replace("{time}", words(left))
      : notice.querySelector("[data-while=over]").textContent;
  }

  function tick() {
    clearTimeout(timer);
    const leftMs = Math.max(0, end - performance.now());
    const left = Math.ceil(leftMs / 1000);
    show(left);
    announce(left);
    if (left > 0) timer = setTimeout(tick, leftMs % 1000 || 1000);
  }

  notice.querySelector("[data-still]").hidden = true;
  tick();
  identifier?.addEventListener("input", tick);
  addEventListener("pageshow", tick); // also when Back brings the page out of the cache
  document.addEventListener("visibilitychange", tick); // timers sleep in hidden tabs
})();
