// Who got what, over the range that the page shows. Each name leads to its definition.
import { duration, grouped } from "../frame/format.js";
import { attr, el, rebuild, set, show, slotClass, slotName, svg } from "./dom.js";
import { missing } from "./words.js";
import { spanWords, words } from "./range.js";

const known = (value) => value !== null && value !== undefined;
const percent = (share) => (known(share) ? (share > 0 && share < 0.0995 ? (share * 100).toFixed(1) : String(Math.round(share * 100))) : "–");
const seconds = (s) => (s === 0 ? "0 s" : s < 0.0995 ? `${(s * 1000).toFixed(s < 0.00995 ? 1 : 0)} ms` : s < 9.95 ? `${s.toFixed(2)} s` : duration(s));
const two = (value) => (known(value) ? value.toFixed(2) : null);

// The single figures: key of the template, value, what stands beside it. null where unknown. Pure.
export function measures(told) {
  const at = (slot) => (known(slot) ? `slot ${slot}` : "");
  const time = (s) => (known(s) ? seconds(s) : null);
  return {
    jain_slots: [two(told.jain_slots), ""],
    jain_clients: [two(told.jain_clients), ""],
    max_service_gap_s: [time(told.max_service_gap_s), at(told.max_service_gap_slot)],
    oldest_wait_s: [time(told.oldest_wait_s), at(told.oldest_wait_slot)],
    stalls: [known(told.stalls) ? grouped(told.stalls) : null, "over 1 s"],
    worst_itl_s: [time(told.worst_itl_s), at(told.worst_itl_slot)],
    cache_hit: [known(told.cache_hit) ? `${Math.round(told.cache_hit * 100)} %` : null, "of prompt tokens"],
  };
}

// Percentiles of one distribution as cells, "–" where unknown. Pure.
export function percentiles(of) {
  if (!of || !of.n) return ["–", "–", "–", "0"];
  return [of.p50, of.p95, of.p99].map((value) => (known(value) ? seconds(value) : "–")).concat(grouped(of.n));
}

// Which rows a table has. No client and one without a name are two different things. Pure.
export const rowsOf = (list, name) => JSON.stringify(list.map((one) => one[name]));

export class Fairness {
  constructor(page) {
    this.section = page.querySelector("[data-fairness]");
    this.part = (name) => this.section.querySelector(`[data-f-${name}]`);
  }

  // `told` is the fairness object of the range, or null; `why` says why there is none.
  draw(told, range, state, why = "") {
    const reason = missing(state, "fairness") || missing(state, "iterations");
    for (const name of ["all", "side"]) show(this.part(name), told !== null);
    show(this.part("none"), told === null);
    set(this.part("none"), why || reason || "Shares, gaps and percentiles appear here with the first batches.");
    this.shown = told;
    if (told === null) return set(this.part("span"), range.live ? "" : words(range));
    set(this.part("span"), range.live ? `last ${spanWords(Math.round(told.to - told.from))}` : words(range));
    this.#slots(told.slots ?? [], told.to - told.from);
    this.#clients(told.clients ?? []);
    this.#measures(told, state);
    for (const name of ["ttft", "itl"]) percentiles(told[name]).forEach((text, at) => set(this.section.querySelector(`[data-p="${name}"] [data-q="${at}"]`), text));
  }

  #slots(slots, length) {
    const most = Math.max(0, ...slots.map((slot) => slot.share ?? 0)) || 1;
    const body = this.part("slots");
    show(this.part("no-slots"), slots.length === 0);
    rebuild(body, rowsOf(slots, "slot"), () => slots.map((slot) => row(slotName(slot.slot), bar(slot.slot), 4)));
    slots.forEach((slot, at) => {
      const cells = body.children[at].children;
      attr(cells[1].querySelector("rect"), "width", (((slot.share ?? 0) / most) * 100).toFixed(1));
      const busy = known(slot.busy_s) && length > 0 ? String(Math.min(100, Math.round((slot.busy_s / length) * 100))) : "–";
      [known(slot.prompt_tokens) ? grouped(slot.prompt_tokens) : "–", known(slot.gen_tokens) ? grouped(slot.gen_tokens) : "–", busy, percent(slot.share)].forEach((text, n) => set(cells[n + 2], text));
    });
    this.part("slots-in").classList.toggle("long", slots.length > 12);
  }

  #clients(clients) {
    const body = this.part("clients");
    show(this.part("no-clients"), clients.length === 0);
    rebuild(body, rowsOf(clients, "client"), () => clients.map((one) => row(el("span", "", one.client || "no name given"), null, 3)));
    clients.forEach((one, at) => {
      const cells = body.children[at].children;
      [known(one.tasks) ? grouped(one.tasks) : "–", known(one.tokens) ? grouped(one.tokens) : "–", percent(one.share)].forEach((text, n) => set(cells[n + 1], text));
    });
  }

  #measures(told, state) {
    for (const [key, [value, more]] of Object.entries(measures(told))) {
      const node = this.section.querySelector(`[data-m="${key}"]`);
      if (!node) continue;
      const why = value === null ? (told.missing ?? {})[key] ?? missing(state, key) : "";
      set(node.querySelector("[data-v]"), value ?? "unknown");
      node.querySelector("[data-v]").classList.toggle("q", value === null);
      set(node.querySelector("[data-u]"), value === null ? "" : more);
      attr(node, "title", why);
    }
  }
}

function row(name, drawing, numbers) {
  const head = el("th", "", name);
  head.scope = "row";
  return el("tr", "", head, ...(drawing ? [el("td", "", drawing)] : []), ...Array.from({ length: numbers }, () => el("td", "r")));
}

function bar(slot) {
  const node = svg("svg", { class: `bar ${slotClass(slot)}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" });
  node.append(slot >= 8 ? svg("rect", { fill: `url(#x${slot % 8})`, height: "6" }) : svg("rect", { class: "done", height: "6" }));
  return node;
}
