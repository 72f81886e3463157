// Names and words of state, the same way dashboard/rows.py and dashboard/present.py write them.
export const STATE_MARKS = { idle: "idle", queued: "queued", waiting: "waiting", prompt: "prompt", held: "held", generating: "gen" };
export const HEALTH = {
  down: ["down", "is-bad", "Down"],
  unauthorised: ["lock", "is-warn", "Unauthorised"],
  silent: ["silent", "is-warn", "Busy, no answer"],
  unknown: ["unknown", "q", "Unknown"],
  loading: ["load", "q", "Loading"],
  up: ["up", "q", "Serving"],
};
const ORDER_OF_STATES = ["generating", "prompt", "held", "waiting", "queued", "idle"];
const SHORT_NAMES = {
  prefill_order: "prefill",
  rotation_start: "rotation",
  decode_share: "share of generation",
  barrier_join: "cohort closes at",
  barrier_join_window_ms: "window, ms",
  barrier_max_hold_ms: "longest hold, ms",
  barrier_max_generation_tokens: "tokens at a stretch",
};
const DEPENDS_ON = {
  rotation_start: ["prefill_order", "rotating"],
  barrier_join: ["phase", "barrier"],
  barrier_join_window_ms: ["barrier_join", "window"],
  barrier_max_hold_ms: ["phase", "barrier"],
  barrier_max_generation_tokens: ["phase", "barrier"],
};

export function fieldName(name) {
  return SHORT_NAMES[name] ?? name.replaceAll("_", " ");
}

export function value(of) {
  if (of === null || of === undefined) return "off";
  if (typeof of === "boolean") return of ? "on" : "off";
  return String(of).replaceAll("_", " ");
}

export function counts(policy, name) {
  const rule = DEPENDS_ON[name];
  return !rule || (policy.effective[rule[0]] === rule[1] && counts(policy, rule[0]));
}

export function summary(slots) {
  const counted = {};
  for (const slot of slots) counted[slot.state] = (counted[slot.state] ?? 0) + 1;
  const busy = slots.length - (counted.idle ?? 0);
  if (!busy) return `${slots.length}, all idle`;
  const parts = ORDER_OF_STATES.filter((name) => counted[name]).map((name) => `${counted[name]} ${name}`).join(", ");
  return busy === slots.length ? `${slots.length}, all busy: ${parts}` : `${slots.length}: ${parts}`;
}

export function cohortWords(state) {
  const cohort = state.phase?.cohort;
  return cohort ? `, cohort ${cohort.id} (${cohort.completed.length} of ${cohort.members.length} done)` : "";
}

export function missing(state, name) {
  const told = state.missing ?? {};
  return told[name] ?? told[name.split(".").at(-1)] ?? "";
}

const CANNOT = "This server cannot switch policies";

export function cannotSwitch(state) {
  const why = state.switching?.why_not || "it does not offer its scheduler";
  return state.switching?.can ? "" : why.startsWith(CANNOT) ? why : `${CANNOT}: ${why}`;
}
