// A part of the page as a PNG, drawn by this browser: backgrounds, borders, text and drawings, as they stand on the screen.
// Nothing leaves the page, and no style is inlined into it: computed styles are copied into a picture of each drawing.
const SCALE = 2;
const PAD = 16;
const SVG = "http://www.w3.org/2000/svg";
const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "vector-effect", "shape-rendering"];

const clear = (colour) => colour === "transparent" || /, 0\)$/.test(colour) || /\/ 0\)$/.test(colour);

function dress(from, to) {
  const style = getComputedStyle(from);
  for (const name of STYLES) to.setAttribute(name, style.getPropertyValue(name));
  for (let at = 0; at < from.children.length; at++) dress(from.children[at], to.children[at]);
}

// A drawing with everything it refers to in the page (patterns, marks) inside it.
function whole(node, box) {
  const copy = node.cloneNode(true);
  dress(node, copy);
  copy.setAttribute("xmlns", SVG);
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  copy.setAttribute("color", getComputedStyle(node).color);
  const markup = copy.outerHTML;
  const defs = document.createElementNS(SVG, "defs");
  for (const [, id] of markup.matchAll(/(?:url\((?:&quot;|"|')?#|href="#)([\w-]+)/g)) {
    if (defs.querySelector(`[id="${id}"]`)) continue;
    const source = document.getElementById(id);
    if (!source) continue;
    const part = source.cloneNode(true);
    if (source.tagName === "pattern") dress(source, part);
    defs.append(part);
  }
  copy.prepend(defs);
  return new XMLSerializer().serializeToString(copy);
}

function load(markup) {
  return new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => failed(new Error("a drawing could not be made into a picture"));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(markup)}`;
  });
}

function boxOf(style, box, pen) {
  if (!clear(style.backgroundColor)) {
    pen.fillStyle = style.backgroundColor;
    pen.globalAlpha = Number(style.opacity);
    pen.fillRect(box.x, box.y, box.width, box.height);
    pen.globalAlpha = 1;
  }
  const sides = { Top: [0, 0, 1, 0], Right: [1, 0, 0, 1], Bottom: [0, 1, 1, 0], Left: [0, 0, 0, 1] };
  for (const [side, [x, y, across, down]] of Object.entries(sides)) {
    const wide = parseFloat(style[`border${side}Width`]);
    if (!wide || style[`border${side}Style`] === "none" || clear(style[`border${side}Color`])) continue;
    pen.fillStyle = style[`border${side}Color`];
    pen.fillRect(box.x + x * (box.width - wide), box.y + y * (box.height - wide), across ? box.width : wide, down ? box.height : wide);
  }
}

function textOf(node, style, origin, pen) {
  const range = document.createRange();
  range.selectNodeContents(node);
  pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  pen.fillStyle = style.color;
  pen.textBaseline = "middle";
  for (const line of lines(node, range)) pen.fillText(line.text, line.x - origin.x, line.y - origin.y);
}

// The lines that a text was broken into, each with where it begins.
function lines(node, range) {
  const text = node.textContent;
  const out = [];
  let last = null;
  for (let at = 0; at < text.length; at++) {
    range.setStart(node, at);
    range.setEnd(node, at + 1);
    const box = range.getClientRects()[0];
    if (!box || (!box.width && !box.height)) continue;
    if (!last || Math.abs(box.top - last.top) > 2) {
      last = { text: "", x: box.left, y: box.top + box.height / 2, top: box.top };
      out.push(last);
    }
    last.text += /\s/.test(text[at]) ? " " : text[at];
  }
  return out;
}

function clipped(node, root) {
  let box = null;
  for (let at = node.parentElement; at && at !== root; at = at.parentElement) {
    if (getComputedStyle(at).overflowX === "visible") continue;
    const one = at.getBoundingClientRect();
    box = box ? new DOMRect(Math.max(box.x, one.x), Math.max(box.y, one.y), Math.min(box.right, one.right) - Math.max(box.x, one.x), Math.min(box.bottom, one.bottom) - Math.max(box.y, one.y)) : one;
  }
  return box;
}

// The square before a slot's name.
function square(node, box, pen) {
  const style = getComputedStyle(node, "::before");
  const [wide, high] = [parseFloat(style.width) || 0, parseFloat(style.height) || 0];
  pen.fillStyle = style.backgroundColor;
  pen.fillRect(box.x, box.y + (box.height - high) / 2, wide, high);
}

const LEFT_OUT = ".side, .export, button.btn, [hidden], .vh, [data-no-picture]";

async function draw(node, root, origin, pen) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.textContent.trim()) textOf(node, getComputedStyle(node.parentElement), origin, pen);
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE || node.matches(LEFT_OUT)) return;
  const style = getComputedStyle(node);
  if (style.display === "none" || style.visibility === "hidden") return;
  const rect = node.getBoundingClientRect();
  const box = new DOMRect(rect.x - origin.x, rect.y - origin.y, rect.width, rect.height);
  const clip = clipped(node, root);
  pen.save();
  if (clip) {
    pen.beginPath();
    pen.rect(clip.x - origin.x, clip.y - origin.y, Math.max(clip.width, 0), Math.max(clip.height, 0));
    pen.clip();
  }
  if (node instanceof SVGSVGElement) {
    if (box.width > 0 && box.height > 0) pen.drawImage(await load(whole(node, box)), box.x, box.y, box.width, box.height);
  } else {
    boxOf(style, box, pen);
    if (node.matches(".sl")) square(node, box, pen);
  }
  pen.restore();
  if (node instanceof SVGSVGElement) return;
  for (const child of node.childNodes) {
    pen.save();
    if (clip) {
      pen.beginPath();
      pen.rect(clip.x - origin.x, clip.y - origin.y, Math.max(clip.width, 0), Math.max(clip.height, 0));
      pen.clip();
    }
    await draw(child, root, origin, pen);
    pen.restore();
  }
}

// Resolves to a Blob. `caption` stands below: which server, which time.
export async function picture(root, caption) {
  const rect = root.getBoundingClientRect();
  const canvas = document.createElement("canvas");
  canvas.width = (rect.width + 2 * PAD) * SCALE;
  canvas.height = (rect.height + 2 * PAD + 20) * SCALE;
  const pen = canvas.getContext("2d");
  pen.scale(SCALE, SCALE);
  const body = getComputedStyle(document.body);
  pen.fillStyle = body.backgroundColor;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  const origin = { x: rect.x - PAD, y: rect.y - PAD };
  await draw(root, root, origin, pen);
  pen.font = `12px ${body.fontFamily}`;
  pen.fillStyle = body.color;
  pen.textBaseline = "middle";
  pen.fillText(caption, PAD, rect.height + 2 * PAD + 4);
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("the picture is too large"))), "image/png"));
}
