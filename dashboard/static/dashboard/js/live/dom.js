// Writes to the page only what changed, so that an unchanged value costs no layout.
const SVG = "http://www.w3.org/2000/svg";

export function set(node, text) {
  if (node && node.textContent !== text) node.textContent = text;
}

export function attr(node, name, value) {
  if (node && node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export function show(node, on) {
  if (node && node.hidden === on) node.hidden = !on;
}

export function el(tag, className = "", ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

export function svg(tag, attributes = {}) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

export function mark(name, tone = "") {
  const node = svg("svg", { class: `m ${tone}`, "aria-hidden": "true" });
  node.append(svg("use", { href: `#m-${name}` }));
  return node;
}

export function remark(node, name) {
  attr(node.querySelector("use"), "href", `#m-${name}`);
}

// The slot's name in its own colour; from slot 8 on the same eight hues, hatched.
export function slotClass(id) {
  return `s${id % 8}${id >= 8 ? " x" : ""}`;
}

export function slotName(id, text = String(id)) {
  return el("span", `sl ${slotClass(id)}`, text);
}

// Rebuilds a node's children only when `key` changed since the last time.
export function rebuild(node, key, make) {
  if (!node || node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(...make());
}
