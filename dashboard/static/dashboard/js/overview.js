// The overview is polled by htmx; here is only its pause and the age of what it shows.
import { duration } from "./frame/format.js";
import { paused } from "./frame/polls.js";

const LATE_S = 6;
const node = document.querySelector("[data-overview-live]");
const words = node.querySelector(".w");
const button = document.querySelector("[data-pause]");
let seen = performance.now();
let failed = false;

function tell() {
  const age = (performance.now() - seen) / 1000;
  const text = paused.value ? `Paused ${duration(age)} ago` : failed || age > LATE_S ? `Not answering, as of ${duration(age)} ago` : "Live";
  if (words.textContent !== text) words.textContent = text;
  node.classList.toggle("on", !paused.value && !failed);
  node.classList.toggle("off", failed);
}

function pause() {
  paused.value = !paused.value;
  button.setAttribute("aria-pressed", String(paused.value));
  button.querySelector("use").setAttribute("href", paused.value ? "#i-play" : "#i-pause");
  button.querySelector("span").textContent = paused.value ? "Go on" : "Pause";
  tell();
}

document.body.addEventListener("htmx:afterRequest", (event) => {
  if (event.target.id !== "overview") return;
  failed = !event.detail.successful;
  if (!failed) seen = performance.now();
  tell();
});
button.addEventListener("click", pause);
document.addEventListener("keydown", (event) => {
  if (event.key === "p" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, textarea, select, dialog")) pause();
});
setInterval(() => { if (!document.hidden) tell(); }, 1000);
tell();
