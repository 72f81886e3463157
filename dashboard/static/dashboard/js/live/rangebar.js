// The range in words and buttons: the lengths to follow live, and the bar above the page while a past range is shown.
import { duration } from "../frame/format.js";
import { set, show } from "./dom.js";
import { spanWords, words } from "./range.js";

export class RangeBar {
  constructor(page, view, now) {
    this.view = view;
    this.now = now;
    this.bar = document.querySelector("[data-past]");
    this.spans = page.querySelector("[data-spans]");
    this.spans.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) view.goLive(Number(button.value));
    });
    const acts = { earlier: () => view.move(-0.5), later: () => view.move(0.5), out: () => view.zoom(2), live: () => view.goLive() };
    this.bar.addEventListener("click", (event) => acts[event.target.closest("button")?.value]?.());
    this.draw();
  }

  draw() {
    const { range } = this.view;
    for (const button of this.spans.children) button.setAttribute("aria-pressed", String(range.live && Number(button.value) === range.span));
    show(this.bar, !range.live);
    if (range.live) return;
    set(this.bar.querySelector("[data-past-range]"), `${words(range)}, ${spanWords(range.to - range.from)}`);
    this.tick();
  }

  tick() {
    const { range } = this.view;
    if (range.live) return;
    const age = this.now() - range.to;
    const held = this.view.paused ? "Paused; nothing comes in." : "Slots, batches, lanes and fairness are of this time; health and policy are of now.";
    set(this.bar.querySelector("[data-past-age]"), `${age > 1 ? `It ended ${duration(age)} ago.` : "It ends now."} ${held}`);
  }
}
