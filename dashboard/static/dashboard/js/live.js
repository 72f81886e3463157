// The live page of one server: the state in the page first, then the feed's.
import { Feed } from "./live/feed.js";
import { Clock } from "./live/state.js";
import { Status } from "./live/status.js";
import { Head } from "./live/head.js";
import { Figures } from "./live/figures.js";
import { Slots } from "./live/slots.js";
import { Strip } from "./live/strip.js";
import { Strips } from "./live/strips.js";
import { paused } from "./frame/polls.js";

const TICK_MS = 500;
const script = document.querySelector("[data-live-page]");
const page = document.querySelector("[data-page]");
const first = JSON.parse(document.getElementById("state").textContent);
const clock = new Clock();
const button = document.querySelector("[data-pause]");
const status = new Status(document.querySelector("[data-live]"), button);
const parts = first ? [new Head(page), new Figures(page), new Slots(page), new Strip(page, script.dataset.plotly), new Strips()] : [];
let pending = null;

function draw() {
  const state = pending;
  pending = null;
  const now = clock.now();
  for (const part of parts) {
    part.draw(state, now);
    part.tick?.(now);
  }
}

function told(state) {
  if (!first) return location.reload(); // the parts of the page are made by the server, from the first state it has
  clock.see(state.t);
  status.hear();
  if (pending === null) requestAnimationFrame(draw);
  pending = state;
}

const feed = new Feed(script.dataset.feed, { told, status: (kind, text) => status.tell(kind, text) });

function pause() {
  paused.value = !paused.value;
  status.paused(paused.value);
  feed.pause(paused.value);
}

button.addEventListener("click", pause);
document.addEventListener("keydown", (event) => {
  if (event.key === "p" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, textarea, select, dialog")) pause();
});
if (first) {
  clock.see(first.t);
  pending = first;
  draw();
}
setInterval(() => {
  status.tick();
  if (document.hidden || paused.value || !first) return;
  for (const part of parts) part.tick?.(clock.now());
}, TICK_MS);
feed.open();
