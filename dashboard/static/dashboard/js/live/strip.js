// The batch strip: the last iterations as SVG (Plotly.react takes longer than a frame has, see docs/adr/0012), words over it in HTML.
import { grouped } from "../frame/format.js";
import { attr, el, mark, rebuild, set, show, slotName, svg } from "./dom.js";
import { Readout } from "./readout.js";
import { Paths } from "./paths.js";
import { endOf } from "./track.js";
import * as model from "./stripmodel.js";
import { missing } from "./words.js";

const PHONE = matchMedia("(max-width: 720px)");
const PHONE_COLUMNS = 65;
const HIGH = 88;
const ROW_HIGH = 8;
const MOST_RASTER = 256;
const NAMED_SLOTS = 8;
const LETTER = 5.6; // of the axis type, on average

const box = (x, y, w, h) => `M${x.toFixed(2)} ${y.toFixed(2)}h${w.toFixed(2)}v${h.toFixed(2)}H${x.toFixed(2)}z`;
const percent = (x) => `${((x / model.WIDTH) * 100).toFixed(3)}%`;

function add(drawn, name, attributes, d) {
  const entry = drawn.get(name);
  if (entry) entry.d += d;
  else drawn.set(name, { d, attributes });
}

export class Strip {
  constructor(page, plotly) {
    this.section = page.querySelector("[data-batches]");
    this.plotly = plotly;
    this.part = (name) => this.section.querySelector(`[data-${name}]`);
    this.height = "tokens";
    this.width = "iteration";
    this.bars = new Paths(this.part("bars"), [svg("path", { class: "grid", d: `M0 0h${model.WIDTH}M0 ${HIGH / 2}h${model.WIDTH}` }), svg("path", { class: "base", d: `M0 ${HIGH}h${model.WIDTH}` })]);
    this.raster = new Paths(this.part("raster"));
    this.readout = new Readout(this);
    for (const seg of this.section.querySelectorAll("[data-seg]")) seg.addEventListener("click", (event) => this.#choose(seg, event.target.closest("button")));
    this.part("open-chart").addEventListener("click", () => this.#chart());
    PHONE.addEventListener("change", () => this.draw(this.state));
  }

  draw(state) {
    this.state = state;
    const why = missing(state, "iterations");
    const kept = PHONE.matches ? PHONE_COLUMNS : model.COLUMNS;
    this.iterations = (state.iterations ?? []).slice(-kept);
    const any = this.iterations.length > 0;
    const none = this.part("none");
    show(none, !any);
    if (!any) set(none, why || (state.past ? "No batch ran in this time." : "The last 120 iterations appear here with the first request."));
    show(this.part("strip"), any);
    show(this.part("controls"), any);
    show(this.part("readout"), any);
    set(this.part("span"), "");
    if (!any) return;
    this.columns = model.columns(this.iterations, this.width, kept);
    this.top = model.scaleTop(this.iterations, state.info.n_batch, this.height);
    this.#bars();
    this.#raster(state.slots.length);
    this.#words(state);
    this.readout.draw();
  }

  #gap() {
    return this.columns[0].w > 3 && this.width === "iteration" ? 1 : 0;
  }

  #bars() {
    const drawn = new Map();
    const gap = this.#gap();
    for (const { slot, at, from, tokens } of model.stacks(this.iterations)) {
      const { x, w } = this.columns[at];
      const high = Math.max((tokens / this.top) * HIGH, 0.8);
      const hue = slot % 8;
      const attributes = slot >= 8 ? { class: "crisp", fill: `url(#x${hue})` } : { class: `s${hue} solid crisp` };
      add(drawn, slot >= 8 ? `x${hue}` : `s${hue}`, attributes, box(x + gap / 2, HIGH - (from / this.top) * HIGH - high, Math.max(w - gap, 0.6), high));
    }
    this.bars.write(drawn);
  }

