// Segments as the path data of one drawing: one path for each hue and kind, whatever the number of segments. Pure.
const HUES = 8;
const CLOSE = 0.75; // px: what lies closer is drawn as one
const LEAST = 0.6;

const at = (x) => x.toFixed(1);
const box = (x, y, wide, high) => `M${at(x)} ${at(y)}h${at(wide)}v${at(high)}H${at(x)}z`;

// How high a lane is: all of them fit into about one screen, until they scroll.
export const rowHeight = (lanes) => (lanes <= 16 ? 24 : lanes <= 40 ? 16 : 12);

// [[x0, x1], ...] of each kind, joined where the gap is too small to see.
export function runs(segments, x) {
  const out = { prompt: [], generating: [], held: [], waiting: [], queued: [] };
  for (const segment of segments) {
    const list = out[segment.kind];
    if (!list) continue;
    const [a, b] = [x(segment.from), x(segment.to)];
    const last = list.at(-1);
    if (last && a - last[1] < CLOSE) last[1] = Math.max(last[1], b);
    else list.push([a, b]);
  }
  return out;
}

// `lanes`: [{slot, segments}] from top to bottom. Path data by name, each with the attributes of its path.
export function paths(lanes, x, wide, row, offset = 0) {
  const drawn = new Map();
  const add = (name, attributes, d) => {
    if (!d) return;
    const entry = drawn.get(name);
    if (entry) entry.d += d;
    else drawn.set(name, { d, attributes });
  };
  const pad = row >= 24 ? 4 : row >= 16 ? 2 : 1.5;
  const edge = row >= 16 ? 2 : 1.5;
  lanes.forEach(({ slot, segments }, index) => {
    const top = index * row - offset + pad;
    const [high, middle] = [row - 2 * pad, top + row / 2 - pad];
    const hue = slot % HUES;
    const kinds = runs(segments, (t) => Math.min(Math.max(x(t), 0), wide));
    const boxes = (list, y, tall) => list.map(([a, b]) => box(a, y, Math.max(b - a, LEAST), tall)).join("");
    add(`g${hue}`, { class: `s${hue} soft crisp` }, boxes(kinds.generating, top, high));
    add(`e${hue}`, { class: `s${hue} solid crisp` }, boxes(kinds.generating, top + high - edge, edge));
    if (slot < HUES) add(`p${hue}`, { class: `s${hue} solid crisp` }, boxes(kinds.prompt, top, high));
    else add(`x${hue}`, { class: "crisp", fill: `url(#x${hue})` }, boxes(kinds.prompt, top, high));
    const held = boxes(kinds.held, top + 0.5, high - 1);
    add(`h${hue}`, { fill: `url(#h${hue})` }, held);
    add(`o${hue}`, { class: `s${hue} hb` }, held);
    add("wait", { class: "idle crisp" }, boxes(kinds.waiting, middle - 0.75, 1.5));
    add("queued", { class: "que" }, kinds.queued.map(([a, b]) => `M${at(a)} ${at(middle)}H${at(Math.max(b, a + 2))}`).join(""));
  });
  return drawn;
}

// The queue's depth as a stepped area: {area, line, most}.
export function depthPath(points, from, to, x, high) {
  const inside = points.filter(([t], index) => t <= to && (points[index + 1]?.[0] ?? Infinity) >= from);
  const most = Math.max(0, ...inside.map(([, depth]) => depth));
  if (!most) return { area: "", line: "", most: 0 };
  const y = (depth) => high - (depth / most) * (high - 2);
  let area = "";
  let line = "";
  inside.forEach(([t, depth], index) => {
    if (!depth) return;
    const [a, b] = [x(Math.max(t, from)), x(Math.min(inside[index + 1]?.[0] ?? to, to))];
    area += box(a, y(depth), Math.max(b - a, LEAST), high - y(depth));
    line += `M${at(a)} ${at(y(depth))}H${at(Math.max(b, a + 1))}`;
  });
  return { area, line, most };
}
