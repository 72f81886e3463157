// Everything on a server's page that depends on the range: figures, slots, batches, lanes, fairness, the wait that is open.
// Live it follows the feed; over a fixed range it shows the console's detail, all parts the same range.
import { set, show } from "./dom.js";
import { Exports } from "./exports.js";
import { Fairness } from "./fairness.js";
import { Figures } from "./figures.js";
import { fairnessOf, fetchJson, History, past } from "./history.js";
import { Lanes } from "./lanes.js";
import { Map15 } from "./map.js";
import { clock as clockText, spanWords } from "./range.js";
import { kept, rewound } from "./rewind.js";
import { RangeBar } from "./rangebar.js";
import { Slots } from "./slots.js";
import { Stall } from "./stall.js";
import { Strip } from "./strip.js";
import { Track } from "./track.js";
import { ANSWERS } from "./words.js";

const FAIR_EVERY_S = 5;
const OF_FRAMES_S = 60; // the range that a frame's fairness is over
const RUNS_EVERY_MS = 15_000;

export class Board {
  // `now()` is the server's time.
  constructor(page, { api, runs, plotly }, view, now) {
    Object.assign(this, { view, now, api, runsAt: runs });
    this.state = null;
    this.past = null; // {key, state, found, fairness} of the fixed range
    this.runs = [];
    this.history = new History(api, () => this.#lanes());
    this.stall = new Stall(page, api, view);
    this.lanes = new Lanes(page, view, () => this.#source(), (segment) => this.stall.open(segment));
    this.map = new Map15(page, api, view);
    this.fairness = new Fairness(page);
    this.parts = [new Figures(page), new Slots(page), new Strip(page, plotly)];
    this.bar = new RangeBar(page, view, () => this.now());
    this.exports = new Exports(page, this);
    this.note = page.querySelector("[data-range-note]");
    this.fair = { key: "", told: null, why: "" };
    if (view.live) this.history.reach(view.range.span);
    this.stall.draw();
    setTimeout(() => this.map.fill(this.now()), 400);
    this.asking = setInterval(() => this.#fetchRuns(), RUNS_EVERY_MS);
  }

  // The feed has ended for good (logged out, link revoked): nothing more is asked for by itself.
  end() {
    clearInterval(this.asking);
  }

  // Each new state, whatever is shown.
  see(state) {
    const first = this.state === null;
    this.state = state;
    this.history.see(state);
    this.map.see(state);
    if (first) this.#fetchRuns();
  }

  shown() {
    return this.view.live ? this.state : this.past?.state ?? null;
  }

  draw() {
    if (this.view.live) {
      const now = this.now();
      const state = { ...this.state, rows: this.history.recent };
      for (const part of this.parts) part.draw(state, now);
      this.#fairness();
      if (this.history.lacks(now)) this.history.fill(now);
      this.#lanes();
    } else this.map.draw(this.now());
  }

  #lanes() {
    if (document.hidden || !this.view.live) return;
    this.lanes.tick();
    this.map.draw(this.now());
  }

  tick() {
    this.bar.tick();
    if (this.view.live) {
      for (const part of this.parts) part.tick?.(this.now());
      this.#lanes();
    } else this.map.draw(this.now());
  }

  // The range was changed: by a brush, a button, a key, or the browser's back.
  turn() {
    this.bar.draw();
    this.stall.draw();
    if (this.view.live) {
      this.past = null;
      show(this.note, false);
      this.history.reach(this.view.range.span);
      this.draw();
      this.lanes.draw();
    } else this.#look();
    this.#fetchRuns();
  }

  async #look() {
    const [from, to] = this.view.ends();
    const key = `${from} ${to}`;
    if (this.past?.key === key) return this.#drawPast();
    this.wanted = key;
    this.#tell("");
    try {
      const [found, fairness] = await Promise.all([past(this.api, from, to), fairnessOf(this.api, from, to).catch((error) => ({ why: error.message }))]);
      if (this.wanted !== key || this.view.live) return;
      this.past = { key, found, fairness, state: rewound(this.state, found, from, to) };
      this.#drawPast();
    } catch (error) {
      if (this.wanted !== key || this.view.live) return;
      this.#tell(`This time cannot be shown: ${error.message}.`);
    }
  }

  #drawPast() {
    const { state, found, fairness } = this.past;
    for (const part of this.parts) {
      part.draw(state, state.t);
      part.tick?.(state.t);
    }
    const known = kept(found.detail, this.view.range.to).any;
    const told = fairness.why === undefined && known ? fairness : null;
    this.fairness.draw(told, this.view.range, state, known ? fairness.why : "Who was served then is not kept.");
    this.lanes.draw();
    this.map.draw(this.now());
    this.#tell(pastNote(found.detail, this.view.ends(), this.now()));
  }

