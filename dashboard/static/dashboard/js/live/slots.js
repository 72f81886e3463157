// The slots table: rows are made once and written in place. Times tick here, between frames.
import { duration, grouped } from "../frame/format.js";
import { attr, remark, set, show, slotClass } from "./dom.js";
import { Detail } from "./detail.js";
import { isPooled, Pool } from "./pool.js";
import { ANSWERS, draftsRight, missing, STATE_MARKS, summary } from "./words.js";

const MANY = 24;
const AHEAD = "200px"; // rows a short way out of sight are written too, so that scrolling meets no old ones

class Row {
  constructor(node) {
    this.node = node;
    this.fields = Object.fromEntries([...node.querySelectorAll("[data-f]")].map((part) => [part.dataset.f, part]));
    this.mark = node.querySelector(".state svg");
    this.bar = node.querySelector(".bar");
    this.button = node.querySelector(".tw");
    this.detail = null;
    this.seen = true;
  }

  // Kept for later while nobody can see the row: 256 rows cost more than a frame has.
  take(slot, pooled) {
    this.slot = slot;
    this.pooled = pooled;
    if (this.seen) this.draw();
    else this.late = true;
  }

  see(seen) {
    this.seen = seen;
    if (seen && this.late) this.draw();
  }

  draw() {
    const { slot } = this;
    this.late = false;
    const f = this.fields;
    const busy = slot.state !== "idle";
    this.node.className = `${slot.state}${this.detail ? " open" : ""}`;
    remark(this.mark, STATE_MARKS[slot.state] ?? "unknown");
    set(f.state, slot.state);
    set(f.client, slot.client || (slot.model ?? ""));
    set(f.task, slot.task === null || slot.task === undefined ? "" : `task ${slot.task}`);
    this.#prompt(slot, busy);
    set(f.generated, busy ? grouped(slot.n_generated) : "");
    set(f.predict, busy && slot.n_predict >= 0 && slot.n_predict !== null ? `of ${grouped(slot.n_predict)}` : "");
    const right = busy ? draftsRight(slot.n_drafted, slot.n_accepted) : "";
    set(f.drafts, right ? `drafts ${right.replace(" of drafts right", "")}` : "");
    attr(f.drafts, "title", right);
    const known = slot.n_tokens !== null && slot.n_tokens !== undefined && slot.n_ctx;
    set(f.context, known ? (this.pooled ? grouped(slot.n_tokens) : String(Math.round((slot.n_tokens / slot.n_ctx) * 100))) : "");
    attr(f.context, "title", known ? `${grouped(slot.n_tokens)} of ${grouped(slot.n_ctx)} tokens` : "");
    set(f.rate, slot.rate === null || slot.rate === undefined ? "–" : grouped(slot.rate, slot.rate < 10 ? 1 : 0));
    set(f.waits, slot.waiting_for ?? "");
    attr(f.waits, "title", slot.waiting_for ?? "");
  }

  #prompt(slot, busy) {
    const [prompt, cached, done] = [slot.n_prompt ?? 0, slot.n_cached ?? 0, slot.n_processed ?? 0];
    const of = (n) => (prompt ? ((n / prompt) * 100).toFixed(2) : 0);
    const [first, second] = this.bar.children;
    attr(first, "width", of(cached));
    attr(second, "x", of(cached));
    attr(second, "width", of(done));
    attr(this.bar, "aria-label", `cached ${cached}, done ${done}, of ${prompt}`);
    set(this.fields.percent, busy && prompt ? `${Math.min(100, Math.round(((cached + done) / prompt) * 100))} %` : "");
    set(this.fields.left, busy && prompt ? grouped(Math.max(prompt - cached - done, 0)) : "");
  }

  tick(now) {
    const { slot } = this;
    set(this.fields.since, slot.since ? duration(Math.max(now - slot.since, 0)) : "");
    const asked = slot.state !== "idle" && slot.submitted_at;
    set(this.fields.ttft, asked ? Math.max((slot.first_token_at ?? now) - slot.submitted_at, 0).toFixed(1) : "");
  }
}

