// Health, facts, policy chips and the cohort.
import { duration, grouped } from "../frame/format.js";
import { el, mark, rebuild, remark, set, show, slotName } from "./dom.js";
import * as words from "./words.js";

export class Head {
  constructor(page) {
    this.page = page;
    this.part = (name) => page.querySelector(`[data-${name}]`);
  }

  draw(state) {
    this.state = state;
    this.#health(state);
    this.#chips(state);
    this.#cohort(state);
    if (state.observer) set(this.part("observer"), state.observer);
    const cannot = this.part("cannot");
    show(cannot, !state.switching?.can);
    set(cannot?.querySelector("[data-why]"), words.cannotSwitch(state));
  }

  tick(now) {
    const { health } = this.state;
    const age = health.seen_at === null || health.seen_at === undefined ? null : now - health.seen_at;
    const calm = words.ANSWERS.has(health.state);
    set(this.part("seen"), calm ? "" : age === null ? "never seen" : `last seen ${duration(Math.max(age, 0))} ago`);
    const trouble = this.part("trouble");
    const told = words.trouble(health, now);
    show(trouble, Boolean(told));
    if (!told || !trouble) return;
    set(trouble.querySelector("span"), told);
    const [name, tone] = words.HEALTH[health.state] ?? words.HEALTH.unknown;
    trouble.classList.toggle("warning", tone === "is-warn");
    trouble.classList.toggle("error", tone !== "is-warn");
    remark(trouble.querySelector("svg"), name);
    trouble.querySelector("svg").setAttribute("class", `m ${tone}`);
  }

  #health(state) {
    const node = this.part("health");
    const [name, tone, word] = words.HEALTH[state.health.state] ?? words.HEALTH.unknown;
    if (node.className !== `st ${tone}`) node.className = `st ${tone}`;
    remark(node.querySelector("svg"), name);
    node.querySelector("svg").setAttribute("class", `m ${tone}`);
    set(node.querySelector("span"), state.health.text || word);
  }

  #chips(state) {
    const node = this.part("chips");
    const policy = state.policy;
    if (!policy) return rebuild(node, "none", () => []);
    const shown = Object.entries(policy.effective).filter(([name]) => words.counts(policy, name));
    const key = JSON.stringify([shown, policy.requested, policy.reasons, words.cohortWords(state)]);
    rebuild(node, key, () => shown.map(([name, value]) => this.#chip(state, name, value, node.dataset.href)));
  }

  #chip(state, name, value, href) {
    const { requested, reasons } = state.policy;
    const differs = JSON.stringify(requested[name]) !== JSON.stringify(value);
    const label = el("span", "k", `${words.fieldName(name)}:`);
    const text = words.value(value) + (name === "phase" ? words.cohortWords(state) : "");
    const chip = el("a", differs ? "chip warn" : "chip");
    chip.href = `${href}#${name}`;
    if (differs) chip.append(mark("warn"), el("span", "", label, ` ${words.value(requested[name])} asked, ${text} in force${reasons?.[name] ? `: ${reasons[name]}` : ""}`));
    else chip.append(label, ` ${text}`);
    return chip;
  }

  #cohort(state) {
    const node = this.part("cohort");
    const cohort = state.phase?.cohort;
    show(node, Boolean(cohort));
    if (!cohort) return;
    const slots = new Map(state.slots.map((slot) => [slot.id, slot]));
    const members = cohort.members.map((id) => [id, slots.get(id)]);
    const key = JSON.stringify([cohort.id, state.phase.name, state.phase.sealed, Math.round(cohort.age_s ?? 0), members.map(([id, slot]) => [id, slot?.state, share(slot)])]);
    rebuild(node, key, () => [
      el("b", "", `Cohort ${cohort.id}`),
      el("span", "", `${state.phase.name === "tg" ? "generates" : "takes in prompts"}, ${state.phase.sealed ? "sealed" : "still open to join"}, ${duration(cohort.age_s ?? 0)} old`),
      ...members.map(([id, slot]) => member(id, slot)),
    ]);
  }
}

const share = (slot) => (slot?.n_prompt ? Math.round((((slot.n_cached ?? 0) + (slot.n_processed ?? 0)) / slot.n_prompt) * 100) : null);

function member(id, slot) {
  const state = slot?.state ?? "idle";
  const gone = !slot?.member;
  const words_ = gone ? "done" : state === "generating" ? `generating, ${grouped(slot.n_generated)}` : state === "held" ? "held" : `${state} ${share(slot) ?? 0} %`;
  return el("span", "st", slotName(id), mark(gone ? "ok" : words.STATE_MARKS[state] ?? "unknown"), words_);
}
