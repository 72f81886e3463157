// The cells that all slots share under unified KV, once for all of them: who holds how much of it.
import { grouped } from "../frame/format.js";
import { attr, rebuild, set, show, svg } from "./dom.js";

const WIDE = 1000;

export const isPooled = (state) => state.info?.kv_mode === "unified";

// "41,500 of 196,608 tokens, 21 %". Pure; dashboard/first_view.py writes the same.
export function poolWords(used, size) {
  return `${grouped(used)} of ${grouped(size)} tokens, ${Math.round((used / size) * 100)} %`;
}

export class Pool {
  constructor(section) {
    this.node = section.querySelector("[data-pool]");
    this.head = section.querySelector("[data-ctx]");
  }

  draw(state) {
    const { kv_size: size } = state.info ?? {};
    const pooled = isPooled(state) && size > 0;
    show(this.node, pooled);
    if (!pooled) return;
    const held = state.slots.filter((slot) => slot.n_tokens > 0);
    const used = state.past ? held.reduce((sum, slot) => sum + slot.n_tokens, 0) : state.info.kv_used ?? 0;
    set(this.node.querySelector("[data-pool-words]"), poolWords(used, size));
    set(this.head, "tokens of the pool");
    const bar = this.node.querySelector("svg");
    attr(bar, "aria-label", `KV pool: ${poolWords(used, size)}`);
    rebuild(bar, JSON.stringify(held.map((slot) => [slot.id, slot.n_tokens])), () => parts(held, size));
  }
}

function parts(held, size) {
  let x = 0;
  return held.map(({ id, n_tokens: tokens }) => {
    const wide = (tokens / size) * WIDE;
    const part = svg("rect", { x: x.toFixed(1), width: Math.max(wide - 1, 0.5).toFixed(1), height: 8, ...(id < 8 ? { class: `s${id} solid` } : { fill: `url(#x${id % 8})` }) });
    x += wide;
    return part;
  });
}
