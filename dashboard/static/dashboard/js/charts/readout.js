// The line of words under a chart: same place for mouse, keys and touch. The cursor is an outline over the range it speaks of.
const HINT = "Point at a chart, or step through it with the arrow keys.";

function nearest(readouts, x) {
  let best = -1;
  let distance = Infinity;
  readouts.forEach(({ x0, x1 }, index) => {
    const away = x < x0 ? x0 - x : x > x1 ? x - x1 : 0;
    if (away < distance) [best, distance] = [index, away];
  });
  return best;
}

// `current()` gives {plot, readouts} of the drawing as it is now.
export function readout(figure, current) {
  const line = document.getElementById(figure.dataset.readout);
  if (!line) return { clear() {} };
  const cursor = Object.assign(document.createElement("div"), { className: "chart-cur", hidden: true });
  figure.append(cursor);
  if (!line.textContent.trim()) line.textContent = HINT;
  let at = -1;

  const show = (index) => {
    const { plot, readouts } = current();
    const axis = plot?._fullLayout?.xaxis;
    const said = readouts[index];
    if (!axis || !said) return clear();
    at = index;
    const size = plot._fullLayout._size;
    const [from, to] = [said.x0, said.x1].map((x) => Math.min(Math.max(axis.l2p(x), 0), axis._length));
    const box = { left: size.l + from, width: Math.max(to - from, 1), top: size.t, height: size.h };
    for (const [side, value] of Object.entries(box)) cursor.style[side] = `${value}px`;
    cursor.hidden = false;
    const name = figure.dataset.name;
    line.textContent = name ? `${name}: ${said.text}` : said.text;
  };
  const clear = () => {
    at = -1;
    cursor.hidden = true;
  };
  const pointed = (event) => {
    const { plot, readouts } = current();
    const axis = plot?._fullLayout?.xaxis;
    if (!axis || !readouts.length) return;
    const x = axis.p2l(event.clientX - plot.getBoundingClientRect().left - plot._fullLayout._size.l);
    show(nearest(readouts, x));
  };

  figure.addEventListener("pointermove", pointed);
  figure.addEventListener("pointerdown", pointed);
  figure.addEventListener("pointerleave", clear);
  figure.addEventListener("blur", clear);
  figure.addEventListener("keydown", (event) => {
    const last = current().readouts.length - 1;
    const to = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
    if (event.key === "Escape") clear();
    if (to === undefined || event.target !== figure) return;
    event.preventDefault();
    show(to);
  });
  return { clear };
}
