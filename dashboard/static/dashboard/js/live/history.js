// What the lanes are drawn from: the feed's iterations and ended tasks, joined with the detail that the console keeps of the last
// 15 minutes. Bounded; a hole in the feed is filled from the console once it is seen.
import { queueOf } from "./segments.js";
import { Track } from "./track.js";

const MOST_RECENT = 2000;
const MOST_TASKS = 3000;
const SPARE_S = 5;
const OPEN_ROW_S = 300; // an open row shows its request this far back
const FILL_EVERY_MS = 4000;

export async function fetchJson(url) {
  const answer = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" });
  if (answer.ok) return answer.json();
  const told = await answer.json().catch(() => ({}));
  throw new Error(answer.status === 401 ? "log in again" : told.detail ?? `the console answered ${answer.status}`);
}

// A merged iteration with the fields that single ones have; what it does not tell of is empty.
const plain = (it) => (it.merged ? { plan_ms: 0, run_ms: it.dur_ms, settle_ms: 0, skipped: [], held: [], phase: "", cohort: null, ...it } : it);

async function detailOf(api, from, to) {
  const detail = await fetchJson(`${api}detail${query(from, to)}`);
  return { ...detail, iterations: detail.iterations.map(plain) };
}

// Merged iterations do not tell of the queue: before the first one that does, it is counted from the tasks.
function fillQueue(track, { iterations, tasks }) {
  const until = iterations.find((it) => typeof it.queue === "number")?.t ?? Infinity;
  if (iterations.length && until > iterations[0].t) track.queue = [...queueOf(tasks).filter(([t]) => t < until), ...track.queue];
}

const query = (from, to) => `?from=${from.toFixed(3)}&to=${to.toFixed(3)}`;

export class History {
  // `api` is the address of this server in the JSON API, with a slash at its end; `changed()` is told when a fetch has brought more.
  constructor(api, changed) {
    this.api = api;
    this.changed = changed;
    this.span = 60;
    this.filled = -Infinity;
    this.#begin();
  }

  #begin() {
    this.track = new Track();
    this.tasks = [];
    this.recent = [];
    this.ended = 0; // the count of ends up to which tasks were taken
    this.from = Infinity;
    this.why = "";
    this.sampled = null;
  }

  see(state) {
    if (state.info?.started_at !== this.started && this.started !== undefined) this.#begin();
    this.started = state.info?.started_at;
    this.#tasks(state.tasks ?? []);
    if (state.missing?.iterations) this.#sample(state);
    else this.#iterations(state.iterations ?? []);
    if (typeof state.queue?.depth === "number") this.track.depth(state.t, state.queue.depth);
    this.#bound(state.t);
  }

  #iterations(iterations) {
    const last = this.track.last;
    const fresh = last === null ? iterations : iterations.filter((it) => it.i > last);
    if (!fresh.length) return;
    const hole = last !== null && fresh[0].i > last + 1;
    this.recent.push(...fresh);
    if (this.recent.length > MOST_RECENT * 1.25) this.recent = this.recent.slice(-MOST_RECENT);
    this.track.add(fresh);
    if (last === null) this.from = Math.min(this.from, fresh[0].t);
    if (hole && fresh[0].t - (this.seenEnd ?? fresh[0].t) > 1) this.wants = true;
    this.seenEnd = this.track.end;
  }

  #tasks(tasks) {
    const fresh = tasks.filter((task) => task.n > this.ended);
    if (!fresh.length) return;
    this.ended = fresh.at(-1).n;
    this.tasks.push(...fresh);
  }

  // A server that does not report its batches: only what is seen of its slots while this page is open.
  #sample(state) {
    const before = this.sampled;
    this.sampled = state.t;
    if (before === null) this.from = Math.min(this.from, state.t);
    if (before === null || state.t - before > 3 || state.health.state !== "up") return;
    this.track.seen(state.slots, before, state.t);
  }

  #bound(now) {
    const before = now - this.span - SPARE_S;
    if (this.tasks.length > MOST_TASKS || (this.tasks[0]?.finished_at ?? now) < before) {
      this.tasks = this.tasks.filter((task) => task.finished_at >= before).slice(-MOST_TASKS);
    }
    this.track.forget(before);
    const old = now - Math.max(this.span, OPEN_ROW_S);
    if (this.recent.length && this.recent[0].t < old - SPARE_S) this.recent = this.recent.filter((it) => it.t >= old);
  }

  // True when what is shown reaches further back than what is known, or the feed left something out.
  lacks(now) {
    return (this.wants || this.from > now - this.span + 1) && performance.now() - this.filled > FILL_EVERY_MS && !this.complete;
  }

  async fill(now) {
    this.filled = performance.now();
    this.wants = false;
    const { span, started } = this;
    try {
      const detail = await detailOf(this.api, now - span, now);
      if (started !== this.started) return;
      this.#join(detail, now - span);
      this.why = "";
    } catch (error) {
      this.complete = true; // asked for again only when the range changes
      this.why = error.message;
    }
    this.changed();
  }

  #join(detail, from) {
    const sampled = this.sampled !== null;
    if (!sampled) {
      const track = new Track();
      track.add(detail.iterations);
      const newer = this.recent.filter((it) => track.last === null || it.i > track.last);
      track.add(newer);
      fillQueue(track, detail);
      this.track = track;
      this.recent = [...detail.iterations, ...newer].slice(-MOST_RECENT);
    }
    const ended = detail.tasks.filter((task) => task.finished_at !== null); // what still runs stands in the slots
    const kept = new Map([...ended, ...this.tasks].map((task) => [task.n ?? `${task.task}/${task.finished_at}`, task]));
    this.tasks = [...kept.values()].sort((one, other) => one.finished_at - other.finished_at);
    this.ended = Math.max(this.ended, ...ended.map((task) => task.n ?? 0));
    this.from = sampled ? this.from : from;
    this.oldest = detail.oldest;
    this.gaps = detail.gaps ?? [];
  }

  reach(span) {
    if (span > this.span) this.complete = false;
    this.span = span;
  }
}

// A fixed range, whole: {detail, track, tasks}.
export async function past(api, from, to) {
  const detail = await detailOf(api, from, to);
  const track = new Track();
  track.add(detail.iterations);
  fillQueue(track, detail);
  return { detail, track, tasks: detail.tasks, iterations: detail.iterations };
}

export const fairnessOf = (api, from, to) => fetchJson(`${api}fairness${query(from, to)}`);

export const stallOf = (api, slot, from, to) => fetchJson(`${api}stall${query(from, to)}&slot=${slot}`);
