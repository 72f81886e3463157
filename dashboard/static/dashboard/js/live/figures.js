// The four figures and their sparklines.
import { duration, grouped } from "../frame/format.js";
import { attr, el, set } from "./dom.js";
import { spanWords } from "./range.js";
import { ANSWERS, draftsRight, missing } from "./words.js";

const WIDTH = 200;
const HEIGHT = 32;
const SPAN_S = 150;
const TOP = 2;

// The points as a path over the last 150 s (`span`); unknown bins leave a gap. `step` holds a value until the next one.
export function spark(series, end, top, step, span = SPAN_S) {
  const x = (t) => Math.max((t - (end - span)) / span, 0) * WIDTH;
  const y = (v) => HEIGHT - 1 - (v / top) * (HEIGHT - 1 - TOP);
  let line = "";
  let area = "";
  let started = null;
  let last = null;
  const close = () => {
    if (started !== null) area += `L${last} ${HEIGHT}L${started} ${HEIGHT}z`;
    started = null;
  };
  for (const [t, v] of series) {
    if (t < end - span && !step) continue;
    if (v === null) { close(); continue; }
    const px = x(t).toFixed(1);
    const py = y(v).toFixed(1);
    const piece = started === null ? `M${px} ${py}` : step ? `H${px}V${py}` : `L${px} ${py}`;
    line += piece;
    area += piece;
    if (started === null) started = px;
    last = px;
  }
  close();
  return { line, area };
}

function queueWords(queue) {
  if (!queue.depth) return "tasks";
  return queue.oldest_s ? `tasks, oldest ${duration(queue.oldest_s)}` : "tasks";
}

export class Figures {
  constructor(page) {
    this.nodes = new Map([...page.querySelectorAll("[data-figure]")].map((node) => [node.dataset.figure, node]));
  }

  draw(state) {
    this.span = state.past ? state.past.to - state.past.from : SPAN_S;
    for (const node of this.nodes.values()) set(node.querySelector("h2 .q"), state.past ? spanWords(this.span) : `${SPAN_S} s`);
    set(this.nodes.get("stall")?.querySelector("[data-t]"), state.past ? "Worst stall" : "Worst stall, last minute");
    if (state.past) return this.#past(state);
    const figures = state.figures ?? {};
    const queue = state.queue ?? {};
    this.#one("prompt", state, grouped(figures.prompt_tps), "tokens/s", figures.prompt_series, "figures.prompt_tps", cachedWords(state));
    this.#one("gen", state, grouped(figures.gen_tps), "tokens/s", figures.gen_series, "figures.gen_tps", genWords(state));
    this.#one("queue", state, grouped(queue.depth), queueWords(queue), figures.queue_series, "queue", queue.depth ? "no free slot yet" : "no task waits for a slot", true);
    const stall = figures.worst_stall_s;
    this.#one("stall", state, stall === null || stall === undefined ? "" : stall.toFixed(1), "s", figures.stall_series, "figures.worst_stall_s", stallWords(state));
  }

  // Over a past range: means of the rates, the deepest queue, the longest wait.
  #past(state) {
    const { figures } = state;
    const rate = (value) => (value === null || value === undefined ? "" : grouped(value, value < 10 ? 1 : 0));
    const depths = (figures.queue_series ?? []).filter(([t], at, all) => (all[at + 1]?.[0] ?? Infinity) > state.past.from).map(([, v]) => v);
    this.#one("prompt", state, rate(figures.prompt_tps), "tokens/s", figures.prompt_series, "figures.prompt_tps", "mean of the range");
    this.#one("gen", state, rate(figures.gen_tps), "tokens/s", figures.gen_series, "figures.gen_tps", "mean of the range");
    this.#one("queue", state, depths.length ? grouped(Math.max(...depths)) : "", "tasks at most", figures.queue_series, "queue", `${grouped(state.queue.depth ?? 0)} at its end`, true);
    const worst = figures.worst_stall_s;
    this.#one("stall", state, worst === null || worst === undefined ? "" : worst.toFixed(1), "s", [], "figures.worst_stall_s", figures.worst_stall_slot === null ? "no slot waited" : `slot ${figures.worst_stall_slot}, within the range`);
  }

  #one(key, state, value, unit, series, name, words, step = false) {
    const node = this.nodes.get(key);
    if (!node) return;
    const known = value !== "";
    const shown = node.querySelector("[data-v]");
    if (known) set(shown, value);
    else if (!shown.querySelector(".un")) shown.replaceChildren(el("span", "un", "unknown"));
    set(node.querySelector("[data-u]"), known ? unit : "");
    set(node.querySelector("[data-w]"), known ? words : missing(state, name) || (ANSWERS.has(state.health.state) ? "" : "not known while it does not answer"));
    this.#spark(node, series ?? [], state.t, step);
  }

  #spark(node, series, end, step) {
    const values = series.map(([, v]) => v).filter((v) => v !== null);
    const top = Math.max(...values, 0);
    const { line, area } = spark(series, end, top || 1, step, this.span);
    attr(node.querySelector(".spark"), "d", line);
    attr(node.querySelector(".spark-a"), "d", area);
    set(node.querySelector("[data-max]"), top > 0 ? (top < 10 && !Number.isInteger(top) ? top.toFixed(1) : grouped(Math.round(top))) : "");
    set(node.querySelector("[data-zero]"), values.length ? "0" : "");
  }
}

function cachedWords(state) {
  const cached = state.slots.reduce((sum, slot) => sum + (slot.state !== "idle" ? slot.n_cached ?? 0 : 0), 0);
  return cached ? `${grouped(cached)} more came from the cache` : "none of the prompts at work came from the cache";
}

function genWords(state) {
  const busy = state.slots.filter((slot) => slot.state === "generating").length;
  const right = draftsRight(state.info?.drafted, state.info?.accepted);
  if (busy) return `${busy} ${busy === 1 ? "slot generates" : "slots generate"}${right ? `, ${right}` : ""}`;
  const cohort = state.phase?.cohort;
  return cohort && state.phase.name === "pp" ? `none: cohort ${cohort.id} is in its prompt phase` : "no slot generates";
}

function stallWords(state) {
  const id = state.figures.worst_stall_slot;
  if (id === null || id === undefined) return "no slot waited";
  const slot = state.slots.find((one) => one.id === id);
  return slot?.waiting_for ? `slot ${id}, ${slot.state} now` : `slot ${id}`;
}
