/*
 * The load page: sends the requests from here, so that the numbers can be watched as they rise.
 *
 * Without it the form does the same on the server.
 */
(() => {
  "use strict";

  const AT_A_TIME = 5;
  const headers = { Accept: "application/json" };
  const form = document.getElementById("fire");
  const button = form.querySelector("button");
  const shown = new Map();
  for (const cell of document.querySelectorAll("[data-status]")) shown.set(cell.dataset.status, cell);

  async function ask(left, counts) {
    while (left.count > 0) {
      left.count -= 1;
      const { status } = await fetch(form.dataset.work, { cache: "no-store", headers });
      counts.set(String(status), (counts.get(String(status)) ?? 0) + 1);
      for (const [name, cell] of shown) cell.textContent = counts.get(name) ?? 0;
    }
  }

  // The rest of the page stays as it is, and so does the focus.
  async function lookAgain() {
    const reply = await fetch(location.pathname, { cache: "no-store" });
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    document.getElementById("numbers").replaceWith(page.getElementById("numbers"));
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    const left = { count: Number(form.dataset.count) };
    const counts = new Map();
    try {
      await Promise.all(Array.from({ length: AT_A_TIME }, () => ask(left, counts)));
      await lookAgain();
    } catch {
      // The demo has ended; what was counted stays.
    }
    button.disabled = false;
    button.focus();
  });
})();
