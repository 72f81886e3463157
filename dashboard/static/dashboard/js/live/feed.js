// One WebSocket of one server: snapshot, then deltas. A gap asks for a snapshot, a lost connection comes back with growing
// pauses, a hidden tab or a paused page holds no connection at all.
import { apply, follows } from "./state.js";

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 15_000;
const HIDDEN_MS = 1000;
const FINAL = { 4401: "Log in again to go on", 4404: "This server is not there any more, or not for you to see", 4410: "This link has ended" };

export class Feed {
  // `told(state)` gets each new state, `status(kind, text)` one of: connecting, live, lost, paused, stale, closed.
  // A stale one also tells how old the state is, in seconds, where there is one.
  constructor(path, { told, status }) {
    const url = new URL(path, location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    this.url = url.href;
    this.told = told;
    this.status = status;
    this.state = null;
    this.socket = null;
    this.paused = false;
    this.tries = 0;
    this.retry = 0;
    this.resyncing = false;
    document.addEventListener("visibilitychange", () => this.#visible());
    window.addEventListener("online", () => this.#again(0));
  }

  open() {
    clearTimeout(this.retry);
    if (this.socket || this.paused || document.hidden) return;
    this.status(this.tries ? "lost" : "connecting", "");
    const socket = new WebSocket(this.url);
    this.socket = socket;
    socket.onmessage = (event) => this.#message(JSON.parse(event.data));
    socket.onclose = (event) => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (event.code in FINAL) this.status("closed", FINAL[event.code]);
      else this.#again(this.#pause());
    };
  }

  pause(on) {
    this.paused = on;
    if (on) this.#close("paused");
    else this.open();
  }

  #pause() {
    const wait = Math.min(FIRST_RETRY_MS * 2 ** this.tries, LONGEST_RETRY_MS);
    this.tries += 1;
    return wait * (0.75 + Math.random() / 2);
  }

  #again(after) {
    if (this.paused || document.hidden || this.socket) return;
    this.status("lost", "");
    clearTimeout(this.retry);
    this.retry = setTimeout(() => this.open(), after);
  }

  #close(kind) {
    clearTimeout(this.retry);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.status(kind, "");
  }

  #visible() {
    clearTimeout(this.hiding);
    if (!document.hidden) return this.open();
    if (!this.paused) this.hiding = setTimeout(() => this.#close("paused"), HIDDEN_MS);
  }

  #message(message) {
    if (message.type === "stale") return this.status("stale", message.text, message.age_s);
    if (message.type === "snapshot") {
      this.resyncing = false;
      this.tries = 0;
      this.#take(message.state);
    } else if (message.type === "delta") this.#delta(message);
  }

  #delta(delta) {
    if (this.resyncing) return;
    if (this.state !== null && delta.seq === this.state.seq) return;
    if (follows(this.state, delta)) return this.#take(apply(this.state, delta));
    this.resyncing = true;
    this.socket?.send(JSON.stringify({ type: "resync" }));
  }

  #take(state) {
    this.state = state;
    this.status("live", "");
    this.told(state);
  }
}
