// The time range that a page shows, and how it stands in the address. Pure.
// A range is {live: true, span} (the last `span` seconds) or {live: false, from, to} in Unix seconds.
export const SPANS = [60, 150, 300, 900];
export const KEPT_S = 900; // full detail reaches back so far
const FIRST_SPAN = 60;
const SHORTEST_S = 0.05;
const LONGEST_S = 3600;
const MILLISECONDS = 1e11; // a number above this is not in seconds

const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

// A Unix time in seconds or milliseconds, or a date; null when it is none of them.
function moment(text) {
  if (text === null || text.trim() === "") return null;
  const number = Number(text);
  const seconds = Number.isFinite(number) ? (number > MILLISECONDS ? number / 1000 : number) : Date.parse(text) / 1000;
  return Number.isFinite(seconds) && seconds > 0 ? seconds : null;
}

export function read(search) {
  const asked = new URLSearchParams(search);
  const [from, to] = [moment(asked.get("from")), moment(asked.get("to"))];
  if (from !== null && to !== null && to > from) return fixed(from, to);
  const span = Number(asked.get("live"));
  return { live: true, span: span > 0 ? clamp(Math.round(span), 5, KEPT_S) : FIRST_SPAN };
}

// A fixed range of at least the shortest length, around its middle.
export function fixed(from, to) {
  const middle = (from + to) / 2;
  const half = clamp(to - from, SHORTEST_S, LONGEST_S) / 2;
  return { live: false, from: round(middle - half), to: round(middle + half) };
}

const round = (t) => Math.round(t * 1000) / 1000;

export function write(range) {
  return range.live ? `?live=${range.span}` : `?from=${range.from.toFixed(3)}&to=${range.to.toFixed(3)}`;
}

export function ends(range, now) {
  return range.live ? [now - range.span, now] : [range.from, range.to];
}

// Nearer or farther around `at`; zooming leaves live, except farther out of a live range, which takes the next longer one.
export function zoomed(range, factor, at, now) {
  const [from, to] = ends(range, now);
  if (range.live && factor > 1) return { live: true, span: SPANS.find((span) => span > range.span) ?? range.span };
  const reach = clamp((to - from) * factor, SHORTEST_S, LONGEST_S);
  const share = clamp((at - from) / (to - from), 0, 1);
  const start = Math.min(at - share * reach, now - reach);
  return fixed(start, start + reach);
}

// Back (negative) or on by a share of its length; never into the future.
export function moved(range, share, now) {
  const [from, to] = ends(range, now);
  const by = Math.min((to - from) * share, now - to);
  return fixed(from + by, to + by);
}

const PART = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };

export function clock(t, tenths = false) {
  const text = new Date(t * 1000).toLocaleTimeString("en-GB", PART);
  return tenths ? `${text}.${Math.floor((((t % 1) + 1) % 1) * 10)}` : text;
}

export function words(range) {
  if (range.live) return `last ${spanWords(range.span)}`;
  const fine = range.to - range.from < 20;
  return `${clock(range.from, fine)} to ${clock(range.to, fine)}`;
}

export function spanWords(seconds) {
  if (seconds < 10) return `${Number(seconds.toFixed(seconds < 1 ? 2 : 1))} s`;
  return seconds % 60 === 0 && seconds >= 300 ? `${seconds / 60} min` : `${Math.round(seconds)} s`;
}

// Where to name times below a plot: [{share, text}] with round distances, relative to now while live.
export function ticks(from, to, live, most = 6) {
  const length = to - from;
  const step = niceStep(length / most);
  const out = [];
  if (live) {
    for (let back = 0; back <= length + 1e-9; back += step) out.unshift({ share: 1 - back / length, text: back ? `−${Number(back.toFixed(3))} s` : "now" });
    return out;
  }
  const places = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  for (let t = Math.ceil(from / step - 1e-9) * step; t <= to + 1e-9; t += step) {
    const whole = Math.floor(t + 1e-6);
    const rest = places ? (t - whole).toFixed(places).slice(1) : "";
    out.push({ share: (t - from) / length, text: clock(whole) + rest });
  }
  return out;
}

function niceStep(raw) {
  for (const step of [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 180, 300, 600]) if (step >= raw) return step;
  return 1200;
}