  #raster(slots) {
    const row = Math.max(1, Math.min(ROW_HIGH, Math.floor(MOST_RASTER / Math.max(slots, 1))));
    const pad = row >= 6 ? 1 : row >= 3 ? 0.5 : 0;
    const gap = row >= 4 ? this.#gap() : 0;
    const high = Math.max(row * slots, ROW_HIGH);
    attr(this.part("raster"), "viewBox", `0 0 ${model.WIDTH} ${high}`);
    this.part("raster").closest(".prow").style.height = `${high}px`;
    const drawn = new Map();
    for (const run of model.runs(this.iterations)) {
      const y = run.slot * row;
      const [a, b] = [this.columns[run.from], this.columns[run.to]];
      const hue = run.slot % 8;
      if (run.kind === "wait") add(drawn, "wait", { class: "idle" }, box(a.x + gap / 2, y + row / 2 - 0.5, b.x + b.w - a.x - gap, 1));
      else if (run.kind === "held") add(drawn, `h${hue}`, { fill: `url(#h${hue})` }, box(a.x + gap / 2, y + pad, b.x + b.w - a.x - gap, row - 2 * pad));
      else {
        const apart = gap && b.w > 3 ? this.columns.slice(run.from, run.to + 1) : [{ x: a.x, w: b.x + b.w - a.x }];
        for (const { x, w } of apart) add(drawn, `g${hue}`, { class: `s${hue} soft crisp` }, box(x + gap / 2, y + pad, Math.max(w - gap, 0.6), row - 2 * pad));
      }
    }
    this.raster.write(drawn);
  }

  #words(state) {
    const seconds = endOf(this.iterations.at(-1)) - this.iterations[0].t;
    const of = state.past && state.past.iterations > this.iterations.length ? ` of ${grouped(state.past.iterations)}` : "";
    const share = this.height === "share" && state.info.n_batch;
    set(this.part("span"), `last ${this.iterations.length}${of} iterations, ${seconds.toFixed(seconds < 10 ? 1 : 0)} s; height in ${share ? "% of n_batch" : "tokens"}`);
    for (const [name, part] of [["hi", 1], ["mid", 0.5]]) {
      const n = this.top * part;
      set(this.section.querySelector(`[data-y="${name}"]`), share ? `${Math.round((n / state.info.n_batch) * 100)} %` : grouped(n, Number.isInteger(n) ? 0 : 1));
    }
    const span = (from, to) => [this.columns[from].x, this.columns[to].x + this.columns[to].w];
    this.#band(span);
    this.#ticks();
    this.#flags();
    const ids = [...new Set(this.iterations.flatMap((it) => [...it.prompt, ...it.gen].map(([slot]) => slot)))].sort((a, b) => a - b);
    rebuild(this.part("legend"), ids.join(), () => (ids.length > NAMED_SLOTS ? [el("span", "", `${ids.length} slots, hatched from 8 on`)] : ids.map((id) => slotName(id))));
    attr(this.part("strip"), "aria-label", `Batches of iterations ${this.iterations[0].i} to ${this.iterations.at(-1).i}: prompt tokens stacked by slot, generating, held and waiting slots. Left and right arrow keys move the cursor.`);
  }

  #band(span) {
    const bands = model.bands(this.iterations);
    rebuild(this.part("band"), JSON.stringify([bands, this.width, this.columns[0].x]), () => bands.map((band) => {
      const [a, b] = span(band.from, band.to);
      const words = model.bandWords(band);
      const short = words.find((text) => text.length * LETTER + 10 < b - a) ?? "";
      const node = el("span", `ph ${band.phase === "continuous" || band.phase === "idle" ? "no" : band.phase}`, short);
      node.title = words[0];
      node.style.left = percent(a);
      node.style.width = percent(b - a);
      return node;
    }));
  }

  #ticks() {
    const named = model.ticks(this.iterations);
    rebuild(this.part("ticks"), JSON.stringify([named, this.width]), () => named.map(({ i, at }, index) => {
      const tick = el("i", index === named.length - 1 ? "last" : "", String(i));
      const { x, w } = this.columns[at];
      tick.style.left = index === named.length - 1 ? "100%" : percent(x + w / 2);
      return tick;
    }));
  }

  #flags() {
    const flags = model.flags(this.iterations, this.state.marks);
    const room = this.part("flags").clientWidth;
    rebuild(this.part("flags"), JSON.stringify([flags, this.width, room]), () => {
      const places = flags.map(({ at }) => ({ x: (this.columns[at].x / model.WIDTH) * room, flip: this.columns[at].x > model.WIDTH * 0.6 }));
      const worded = model.worded(flags, places, room, LETTER);
      return flags.map(({ at, text }, n) => {
        const node = el("span", `flag${places[n].flip ? " flip" : ""}`, el("span", "", mark("pol"), worded[n] ? text : ""));
        node.title = text;
        node.style.left = percent(this.columns[at].x);
        return node;
      });
    });
  }

  #choose(seg, button) {
    if (!button) return;
    this[seg.dataset.seg] = button.value;
    for (const other of seg.children) other.setAttribute("aria-pressed", String(other === button));
    this.draw(this.state);
  }

  async #chart() {
    const { openChart } = await import("./chart.js");
    openChart(this.plotly, this.state);
  }
}
