// The browser's copy of a server's state. docs/protocol.md, section 2: apply(state, delta) equals the next state.
import { endOf } from "./track.js";

export const KEPT_ITERATIONS = 120;
export const KEPT_TASKS = 120;
const SEEN = 40;
const LEAST_SKEW_S = 2;

export function apply(state, delta) {
  const next = { ...state, ...(delta.set ?? {}), seq: delta.seq, t: delta.t };
  if (delta.slots?.length) {
    const changed = new Map(delta.slots.map((slot) => [slot.id, slot]));
    next.slots = (next.slots ?? []).map((slot) => changed.get(slot.id) ?? slot);
  }
  if (delta.iterations?.length) {
    next.iterations = [...(next.iterations ?? []), ...delta.iterations].slice(-KEPT_ITERATIONS);
  }
  if (delta.tasks?.length) next.tasks = [...(next.tasks ?? []), ...delta.tasks].slice(-KEPT_TASKS);
  const series = Object.entries(delta.series ?? {});
  if (series.length || Object.keys(delta.figures ?? {}).length) {
    next.figures = { ...next.figures, ...delta.figures };
    for (const [name, [drop, keep, points]] of series) {
      next.figures[name] = [...next.figures[name].slice(drop, drop + keep), ...points];
    }
  }
  return next;
}

// True when this delta is the next one; a gap or a repeat asks for a snapshot.
export function follows(state, delta) {
  return state !== null && delta.seq === state.seq + 1;
}

// The observer's clock, seen from here. The smallest offset seen is the one with the least delay on the way.
export class Clock {
  #offset = null;

  see(t) {
    const offset = Date.now() / 1000 - t;
    if (this.#offset === null || offset < this.#offset || offset - this.#offset > 5) this.#offset = offset;
  }

  now() {
    return Date.now() / 1000 - (this.#offset ?? 0);
  }
}

// How far a server's clock is ahead of the console's: from batches that end between two frames, which are told of at once. A difference
// that a slow way could explain counts as none.
export class Skew {
  #seen = [];
  #last = null;

  see(state) {
    const newest = state.iterations?.at(-1);
    if (!newest) return;
    if (this.#last !== null && newest.i > this.#last) this.#seen = [...this.#seen, endOf(newest) - state.t].slice(-SEEN);
    this.#last = newest.i;
  }

  get value() {
    const most = Math.max(...this.#seen);
    return Number.isFinite(most) && Math.abs(most) > LEAST_SKEW_S ? most : 0;
  }
}
