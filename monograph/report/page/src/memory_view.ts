// Memory: the arena over time, each slot a box as wide as its life and as high as its size.

import { bytes, h, plural, replace, svg } from "./dom";
import { GraphNode, Model, Slot } from "./data";
import { Go, section } from "./inspector";

/** Pixels left of the charts, for what their lines mean, and of the height of the upper one. */
const LEFT = 66;
const ALIVE = 56;

export class MemoryView {
  readonly element: HTMLElement;
  private details = h("aside", { class: "pane", "aria-label": "Slot", "aria-live": "polite" });
  private boxes: SVGRectElement[] = [];
  private chosen = -1;
  private makers = new Map<string, GraphNode>();

  constructor(
    private model: Model,
    private go: Go,
  ) {
    const { arena } = model.facts;
    for (const node of arena ? model.graphAt(model.lastStage).nodes : []) {
      for (const value of node.results) this.makers.set(model.name(value), node);
    }
    const drawing = h("div", { class: "arena" });
    this.element = h("section", { class: "view memory", "aria-label": "Memory" }, h("div", { class: "arena-side" }, this.figures(), drawing), this.details);
    if (!arena || !arena.slots.length) {
      replace(drawing, h("p", { class: "hint" }, arena ? "No value outlives its kernel: the arena is empty." : "This program has no arena: it has no native code."));
      return;
    }
    new ResizeObserver(() => this.draw(drawing)).observe(drawing);
    this.explain(-1);
  }

