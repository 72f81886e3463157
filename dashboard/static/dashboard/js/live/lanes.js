// One lane for each slot and one for the queue, over the range that the page shows; the same frames as the strip, drawn as SVG.
// Only the lanes in sight are drawn, and drawing takes a tenth of the time at most.
import { attr, el, mark, rebuild, set, show, slotName } from "./dom.js";
import { Brush } from "./lanebrush.js";
import { depthPath, paths, rowHeight } from "./laneshapes.js";
import { Paths } from "./paths.js";
import { clock, spanWords, ticks, words } from "./range.js";
import { bySlot, segments } from "./segments.js";
import { bandWords } from "./stripmodel.js";
import { missing } from "./words.js";

const MOST_HIGH = 480;
const QUEUE_HIGH = 20;
const LETTER = 5.6;
const SHARE = 10;

export class Lanes {
  // `source()` gives {track, tasks, slots, marks, runs, gaps, openUntil, state, note} of what the page shows.
  constructor(page, view, source, openStall) {
    this.section = page.querySelector("[data-lanes]");
    this.view = view;
    this.source = source;
    this.part = (name) => this.section.querySelector(`[data-l-${name}]`);
    this.plot = this.part("plot");
    this.drawn = new Paths(this.part("segments"));
    this.queue = new Paths(this.part("queue"));
    this.cost = 0;
    this.next = 0;
    this.brush = new Brush(this, openStall);
    this.scroll = this.part("scroll");
    this.top = 0;
    this.scroll.style.maxHeight = `${MOST_HIGH}px`;
    this.scroll.addEventListener("scroll", () => {
      this.top = this.scroll.scrollTop;
      requestAnimationFrame(() => this.draw());
    }, { passive: true });
    this.wide = 0;
    // Sizes are read only when they change: reading them while the page is being written would lay it out anew each time.
    const measured = new ResizeObserver(() => this.#measure());
    for (const node of [this.part("queue"), this.scroll]) measured.observe(node);
  }

  #measure() {
    const [wide, bar] = [this.part("queue").clientWidth, this.scroll.offsetWidth - this.scroll.clientWidth];
    if (wide === this.wide && bar === this.bar) return;
    [this.wide, this.bar] = [wide, bar];
    this.section.style.setProperty("--bar", `${bar}px`);
    this.draw();
  }

  // Redraws unless the last drawing was so dear that this one would take more than its share.
  tick() {
    if (performance.now() >= this.next && !this.brush.holds) this.draw();
  }

  draw() {
    const began = performance.now();
    if (!this.#any()) return;
    [this.from, this.to] = this.view.ends();
    if (this.wide <= 1) return;
    this.x = (t) => ((t - this.from) / (this.to - this.from)) * this.wide;
    this.#segments();
    this.#queue();
    this.#around();
    this.brush.draw();
    this.cost = performance.now() - began;
    this.plot.dataset.ms = this.cost.toFixed(1);
    this.next = began + this.cost * SHARE;
  }

  #any() {
    const data = this.source();
    this.data = data;
    const ids = data.slots.map((slot) => slot.id);
    const any = ids.length > 0;
    show(this.plot, any);
    show(this.part("controls"), any);
    show(this.part("says"), any);
    const none = this.part("none");
    const why = any ? data.note : missing(data.state, "slots") || "One lane for each slot appears here once the server tells of its slots.";
    show(none, Boolean(why));
    set(none, why || "");
    this.ids = ids;
    return any;
  }

