// Who was in the way of a slot, for how long and in which iterations, and what other orders would have done, in words.
import { duration, grouped } from "../frame/format.js";
import { el, show, slotName } from "./dom.js";
import { stallOf } from "./history.js";
import { reason } from "./lanewords.js";
import { clock } from "./range.js";
import { fieldName, value } from "./words.js";

// 46101 to 46107, 46110: neighbouring numbers as one range. Pure.
export function rangesOf(numbers) {
  const out = [];
  for (const n of numbers) {
    const last = out.at(-1);
    if (last && n === last[1] + 1) last[1] = n;
    else out.push([n, n]);
  }
  return out.map(([a, b]) => (a === b ? `${a}` : `${a} to ${b}`));
}

const SHOWN_RANGES = 6;

export function iterationsText(numbers) {
  const ranges = rangesOf(numbers);
  const more = ranges.length - SHOWN_RANGES;
  return ranges.slice(0, SHOWN_RANGES).join(", ") + (more > 0 ? ` and ${more} more ${more === 1 ? "stretch" : "stretches"}` : "");
}

// The first sentence: who took the most, in words. Pure.
export function verdict(stall) {
  const [first, ...others] = stall.blockers ?? [];
  if (!first) return "No other slot was served in this time.";
  const who = `slot ${first.slot}${first.client ? ` (${first.client})` : ""}`;
  const slots = [...new Set(others.map((one) => one.slot))];
  const rest = slots.length ? `; ${slots.length === 1 ? `slot ${slots[0]}` : `${slots.length} slots`} had the rest` : "";
  return `${who[0].toUpperCase()}${who.slice(1)} had ${Math.round((first.share ?? 0) * 100)} % of the time, in ${counted(first.iterations, "iteration")}${rest}.`;
}

const counted = (n, what) => `${grouped(n)} ${what}${n === 1 ? "" : "s"}`;

export function policyWords(policy) {
  const entries = Object.entries(policy ?? {});
  return entries.length ? entries.map(([name, of]) => `${fieldName(name)} ${value(of)}`).join(", ") : "not known";
}

export class Stall {
  constructor(page, api, view) {
    this.node = page.querySelector("[data-stall]");
    this.api = api;
    this.view = view;
    this.part = (name) => this.node.querySelector(`[data-s-${name}]`);
    this.part("close").addEventListener("click", () => this.close());
    this.node.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.close();
    });
    this.shown = "";
  }

  // From a click: it becomes part of the address, and the page stands still at a range that holds it.
  open(segment) {
    const stall = { slot: segment.slot, from: segment.from, to: segment.to };
    this.opened = true;
    this.view.open(stall);
    this.draw();
  }

  close() {
    this.view.open(null);
    this.draw();
    document.querySelector("[data-l-plot]")?.focus();
  }

  async draw() {
    const { stall } = this.view;
    show(this.node, stall !== null);
    const key = JSON.stringify(stall);
    if (!stall || this.shown === key) { if (!stall) this.shown = ""; return; }
    this.shown = key;
    this.found = null;
    const title = this.part("title");
    title.replaceChildren(slotName(stall.slot, `Slot ${stall.slot} waited ${duration(stall.to - stall.from)}`));
    this.part("when").textContent = `${clock(stall.from, true)} to ${clock(stall.to, true)}`;
    this.part("body").replaceChildren(el("p", "q", "Asking the console who was served meanwhile."));
    if (this.opened) this.node.focus({ preventScroll: false });
    this.opened = false;
    try {
      const found = await stallOf(this.api, stall.slot, stall.from, stall.to);
      if (this.shown !== key) return;
      this.found = found;
      this.part("body").replaceChildren(...this.#body(found));
    } catch (error) {
      if (this.shown === key) this.part("body").replaceChildren(el("p", "is-bad", `This cannot be told now: ${error.message}.`));
    }
  }

  #body(stall) {
    const out = [el("p", "stall-v", verdict(stall))];
    if (stall.reason) out.push(el("p", "", el("span", "q", "Said by the scheduler: "), reason(stall.reason)));
    if (stall.blockers?.length) out.push(blockers(stall.blockers));
    const facts = [
      ["Task", stall.task === null || stall.task === undefined ? "not known" : String(stall.task)],
      ["Iterations", stall.iterations?.length ? iterationsText(stall.iterations) : "none known"],
      ["Policy then", policyWords(stall.policy)],
    ];
    out.push(el("dl", "facts", ...facts.map(([name, text]) => el("div", "", el("dt", "", name), el("dd", "", text)))));
    out.push(...elsewhere(stall));
    return out;
  }
}

function blockers(list) {
  const head = el("tr", "", ...["Who was served", "Client, task", "Iterations", "Tokens", "Time", "Share"].map((text, at) => {
    const cell = el("th", at > 1 ? "r" : "", text);
    cell.scope = "col";
    return cell;
  }));
  const rows = list.map((one) => {
    const name = el("th", "", slotName(one.slot));
    name.scope = "row";
    const who = el("td", "", one.client || "", " ", el("span", "q", one.task === null || one.task === undefined ? "" : `task ${one.task}`));
    const numbers = [grouped(one.iterations), grouped(one.tokens), duration(one.seconds), one.share === null || one.share === undefined ? "" : `${Math.round(one.share * 100)} %`];
    return el("tr", "", name, who, ...numbers.map((text) => el("td", "r", text)));
  });
  const table = el("table", "dense", el("thead", "", head), el("tbody", "", ...rows));
  return el("div", "over-x", table);
}

function elsewhere(stall) {
  const list = stall.elsewhere ?? [];
  if (!list.length) return [el("p", "q", stall.elsewhere_why ?? "What other orders would have done cannot be computed for this time: it needs the iterations of a server with a scheduler of its own.")];
  const items = list.map((one) => el("li", "", el("span", "", one.text)));
  return [el("h4", "", "The same queue under another order"), el("ul", "else", ...items)];
}
