// Numbers and durations in words, the same way dashboard/present.py writes them.
const MINUTE = 60;
const HOUR = 3600;
const DAY = 86400;

// Digits grouped from 10,000 up, a true minus sign.
export function grouped(value, places = 0) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  const digits = { minimumFractionDigits: places, maximumFractionDigits: places, useGrouping: size >= 10_000 };
  return (value < 0 ? "\u2212" : "") + size.toLocaleString("en-US", digits);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 9.95) return `${Math.max(seconds, 0).toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < MINUTE) return `${whole} s`;
  const two = (big, unit, rest, part) => (rest ? `${big} ${unit} ${rest} ${part}` : `${big} ${unit}`);
  if (whole < HOUR) return two(Math.floor(whole / MINUTE), "min", whole < 10 * MINUTE ? whole % MINUTE : 0, "s");
  if (whole < DAY) return two(Math.floor(whole / HOUR), "h", Math.floor((whole % HOUR) / MINUTE), "min");
  return two(Math.floor(whole / DAY), "d", whole < 10 * DAY ? Math.floor((whole % DAY) / HOUR) : 0, "h");
}

export function countdown(seconds) {
  const whole = Math.max(0, Math.ceil(seconds));
  const rest = (value) => String(value).padStart(2, "0");
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)}:${rest(whole % MINUTE)}`;
  return `${Math.floor(whole / HOUR)}:${rest(Math.floor((whole % HOUR) / MINUTE))}:${rest(whole % MINUTE)}`;
}
