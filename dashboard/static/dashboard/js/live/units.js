// The models of a router or the engines of a vLLM, one row each; the server makes the first rows with the same words (dashboard/units.py).
import { grouped } from "../frame/format.js";
import { el, mark, rebuild, show } from "./dom.js";
import { HEALTH } from "./words.js";

const share = (value) => (value === null || value === undefined ? null : `${Math.round(value * 100)} %`);
const number = (value) => (value === null || value === undefined ? null : grouped(value, value > 0 && value < 9.95 && !Number.isInteger(value) ? 1 : 0));
const pair = (of) => (of?.n ? `${time(of.p50)}, ${time(of.p95)}` : null);
const time = (s) => (s === null || s === undefined ? "–" : s < 0.0995 ? `${(s * 1000).toFixed(0)} ms` : `${s.toFixed(s < 9.95 ? 2 : 0)} s`);
const slots = (unit) => (unit.n_slots ? (unit.n_ctx_slot ? `${unit.n_slots} × ${grouped(unit.n_ctx_slot)}` : String(unit.n_slots)) : null);

// The cells after name and state: [key, text or null]. Pure.
export function cells(unit) {
  return [
    ["running", number(unit.running)], ["waiting", number(unit.waiting)], ["n_slots", slots(unit)], ["kv_use", share(unit.kv_use)], ["prefix_hits", share(unit.prefix_hits)],
    ["prompt_tps", number(unit.prompt_tps)], ["gen_tps", number(unit.gen_tps)], ["ttft", pair(unit.ttft)], ["itl", pair(unit.itl)],
  ];
}

export class Units {
  constructor(page) {
    this.section = page.querySelector("[data-units]");
    this.body = this.section?.querySelector("tbody");
    // Of the columns behind name and state.
    this.labels = [...(this.section?.querySelectorAll("thead th") ?? [])].slice(2).map((head) => head.textContent.trim());
  }

  draw(state) {
    if (!this.section) return;
    const units = state.units ?? [];
    show(this.section, units.length > 0);
    rebuild(this.body, JSON.stringify(units), () => units.map((unit) => row(unit, this.labels)));
  }
}

function row(unit, labels) {
  const name = el("th", "", unit.id, " ", el("span", "q", unit.model && unit.model !== unit.id ? unit.model : ""));
  name.scope = "row";
  name.setAttribute("role", "rowheader");
  const [drawn, tone] = HEALTH[unit.state] ?? ["idle", "q"];
  const state = el("td", "", el("span", `st ${tone}`, mark(drawn, tone), el("span", "", unit.text)), " ", el("span", "q", unit.detail ?? ""));
  state.setAttribute("role", "cell");
  const rest = cells(unit).map(([key, text], index) => {
    const cell = el("td", "r", text ?? "–");
    cell.setAttribute("role", "cell");
    cell.dataset.l = labels[index] ?? "";
    if (text === null && unit.missing?.[key]) cell.title = unit.missing[key];
    return cell;
  });
  const made = el("tr", "", name, state, ...rest);
  made.setAttribute("role", "row");
  return made;
}
