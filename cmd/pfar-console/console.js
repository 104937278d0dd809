(() => {
"use strict";
const body = document.body, news = document.getElementById("news");
for (const button of document.querySelectorAll("button[data-copy]")) {
  const text = document.getElementById(button.dataset.copy);
  button.hidden = false;
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch { // the browser does not allow it
      getSelection().selectAllChildren(text);
      button.textContent = "Selected: press Ctrl+C";
    }
  };
}
if (body.dataset.events) new EventSource(body.dataset.events).onmessage = (event) => {
  if (event.data === body.dataset.seen) { news.hidden = true; return; }
  const idle = (document.activeElement === null || document.activeElement === body) && getSelection().isCollapsed;
  if (body.dataset.reload && idle && !document.querySelector("details[open]")) {
    if (location.search === "?live") location.reload(); // the person stays where the page is scrolled to
    else location.replace(location.pathname + "?live");
    return;
  }
  news.hidden = false;
};
})();
