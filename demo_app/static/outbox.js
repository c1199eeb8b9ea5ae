/*
 * The outbox: copies codes and links, and tells of messages that came after the page.
 *
 * It tells and waits for a press rather than showing them: nothing moves while somebody reads.
 */
(() => {
  "use strict";

  const EVERY_MS = 2000;
  const COPIED_MS = 2000;
  const news = document.querySelector("[data-newest]");
  const title = document.title;
  let told = 0;

  async function look() {
    if (document.hidden) return;
    const reply = await fetch(news.dataset.list);
    if (!reply.ok) return;
    const messages = await reply.json();
    // ISO 8601 in UTC, always of one length: the order of the texts is that of the times.
    tell(messages.filter((message) => message.sent_at > news.dataset.newest).length);
  }

  function tell(count) {
    if (count === told) return;
    told = count;
    const text = `${count} new message${count === 1 ? "" : "s"}`;
    const show = document.createElement("a");
    show.href = location.pathname;
    show.textContent = count === 1 ? "Show it" : "Show them";
    news.replaceChildren(`${text}. `, show);
    document.title = `(${count}) ${title}`;
  }

  async function lookAgain() {
    try {
      await look();
    } catch {
      // The demo has ended, or is busy; the page stays as it is.
    }
    setTimeout(lookAgain, EVERY_MS);
  }

  // Browsers offer it on https and on this machine alone; without it the text can be selected.
  for (const button of navigator.clipboard ? document.querySelectorAll("[data-copy]") : []) {
    const [word] = button.childNodes;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        word.data = "Copied";
      } catch { // the person has said no
        word.data = "Not allowed";
      }
      setTimeout(() => { word.data = "Copy"; }, COPIED_MS);
    });
  }

  setTimeout(lookAgain, EVERY_MS);
})();
