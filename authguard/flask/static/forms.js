/*
 * Small kindnesses of the forms: a double click sends once, a new password can be shown, and the
 * blanks that a code was copied with are not sent.
 *
 * A second request would be a second attempt, and its refusal would hide what the first one did.
 */
(() => {
  "use strict";

  const DOUBLE_CLICK_MS = 1000;
  const sentAt = new WeakMap();

  addEventListener("submit", (event) => {
    if (event.timeStamp - sentAt.get(event.target) < DOUBLE_CLICK_MS) event.preventDefault();
    else sentAt.set(event.target, event.timeStamp);
  });

  for (const code of document.querySelectorAll("[data-digits]")) {
    code.form.addEventListener("submit", () => {
      code.value = code.value.replace(/\s/g, "");
    });
  }

  for (const button of document.querySelectorAll("[data-reveal]")) {
    const field = document.getElementById(button.dataset.reveal);
    const show = (shown) => {
      field.type = shown ? "text" : "password";
      button.setAttribute("aria-pressed", String(shown));
    };
    button.hidden = false;
    button.addEventListener("click", () => show(field.type === "password"));
    // Sent as a password, so that browsers keep it as one and never as a text they suggest.
    field.form.addEventListener("submit", () => show(false));
  }
})();
