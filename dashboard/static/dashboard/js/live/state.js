// The browser's copy of a server's state. docs/protocol.md, section 2: apply(state, delta) equals the next state.
export const KEPT_ITERATIONS = 120;
export const KEPT_TASKS = 120;

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
