// The line under the strip: one iteration in words, chosen by pointer, touch or keys; without a choice the newest.
import { grouped } from "../frame/format.js";
import { el, rebuild, show, slotName } from "./dom.js";
import { flags, promptTokens, WIDTH } from "./stripmodel.js";

const SLOTS_NAMED = 8;

export class Readout {
  constructor(strip) {
    this.strip = strip;
    this.plot = strip.part("strip");
    this.chosen = null; // an iteration's number; it stays with its iteration while the strip moves on
    this.pinned = false;
    this.plot.addEventListener("pointermove", (event) => { if (!this.pinned) this.#at(event); });
    this.plot.addEventListener("pointerdown", (event) => { this.#at(event); this.pinned = true; });
    this.plot.addEventListener("pointerleave", () => { if (!this.pinned) this.#choose(null); });
    this.plot.addEventListener("keydown", (event) => this.#key(event));
  }

  #at(event) {
    const area = this.plot.querySelector(".prompts .area").getBoundingClientRect();
    const x = ((event.clientX - area.left) / area.width) * WIDTH;
    const at = this.strip.columns.findIndex((column) => x >= column.x && x < column.x + column.w);
    this.#choose(at < 0 ? null : this.strip.iterations[at].i);
  }

  #key(event) {
    const { iterations } = this.strip;
    const here = this.chosen === null ? iterations.length - 1 : iterations.findIndex((it) => it.i === this.chosen);
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: iterations.length - 1 }[event.key];
    if (event.key === "Escape") { this.pinned = false; return this.#choose(null); }
    if (to === undefined) return;
    event.preventDefault();
    this.pinned = true;
    this.#choose(iterations[Math.min(Math.max(to, 0), iterations.length - 1)].i);
  }

  #choose(iteration) {
    if (iteration === null) this.pinned = false;
    this.chosen = iteration;
    this.draw();
  }

  draw() {
    const { iterations, columns } = this.strip;
    let at = this.chosen === null ? -1 : iterations.findIndex((it) => it.i === this.chosen);
    if (this.chosen !== null && at < 0) { this.chosen = null; this.pinned = false; }
    const cursor = this.strip.part("cursor");
    show(cursor, at >= 0);
    if (at >= 0) {
      cursor.style.left = `calc(${(columns[at].x / WIDTH) * 100}% - 1px)`;
      cursor.style.width = `calc(${(columns[at].w / WIDTH) * 100}% + 2px)`;
    } else at = iterations.length - 1;
    const it = iterations[at];
    const changed = flags(iterations, this.strip.state.marks).find((flag) => flag.at === at)?.text ?? "";
    rebuild(this.strip.part("readout"), `${it.i} ${changed}`, () => this.#words(it, changed));
  }

  #words(it, changed) {
    const nBatch = this.strip.state.info.n_batch;
    const tokens = promptTokens(it) + it.gen.reduce((sum, [, n]) => sum + n, 0);
    const took = it.plan_ms + it.run_ms + it.settle_ms;
    const parts = [
      el("b", "", it.merged > 1 ? `Iterations ${it.i} to ${it.i_to}` : `Iteration ${it.i}`),
      el("span", "", `${took < 10 ? took.toFixed(1) : grouped(Math.round(took))} ms`),
      el("span", "", nBatch ? `${grouped(tokens)} of ${grouped(nBatch)} tokens` : `${grouped(tokens)} tokens`),
      ...it.prompt.slice(0, SLOTS_NAMED).map(([slot, n]) => slotName(slot, `${slot}: ${grouped(n)} prompt`)),
    ];
    if (it.prompt.length > SLOTS_NAMED) parts.push(el("span", "", `${it.prompt.length - SLOTS_NAMED} more with prompt tokens`));
    if (it.gen.length) parts.push(...this.#generation(it));
    if (it.held.length) parts.push(said("held", `${it.held.length === 1 ? "slot" : "slots"} ${named(it.held)}`));
    for (const [why, slots] of causes(it.skipped)) parts.push(said("skipped", `${slots.length === 1 ? "slot" : "slots"} ${named(slots)}: ${why}`));
    if (changed) parts.push(said("from here on", changed));
    if (it.error) parts.push(el("span", "is-bad", it.error));
    return parts;
  }

  #generation(it) {
    if (it.gen.length > SLOTS_NAMED) return [el("span", "", `${it.gen.length} slots generated`)];
    return it.gen.map(([slot, n]) => slotName(slot, `${slot}: ${n} generated`));
  }
}

// Who was skipped, by cause.
function causes(skipped) {
  const slots = new Map();
  for (const [slot, why] of skipped) slots.set(why, [...(slots.get(why) ?? []), slot]);
  return slots;
}

const named = (slots) => (slots.length > SLOTS_NAMED ? `${slots.slice(0, SLOTS_NAMED).join(", ")} and ${slots.length - SLOTS_NAMED} more` : slots.join(", "));

const said = (quiet, text) => el("span", "", el("span", "q", quiet), ` ${text}`);
