(() => {
"use strict";
const body = document.body, news = document.getElementById("news");
new EventSource(body.dataset.events).onmessage = (event) => {
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