  #segments() {
    const { data, ids } = this;
    this.tasks = bySlot(data.tasks, data.slots, data.openUntil);
    this.row = rowHeight(ids.length);
    const total = ids.length * this.row;
    const high = Math.min(total, MOST_HIGH);
    const inner = this.part("inner");
    if (inner.style.height !== `${total}px`) inner.style.height = `${total}px`;
    this.scroll.classList.toggle("long", total > MOST_HIGH);
    if (this.part("window").style.height !== `${high}px`) this.part("window").style.height = `${high}px`;
    const { top } = this;
    this.first = Math.floor(top / this.row);
    const last = Math.min(ids.length, Math.ceil((top + high) / this.row));
    this.shown = ids.slice(this.first, last).map((slot) => ({ slot, segments: segments(data.track, this.tasks.get(slot) ?? [], slot, this.from, this.to) }));
    this.offset = top - this.first * this.row;
    const svg = this.part("segments");
    attr(svg, "viewBox", `0 0 ${this.wide} ${high}`);
    const drawn = paths(this.shown, this.x, this.wide, this.row, this.offset);
    drawn.set("grid", { attributes: { class: "grid" }, d: this.shown.map((_, at) => `M0 ${(at + 1) * this.row - this.offset - 0.5}H${this.wide}`).join("") });
    this.drawn.write(drawn);
    rebuild(this.part("names"), `${this.first}/${this.shown.length}/${this.row}`, () => this.shown.map(({ slot }, at) => this.#name(slot, at)));
    this.part("names").style.transform = `translateY(${-this.offset}px)`;
  }

  #name(slot, at) {
    const node = el("div", `lane-n${this.row < 16 ? " tight" : ""}`, slotName(slot));
    node.style.top = `${at * this.row}px`;
    node.style.height = `${this.row}px`;
    return node;
  }

