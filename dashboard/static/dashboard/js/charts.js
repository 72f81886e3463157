// Draws the figures that the page carries as JSON (built by dashboard/charts on the server) with Plotly, in the theme in force.
import { readout } from "./charts/readout.js";
import { fontFamily, themed } from "./charts/tokens.js";

const NARROW = 400;
const ROW = 28;
const AXIS = 22;
const charts = new Map();

function options(figure) {
  return {
    displayModeBar: false,
    displaylogo: false,
    responsive: false,
    doubleClick: "reset",
    scrollZoom: false,
    showTips: false,
    locale: "en",
    staticPlot: !("zoom" in figure.dataset),
  };
}

function button(text, title, act) {
  const made = Object.assign(document.createElement("button"), { type: "button", className: "btn bare", title, textContent: text });
  made.addEventListener("click", act);
  return made;
}

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.plot = document.createElement("div");
    this.plot.className = "chart-plot";
    figure.replaceChildren(this.plot);
    this.spec = { data: [], layout: {}, narrow: {}, readouts: [] };
    this.source = "";
    this.range = null;
    this.reading = readout(figure, () => ({ plot: this.plot, readouts: this.spec.readouts }));
    this.tools();
    new ResizeObserver(() => this.fit()).observe(figure);
  }

  tools() {
    const bar = Object.assign(document.createElement("div"), { className: "chart-tools" });
    this.reset = button("Whole range", "Show the whole range again", () => this.zoom(null, true));
    this.reset.hidden = true;
    const name = this.figure.dataset.file || "slotboard-chart";
    const save = () => window.Plotly.downloadImage(this.plot, { format: "png", scale: 2, filename: name });
    bar.append(this.reset, button("PNG", "Save as an image", save));
    this.figure.append(bar);
  }

  // New JSON in the page, or the same as before?
  read() {
    const source = document.getElementById(this.figure.dataset.chart)?.textContent ?? "";
    if (source === this.source || !source) return false;
    this.source = source;
    this.spec = JSON.parse(source);
    this.figure.setAttribute("aria-label", this.spec.alt);
    return true;
  }

  async draw() {
    this.width = this.figure.clientWidth;
    if (!this.width || !this.source) return;
    const narrow = this.width < NARROW;
    if (this.spec.rows) this.figure.style.height = `${this.spec.rows * ROW + AXIS}px`;
    const layout = themed({ ...this.spec.layout, ...(narrow ? this.spec.narrow : {}) });
    layout.font = { ...layout.font, family: fontFamily() };
    layout.width = this.width;
    layout.height = this.figure.clientHeight;
    if (this.range) layout.xaxis = { ...layout.xaxis, range: this.range, tickmode: "auto", nticks: 7 };
    await window.Plotly.react(this.plot, themed(this.spec.data), layout, options(this.figure));
    if (!this.listening && "zoom" in this.figure.dataset) this.listen();
  }

  listen() {
    this.listening = true;
    this.plot.on("plotly_relayout", (change) => {
      const ends = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (ends.every((end) => end !== undefined)) this.zoomed(ends);
      else if (change["xaxis.autorange"] || change["xaxis.range"]) this.zoom(null, true);
    });
  }

  // On a page whose address holds the range, zooming goes there.
  zoomed(ends) {
    if (!("zoomUrl" in this.figure.dataset)) return this.zoom(ends, true);
    window.dispatchEvent(new CustomEvent("slotboard:zoom", { detail: { from: ends[0], to: ends[1] } }));
  }

  // Charts of one link (both arms' timelines) show the same range.
  zoom(range, spread) {
    this.range = range;
    this.reset.hidden = !range;
    this.reading.clear();
    this.draw();
    if (!spread || !this.figure.dataset.link) return;
    for (const other of charts.values()) {
      if (other !== this && other.figure.dataset.link === this.figure.dataset.link) other.zoom(range, false);
    }
  }

  fit() {
    if (this.figure.clientWidth !== this.width) this.draw();
  }
}

function drawAll(again) {
  for (const figure of document.querySelectorAll("[data-chart]")) {
    if (!charts.has(figure)) charts.set(figure, new Chart(figure));
    const chart = charts.get(figure);
    if (chart.read() || again) chart.draw();
  }
  for (const [figure] of charts) if (!figure.isConnected) charts.delete(figure);
}

drawAll(false);
window.addEventListener("slotboard:theme", () => drawAll(true));
document.body.addEventListener("htmx:afterSettle", () => drawAll(false));
