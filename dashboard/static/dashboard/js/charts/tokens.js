// Figures name colours as CSS variables ("--slot-0"); here they get the values of the theme in force.
const probe = document.createElement("span");
probe.hidden = true;

function colour(name, cache) {
  if (!cache.has(name)) {
    probe.style.color = `var(${name})`;
    cache.set(name, getComputedStyle(probe).color);
  }
  return cache.get(name);
}

function walk(value, cache) {
  if (typeof value === "string") return value.startsWith("--") ? colour(value, cache) : value;
  if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((item) => walk(item, cache));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, walk(item, cache)]));
}

// A copy of `part` with every variable's name replaced by its colour.
export function themed(part) {
  document.body.append(probe);
  const result = walk(part, new Map());
  probe.remove();
  return result;
}

export const fontFamily = () => getComputedStyle(document.body).fontFamily;
