// Names and words of state, the same way dashboard/rows.py and dashboard/present.py write them.
import { duration } from "../frame/format.js";

export const STATE_MARKS = { idle: "idle", queued: "queued", waiting: "waiting", prompt: "prompt", held: "held", generating: "gen" };
export const HEALTH = {
  down: ["down", "is-bad", "Down"],
  not_serving: ["stuck", "is-bad", "Up but not serving"],
  unauthorised: ["lock", "is-warn", "Unauthorised"],
  silent: ["silent", "is-warn", "Busy, no answer"],
  unknown: ["unknown", "q", "Unknown"],
  loading: ["load", "q", "Loading"],
  up: ["up", "q", "Serving"],
  sleeping: ["sleep", "q", "Asleep"],
};
// The server answers, so what it tells is of now.
export const ANSWERS = new Set(["up", "not_serving", "sleeping"]);
// Their words already say for how long.
const TIMED = new Set(["silent", "not_serving"]);
const IN_TROUBLE = new Set(["down", "not_serving", "silent", "unauthorised"]);
const ORDER_OF_STATES = ["generating", "prompt", "held", "waiting", "queued", "idle"];
const SHORT_NAMES = {
  prefill_order: "prefill",
  rotation_start: "rotation",
  decode_share: "share of generation",
  barrier_join: "cohort closes at",
  barrier_join_window_ms: "window, ms",
  barrier_max_hold_ms: "longest hold, ms",
  barrier_max_generation_tokens: "tokens at a stretch",
  speculative: "drafts",
  speculative_n_max: "draft at most",
  speculative_n_min: "draft at least",
  speculative_ngram_size: "lookup of",
};
const DEPENDS_ON = {
  rotation_start: ["prefill_order", "rotating"],
  barrier_join: ["phase", "barrier"],
  barrier_join_window_ms: ["barrier_join", "window"],
  barrier_max_hold_ms: ["phase", "barrier"],
  barrier_max_generation_tokens: ["phase", "barrier"],
  speculative_ngram_size: ["speculative", "ngram"],
};
// Fields that matter while another one is not off.
const DEPENDS_ON_ANY = { speculative_n_max: "speculative", speculative_n_min: "speculative" };

// How many drafted tokens were right; "" where none were checked.
export function draftsRight(drafted, accepted) {
  return drafted ? `${Math.round(((accepted ?? 0) / drafted) * 100)} % of drafts right` : "";
}

export function fieldName(name) {
  return SHORT_NAMES[name] ?? name.replaceAll("_", " ");
}

export function value(of) {
  if (of === null || of === undefined) return "off";
  if (typeof of === "boolean") return of ? "on" : "off";
  return String(of).replaceAll("_", " ");
}

export function counts(policy, name) {
  if (name in DEPENDS_ON_ANY) return ![undefined, "off"].includes(policy.effective[DEPENDS_ON_ANY[name]]);
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

// One sentence for a server that does not answer or does not serve, as dashboard/first_view.py writes it; "" otherwise.
export function trouble(health, now) {
  if (!IN_TROUBLE.has(health.state)) return "";
  const since = !TIMED.has(health.state) && health.since ? ` for ${duration(Math.max(now - health.since, 0))}` : "";
  const told = health.detail ? `: ${health.detail.replace(/\.$/, "")}` : "";
  return `${health.text || HEALTH[health.state][2]}${since}${told}.${ANSWERS.has(health.state) ? "" : " What stands below is what was seen last."}`;
}

// The state, or the same with an unknown health when nothing was told for a while, as dashboard/present.py has it.
export function ofNow(state, old) {
  if (!old) return state;
  const last = state.health.text || (HEALTH[state.health.state] ?? HEALTH.unknown)[2];
  const health = { state: "unknown", text: "Not reported", detail: `no observer tells of it now; it was last seen as: ${last}`, since: state.t, seen_at: state.health.seen_at };
  return { ...state, health };
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
