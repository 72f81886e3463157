// One slot's time in segments, from its spans and the stages of its tasks. Pure.
// A segment: {kind, slot, from, to, task, client, i, j, n, why, open}; kind is queued, waiting, prompt, held or generating; `open`
// when it still lasts. `i` and `j` are null where no iteration is known, `n` counts tokens, `why` is the most frequent sentence.
const LEAST_S = 0.004; // what is shorter lies between two batches and is nobody's wait
const PAUSE_S = 0.1; // between two tokens; what is longer is shown as a wait

const KINDS = { prompt: "prompt", gen: "generating", held: "held" };

// Tasks by slot, oldest first, from ended tasks, the console's open ones (`finished_at` null) and the slots of a state. Slot -1 never had one.
// What is still open lasts until `now`.
export function bySlot(tasks, slots, now) {
  const out = new Map();
  const at = new Map(slots.map((slot) => [slot.id, slot]));
  const add = (slot, task) => (out.has(slot) ? out.get(slot).push(task) : out.set(slot, [task]));
  for (const task of tasks) {
    const open = task.finished_at === null || task.finished_at === undefined;
    if (open && at.get(task.slot)?.task === task.task) continue; // the state knows it better
    add(task.slot, staged(task, task.assigned_at ?? task.submitted_at, open ? now : task.finished_at, open));
  }
  for (const [slot, list] of out) if (slot >= 0) inTurn(list);
  for (const slot of slots) {
    if (slot.state === "idle" || !slot.submitted_at) continue;
    const before = out.get(slot.id)?.at(-1);
    if (before?.task === slot.task && !before.open) continue; // it has ended since
    add(slot.id, staged(slot, Math.max(slot.assigned_at ?? slot.submitted_at, before?.to ?? 0), now, true));
  }
  return out;
}

// A slot has one task at a time: one whose assignment is not known begins once the one before it has ended.
function inTurn(list) {
  list.sort((one, other) => one.to - other.to || one.from - other.from);
  for (let at = 1; at < list.length; at++) list[at].from = Math.max(list[at].from, Math.min(list[at - 1].to, list[at].to));
}

const staged = (told, from, to, open) => ({
  task: told.task, client: told.client, submitted: told.submitted_at, from, first: told.first_visit_at, prompted: told.prompt_done_at, token: told.first_token_at,
  to, open, state: told.state, waits: told.waiting_for ?? "", told,
});

// The queue's depth over time, [[t, depth], ...], from when tasks came and when they got a slot or left: where no iteration tells it.
export function queueOf(tasks) {
  const changes = [];
  for (const task of tasks) {
    const until = task.slot < 0 ? task.finished_at : task.assigned_at ?? task.submitted_at;
    if (until - task.submitted_at > LEAST_S) changes.push([task.submitted_at, 1], [until, -1]);
  }
  changes.sort((one, other) => one[0] - other[0]);
  let depth = 0;
  return changes.map(([t, by]) => [t, (depth += by)]);
}

// First index whose `key` is at or after `t`.
function lower(list, t, key) {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle][key] < t) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function segments(track, tasks, slot, from, to) {
  const lane = track.lanes.get(slot);
  const spans = lane?.spans ?? [];
  const out = [];
  let at = lower(spans, from, "b");
  let drawn = -Infinity; // until when something is told already
  const loose = (until) => {
    for (; at < spans.length && spans[at].a < until; at++) {
      out.push(served(spans[at], slot, null));
      drawn = spans[at].b;
    }
  };
  for (const task of tasks) {
    if (task.to < from || task.from > to) continue;
    loose(Math.min(task.from - LEAST_S, to));
    let here = Math.max(task.from, drawn, Math.min(from, spans[at]?.a ?? from));
    for (; at < spans.length && spans[at].a < task.to && spans[at].a <= to; at++) {
      rest(out, track, lane, slot, task, here, spans[at].a);
      out.push(served(spans[at], slot, task));
      here = Math.max(here, spans[at].b);
    }
    rest(out, track, lane, slot, task, here, Math.min(task.to, to), task.open);
    drawn = Math.max(drawn, here, task.to);
  }
  loose(to);
  return out.filter((segment) => segment.to >= from && segment.from <= to);
}

function served(span, slot, task) {
  return { kind: KINDS[span.kind], slot, from: span.a, to: span.b, task: task?.task ?? null, client: task?.client ?? "", i: span.i, j: span.j, n: span.n, why: "", open: false };
}

// What a task did between two stretches of service, parted at its stages.
function rest(out, track, lane, slot, task, from, to, tail = false) {
  if (to - from < LEAST_S) return;
  const known = track.knows((from + to) / 2);
  const cuts = known && !tail ? [] : [task.first, task.prompted, task.token].filter((t) => t && t > from + LEAST_S && t < to - LEAST_S);
  const edges = [from, ...cuts, to];
  for (let at = 0; at + 1 < edges.length; at++) piece(out, track, lane, slot, task, edges[at], edges[at + 1], tail && at + 2 === edges.length);
}

function piece(out, track, lane, slot, task, from, to, tail) {
  const middle = (from + to) / 2;
  const known = track.knows(middle);
  const wait = waited(lane, from, to);
  const kind = tail && task.open ? openKind(task) : stageKind(task, middle, known, wait, to - from);
  const lost = kind === "generating" ? null : track.between(from, to) ?? wait;
  const last = out.at(-1);
  if (last?.kind === kind && last.task === task.task && from - last.to < LEAST_S) {
    // What goes on beyond the last batch that is known is the same stretch.
    Object.assign(last, { to, open: tail && task.open, j: lost?.j ?? last.j });
    return;
  }
  out.push({
    kind, slot, from, to, task: task.task, client: task.client, i: lost?.i ?? null, j: lost?.j ?? null, n: 0,
    why: wait?.why || (tail && task.open ? task.waits ?? "" : ""), open: tail && task.open,
  });
}

const OPEN = new Set(["queued", "waiting", "prompt", "held", "generating"]);

const openKind = (task) => (OPEN.has(task.state) ? task.state : "waiting");

function stageKind(task, t, known, wait, length) {
  if (!task.first || t < task.first) return wait ? "waiting" : "queued";
  if (!task.prompted || t < task.prompted) return known ? "waiting" : "prompt";
  if (!task.token || t < task.token) return "held";
  return known && length > PAUSE_S ? "waiting" : "generating";
}

// The sentences that the iterations of a stretch gave for skipping this slot.
function waited(lane, from, to) {
  if (!lane) return null;
  const counts = {};
  let [i, j] = [null, null];
  for (let at = lower(lane.waits, from, "b"); at < lane.waits.length && lane.waits[at].a < to; at++) {
    const wait = lane.waits[at];
    if (Math.min(wait.b, to) - Math.max(wait.a, from) < LEAST_S / 4) continue;
    i ??= wait.i;
    j = wait.j;
    for (const [why, count] of Object.entries(wait.why)) counts[why] = (counts[why] ?? 0) + count;
  }
  if (i === null) return null;
  return { i, j, why: Object.entries(counts).sort((one, other) => other[1] - one[1])[0]?.[0] ?? "" };
}

// The whole wait around a segment: from the last service before it, or the task's begin, to the next after it. It may cross what is shown.
export function wholeWait(list, segment) {
  return list.find((one) => one.from <= segment.from && one.to >= segment.to && one.kind === segment.kind) ?? segment;
}

export const isWait = (segment) => segment.kind === "waiting" || segment.kind === "queued" || segment.kind === "held";
