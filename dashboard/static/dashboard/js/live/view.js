// Which time the page shows, in its address: live over the last seconds, or a fixed range. Back and forward go through the ranges.
import { ends, fixed, moved, read, write, zoomed } from "./range.js";

const stallText = ({ slot, from, to }) => `${slot},${from.toFixed(3)},${to.toFixed(3)}`;

function stallOf(search) {
  const parts = (new URLSearchParams(search).get("stall") ?? "").split(",").map(Number);
  return parts.length === 3 && parts.every(Number.isFinite) && parts[2] > parts[1] ? { slot: parts[0], from: parts[1], to: parts[2] } : null;
}

export class View {
  // `now()` is the server's time; `changed()` is told after each change.
  constructor(now, changed) {
    this.now = now;
    this.changed = changed;
    this.range = read(location.search);
    this.stall = stallOf(location.search);
    this.span = this.range.live ? this.range.span : null; // of the last live range, to go back to
    this.paused = false; // by hand: then nothing comes in at all
    window.addEventListener("popstate", () => {
      this.range = read(location.search);
      this.stall = stallOf(location.search);
      if (this.range.live) this.#lives();
      this.changed();
    });
  }

  get live() {
    return this.range.live;
  }

  ends() {
    return ends(this.range, this.now());
  }

  address() {
    return write(this.range) + (this.stall ? `&stall=${stallText(this.stall)}` : "");
  }

  // The address of what is shown, to give to someone: a live range becomes the time it shows now.
  permalink() {
    const range = this.live ? fixed(...this.ends()) : this.range;
    return new URL(write(range) + (this.stall ? `&stall=${stallText(this.stall)}` : ""), location.href).href;
  }

  show(range, { push = true } = {}) {
    this.range = range;
    if (range.live) this.#lives();
    this.#write(push);
    this.changed();
  }

  select(from, to) {
    this.show(fixed(from, to));
  }

  goLive(span) {
    this.stall = null;
    this.show({ live: true, span: span ?? this.span ?? 60 });
  }

  hold() {
    if (!this.live) return this.goLive();
    this.paused = true;
    this.show(fixed(...this.ends()));
  }

  zoom(factor, at) {
    const [from, to] = this.ends();
    this.show(zoomed(this.range, factor, at ?? (from + to) / 2, this.now()), { push: this.live });
  }

  move(share) {
    this.show(moved(this.range, share, this.now()), { push: this.live });
  }

  #lives() {
    this.paused = false;
    this.span = this.range.span;
  }

  open(stall) {
    this.stall = stall;
    this.#write(true);
  }

  #write(push) {
    const address = this.address() + location.hash;
    if (push) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }
}
