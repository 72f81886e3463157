// What stands above every page of a server: the simulated backend, a draft that was left out, the countdown of a policy that reverts by itself.
import { countdown } from "../frame/format.js";
import { attr, set, show } from "./dom.js";
import { fieldName, value } from "./words.js";

// "Phase" or "Phase, prefill", and the value it goes back to. Pure.
export function reverting(policy) {
  if (!policy?.reverts_at) return null;
  const back = policy.reverts_to ?? {};
  const changed = Object.keys(policy.requested).filter((name) => name in back && JSON.stringify(back[name]) !== JSON.stringify(policy.requested[name]));
  const text = changed.map((name) => `${fieldName(name)} goes back to ${value(back[name])}`).join(", ");
  return { at: policy.reverts_at, from: policy.changed_at, what: (text || "The policy goes back").replace(/^./, (first) => first.toUpperCase()), why: policy.reason };
}

// Why the server goes without the draft model that it was started with; null when it does not. Pure.
export function leftOut(info) {
  return info?.draft && !info.draft.loaded ? info.draft.text : null;
}

export class Strips {
  constructor() {
    this.simulated = document.querySelector("[data-simulated]");
    this.strip = document.querySelector("[data-revert]");
    this.draft = document.querySelector("[data-draft]");
  }

  draw(state) {
    show(this.simulated, state.info?.backend === "simulated");
    const refused = leftOut(state.info);
    show(this.draft, refused !== null);
    if (refused !== null) set(this.draft?.querySelector("[data-why]"), refused);
    this.revert = reverting(state.policy);
    show(this.strip, this.revert !== null);
    if (!this.revert) return;
    set(this.strip.querySelector("[data-what]"), this.revert.what);
    set(this.strip.querySelector("[data-why]"), `${this.revert.why ? `Set for: ${this.revert.why}. ` : ""}The server goes back by itself.`);
    attr(this.strip.querySelector("[data-version]"), "value", state.policy.version);
  }

  tick(now) {
    if (!this.revert) return;
    const left = Math.max(this.revert.at - now, 0);
    const bar = this.strip.querySelector("progress");
    set(this.strip.querySelector("[data-left]"), countdown(left));
    attr(bar, "max", Math.max(this.revert.at - (this.revert.from ?? now), 1).toFixed(0));
    attr(bar, "value", left.toFixed(0));
  }
}
