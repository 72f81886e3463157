// The words beside the crumbs: live, paused, or since when nothing came.
import { duration } from "../frame/format.js";
import { set } from "./dom.js";
import { words } from "./range.js";

const QUIET_S = 5;
const OLD_S = 15; // dashboard/present.py says the same

export class Status {
  constructor(node, button) {
    this.node = node;
    this.button = button;
    this.kind = "connecting";
    this.text = "";
    this.heard = null;
  }

  hear() {
    this.heard = performance.now();
  }

  tell(kind, text, age) {
    this.kind = kind;
    this.text = text;
    if (age !== undefined) this.heard = performance.now() - age * 1000;
    this.tick();
  }

  // Seconds of which nothing is known: times on the page stand still for so long. A paused page is not told, and asks for nothing.
  get behind() {
    return this.kind === "paused" ? 0 : Math.max((this.#age() ?? 0) - QUIET_S, 0);
  }

  // Whether the server may be anything by now.
  get old() {
    return this.behind > OLD_S - QUIET_S;
  }

  #age() {
    return this.heard === null ? null : (performance.now() - this.heard) / 1000;
  }

  // What the page shows; a past range is named as that, whatever the connection does.
  range(range, paused) {
    this.past = range.live ? null : range;
    this.#button(!range.live);
    if (!paused) this.tick();
  }

  #words() {
    const age = this.#age();
    if (this.past && this.kind !== "closed") return `${this.kind === "paused" ? "Paused" : "Past"}, ${words(this.past)}`;
    const seen = age === null ? "" : `, last seen ${duration(age)} ago`;
    if (this.kind === "live") return age !== null && age > QUIET_S ? `Live, last frame ${duration(age)} ago` : "Live";
    if (this.kind === "paused") return age === null ? "Paused" : `Paused ${duration(age)} ago`;
    if (this.kind === "connecting") return "Connecting";
    if (this.kind === "lost") return `Reconnecting${seen}`;
    return (this.text || "Not live").replace(/\.$/, "") + seen;
  }

  tick() {
    set(this.node.querySelector(".w"), this.#words());
    this.node.classList.toggle("on", this.kind === "live" && !this.past);
    this.node.classList.toggle("off", ["lost", "stale", "closed"].includes(this.kind));
  }

  #button(still) {
    if (!this.button) return;
    this.button.setAttribute("aria-pressed", String(still));
    this.button.querySelector("use").setAttribute("href", still ? "#i-play" : "#i-pause");
    this.button.title = still ? "Go live (p or l)" : "Pause (p)";
    const text = this.button.querySelector("span");
    if (text) text.textContent = still ? "Go live" : "Pause";
  }
}
