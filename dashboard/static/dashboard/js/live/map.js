// The last 15 minutes as a small area of tokens a second, with the shown range as a window to drag, stretch or move by keys.
import { fetchJson } from "./history.js";
import { attr, el, rebuild, set, show } from "./dom.js";
import { KEPT_S, clock, ends, fixed, moved, words } from "./range.js";
import { endOf } from "./track.js";

const BIN_S = 5;
const WIDE = 1080;
const HIGH = 28;
const EDGE_PX = 8;
const LEAST_PX = 3;

// Tokens a second in bins of 5 s, from iterations taken once each.
export class Load {
  constructor() {
    this.bins = new Map();
    this.last = null;
  }

  add(iterations) {
    for (const it of iterations) {
      if (this.last !== null && it.i <= this.last) continue;
      this.last = it.i_to ?? it.i;
      let tokens = 0;
      for (const [, n] of it.prompt) tokens += n;
      for (const [, n] of it.gen) tokens += n;
      const [start, end] = [it.t, Math.max(endOf(it), it.t + 1e-6)];
      for (let bin = Math.floor(start / BIN_S); bin * BIN_S < end; bin++) {
        const share = (Math.min(end, (bin + 1) * BIN_S) - Math.max(start, bin * BIN_S)) / (end - start);
        this.bins.set(bin, (this.bins.get(bin) ?? 0) + (tokens * share) / BIN_S);
      }
    }
  }

  forget(before) {
    for (const bin of this.bins.keys()) if ((bin + 1) * BIN_S < before) this.bins.delete(bin);
  }

  // Path data of an area over from..to and its highest value.
  area(from, to) {
    const points = [];
    for (let bin = Math.floor(from / BIN_S); bin * BIN_S < to; bin++) points.push([bin * BIN_S, this.bins.get(bin) ?? 0]);
    const top = Math.max(0, ...points.map(([, v]) => v));
    const x = (t) => (((Math.min(Math.max(t, from), to) - from) / (to - from)) * WIDE).toFixed(1);
    const y = (v) => (HIGH - (v / (top || 1)) * (HIGH - 2)).toFixed(1);
    const d = points.map(([t, v]) => `H${x(t)}V${y(v)}`).join("");
    return { d: top ? `M0 ${HIGH}${d}H${WIDE}V${HIGH}z` : "", top };
  }
}

