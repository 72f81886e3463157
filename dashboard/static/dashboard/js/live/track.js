// What a stretch of iterations did for each slot, as spans of time. Takes each iteration once; pure.
// A span: {kind: "prompt" | "gen" | "held", a, b, i, j, n}; a wait: {a, b, i, j, why: {sentence: count}}. `a`, `b` Unix seconds,
// `i`, `j` the first and last iteration, `n` tokens. Neighbours of one kind are one span.
const JOIN_S = 0.025; // between two batches of one stretch of work
const LOST_S = 1; // and where the feed left iterations out
const MOST_SPANS = 3000; // a slot; beyond that the older half is joined more coarsely
const MOST_WHYS = 4;
const MOST_POINTS = 4000;

// An iteration's `t` is its start. A merged one (docs/protocol.md) has its whole duration in `dur_ms`.
export const endOf = (it) => it.t + (it.dur_ms ?? (it.plan_ms ?? 0) + (it.run_ms ?? 0) + (it.settle_ms ?? 0)) / 1000;
export const lastOf = (it) => it.i_to ?? it.i;

class Lane {
  constructor() {
    this.spans = [];
    this.waits = [];
    this.joined = JOIN_S;
  }

  serve(kind, it, end, n, apart) {
    const last = this.spans.at(-1);
    if (last && last.kind === kind && it.t - last.b <= Math.max(apart, this.joined)) {
      last.b = end;
      last.j = lastOf(it);
      last.n += n;
      return;
    }
    this.spans.push({ kind, a: it.t, b: end, i: it.i, j: lastOf(it), n });
    if (this.spans.length > MOST_SPANS) this.#coarsen();
  }

  wait(it, end, why, apart) {
    let last = this.waits.at(-1);
    const served = this.spans.at(-1);
    if (!last || it.t - last.b > apart || (served && served.a >= last.b - 1e-6)) {
      last = { a: it.t, b: end, i: it.i, j: lastOf(it), why: {} };
      this.waits.push(last);
      if (this.waits.length > MOST_SPANS) this.waits.splice(0, MOST_SPANS / 2);
    }
    last.b = end;
    last.j = lastOf(it);
    if (why in last.why || Object.keys(last.why).length < MOST_WHYS) last.why[why] = (last.why[why] ?? 0) + 1;
  }

  // Joins ever longer gaps until the older half has become half as many.
  #coarsen() {
    const half = MOST_SPANS / 2;
    let old = this.spans.slice(0, half);
    for (let gap = this.joined * 2; old.length > half / 2; gap *= 2) old = joinedBy(old, gap);
    this.spans = [...old, ...this.spans.slice(half)];
  }

  forget(before) {
    this.spans = dropped(this.spans, before);
    this.waits = dropped(this.waits, before);
  }
}

function joinedBy(spans, gap) {
  const out = [];
  for (const span of spans) {
    const last = out.at(-1);
    if (last && span.a - last.b <= gap && (last.kind === span.kind || span.b - span.a < gap)) {
      last.b = Math.max(last.b, span.b);
      last.j = span.j;
      if (last.kind === span.kind) last.n += span.n;
    } else out.push({ ...span });
  }
  return out;
}

// Index of the first entry that begins at `t` or later.
function lowest(starts, t) {
  let [low, high] = [0, starts.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle][0] < t) low = middle + 1;
    else high = middle;
  }
  return low;
}

function dropped(spans, before) {
  const first = spans.findIndex((span) => span.b >= before);
  return first < 0 ? [] : first ? spans.slice(first) : spans;
}

export class Track {
  constructor() {
    this.lanes = new Map();
    this.phases = []; // {phase, cohort, sealed, a, b, i, j}
    this.queue = []; // [t, depth]
    this.starts = []; // [t, first, last number] of each iteration taken
    this.known = []; // [a, b]: where nothing that happened is missing
    this.last = null; // number of the last iteration taken
    this.end = null; // and when it ended
  }