export class Slots {
  constructor(page) {
    this.section = page.querySelector("[data-slots]");
    this.table = this.section.querySelector("table");
    this.body = this.table.querySelector("tbody");
    this.filter = this.section.querySelector("[data-filter]");
    this.rows = new Map([...this.body.querySelectorAll("[data-slot]")].map((node) => [Number(node.dataset.slot), new Row(node)]));
    this.only = "all";
    this.pool = new Pool(this.section);
    this.body.addEventListener("click", (event) => this.#toggle(event.target.closest(".tw")));
    this.filter.addEventListener("click", (event) => this.#choose(event.target.closest("button")));
  }

  draw(state, now) {
    this.state = state;
    const ids = new Set(state.slots.map((slot) => slot.id));
    for (const [id, row] of this.rows) if (!ids.has(id)) { row.detail?.close(); row.node.remove(); this.rows.delete(id); }
    for (const slot of state.slots) this.#row(slot.id).take(slot, isPooled(state));
    this.pool.draw(state);
    this.#watch(state.slots.length > MANY);
    for (const node of [this.table, this.section.querySelector("[data-slots-side]")]) show(node, state.slots.length > 0);
    const none = this.section.querySelector("[data-noslots]");
    show(none, state.slots.length === 0);
    set(none, missing(state, "slots") || "The server has not told of its slots yet.");
    show(this.section.querySelector("[data-idle]"), !state.past && state.health.state === "up" && state.slots.length > 0 && state.slots.every((slot) => slot.state === "idle"));
    show(this.filter, state.slots.length > 12);
    this.section.querySelector("[data-scroll]").classList.toggle("long", state.slots.length > MANY);
    set(this.section.querySelector("[data-summary]"), state.slots.length ? summary(state.slots) : "");
    this.#hide();
    this.tick(now);
    for (const row of this.rows.values()) row.detail?.draw(state, row.slot, now);
  }

  tick(now) {
    // A server that does not answer is shown as it was seen last: its times stand still.
    const { health } = this.state;
    const at = ANSWERS.has(health.state) ? now : Math.min(now, health.seen_at ?? now);
    for (const row of this.rows.values()) if (row.seen && !row.node.hidden) row.tick(at);
  }

  #watch(many) {
    if (many && !this.watcher) {
      this.watcher = new IntersectionObserver((entries) => {
        for (const { target, isIntersecting } of entries) this.rows.get(Number(target.dataset.slot))?.see(isIntersecting);
      }, { rootMargin: AHEAD });
    }
    if (!this.watcher || this.watched === this.rows.size) return;
    this.watched = this.rows.size;
    for (const row of this.rows.values()) this.watcher.observe(row.node);
  }

  #row(id) {
    let row = this.rows.get(id);
    if (row) return row;
    const node = document.getElementById("t-slot").content.firstElementChild.cloneNode(true);
    node.dataset.slot = id;
    node.querySelector(".tw").setAttribute("aria-label", `Slot ${id}, request timeline`);
    const name = node.querySelector('[data-f="id"]');
    name.className = `sl ${slotClass(id)}`;
    name.textContent = id;
    node.querySelector(".bar").setAttribute("class", `bar s${id % 8}`);
    row = new Row(node);
    this.rows.set(id, row);
    this.body.append(node);
    return row;
  }

  #hide() {
    for (const row of this.rows.values()) {
      const hidden = this.only === "busy" && row.slot?.state === "idle" && !row.detail;
      if (row.node.hidden !== hidden) row.node.hidden = hidden;
    }
  }

  #choose(button) {
    if (!button) return;
    this.only = button.value;
    for (const other of this.filter.children) other.setAttribute("aria-pressed", String(other === button));
    this.#hide();
  }

  #toggle(button) {
    if (!button) return;
    const row = this.rows.get(Number(button.closest("[data-slot]").dataset.slot));
    const open = row.detail === null;
    row.detail?.close();
    row.detail = open ? new Detail(row.node) : null;
    row.node.classList.toggle("open", open);
    button.setAttribute("aria-expanded", String(open));
    if (open) row.detail.draw(this.state, row.slot, this.state.t);
  }
}