export class Map15 {
  constructor(page, api, view) {
    this.node = page.querySelector("[data-map]");
    this.view = view;
    this.api = api;
    this.load = new Load();
    this.part = (name) => this.node.querySelector(`[data-o-${name}]`);
    this.window = this.part("window");
    const area = this.part("area");
    area.addEventListener("pointerdown", (event) => this.#down(event));
    area.addEventListener("pointermove", (event) => this.#move(event));
    area.addEventListener("pointerup", () => this.#up());
    area.addEventListener("pointercancel", () => { this.drag = null; });
    this.window.addEventListener("keydown", (event) => this.#key(event));
  }

  // Once, after the page has drawn: what the console has kept. Without it the map begins with what comes in.
  async fill(now) {
    this.asked = true;
    try {
      const detail = await fetchJson(`${this.api}detail?from=${(now - KEPT_S).toFixed(3)}&to=${now.toFixed(3)}`);
      const live = this.load;
      this.load = new Load();
      this.load.add(detail.iterations);
      for (const [bin, v] of live.bins) if (!this.load.bins.has(bin)) this.load.bins.set(bin, v);
      this.load.last = Math.max(this.load.last ?? 0, live.last ?? 0) || null;
      this.oldest = detail.oldest;
    } catch {
      this.oldest = null;
    }
    this.drawn = 0;
  }

  see(state) {
    if (state.info?.started_at !== this.started) this.load.last = null;
    this.started = state.info?.started_at;
    this.load.add(state.iterations ?? []);
  }

  draw(now) {
    const any = this.load.bins.size > 0;
    show(this.node, any);
    if (!any) return;
    this.to = Math.max(now, this.view.live ? 0 : this.view.range.to);
    this.from = this.to - KEPT_S;
    if (performance.now() - (this.drawn || -Infinity) > 2000) {
      this.drawn = performance.now();
      this.load.forget(this.from);
      const { d, top } = this.load.area(this.from, this.to);
      attr(this.part("path"), "d", d);
      set(this.part("top"), top >= 10_000 ? `${Math.round(top / 1000)}k` : String(Math.round(top)));
      rebuild(this.part("ticks"), String(Math.floor(this.to / 10)), () => [0, 1, 2, 3].map((part) => {
        const node = el("i", part === 0 ? "first" : part === 3 ? "last" : "", clock(this.from + (KEPT_S * part) / 3).slice(0, 5));
        node.style.left = `${(part / 3) * 100}%`;
        return node;
      }));
    }
    this.#place();
  }

  #place() {
    const [from, to] = this.drag?.range ?? ends(this.view.range, this.to);
    const share = (t) => Math.min(Math.max((t - this.from) / KEPT_S, 0), 1);
    const inside = to > this.from;
    show(this.window, inside);
    this.window.style.left = `${(share(from) * 100).toFixed(2)}%`;
    this.window.style.width = `max(${LEAST_PX}px, ${((share(to) - share(from)) * 100).toFixed(2)}%)`;
    attr(this.window, "aria-valuenow", Math.round(to - this.to));
    attr(this.window, "aria-valuetext", words(this.view.range));
  }

  #time(event) {
    const box = this.part("area").getBoundingClientRect();
    return this.from + ((event.clientX - box.left) / box.width) * KEPT_S;
  }

  #down(event) {
    if (event.button !== 0) return;
    const box = this.window.getBoundingClientRect();
    const [from, to] = ends(this.view.range, this.to);
    const t = this.#time(event);
    const near = (x) => Math.abs(event.clientX - x) <= EDGE_PX;
    const wide = box.width > 4 * EDGE_PX;
    const what = !this.window.hidden && near(box.left) && (wide || event.clientX < box.left) ? "from" : !this.window.hidden && near(box.right) && (wide || event.clientX > box.right) ? "to" : "both";
    const inside = t >= from && t <= to;
    const start = what === "both" && !inside ? [t - (to - from) / 2, t + (to - from) / 2] : [from, to];
    this.drag = { what, t, start, range: start, moved: !inside && what === "both" };
    this.part("area").setPointerCapture(event.pointerId);
    this.#place();
  }

  #move(event) {
    if (!this.drag) return;
    const { what, t, start } = this.drag;
    const by = Math.min(this.#time(event) - t, what === "from" ? Infinity : this.to - start[1]);
    if (Math.abs(by) * (this.part("area").clientWidth / KEPT_S) > 2) this.drag.moved = true;
    const from = what === "to" ? start[0] : start[0] + by;
    const to = what === "from" ? start[1] : start[1] + by;
    this.drag.range = from < to ? [from, to] : [to, from];
    this.#place();
  }

  #up() {
    const { drag } = this;
    this.drag = null;
    if (drag?.moved) this.view.select(drag.range[0], Math.min(drag.range[1], this.to));
    else this.#place();
  }

  #key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1 }[event.key];
    const { view } = this;
    let next = null;
    if (by && event.shiftKey) {
      const [from, to] = ends(view.range, this.to);
      next = fixed(from - (by * (to - from)) / 5, to);
    } else if (by) next = moved(view.range, by / 4, this.to);
    else if (event.key === "PageUp" || event.key === "PageDown") next = moved(view.range, event.key === "PageUp" ? 1 : -1, this.to);
    else if (event.key === "End") next = { live: true, span: view.span ?? 60 };
    else if (event.key === "Home") next = fixed(this.from, this.from + (ends(view.range, this.to)[1] - ends(view.range, this.to)[0]));
    if (!next) return;
    event.preventDefault();
    view.show(next, { push: view.live });
  }
}
