// A segment, a mark and what was served meanwhile, in words. Pure.
import { duration, grouped } from "../frame/format.js";

const short = (seconds) => (seconds < 0.95 ? `${Math.max(Math.round(seconds * 1000), 0)} ms` : duration(seconds));

export function lasted(segment) {
  return `${short(segment.to - segment.from)}${segment.open ? " so far" : ""}`;
}

export function iterationWords({ i, j }) {
  if (i === null || i === undefined) return "";
  return i === j ? `iteration ${i}` : `iterations ${i} to ${j}`;
}

// "held: cohort 17 waits for slot 2" under the word held reads "cohort 17 waits for slot 2".
export const reason = (why) => why.replace(/^(waits|held|queued): /, "");

export function headline(segment) {
  return `Slot ${segment.slot} ${segment.kind} ${lasted(segment)}`;
}

export function facts(segment) {
  const out = [];
  if (segment.task !== null) out.push(`task ${segment.task}${segment.client ? `, ${segment.client}` : ""}`);
  if (segment.why) out.push(reason(segment.why));
  const lost = segment.kind === "waiting" || segment.kind === "queued" || segment.kind === "held";
  const iterations = iterationWords(segment);
  if (iterations) out.push(lost ? `without a token in ${iterations}` : iterations);
  if (segment.n) out.push(`${grouped(segment.n)} ${segment.kind === "generating" ? "generated" : "prompt tokens"}`);
  return out;
}

// Tokens that others were served in a stretch: [{slot, n}], most first; a span that reaches out of it counts by its part inside.
export function servedMeanwhile(track, slot, from, to) {
  const out = [];
  for (const [id, lane] of track.lanes) {
    if (id === slot) continue;
    let n = 0;
    for (const span of lane.spans) {
      const inside = Math.min(span.b, to) - Math.max(span.a, from);
      if (inside > 0) n += (span.n * inside) / Math.max(span.b - span.a, 1e-6);
    }
    if (n >= 0.5) out.push({ slot: id, n: Math.round(n) });
  }
  return out.sort((one, other) => other.n - one.n);
}

// Who has no slot at a moment: tasks that came before it and were assigned, or ended, after it.
export function inQueue(tasks, t) {
  return tasks.filter((task) => task.submitted_at <= t && (task.slot < 0 ? task.finished_at : task.assigned_at ?? task.submitted_at) > t + 0.001);
}

export function queueWords(depth, waiting, t) {
  if (!depth && !waiting.length) return ["Queue empty"];
  const count = Math.max(depth ?? 0, waiting.length);
  const out = [`${count} ${count === 1 ? "task" : "tasks"} without a slot`];
  const oldest = waiting.reduce((first, task) => (task.submitted_at < first.submitted_at ? task : first), waiting[0]);
  if (oldest) out.push(`oldest of those known: task ${oldest.task}${oldest.client ? `, ${oldest.client}` : ""}, ${short(t - oldest.submitted_at)} then`);
  return out;
}
