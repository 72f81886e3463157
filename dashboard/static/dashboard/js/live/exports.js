// What is shown, to take along: CSV and JSON of the numbers, a PNG of the part, and an address that shows the same again.
import { batchRows, COLUMNS, csv, fairnessRows, laneRows } from "./csv.js";
import { picture } from "./picture.js";
import { words } from "./range.js";
import { bySlot, segments } from "./segments.js";

const SAID_MS = 4000;

export class Exports {
  constructor(page, board) {
    this.board = board;
    this.name = page.dataset.name;
    page.addEventListener("click", (event) => this.#click(event));
    document.addEventListener("click", (event) => {
      for (const menu of page.querySelectorAll(".export details[open]")) if (!menu.contains(event.target)) menu.open = false;
    });
    page.addEventListener("keydown", (event) => {
      const menu = event.target.closest?.(".export details[open]");
      if (event.key !== "Escape" || !menu) return;
      event.stopPropagation();
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  }

  async #click(event) {
    const button = event.target.closest("[data-export] button");
    if (!button) return;
    const menu = button.closest("[data-export]");
    const view = menu.dataset.export;
    menu.querySelector("details").open = false;
    try {
      const said = await this[`_${button.value}`](view, menu.closest("section"));
      this.#say(menu, said);
    } catch (error) {
      this.#say(menu, `Not exported: ${error.message}.`);
    }
  }

  #say(menu, text) {
    const node = menu.querySelector("[data-said]");
    node.textContent = text;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { node.textContent = ""; }, SAID_MS);
  }

  #data(view) {
    const { board } = this;
    const state = board.shown();
    if (view === "slots") return { rows: state.slots, whole: state.slots };
    if (view === "batches") return { rows: batchRows(state.iterations ?? []), whole: state.iterations ?? [] };
    if (view === "fairness") return { rows: board.fairness.shown ? fairnessRows(board.fairness.shown) : [], whole: board.fairness.shown };
    if (view === "stall") return { rows: board.stall.found?.blockers ?? [], whole: board.stall.found };
    const { lanes } = board;
    const tasks = bySlot(lanes.data.tasks, lanes.data.slots, lanes.data.openUntil);
    const every = lanes.ids.flatMap((slot) => segments(lanes.data.track, tasks.get(slot) ?? [], slot, lanes.from, lanes.to));
    return { rows: laneRows(every), whole: { from: lanes.from, to: lanes.to, segments: every, marks: lanes.data.marks, runs: lanes.data.runs } };
  }

  _csv(view) {
    const { rows } = this.#data(view);
    this.#save(new Blob([csv(COLUMNS[view], rows)], { type: "text/csv" }), view, "csv");
    return `${rows.length} rows saved`;
  }

  _json(view) {
    const { whole } = this.#data(view);
    const told = { server: this.name, view, range: this.board.view.range, at: this.board.now(), data: whole };
    this.#save(new Blob([JSON.stringify(told, null, 1)], { type: "application/json" }), view, "json");
    return "Saved";
  }

  async _png(view, section) {
    this.#save(await picture(section, `${this.name}, ${words(this.board.view.range)}, ${new Date().toISOString()}`), view, "png");
    return "Saved";
  }

  async _link() {
    const address = this.board.view.permalink();
    await navigator.clipboard.writeText(address).catch(() => { throw new Error(`this browser does not let pages copy; the address is ${address}`); });
    return "Copied";
  }

  #save(blob, view, ending) {
    const at = new Date(this.board.now() * 1000).toISOString().slice(0, 19).replaceAll(/[-:]/g, "");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${this.name.replaceAll(/[^\w.-]+/g, "-")}-${view}-${at}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }
}
