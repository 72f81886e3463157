// The words beside the crumbs: live, paused, or since when nothing came.
import { duration } from "../frame/format.js";
import { set } from "./dom.js";

const QUIET_S = 5;

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

  tell(kind, text) {
    this.kind = kind;
    this.text = text;
    this.tick();
  }

  #age() {
    return this.heard === null ? null : (performance.now() - this.heard) / 1000;
  }

  #words() {
    const age = this.#age();
    const seen = age === null ? "" : `, last seen ${duration(age)} ago`;
    if (this.kind === "live") return age !== null && age > QUIET_S ? `Live, last frame ${duration(age)} ago` : "Live";
    if (this.kind === "paused") return age === null ? "Paused" : `Paused ${duration(age)} ago`;
    if (this.kind === "connecting") return "Connecting";
    if (this.kind === "lost") return `Reconnecting${seen}`;
    return (this.text || "Not live").replace(/\.$/, "") + seen;
  }

  tick() {
    set(this.node.querySelector(".w"), this.#words());
    this.node.classList.toggle("on", this.kind === "live");
    this.node.classList.toggle("off", ["lost", "stale", "closed"].includes(this.kind));
  }

  paused(on) {
    if (!this.button) return;
    this.button.setAttribute("aria-pressed", String(on));
    this.button.querySelector("use").setAttribute("href", on ? "#i-play" : "#i-pause");
    const words = this.button.querySelector("span");
    if (words) words.textContent = on ? "Go on" : "Pause";
  }
}
