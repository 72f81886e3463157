// Paths kept by name in one SVG, so that one frame writes one attribute for each hue and kind.
import { attr, svg } from "./dom.js";

export class Paths {
  constructor(node, first = []) {
    this.node = node;
    this.paths = new Map();
    node.replaceChildren(...first);
  }

  write(drawn) {
    for (const [name, { d, attributes }] of drawn) {
      if (!this.paths.has(name)) {
        const path = svg("path", attributes);
        this.paths.set(name, path);
        this.node.append(path);
      }
      attr(this.paths.get(name), "d", d);
    }
    for (const [name, path] of this.paths) if (!drawn.has(name)) attr(path, "d", "");
  }
}
