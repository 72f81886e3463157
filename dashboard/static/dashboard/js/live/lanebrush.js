// Choosing in the lanes: point or step at a segment to read it, open a wait, drag or hold Shift to select a time and zoom into it.
import { duration, grouped } from "../frame/format.js";
import { attr, el, rebuild, show, slotName } from "./dom.js";
import { facts, headline, inQueue, lasted, queueWords, servedMeanwhile } from "./lanewords.js";
import { clock } from "./range.js";
import { isWait } from "./segments.js";

const DRAG_PX = 6;
const STEP = 0.05;
const NAMED = 4;
const NEAR_PX = 3;

export class Brush {
  constructor(lanes, openStall) {
    this.lanes = lanes;
    this.openStall = openStall;
    this.plot = lanes.part("plot");
    this.chosen = null; // {slot, t}; slot "queue" is the queue's lane
    this.pinned = false;
    this.selection = null; // {from, to} in the making
    this.pressed = null;
    for (const kind of ["pointermove", "pointerdown", "pointerup", "pointercancel", "pointerleave", "keydown"]) this.plot.addEventListener(kind, (event) => this[`_${kind}`](event));
    this.plot.addEventListener("blur", () => { if (!this.pressed) this.#select(null); });
  }

  // While something is being selected the lanes stand still.
  get holds() {
    return this.pressed !== null || this.selection !== null;
  }

  #at(event) {
    const area = this.lanes.part("segments").getBoundingClientRect();
    const { lanes } = this;
    const t = lanes.from + ((event.clientX - area.left) / area.width) * (lanes.to - lanes.from);
    const queue = this.lanes.part("queue").getBoundingClientRect();
    if (event.clientY >= queue.top && event.clientY <= queue.bottom) return { slot: "queue", t, inside: event.clientX >= area.left };
    const index = Math.floor((event.clientY - area.top + lanes.offset) / lanes.row);
    return { slot: lanes.shown[index]?.slot ?? null, t, inside: event.clientX >= area.left && event.clientX <= area.right };
  }

  _pointermove(event) {
    this.byKey = false;
    const at = this.#at(event);
    if (this.pressed) {
      if (Math.abs(event.clientX - this.pressed.x) > DRAG_PX || this.selection) {
        const edge = Math.min(Math.max(at.t, this.lanes.from), this.lanes.to);
        this.#select({ from: Math.min(edge, this.pressed.t), to: Math.max(edge, this.pressed.t) });
      }
    } else if (!this.pinned) this.#choose(at.inside && at.slot !== null ? at : null);
  }

  _pointerdown(event) {
    const at = this.#at(event);
    if (event.button !== 0 || !at.inside) return;
    this.pressed = { x: event.clientX, t: at.t };
    this.plot.setPointerCapture(event.pointerId);
  }

  _pointerup(event) {
    if (!this.pressed) return;
    this.pressed = null;
    if (this.selection) return this.#zoom();
    const at = this.#at(event);
    this.pinned = at.slot !== null;
    this.#choose(this.pinned ? at : null);
    this.#open();
  }

  _pointercancel() {
    this.pressed = null;
    this.#select(null);
  }

  _pointerleave() {
    if (!this.pinned && !this.pressed) this.#choose(null);
  }

  _keydown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.plot) return;
    const act = this.#keys(event);
    if (!act) return;
    event.preventDefault();
    this.byKey = true; // then the words are read out as well
    act();
    this.lanes.draw();
  }

  #keys({ key, shiftKey }) {
    const { view } = this.lanes;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (by) return () => (shiftKey ? this.#stretch(by) : this.#step(by));
    if (key === "ArrowUp" || key === "ArrowDown") return () => this.#lane(key === "ArrowUp" ? -1 : 1);
    if (key === "Enter") return () => (this.selection ? this.#zoom() : this.#open());
    if (key === "+" || key === "=") return () => view.zoom(0.5, this.chosen?.t);
    if (key === "-") return () => view.zoom(2, this.chosen?.t);
    if (key === "Escape") return () => this.clear();
    return null;
  }

  clear() {
    this.pinned = false;
    this.#select(null);
    this.#choose(null);
  }

  // The next or the last segment of this lane; the first time the newest of the first lane.
  #step(by) {
    const lane = this.#laneOf(this.chosen?.slot) ?? this.lanes.shown[0];
    if (!lane) return;
    const here = lane.segments.findIndex((one) => this.chosen && this.chosen.t >= one.from && this.chosen.t <= one.to);
    const to = lane.segments[here < 0 ? lane.segments.length - 1 : Math.min(Math.max(here + by, 0), lane.segments.length - 1)];
    this.pinned = true;
    this.#choose({ slot: lane.slot, t: to ? (Math.max(to.from, this.lanes.from) + Math.min(to.to, this.lanes.to)) / 2 : this.lanes.to });
  }

  #lane(by) {
    const order = ["queue", ...this.lanes.ids];
    const here = order.indexOf(this.chosen?.slot ?? order[1]);
    const slot = order[Math.min(Math.max(here + (this.chosen ? by : 0), 0), order.length - 1)];
    const t = this.chosen?.t ?? this.lanes.to - (this.lanes.to - this.lanes.from) / 100;
    this.pinned = true;
    this.lanes.scroll.scrollTop = Math.max(0, this.lanes.ids.indexOf(slot) * this.lanes.row - this.lanes.scroll.clientHeight / 2);
    this.#choose({ slot, t: Math.min(Math.max(t, this.lanes.from), this.lanes.to) });
  }

  #stretch(by) {
    const { from, to } = this.lanes;
    const step = (to - from) * STEP;
    const start = this.chosen?.t ?? to - (to - from) / 2;
    const was = this.selection ?? { from: start, to: start, anchor: start, edge: start };
    const edge = Math.min(Math.max((was.edge ?? was.to) + by * step, from), to);
    const anchor = was.anchor ?? was.from;
    this.#select({ from: Math.min(anchor, edge), to: Math.max(anchor, edge), anchor, edge });
  }

  #zoom() {
    const { from, to } = this.selection;
    this.clear();
    if (to > from) this.lanes.view.select(from, to);
  }

  #select(selection) {
    if (this.selection === null && selection === null) return;
    this.selection = selection;
    this.draw();
  }

  #choose(chosen) {
    this.chosen = chosen;
    this.draw();
  }

  #laneOf(slot) {
    return this.lanes.shown?.find((lane) => lane.slot === slot);
  }

  segment() {
    const { chosen, lanes } = this;
    const lane = chosen && this.#laneOf(chosen.slot);
    if (!lane) return null;
    const near = ((lanes.to - lanes.from) / lanes.wide) * NEAR_PX;
    const hit = lane.segments.findLast((one) => chosen.t >= one.from && chosen.t <= one.to);
    return hit ?? lane.segments.find((one) => chosen.t >= one.from - near && chosen.t <= one.to + near) ?? null;
  }

  #open() {
    const segment = this.segment();
    if (segment && isWait(segment)) this.openStall(segment);
  }

  draw() {
    if (!this.lanes.shown) return;
    this.#outline();
    this.#window();
    this.#say();
  }

  #outline() {
    const node = this.lanes.part("cursor");
    const segment = this.segment();
    show(node, segment !== null);
    if (!segment) return;
    const { lanes } = this;
    const index = lanes.shown.findIndex((lane) => lane.slot === segment.slot);
    const [a, b] = [Math.max(lanes.x(segment.from), 0), Math.min(lanes.x(segment.to), lanes.wide)];
    node.style.left = `${a - 2}px`;
    node.style.width = `${Math.max(b - a, 1) + 4}px`;
    node.style.top = `${index * lanes.row - lanes.offset + 1}px`;
    node.style.height = `${lanes.row - 2}px`;
  }

  #window() {
    const node = this.lanes.part("brush");
    show(node, this.selection !== null);
    if (!this.selection) return;
    const { from, to } = this.selection;
    node.style.left = this.lanes.share(from);
    node.style.width = `calc(${this.lanes.share(to)} - ${this.lanes.share(from)})`;
  }

  #say() {
    const node = this.lanes.part("says");
    if (this.selection) {
      const { from, to } = this.selection;
      return rebuild(node, `sel ${from} ${to}`, () => [el("b", "", `${clock(from, true)} to ${clock(to, true)}`), el("span", "", duration(to - from)), el("span", "q", "let go, or press Enter, to zoom in; Esc to leave it")]);
    }
    if (this.chosen?.slot === "queue") return this.#queue(node);
    const segment = this.segment();
    attr(node, "aria-live", this.byKey && !segment?.open ? "polite" : "off");
    const key = segment ? `${segment.slot} ${segment.from} ${segment.open ? lasted(segment) : segment.to} ${segment.kind}` : this.chosen ? `idle ${this.chosen.slot}` : "hint";
    rebuild(node, key, () => (segment ? this.#words(segment) : this.chosen ? [el("b", "", `Slot ${this.chosen.slot} idle`)] : [el("span", "q", "Point at a lane to read it; click a wait to see who was in the way; drag to zoom in.")]));
  }

  #words(segment) {
    const parts = [el("b", "", headline(segment)), ...facts(segment).map((text) => el("span", "", text))];
    if (!isWait(segment)) return parts;
    const others = servedMeanwhile(this.lanes.data.track, segment.slot, segment.from, segment.to);
    if (others.length) parts.push(el("span", "q", "served meanwhile"), ...others.slice(0, NAMED).map(({ slot, n }) => slotName(slot, `${slot}: ${grouped(n)}`)));
    if (others.length > NAMED) parts.push(el("span", "", `and ${others.length - NAMED} more`));
    const more = el("button", "link bare", "Who was in the way?");
    more.type = "button";
    more.addEventListener("click", () => this.openStall(segment));
    return [...parts, more];
  }

  #queue(node) {
    const { data } = this.lanes;
    const { t } = this.chosen;
    const depth = data.track.queue.findLast(([at]) => at <= t)?.[1] ?? null;
    const parts = queueWords(depth, inQueue(data.tasks, t), t);
    rebuild(node, `queue ${parts.join()}`, () => parts.map((text, at) => el(at ? "span" : "b", "", text)));
  }
}
