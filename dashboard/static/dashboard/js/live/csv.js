// Rows as CSV, and the rows of each view. Pure.
// A text that a spreadsheet would take for a formula gets an apostrophe before it, as in the console's other CSV files.
const FORMULA = /^[=+\-@\t\r]/;

function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isFinite(value) ? String(Math.round(value * 1e6) / 1e6) : "";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  const safe = FORMULA.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csv(columns, rows) {
  return [columns, ...rows.map((row) => columns.map((name) => row[name]))].map((cells) => cells.map(cell).join(",")).join("\r\n") + "\r\n";
}

const total = (pairs) => (pairs ?? []).reduce((sum, [, n]) => sum + n, 0);
const pairsText = (pairs) => (pairs ?? []).map(([slot, what]) => `${slot}: ${what}`).join("; ");

export const COLUMNS = {
  slots: ["id", "state", "since", "task", "client", "n_prompt", "n_cached", "n_processed", "n_generated", "n_tokens", "n_ctx", "rate", "submitted_at", "first_visit_at", "prompt_done_at", "first_token_at", "waiting_for"],
  batches: ["i", "i_to", "t", "dur_ms", "prompt_tokens", "generated_tokens", "prompt", "gen", "held", "skipped", "phase", "cohort", "policy", "queue"],
  lanes: ["slot", "kind", "from", "to", "duration_s", "task", "client", "tokens", "first_iteration", "last_iteration", "open", "why"],
  fairness: ["what", "name", "value", "unit"],
  stall: ["slot", "client", "task", "iterations", "tokens", "seconds", "share"],
};

export function batchRows(iterations) {
  return iterations.map((it) => ({
    ...it, i_to: it.i_to ?? it.i, dur_ms: it.dur_ms ?? (it.plan_ms ?? 0) + (it.run_ms ?? 0) + (it.settle_ms ?? 0), prompt_tokens: total(it.prompt), generated_tokens: total(it.gen),
    prompt: pairsText(it.prompt), gen: pairsText(it.gen), held: (it.held ?? []).join("; "), skipped: pairsText(it.skipped),
  }));
}

export function laneRows(segments) {
  return segments.map(({ slot, kind, from, to, task, client, n, i, j, open, why }) => ({ slot, kind, from, to, duration_s: to - from, task, client, tokens: n, first_iteration: i, last_iteration: j, open: open ? "yes" : "", why }));
}

const UNITS = { max_service_gap_s: "s", oldest_wait_s: "s", worst_itl_s: "s", cache_hit: "share" };

export function fairnessRows(told) {
  const rows = [];
  for (const slot of told.slots ?? []) {
    for (const [name, unit] of [["prompt_tokens", "tokens"], ["gen_tokens", "tokens"], ["busy_s", "s"], ["share", "share"]]) rows.push({ what: `slot ${slot.slot}`, name, value: slot[name], unit });
  }
  for (const one of told.clients ?? []) {
    for (const [name, unit] of [["tasks", "tasks"], ["tokens", "tokens"], ["share", "share"]]) rows.push({ what: one.client, name, value: one[name], unit });
  }
  for (const name of ["jain_slots", "jain_clients", "max_service_gap_s", "max_service_gap_slot", "oldest_wait_s", "oldest_wait_slot", "stalls", "worst_itl_s", "worst_itl_slot", "cache_hit"]) {
    rows.push({ what: "server", name, value: told[name], unit: UNITS[name] ?? "" });
  }
  for (const of of ["ttft", "itl"]) for (const [name, value] of Object.entries(told[of] ?? {})) rows.push({ what: of, name, value, unit: name === "n" ? "" : "s" });
  return rows;
}