  private figures(): HTMLElement {
    const memory = this.model.facts.memory;
    const rows: [string, string][] = memory
      ? [
          ["Inputs", bytes(memory.inputs!)],
          ["Outputs", bytes(memory.outputs!)],
          ["Weights, as they lie", bytes(memory.weights!)],
          ["Weights, packed", bytes(memory.prepared!)],
          ["Without reuse", bytes(memory.requested!)],
          ["Arena", bytes(memory.peak!)],
          ["Lower bound", bytes(memory.bound!)],
        ]
      : [];
    return h("dl", { class: "figures" }, ...rows.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
  }

  /** Draws both charts at the size that they have on the screen. */
  private draw(box: HTMLElement): void {
    const arena = this.model.facts.arena!;
    const width = box.clientWidth;
    const height = box.clientHeight;
    if (width < 100 || height < 160) return;
    const steps = Math.max(arena.steps, 1);
    const right = width - 6;
    const x = (step: number) => LEFT + (step / steps) * (right - LEFT);
    const bottom = height - 30;
    const top = ALIVE + 44;
    const y = (offset: number) => bottom - (offset / Math.max(arena.peak, 1)) * (bottom - top);
    const drawing = svg("svg", {
      role: "listbox",
      tabindex: 0,
      "aria-label": `The arena: ${plural(arena.slots.length, "slot")} over ${plural(steps, "step")}; arrow keys move from slot to slot`,
    });
    drawing.append(...this.alive(x, steps, right), svg("text", { x: LEFT, y: top - 7, class: "axis" }, "where they lie: offset in the arena, by step"), svg("rect", { x: LEFT, y: top, width: right - LEFT, height: bottom - top, class: "frame" }));
    for (let k = 0; k <= 4; k += 1) {
      const offset = (arena.peak * k) / 4;
      drawing.append(svg("line", { x1: LEFT, x2: right, y1: y(offset), y2: y(offset), class: "grid" }), svg("text", { x: LEFT - 6, y: y(offset) + 3, class: "axis end" }, bytes(Math.round(offset))));
    }
    const every = Math.max(1, Math.ceil(steps / 10));
    for (let step = 0; step < steps; step += every) drawing.append(svg("text", { x: x(step + 0.5), y: bottom + 14, class: "axis middle" }, step));
    drawing.append(svg("text", { x: (LEFT + right) / 2, y: bottom + 27, class: "axis middle" }, "step"));
    this.boxes = arena.slots.map((slot, k) => {
      const [name, offset, size, first, last] = slot;
      const rect = svg(
        "rect",
        { x: x(first), width: Math.max(x(last + 1) - x(first), 1), y: y(offset + size), height: Math.max(y(offset) - y(offset + size), 1), class: `slot ${this.family(slot)}`, role: "option", "aria-label": `${name}, ${bytes(size)} at ${offset}, steps ${first} to ${last}` },
        svg("title", {}, `%${name}: ${bytes(size)} at ${offset.toLocaleString("en-US")}, steps ${first} to ${last}`),
      );
      rect.addEventListener("click", () => this.explain(k));
      drawing.append(rect);
      return rect;
    });
    for (const [name, offset, size, first, last] of arena.slots) {
      const fits = x(last + 1) - x(first) > name.length * 6.6 + 14 && y(offset) - y(offset + size) > 16;
      if (fits) drawing.append(svg("text", { x: x(first) + 6, y: y(offset + size) + 14, class: "slot-label" }, `%${name}`));
    }
    drawing.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!move) return;
      event.preventDefault();
      const count = arena.slots.length;
      this.explain((this.chosen + move + count) % count);
    });
    replace(box, drawing);
    this.boxes[this.chosen]?.classList.add("chosen");
  }

  /** How many bytes are alive in each step, and the most that ever are. */
  private alive(x: (step: number) => number, steps: number, right: number): SVGElement[] {
    const arena = this.model.facts.arena!;
    const sizes = new Array<number>(steps).fill(0);
    for (const [, , size, first, last, over] of arena.slots) {
      for (let step = first; step <= Math.min(last, steps - 1); step += 1) {
        // A slot that is written over another shares its bytes in the step that does so.
        const shared = over >= 0 && step === first ? Math.min(size, arena.slots[over]![2]) : 0;
        sizes[step] = sizes[step]! + size - shared;
      }
    }
    const most = Math.max(1, arena.peak, ...sizes);
    const floor = ALIVE + 16;
    const y = (size: number) => floor - (size / most) * (ALIVE - 4);
    const points = sizes.flatMap((size, step) => [`${x(step)},${y(size)}`, `${x(step + 1)},${y(size)}`]);
    return [
      svg("text", { x: LEFT, y: 12, class: "axis" }, `bytes alive, by step; at most ${bytes(Math.max(...sizes))}`),
      svg("path", { d: `M${LEFT},${floor} L${points.join(" L")} L${right},${floor} Z`, class: "alive" }),
      svg("line", { x1: LEFT, x2: right, y1: floor, y2: floor, class: "grid" }),
    ];
  }

  private family(slot: Slot): string {
    return this.makers.get(slot[0])?.family ?? "memory";
  }

  private explain(number: number): void {
    this.boxes[this.chosen]?.classList.remove("chosen");
    this.chosen = number;
    const arena = this.model.facts.arena!;
    const slot = arena.slots[number];
    if (!slot) {
      const share = arena.requested ? ` Reuse leaves ${((arena.peak / arena.requested) * 100).toFixed(0)} % of what intermediates would take apart.` : "";
      replace(
        this.details,
        h("header", { class: "inspected" }, h("h2", {}, "The arena")),
        h("p", { class: "hint" }, `Every box is a value that lies in memory: it begins in the step that writes it, ends in the last that reads it, and stands at its offset.${share}`),
        h("p", { class: "hint" }, "Click a box, or move through them with the arrow keys."),
      );
      return;
    }
    this.boxes[number]!.classList.add("chosen");
    const [name, offset, size, first, last, over] = slot;
    const node = this.makers.get(name);
    const rows: [string, string][] = [
      ["Size", bytes(size)],
      ["Offset", offset.toLocaleString("en-US")],
      ["Alive", `steps ${first} to ${last}`],
    ];
    if (over >= 0) rows.push(["Written over", `%${arena.slots[over]![0]}`]);
    replace(
      this.details,
      h("header", { class: "inspected" }, node ? h("span", { class: `chip ${node.family}` }, node.op) : h("span", { class: "chip memory" }, "scratch"), h("h2", { class: "code" }, `%${name}`)),
      h("dl", { class: "figures" }, ...rows.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)))),
      node && section("Node", h("code", { class: "line" }, this.model.line(node)), h("button", { type: "button", class: "link", click: () => this.go({ view: "graph", stage: this.model.lastStage, node: node.id }) }, "Show it in the graph")),
      section("Written by", h("button", { type: "button", class: "link code", click: () => this.go({ view: "kernels", step: first, kernel: this.model.facts.steps[first]?.kernels[0] ?? null }) }, this.model.facts.steps[first]?.kernels[0] ?? `step ${first}`)),
    );
  }
}
