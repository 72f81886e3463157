// The same iterations in Plotly, for zoom and export: a picture of the moment it was opened.
import { fontFamily, themed } from "../charts/tokens.js";
import { grouped } from "../frame/format.js";
import { promptTokens } from "./stripmodel.js";

let loading = null;

function load(src) {
  if (window.Plotly) return Promise.resolve();
  loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = src;
    script.onload = done;
    script.onerror = () => { loading = null; failed(new Error("The chart library did not load; try again.")); };
    document.head.append(script);
  });
  return loading;
}

function traces(state) {
  const { iterations } = state;
  const x = iterations.map((it) => it.i);
  const ids = [...new Set(iterations.flatMap((it) => [...it.prompt, ...it.gen].map(([slot]) => slot)))].sort((a, b) => a - b);
  const of = (pairs, id) => pairs.find(([slot]) => slot === id)?.[1] ?? 0;
  const pattern = (id) => (id >= 8 ? { shape: "/", size: 5, solidity: 0.4 } : undefined);
  const prompts = ids.map((id) => ({
    type: "bar", name: `slot ${id}`, legendgroup: String(id), x, y: iterations.map((it) => of(it.prompt, id)),
    marker: { color: `--slot-${id % 8}`, line: { width: 0 }, pattern: pattern(id) },
    customdata: iterations.map((it) => [grouped(it.run_ms), grouped(promptTokens(it))]),
    hovertemplate: `slot ${id}: %{y} of %{customdata[1]} prompt tokens<br>iteration %{x}, %{customdata[0]} ms<extra></extra>`,
  }));
  const generation = ids.map((id) => ({
    type: "bar", name: `slot ${id}`, legendgroup: String(id), showlegend: false, x, y: iterations.map((it) => of(it.gen, id)), yaxis: "y2",
    marker: { color: `--slot-${id % 8}-soft`, line: { width: 0 }, pattern: pattern(id) },
    hovertemplate: `slot ${id}: %{y} generated<br>iteration %{x}<extra></extra>`,
  }));
  return [...prompts, ...generation];
}

function layout() {
  const [ink, quiet, line, line2] = ["--ink", "--ink-3", "--line", "--line-2"];
  const font = { family: fontFamily(), size: 12, color: ink };
  const axis = { gridcolor: line, linecolor: line2, zerolinecolor: line2, tickfont: { size: 11, color: quiet }, tickformat: "d" };
  const fromZero = { ...axis, rangemode: "tozero" };
  return {
    barmode: "stack", bargap: 0.1, font, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 64, r: 16, t: 8, b: 36 },
    hoverlabel: { bgcolor: "--bg-over", bordercolor: line2, font }, legend: { orientation: "h", y: 1.08, font: { size: 12 } },
    modebar: { color: quiet, activecolor: "--accent", bgcolor: "rgba(0,0,0,0)" },
    xaxis: { ...axis, title: { text: "iteration", font: { size: 11, color: quiet } }, anchor: "y2" },
    yaxis: { ...fromZero, domain: [0.3, 1], title: { text: "prompt tokens", font: { size: 11, color: quiet } } },
    yaxis2: { ...fromZero, domain: [0, 0.24], title: { text: "generated", font: { size: 11, color: quiet } } },
  };
}

const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], toImageButtonOptions: { format: "png", filename: "batches", scale: 2 } };

export async function openChart(src, state) {
  const dialog = document.getElementById("chart");
  const node = dialog.querySelector("[data-chart]");
  const says = dialog.querySelector("[data-chart-says]");
  const { iterations } = state;
  dialog.showModal();
  says.textContent = "Loading the chart library.";
  try {
    await load(src);
  } catch (error) {
    says.textContent = error.message;
    return;
  }
  says.textContent = `Iterations ${iterations[0].i} to ${iterations.at(-1).i}, as of ${new Date(state.t * 1000).toLocaleTimeString()}. It does not move on while open: drag to zoom, double click to zoom out.`;
  const draw = () => window.Plotly.react(node, themed(traces(state)), themed(layout()), config);
  await draw();
  window.addEventListener("slotboard:theme", draw);
  dialog.addEventListener("close", () => {
    window.removeEventListener("slotboard:theme", draw);
    window.Plotly.purge(node);
  }, { once: true });
}
