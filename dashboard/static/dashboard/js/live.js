// The page of one server: the state in the page first, then the feed's; or a past range, from the console's detail.
import { Feed } from "./live/feed.js";
import { Clock, Skew } from "./live/state.js";
import { Status } from "./live/status.js";
import { Head } from "./live/head.js";
import { Board } from "./live/board.js";
import { Strips } from "./live/strips.js";
import { Units } from "./live/units.js";
import { ofNow } from "./live/words.js";
import { View } from "./live/view.js";
import { tabs } from "./live/tabs.js";
import { paused } from "./frame/polls.js";

const TICK_MS = 500;
const script = document.querySelector("[data-live-page]");
const page = document.querySelector("[data-page]");
const first = JSON.parse(document.getElementById("state").textContent);
const clock = new Clock();
const skew = new Skew();
const button = document.querySelector("[data-pause]");
const status = new Status(document.querySelector("[data-live]"), button);
// Times of slots, batches and tasks are the server's clock; of the time since the last frame nothing is known.
const serverNow = () => clock.now() - status.behind + skew.value;
const view = new View(serverNow, turned);
const always = first ? [new Head(page), new Strips(), new Units(page)] : []; // true of now, whatever range is shown
const board = first ? new Board(page, script.dataset, view, serverNow) : null;
let last = first;
let pending = false;
let old = false;

function drawAlways() {
  old = status.old;
  const state = ofNow(last, old);
  for (const part of always) {
    part.draw(state);
    part.tick?.(clock.now());
  }
}

function draw() {
  pending = false;
  drawAlways();
  board.draw();
}

function told(state) {
  if (!first) return location.reload(); // the parts of the page are made by the server, from the first state it has
  clock.see(state.t);
  skew.see(state);
  status.hear();
  board.see(state);
  last = state;
  if (!pending) requestAnimationFrame(draw);
  pending = true;
}

function heard(kind, text, age) {
  status.tell(kind, text, age);
  if (age !== undefined && last) clock.see(last.t + age);
  if (kind === "closed") board?.end();
}

const feed = new Feed(script.dataset.feed, { told, status: heard });

// The range or the pause has changed.
function turned() {
  paused.value = view.paused;
  status.range(view.range, view.paused);
  if (feed.paused !== view.paused) feed.pause(view.paused);
  board?.turn();
}

const plain = (event) => !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, textarea, select, dialog");
const KEYS = {
  p: () => view.hold(),
  l: () => view.goLive(),
  "[": () => view.move(-0.5),
  "]": () => view.move(0.5),
  "+": () => view.zoom(0.5),
  "-": () => view.zoom(2),
};

button.addEventListener("click", () => view.hold());
document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || !plain(event) || !first || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});
if (first) {
  tabs(page);
  clock.see(first.t);
  board.see(first);
  draw();
}
status.range(view.range, view.paused);
if (!view.live) board?.turn();
setInterval(() => {
  status.tick();
  if (document.hidden || !first) return;
  if (status.old !== old) drawAlways();
  else if (!view.paused) for (const part of always) part.tick?.(clock.now());
  board.tick();
}, TICK_MS);
feed.open();