  #queue() {
    attr(this.part("queue"), "viewBox", `0 0 ${this.wide} ${QUEUE_HIGH}`);
    const { area, line, most } = depthPath(this.data.track.queue, this.from, this.to, this.x, QUEUE_HIGH - 2);
    this.queue.write(new Map([
      ["area", { d: area, attributes: { class: "q-area crisp" } }],
      ["line", { d: line, attributes: { class: "que" } }],
      ["base", { d: `M0 ${QUEUE_HIGH - 1}H${this.wide}`, attributes: { class: "grid" } }],
    ]));
    set(this.part("depth"), most ? String(most) : "");
  }

  #around() {
    const { view, data } = this;
    const { range } = view;
    set(this.part("span"), range.live ? `${words(range)}, ${clock(this.from)} to ${clock(this.to)}` : `${words(range)}, ${spanWords(this.to - this.from)}`);
    rebuild(this.part("ticks"), JSON.stringify([range.live ? range.span : [this.from, this.to], this.wide > 500]), () => this.#ticks(range.live));
    this.#phases();
    this.#marks(data.marks ?? []);
    this.#runs(data.runs ?? []);
    this.#gaps(data.gaps ?? []);
    attr(this.plot, "aria-label", `What each of ${this.ids.length} slots did, ${words(range)}. Arrow keys go through segments and lanes, Enter opens a wait, Shift with arrows selects a time, plus and minus zoom.`);
  }

  share(t) {
    return `${(((t - this.from) / (this.to - this.from)) * 100).toFixed(3)}%`;
  }

  #place(node, from, to) {
    const [a, b] = [Math.max(from, this.from), Math.min(to, this.to)];
    node.style.left = this.share(a);
    node.style.width = `${(((b - a) / (this.to - this.from)) * 100).toFixed(3)}%`;
    return node;
  }

  #ticks(live) {
    const list = ticks(this.from, this.to, live, this.wide > 500 ? 6 : 3);
    return list.map(({ share, text }) => {
      const node = el("i", share > 0.97 ? "last" : share < 0.03 ? "first" : "", text);
      node.style.left = `${(share * 100).toFixed(2)}%`;
      return node;
    });
  }

  #phases() {
    const inside = this.data.track.phases.filter((phase) => phase.b > this.from && phase.a < this.to);
    const apart = inside.some(({ phase, cohort }) => cohort !== null || phase === "pp" || phase === "tg");
    // Merged iterations tell of no phase: a row that is mostly empty would say less than none.
    const told = inside.reduce((sum, phase) => sum + Math.min(phase.b, this.to) - Math.max(phase.a, this.from), 0);
    const known = this.data.track.known.reduce((sum, [a, b]) => sum + Math.max(Math.min(b, this.to) - Math.max(a, this.from), 0), 0);
    const shows = apart && told > known / 4;
    show(this.part("phase-row"), shows);
    if (!shows) return;
    const shown = inside.filter(({ phase }) => phase !== "idle");
    rebuild(this.part("phases"), `${this.from.toFixed(2)} ${this.to.toFixed(2)} ${shown.length} ${shown.at(-1)?.b}`, () => shown.map((phase) => {
      const said = bandWords(phase);
      const room = this.x(Math.min(phase.b, this.to)) - this.x(Math.max(phase.a, this.from));
      const node = el("span", `ph ${phase.phase === "continuous" ? "no" : phase.phase}`, said.find((text) => text.length * LETTER + 10 < room) ?? "");
      node.title = `${said[0]}, ${clock(phase.a, true)} to ${clock(phase.b, true)}`;
      return this.#place(node, phase.a, phase.b);
    }));
  }

  #marks(marks) {
    const inside = marks.filter(({ t }) => t >= this.from && t <= this.to);
    show(this.part("mark-row"), inside.length > 0);
    let free = this.wide;
    rebuild(this.part("flags"), `${this.from.toFixed(2)} ${this.to.toFixed(2)} ${this.wide} ${JSON.stringify(inside)}`, () => inside.reverse().map((one) => {
      const text = one.by ? `${one.text}, ${one.by}` : one.text;
      const [x, long] = [this.x(one.t), text.length * LETTER + 24];
      const flip = x + long > free && x - long > 0;
      const fits = flip ? x < free : x + long <= free;
      if (fits) free = flip ? x - long : x;
      const node = el("span", `flag${flip ? " flip" : ""}${one.kind === "restart" ? " thin" : ""}`, el("span", "", mark("pol"), fits ? text : ""));
      node.title = `${clock(one.t, true)}: ${text}`;
      node.style.left = this.share(one.t);
      return node;
    }));
  }

  #runs(runs) {
    const inside = runs.filter((run) => run.from < this.to && (run.to ?? Infinity) > this.from);
    show(this.part("run-row"), inside.length > 0);
    const key = `${this.from.toFixed(1)} ${this.to.toFixed(1)} ${this.wide} ${JSON.stringify(inside)}`;
    rebuild(this.part("run-names"), inside.map((run) => run.id).join(), () => inside.slice(-1).map((run) => {
      const link = el("a", "link", `run ${run.id}`);
      link.href = run.url;
      return link;
    }));
    const blocks = inside.flatMap((run) => (run.blocks?.length ? run.blocks : [{ text: `run ${run.id}`, arm: "", from: run.from, to: run.to }])).filter((block) => block.from < this.to && (block.to ?? Infinity) > this.from);
    rebuild(this.part("runs"), key, () => blocks.map((block) => {
      const node = el("span", `blk${block.arm === "B" ? " b2" : ""}`);
      this.#place(node, block.from, block.to ?? this.to);
      const room = this.x(Math.min(block.to ?? this.to, this.to)) - this.x(Math.max(block.from, this.from));
      if (block.text.length * LETTER + 10 < room) node.textContent = block.text;
      node.title = block.text;
      return node;
    }));
    rebuild(this.part("regions"), key, () => blocks.filter((block) => block.arm === "B").map((block) => this.#place(el("span", "reg"), block.from, block.to ?? this.to)));
  }

  #gaps(gaps) {
    const inside = gaps.filter(([from, to]) => to > this.from && from < this.to && to - from > (this.to - this.from) / 400);
    rebuild(this.part("gaps"), `${this.from.toFixed(1)} ${this.to.toFixed(1)} ${JSON.stringify(inside)}`, () => inside.map(([from, to, why]) => {
      const node = this.#place(el("span", "gap-r"), from, to);
      node.title = why;
      return node;
    }));
  }
}
