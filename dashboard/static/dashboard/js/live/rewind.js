// A state as it stood at the end of a past range, made from the kept detail, in the shape of the live one. Pure.
import { bySlot, segments } from "./segments.js";
import { endOf } from "./track.js";

const BINS = 75;
const STRIP = 120;
const WORDS = { generating: "generating", prompt: "prompt", held: "held", waiting: "waiting", queued: "queued" };

// Whether anything is kept of a range, and of the moment at its end. Pure.
export function kept(detail, to) {
  const any = detail.oldest !== null && detail.oldest !== undefined && to > detail.oldest;
  return { any, end: any && !(detail.gaps ?? []).some(([a, b]) => a < to - 1 && b > to - 1) };
}

// What is not known of a moment is not shown as idle or as zero.
function unknown(state, to, known) {
  const why = known.any ? "Nobody watched at the end of this time." : "What the slots did then is not kept.";
  const missing = { ...state.missing, slots: why, ...(known.any ? {} : { iterations: "The batches of this time are not kept.", figures: why, queue: "not kept" }) };
  return { ...state, t: to, slots: [], missing, queue: { depth: null, oldest_s: null }, phase: null };
}

const NO_FIGURES = { prompt_tps: null, gen_tps: null, worst_stall_s: null, worst_stall_slot: null };

export function rewound(state, found, from, to) {
  const { track, detail } = found;
  const known = kept(detail, to);
  const past = { from, to, iterations: detail.iterations.length };
  if (!known.any) return { ...unknown(state, to, known), iterations: [], rows: [], marks: [], tasks: [], fairness: null, figures: NO_FIGURES, past };
  const tasks = bySlot(found.tasks, still(state, to), Math.max(to, state.t) + 1); // what runs on has no end here
  const slots = (state.slots ?? []).map((slot) => slotAt(slot, tasks.get(slot.id) ?? [], found, to));
  const iterations = detail.iterations.filter((it) => it.t <= to);
  return {
    ...state,
    t: to,
    slots: known.end ? slots : [],
    missing: known.end ? state.missing : unknown(state, to, known).missing,
    iterations: iterations.slice(-STRIP),
    rows: iterations,
    marks: detail.marks ?? state.marks,
    queue: { depth: depthAt(track, to), oldest_s: null },
    figures: figures(state, found, tasks, from, to),
    health: { ...state.health, seen_at: to },
    phase: null,
    past: { ...past, iterations: iterations.length },
  };
}

// Slots whose present task was there already.
const still = (state, to) => (state.slots ?? []).filter((slot) => slot.submitted_at && slot.submitted_at <= to);

function depthAt(track, t) {
  let depth = null;
  for (const [at, value] of track.queue) {
    if (at > t) break;
    depth = value;
  }
  return depth;
}

function slotAt(slot, tasks, { track, detail }, t) {
  const task = tasks.findLast((one) => one.from <= t && one.to > t);
  const idle = {
    ...slot, state: "idle", since: tasks.findLast((one) => one.to <= t)?.to ?? null, task: null, client: "", n_prompt: 0, n_cached: 0, n_processed: 0, n_generated: 0,
    n_predict: null, n_tokens: null, submitted_at: null, first_visit_at: null, prompt_done_at: null, first_token_at: null, waiting_for: "", rate: null, member: false,
  };
  if (!task) return idle;
  const { told } = task;
  const before = (moment) => (moment && moment <= t ? moment : null);
  const now = segments(track, [task], slot.id, task.from, t).at(-1);
  const { prompt, generated } = counted(detail.iterations, slot.id, task.from, t);
  const whole = before(task.prompted) !== null;
  const left = (name) => (task.open ? told[name] ?? null : null); // of a task that still ran, what was told last
  const processed = whole ? told.n_prompt - told.n_cached : !before(task.first) ? 0 : track.knows(task.first) ? prompt : left("n_processed");
  const tokens = !before(task.token) ? 0 : track.knows(task.token) ? generated + 1 : left("n_generated");
  return {
    ...idle, state: WORDS[now?.kind] ?? "waiting", since: now?.from ?? task.from, task: task.task, client: task.client, n_prompt: told.n_prompt, n_cached: told.n_cached, n_processed: processed,
    n_generated: tokens, n_tokens: processed === null || tokens === null ? null : told.n_cached + processed + tokens, submitted_at: task.submitted,
    first_visit_at: before(task.first), prompt_done_at: before(task.prompted), first_token_at: before(task.token), waiting_for: now?.why ?? "",
  };
}

// A slot's tokens in the batches of a stretch that had ended by `t`.
function counted(iterations, slot, from, t) {
  const of = (pairs) => pairs.find(([id]) => id === slot)?.[1] ?? 0;
  const sum = { prompt: 0, generated: 0 };
  for (const it of iterations) {
    if (endOf(it) > t + 1e-6) break;
    if (it.t < from - 1e-3) continue;
    sum.prompt += of(it.prompt);
    sum.generated += of(it.gen);
  }
  return sum;
}

// Tokens a second in `bins` equal parts of a range: {prompt: [[t, v]], gen: [[t, v]]}; a batch's tokens count evenly over its duration.
export function rates(iterations, from, to, bins = BINS) {
  const wide = (to - from) / bins;
  const sums = { prompt: new Array(bins).fill(0), gen: new Array(bins).fill(0) };
  const total = (pairs) => (pairs ?? []).reduce((sum, [, n]) => sum + n, 0);
  for (const it of iterations) {
    const [start, end] = [it.t, Math.max(endOf(it), it.t + 1e-6)];
    const tokens = { prompt: total(it.prompt), gen: total(it.gen) };
    const first = Math.max(0, Math.floor((start - from) / wide));
    const last = Math.min(bins - 1, Math.floor((end - from) / wide));
    for (let bin = first; bin <= last; bin++) {
      const share = (Math.min(end, from + (bin + 1) * wide) - Math.max(start, from + bin * wide)) / (end - start);
      if (share <= 0) continue;
      sums.prompt[bin] += tokens.prompt * share;
      sums.gen[bin] += tokens.gen * share;
    }
  }
  const series = (values) => values.map((n, bin) => [from + (bin + 0.5) * wide, n / wide]);
  return { prompt: series(sums.prompt), gen: series(sums.gen) };
}

function figures(state, found, tasks, from, to) {
  if (state.missing?.iterations) return NO_FIGURES;
  const series = rates(found.detail.iterations, from, to);
  const mean = (points) => points.reduce((sum, [, v]) => sum + v, 0) / points.length;
  const worst = { s: 0, slot: null };
  for (const [slot, list] of tasks) {
    if (slot < 0) continue;
    for (const segment of segments(found.track, list, slot, from, to)) {
      if (segment.kind !== "waiting" && segment.kind !== "queued" && segment.kind !== "held") continue;
      const long = Math.min(segment.to, to) - Math.max(segment.from, from);
      if (long > worst.s) Object.assign(worst, { s: long, slot });
    }
  }
  const queue = found.track.queue.filter(([t]) => t <= to);
  if (queue.length) queue.push([to, queue.at(-1)[1]]);
  return {
    prompt_tps: mean(series.prompt), gen_tps: mean(series.gen), worst_stall_s: worst.s, worst_stall_slot: worst.slot,
    prompt_series: series.prompt, gen_series: series.gen, queue_series: queue, stall_series: [],
  };
}
