// Relative times stay true while a page is open.
import { duration } from "./format.js";

const EVERY_MS = 5000;

function refresh() {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[datetime]")) {
    if (!time.textContent.endsWith(" ago")) continue;
    const text = `${duration((Date.now() - Date.parse(time.dateTime)) / 1000)} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
}

export function ages() {
  setInterval(refresh, EVERY_MS);
}