  add(iterations) {
    for (const it of iterations) if (this.last === null || it.i > this.last) this.#one(it);
  }

  #one(it) {
    const end = endOf(it);
    const lost = this.last !== null && it.i !== this.last + 1;
    const apart = lost || it.merged ? LOST_S : JOIN_S;
    this.#cover(it, end, lost);
    this.starts.push([it.t, it.i, lastOf(it)]);
    if (this.starts.length > 2 * MOST_POINTS) this.starts = this.starts.slice(-MOST_POINTS);
    for (const [slot, n] of it.gen ?? []) this.#lane(slot).serve("gen", it, end, n, apart);
    for (const [slot, n] of it.prompt ?? []) this.#lane(slot).serve("prompt", it, end, n, apart);
    for (const slot of it.held ?? []) this.#lane(slot).serve("held", it, end, 0, apart);
    for (const [slot, why] of it.skipped ?? []) this.#lane(slot).wait(it, end, why, apart);
    if (it.phase) this.#phase(it, end, apart);
    if (typeof it.queue === "number") this.depth(it.t, it.queue);
    this.last = lastOf(it);
    this.end = end;
  }

  #lane(slot) {
    if (!this.lanes.has(slot)) this.lanes.set(slot, new Lane());
    return this.lanes.get(slot);
  }

  #cover(it, end, lost) {
    const last = this.known.at(-1);
    if (last && (!lost || it.t - last[1] < LOST_S)) last[1] = Math.max(last[1], end);
    else this.known.push([it.t, end]);
  }

  #phase(it, end, apart) {
    const last = this.phases.at(-1);
    const cohort = it.cohort ?? null;
    if (last && last.phase === it.phase && last.cohort === cohort && it.t - last.b <= Math.max(apart, LOST_S)) {
      last.b = end;
      last.j = lastOf(it);
    } else this.phases.push({ phase: it.phase, cohort, a: it.t, b: end, i: it.i, j: lastOf(it) });
  }

  // Where no iterations are told of: what each slot was seen to do at `t`, which held since `before`.
  seen(slots, before, t) {
    const it = { i: (this.last ?? 0) + 1, t: before, dur_ms: (t - before) * 1000, prompt: [], gen: [], held: [], skipped: [], merged: 1 };
    for (const slot of slots) {
      if (slot.state === "prompt") it.prompt.push([slot.id, 0]);
      else if (slot.state === "generating") it.gen.push([slot.id, 0]);
      else if (slot.state === "held") it.held.push(slot.id);
      else if (slot.state !== "idle") it.skipped.push([slot.id, slot.waiting_for ?? ""]);
    }
    this.#one(it);
  }

  depth(t, depth) {
    const last = this.queue.at(-1);
    if (last && last[1] === depth) return;
    if (last && t < last[0]) return;
    this.queue.push([t, depth]);
    if (this.queue.length > MOST_POINTS) this.queue.splice(0, MOST_POINTS / 2);
  }

  // The first and the last iteration that began within from..to, or null.
  between(from, to) {
    const { starts } = this;
    if (!starts.length || from < starts[0][0] - 1e-3) return null;
    const [first, end] = [lowest(starts, from - 1e-3), lowest(starts, to - 1e-3)];
    return end > first ? { i: starts[first][1], j: starts[end - 1][2] } : null;
  }

  // Whether the iterations of a moment are known here.
  knows(t) {
    for (let at = this.known.length - 1; at >= 0; at--) {
      const [a, b] = this.known[at];
      if (t >= a - JOIN_S) return t <= b + JOIN_S;
    }
    return false;
  }

  forget(before) {
    for (const lane of this.lanes.values()) lane.forget(before);
    this.phases = dropped(this.phases, before);
    this.known = this.known.filter(([, b]) => b >= before);
    this.starts.splice(0, lowest(this.starts, before));
    const at = this.queue.findIndex(([t]) => t >= before);
    if (at > 1) this.queue.splice(0, at - 1);
  }
}