  #tell(text) {
    show(this.note, Boolean(text));
    set(this.note.querySelector("span"), text);
  }

  // A frame tells of the last minute; other live ranges are asked for every few seconds.
  #fairness() {
    const { range } = this.view;
    if (range.span === OF_FRAMES_S) return this.fairness.draw(this.state.fairness ?? null, range, this.state);
    const key = `${range.span} ${Math.floor(this.now() / FAIR_EVERY_S)}`;
    if (this.fair.key !== key && !document.hidden) {
      this.fair.key = key;
      const now = this.now();
      fairnessOf(this.api, now - range.span, now).then((told) => Object.assign(this.fair, { told, why: "", span: range.span }), (error) => Object.assign(this.fair, { told: null, why: error.message }));
    }
    if (this.fair.span === range.span || this.fair.why) this.fairness.draw(this.fair.told, range, this.state, this.fair.why);
  }

  async #fetchRuns() {
    if (document.hidden || !this.state) return;
    const [from, to] = this.view.ends();
    try {
      this.runs = (await fetchJson(`${this.runsAt}?from=${from.toFixed(3)}&to=${to.toFixed(3)}`)).runs;
    } catch {
      return; // the runs are an addition; the next time may bring them
    }
    if (this.view.live) this.lanes.tick();
    else this.lanes.draw();
  }

  #source() {
    const { state, history, view } = this;
    const up = ANSWERS.has(state.health.state);
    if (view.live) {
      const openUntil = up ? this.now() : state.health.seen_at ?? state.t;
      const late = state.missing?.iterations && state.slots.length ? `${state.missing.iterations.replace(/\.$/, "")}: lanes show what is seen of its slots while this page is open.` : "";
      const failed = history.why ? `What came before this page was opened cannot be shown: ${history.why}.` : "";
      return { track: history.track, tasks: history.tasks, slots: state.slots, marks: state.marks, runs: this.runs, gaps: history.gaps, openUntil, state, note: late || failed };
    }
    const found = this.past?.found;
    if (!found) return { track: EMPTY, tasks: [], slots: state.slots.map((slot) => ({ ...slot, state: "idle" })), marks: [], runs: this.runs, gaps: [], openUntil: 0, state, note: "" };
    if (!kept(found.detail, view.range.to).any) return { track: EMPTY, tasks: [], slots: [], openUntil: 0, state: this.past.state, note: "" };
    const slots = state.slots.map((slot) => (slot.submitted_at && slot.submitted_at < view.range.to ? slot : { ...slot, state: "idle" }));
    return { track: found.track, tasks: found.tasks, slots, marks: found.detail.marks, runs: this.runs, gaps: found.detail.gaps, openUntil: Math.min(this.now(), Math.max(view.range.to, found.detail.to)), state, note: "" };
  }
}

const EMPTY = new Track();

// What is not whole about a past range, in one sentence; "" when it is.
export function pastNote(detail, [from, to], now) {
  if (detail.oldest !== null && detail.oldest !== undefined && to < detail.oldest) {
    return `Full detail reaches back to ${clockText(detail.oldest)}; older times are kept as one figure a minute, under History.`;
  }
  if (!detail.iterations.length && !detail.tasks.length) return to > now ? "This time has not come yet." : "Nothing was at work in this time, or no observer watched.";
  const parts = [];
  if (detail.oldest > from + 1) parts.push(`full detail begins at ${clockText(detail.oldest)}`);
  const merged = detail.iterations.find((it) => it.merged > 1);
  if (merged) parts.push(`up to ${Math.max(...detail.iterations.map((it) => it.merged ?? 1))} neighbouring batches are drawn as one, zoom in to part them`);
  if (detail.cut) parts.push(`${detail.tasks.length} tasks are shown, those that waited longest`);
  const lost = (detail.gaps ?? []).reduce((sum, [a, b]) => sum + b - a, 0);
  if (lost > (to - from) / 50) parts.push(`${spanWords(lost)} of it nobody watched`);
  const text = parts.join("; ");
  return text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "";
}
