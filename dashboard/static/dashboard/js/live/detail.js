// An open slot row: its request from submission to now, as far as the kept iterations reach.
import { duration, grouped } from "../frame/format.js";
import { attr, el, rebuild } from "./dom.js";
import { endOf } from "./track.js";

const WIDTH = 640;
const TICKS = 6;

// What the iterations since the request came did for one slot: [{i, start, end, kind, tokens}], oldest first. Pure.
export function timeline(slot, iterations, now = Infinity) {
  const from = slot.submitted_at ?? -Infinity;
  const pieces = [];
  for (const it of iterations) {
    const end = endOf(it);
    if (end <= from) continue;
    const prompt = it.prompt.find(([id]) => id === slot.id);
    const gen = it.gen.find(([id]) => id === slot.id);
    const unseen = !slot.first_visit_at || end <= slot.first_visit_at;
    const kind = prompt ? "prompt" : gen ? "gen" : it.held.includes(slot.id) ? "held" : unseen ? "queue" : "wait";
    pieces.push({ i: it.i, start: Math.max(it.t, from), end: Math.min(end, now), kind, tokens: prompt?.[1] ?? gen?.[1] ?? 0 });
  }
  return pieces;
}

export class Detail {
  constructor(row) {
    this.node = document.getElementById("t-detail").content.firstElementChild.cloneNode(true);
    const hue = Number(row.dataset.slot) % 8;
    for (const path of this.node.querySelectorAll("path")) path.classList.add(`s${hue}`);
    this.node.querySelector('[data-p="held"]').setAttribute("fill", `url(#h${hue})`);
    row.after(this.node);
  }

  close() {
    this.node.remove();
  }

  draw(state, slot, now) {
    const path = (name) => this.node.querySelector(`[data-p="${name}"]`);
    const busy = slot.state !== "idle" && slot.submitted_at;
    const pieces = busy ? timeline(slot, state.rows ?? state.iterations ?? [], now) : [];
    const from = pieces[0]?.start ?? slot.submitted_at ?? now; // what came before the kept iterations is not known here
    const x = (t) => ((t - from) / Math.max(now - from, 1e-3)) * WIDTH;
    const drawn = { prompt: "", gen: "", held: "", wait: "", queue: "" };
    for (const { start, end, kind } of pieces) {
      const [a, wide] = [x(start), Math.max(x(end) - x(start) - 0.5, 0.5)];
      const [top, high] = kind === "wait" ? [10.5, 1.5] : [4, 14];
      drawn[kind] += kind === "queue" ? `M${a.toFixed(1)} 11h${(wide + 0.5).toFixed(1)}` : `M${a.toFixed(1)} ${top}h${wide.toFixed(1)}v${high}H${a.toFixed(1)}z`;
    }
    for (const [name, d] of Object.entries(drawn)) attr(path(name), "d", d);
    this.#ticks(pieces.filter((piece) => piece.kind === "prompt" || piece.kind === "gen"), x);
    this.#facts(slot, pieces, now, busy);
  }

  #ticks(served, x) {
    const every = Math.max(1, Math.ceil(served.length / TICKS));
    const shown = served.filter((_, at) => at % every === 0);
    rebuild(this.node.querySelector(".ax"), shown.map((piece) => piece.i + "/" + Math.round(x(piece.start))).join(), () =>
      shown.map((piece) => {
        const tick = el("i", "", String(piece.i));
        tick.style.left = `${((x(piece.start) + x(piece.end)) / 2 / WIDTH) * 100}%`;
        return tick;
      }));
  }

  #facts(slot, pieces, now, busy) {
    const rows = busy ? facts(slot, pieces, now) : [["idle", "no request; the next one is drawn here"]];
    rebuild(this.node.querySelector(".rtf"), JSON.stringify(rows), () => rows.map(([name, text]) => el("div", "", el("dt", "", name), el("dd", "", text))));
  }
}

function facts(slot, pieces, now) {
  const served = pieces.filter((piece) => piece.kind === "prompt" || piece.kind === "gen");
  const waited = pieces.filter((piece) => !served.includes(piece)).reduce((sum, piece) => sum + piece.end - piece.start, 0);
  const tokens = served.reduce((sum, piece) => sum + piece.tokens, 0);
  const rows = [];
  if (pieces.length) rows.push(["served", `${served.length} of ${pieces.length} iterations, ${grouped(tokens)} tokens`], ["waited", `${duration(waited)} of ${duration(now - pieces[0].start)}`]);
  if (slot.first_visit_at) rows.push(["queued", `${duration(Math.max(slot.first_visit_at - slot.submitted_at, 0))} before its first batch`]);
  if (slot.prompt_done_at && slot.first_visit_at) rows.push(["prompt", `done after ${duration(slot.prompt_done_at - slot.first_visit_at)}`]);
  return rows.length ? rows : [["waits", "no batch served it yet"]];
}
