// What the batch strip shows, as numbers only: columns, stacks, runs, bands and flags. Pure; strip.js draws it, chart.js too.
export const WIDTH = 1080;
export const COLUMNS = 120;

// Left edge and width of each column, newest at the right; by "duration" a column is as wide as its iteration took.
export function columns(iterations, mode, kept = COLUMNS) {
  if (mode !== "duration") {
    const wide = WIDTH / kept;
    const start = WIDTH - iterations.length * wide;
    return iterations.map((_, at) => ({ x: start + at * wide, w: wide }));
  }
  const took = iterations.map((it) => it.plan_ms + it.run_ms + it.settle_ms);
  const all = took.reduce((sum, ms) => sum + ms, 0) || 1;
  let x = 0;
  return took.map((ms) => {
    const w = (ms / all) * WIDTH;
    x += w;
    return { x: x - w, w };
  });
}

export const promptTokens = (it) => it.prompt.reduce((sum, [, n]) => sum + n, 0);

// The top of the scale: n_batch when a batch comes near it or when shares of it are asked for, else a round number above the largest.
export function scaleTop(iterations, nBatch, height) {
  const most = Math.max(0, ...iterations.map(promptTokens));
  if (nBatch && (height === "share" || most === 0 || most > nBatch * 0.4)) return Math.max(nBatch, most);
  if (!most) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 4, 5, 10].map((step) => step * power).find((step) => step >= most);
}

// Prompt tokens stacked from the bottom, in the order in which the slots contributed: [{slot, at, from, tokens}].
export function stacks(iterations) {
  return iterations.flatMap((it, at) => {
    let from = 0;
    return it.prompt.map(([slot, tokens]) => {
      from += tokens;
      return { slot, at, from: from - tokens, tokens };
    });
  });
}

const kindsOf = (it) => {
  const kinds = new Map(it.skipped.map(([slot]) => [slot, "wait"]));
  for (const slot of it.held) kinds.set(slot, "held");
  for (const [slot] of it.gen) kinds.set(slot, "gen");
  return kinds;
};

// One run per slot and kind ("gen", "held", "wait") over neighbouring columns: [{slot, kind, from, to}], `to` included.
export function runs(iterations) {
  const open = new Map();
  const done = [];
  iterations.forEach((it, at) => {
    const kinds = kindsOf(it);
    for (const [slot, run] of open) if (kinds.get(slot) !== run.kind) { done.push(run); open.delete(slot); }
    for (const [slot, kind] of kinds) {
      const run = open.get(slot);
      if (run) run.to = at;
      else open.set(slot, { slot, kind, from: at, to: at });
    }
  });
  return [...done, ...open.values()];
}

// Neighbouring iterations of one phase and cohort: [{phase, cohort, draining, from, to}].
export function bands(iterations) {
  const out = [];
  iterations.forEach((it, at) => {
    const last = out.at(-1);
    if (!it.phase) return; // merged ones tell of none
    if (last && last.to === at - 1 && last.phase === it.phase && last.cohort === it.cohort) last.to = at;
    else out.push({ phase: it.phase, cohort: it.cohort, from: at, to: at });
  });
  return out;
}

// A band in words, from the longest to the shortest way to say it.
export function bandWords({ phase, cohort }) {
  if (phase === "continuous") return ["continuous: prompts and generation share each batch", "continuous"];
  const name = phase === "pp" ? "PP" : phase === "tg" ? "TG" : phase;
  if (cohort === null || cohort === undefined) return phase === "tg" ? ["TG, draining", name] : [name];
  return [`${name}, cohort ${cohort}`, `${name} ${cohort}`, name];
}

// Marks that fall into the shown iterations, by column; two in one column become one flag.
export function flags(iterations, marks) {
  const byColumn = new Map();
  for (const mark of marks ?? []) {
    const at = iterations.findIndex((it) => it.i >= mark.iteration);
    if (at < 0 || (at === 0 && mark.iteration < iterations[0].i)) continue;
    const text = mark.by ? `${mark.text}, ${mark.by}` : mark.text;
    byColumn.set(at, byColumn.has(at) ? `${byColumn.get(at)}; ${text}` : text);
  }
  return [...byColumn].map(([at, text]) => ({ at, text }));
}

// Which flags keep their words: newest first, each only where it meets no other. `places` are {x, flip} in px, `width` the room.
export function worded(flags, places, width, letter) {
  const taken = [];
  const kept = new Set();
  for (let n = flags.length - 1; n >= 0; n--) {
    const { x, flip } = places[n];
    const long = flags[n].text.length * letter + 18;
    const [from, to] = flip ? [x - long, x] : [x, x + long];
    if (from < 0 || to > width || taken.some(([a, b]) => from < b && a < to)) continue;
    taken.push([from, to]);
    kept.add(n);
  }
  return flags.map((_, n) => kept.has(n));
}

// Which iteration numbers to name below: round ones, and the last.
export function ticks(iterations, every = 20) {
  if (!iterations.length) return [];
  const last = iterations.length - 1;
  const round = iterations.map((it, at) => ({ i: it.i, at })).filter(({ i, at }) => i % every === 0 && at < last - 8);
  return [...round, { i: iterations[last].i, at: last }];
}
