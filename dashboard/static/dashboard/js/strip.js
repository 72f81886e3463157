// Pages of a server without live parts of their own: the strips above them stay true.
import { Feed } from "./live/feed.js";
import { Clock } from "./live/state.js";
import { Strips } from "./live/strips.js";

const script = document.querySelector("script[data-feed]");
const first = JSON.parse(document.getElementById("state").textContent);
if (first) {
  const clock = new Clock();
  const strips = new Strips();
  const told = (state) => {
    clock.see(state.t);
    strips.draw(state);
    strips.tick(clock.now());
  };
  told(first);
  new Feed(script.dataset.feed, { told, status: () => {} }).open();
  setInterval(() => strips.tick(clock.now()), 500);
}
