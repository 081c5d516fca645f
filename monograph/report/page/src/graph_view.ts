// The drawing of one stage's graph, on a canvas: what is in view is drawn, at the detail that its
// size on the screen can show.

import { cssColor, h, replace } from "./dom";
import { Box, place, Placed } from "./layout";
import { Layouts } from "./layouts";
import { GraphAt, GraphNode, isStored, Model, OUTPUT_IDS } from "./data";

const LINE = 14;
const PADDING = 10;
const SMALLEST_SCALE = 0.008;
const LARGEST_SCALE = 3;
/** Below this many pixels of a line of text, only shapes are drawn. */
const READABLE = 5;
const FAMILIES = ["contraction", "reduction", "pointwise", "shape", "data", "control", "memory", "other"];

interface Colors {
  ink: string;
  soft: string;
  line: string;
  paper: string;
  surface: string;
  accent: string;
  added: string;
  changed: string;
  family: Record<string, string>;
  tint: Record<string, string>;
}

/** A graph that is to be laid out. */
interface Sketch {
  graph: GraphAt;
  nodes: GraphNode[];
  boxes: Box[];
  position: Map<number, number>;
  labels: string[];
  pairs: [number, number][];
}

interface Scene extends Sketch {
  placed: Placed;
  /** Edges by the position of either end. */
  touching: Map<number, number[]>;
}

export interface GraphEvents {
  select(node: number | null): void;
  announce(text: string): void;
}

export class GraphView {
  readonly element: HTMLElement;
  private canvas: HTMLCanvasElement;
  private context: CanvasRenderingContext2D;
  private scene: Scene | null = null;
  private scenes = new Map<string, Scene>();
  private scale = 1;
  private left = 0;
  private top = 0;
  private selected: number | null = null;
  private marked = new Set<number>();
  private hovered: number | null = null;
  private pending = 0;
  private colors: Colors | null = null;
  private pointers = new Map<number, { x: number; y: number }>();
  private moved = 0;
  private needsFit = true;
  private tooltip: HTMLElement;
  private waiting = h("div", { class: "laying-out", role: "status", hidden: true });
  private layouts = new Layouts((share) => this.wait(share));
  /** The scene that is wanted, which may still be laid out. */
  private wanted = "";
  private toReveal: number | null = null;
  withStored = false;
  /** How long the last frame took to draw, in milliseconds: what a test of speed reads. */
  lastFrame = 0;
  lastLayout = 0;

  constructor(private model: Model, private events: GraphEvents) {
    this.canvas = h("canvas", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "graph",
      "aria-label":
        "Graph. Arrow down and up follow values to a user or a producer, left and right go to the next node in order, plus and minus zoom, 0 fits the graph.",
    });
    this.tooltip = h("div", { class: "tooltip", hidden: true, "aria-hidden": "true" });
    this.element = h("div", { class: "graph" }, this.canvas, this.waiting, this.tooltip);
    this.context = this.canvas.getContext("2d")!;
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  /** Shows a stage; a large graph appears when it is laid out, and until then the one before. */
  show(stage: number): void {
    const key = `${stage}/${this.withStored}`;
    this.wanted = key;
    const known = this.scenes.get(key);
    if (known) {
      this.reach(known);
      return;
    }
    const started = performance.now();
    const sketch = this.sketch(this.model.graphAt(stage));
    const made = (placed: Placed): void => {
      this.lastLayout = performance.now() - started;
      const scene = finished(sketch, placed);
      this.scenes.set(key, scene);
      for (const old of this.scenes.keys()) if (this.scenes.size > 8 && old !== key) this.scenes.delete(old);
      if (this.wanted === key) this.reach(scene);
    };
    if (Layouts.atOnce(sketch.boxes.length)) made(place(sketch.boxes, sketch.pairs));
    else this.layouts.place(sketch.boxes, sketch.pairs, made);
  }

  private reach(scene: Scene): void {
    this.waiting.hidden = true;
    const anchor = this.screenPlace(this.selected);
    this.scene = scene;
    if (this.needsFit) this.fitWidth();
    else if (anchor) this.keep(anchor);
    if (this.toReveal !== null && scene.position.has(this.toReveal)) this.reveal(this.toReveal);
    this.toReveal = null;
    this.draw();
  }

  private wait(share: number): void {
    this.waiting.hidden = false;
    replace(this.waiting, `Laying out the graph… ${Math.round(share * 100)} %`);
  }

  select(node: number | null, center: boolean): void {
    this.selected = node;
    if (center && this.waiting.hidden) this.reveal(node);
    else if (center) this.toReveal = node;
    this.draw();
  }

  mark(nodes: Iterable<number>): void {
    this.marked = new Set(nodes);
    this.draw();
  }

  recolor(): void {
    this.colors = null;
    this.draw();
  }

  fit(): void {
    const scene = this.scene;
    if (!scene || !this.width) return;
    const { width, height } = scene.placed;
    this.scale = clamp(Math.min((this.width - 20) / width, (this.height - 20) / height, 1));
    this.left = (this.width - width * this.scale) / 2;
    this.top = Math.max((this.height - height * this.scale) / 2, 10);
    this.draw();
  }

  /** Where a person begins to read: all of a small graph, the upper end of a large one. */
  private fitWidth(): void {
    const scene = this.scene;
    if (!scene || !this.width) return;
    this.needsFit = false;
    const { width, height } = scene.placed;
    const whole = Math.min((this.width - 20) / width, (this.height - 20) / height, 1);
    this.scale = clamp(Math.max(whole, Math.min((this.width - 20) / Math.min(width, 900), 0.85)));
    const first = scene.nodes.findIndex((node) => node.id < 0 || !isStored(node));
    const middle = width <= 900 ? width / 2 : scene.placed.x[Math.max(first, 0)]!;
    this.left = this.width / 2 - middle * this.scale;
    this.top = height * this.scale < this.height ? (this.height - height * this.scale) / 2 : 16;
  }

  zoom(factor: number, x = this.width / 2, y = this.height / 2): void {
    const scale = clamp(this.scale * factor);
    const ratio = scale / this.scale;
    this.left = x - (x - this.left) * ratio;
    this.top = y - (y - this.top) * ratio;
    this.scale = scale;
    this.draw();
  }

  panBy(dx: number, dy: number): void {
    this.left += dx;
    this.top += dy;
    this.draw();
  }

  /** What is drawn now, for tests: position and size on the screen by node. */
  boxOf(node: number): { x: number; y: number; width: number; height: number } | null {
    const at = this.scene?.position.get(node);
    if (at === undefined || !this.scene) return null;
    const box = this.scene.boxes[at]!;
    const place = this.screenPlace(node)!;
    return { x: place.x, y: place.y, width: box.width * this.scale, height: box.height * this.scale };
  }

  focus(): void {
    this.canvas.focus();
  }

  // Making a scene ---------------------------------------------------------------------------------

  private sketch(graph: GraphAt): Sketch {
    const nodes = this.withStored ? graph.nodes : graph.nodes.filter((node) => !isStored(node));
    const position = new Map(nodes.map((node, at) => [node.id, at]));
    const labels = nodes.map((node) => this.label(node));
    const boxes = nodes.map((node, at) => ({
      id: node.id,
      width: Math.round(Math.min(230, Math.max(88, Math.max(node.op.length * 7.4, labels[at]!.length * 6.45) + 28)) / 8) * 8,
      height: labels[at] ? 2 * LINE + PADDING : LINE + PADDING + 2,
    }));
    const pairs: [number, number][] = [];
    nodes.forEach((node, to) => {
      for (const value of new Set(node.operands)) {
        const from = position.get(graph.producer.get(value)?.id ?? NaN);
        if (from !== undefined && from < to) pairs.push([from, to]);
      }
    });
    const once = new Map(pairs.map((pair) => [`${pair[0]}>${pair[1]}`, pair]));
    return { graph, nodes, boxes, position, labels, pairs: [...once.values()] };
  }

  private label(node: GraphNode): string {
    if (node.op === "output" && node.id <= OUTPUT_IDS) return `%${this.model.name(node.operands[0]!)}`;
    if (node.id < 0) return `%${this.model.name(node.results[0]!)}: ${node.types[0]}`;
    return node.types.join(", ");
  }

  // Drawing ----------------------------------------------------------------------------------------

  draw(): void {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.drawNow();
    });
  }

  drawNow(): void {
    const started = performance.now();
    const { context, scene, scale } = this;
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    if (!scene) return;
    this.colors ??= readColors();
    const colors = this.colors;
    context.translate(this.left, this.top);
    context.scale(scale, scale);
    const view = {
      left: -this.left / scale,
      top: -this.top / scale,
      right: (this.width - this.left) / scale,
      bottom: (this.height - this.top) / scale,
    };
    this.drawEdges(scene, view, colors);
    const readable = LINE * scale >= READABLE;
    context.textBaseline = "middle";
    scene.nodes.forEach((node, at) => {
      const box = scene.boxes[at]!;
      const x = scene.placed.x[at]! - box.width / 2;
      const y = scene.placed.y[at]! - box.height / 2;
      if (x > view.right || x + box.width < view.left || y > view.bottom || y + box.height < view.top) return;
      this.drawNode(node, scene.labels[at]!, x, y, box, readable, colors);
    });
    this.lastFrame = performance.now() - started;
  }

  private drawEdges(scene: Scene, view: { left: number; top: number; right: number; bottom: number }, colors: Colors): void {
    const { context } = this;
    const focus = this.hovered ?? this.selected;
    const at = focus === null ? undefined : scene.position.get(focus);
    const near = new Set(at === undefined ? [] : scene.touching.get(at));
    context.lineWidth = Math.min(1.2 / this.scale, 4);
    context.strokeStyle = colors.line;
    context.beginPath();
    scene.placed.edges.forEach((edge, k) => {
      if (edge.far || near.has(k) || !isInView(edge.points, view)) return;
      trace(context, edge.points, this.scale > 0.15);
    });
    context.stroke();
    // Values from far away end in a short stub at their reader.
    context.setLineDash([3, 3]);
    context.beginPath();
    for (const edge of this.scale > 0.3 ? scene.placed.edges : []) {
      if (!edge.far) continue;
      const x = edge.points.at(-2)!;
      const y = edge.points.at(-1)!;
      if (x < view.left || x > view.right || y < view.top || y > view.bottom + 30) continue;
      context.moveTo(x - 18, y - 14);
      context.quadraticCurveTo(x - 4, y - 12, x, y);
    }
    context.stroke();
    context.setLineDash([]);
    if (!near.size) return;
    context.strokeStyle = colors.accent;
    context.lineWidth = Math.min(2 / this.scale, 6);
    for (const k of near) {
      const edge = scene.placed.edges[k]!;
      context.setLineDash(edge.far ? [6 / this.scale, 4 / this.scale] : []);
      context.beginPath();
      trace(context, edge.points, true);
      context.stroke();
    }
    context.setLineDash([]);
  }

  private drawNode(node: GraphNode, label: string, x: number, y: number, box: Box, readable: boolean, colors: Colors): void {
    const { context } = this;
    const hue = colors.family[node.family] ?? colors.family.other!;
    const isEdge = node.id < 0;
    const radius = isEdge ? box.height / 2 : 4;
    context.beginPath();
    context.roundRect(x, y, box.width, box.height, radius);
    if (!readable) {
      context.fillStyle = node.change === "added" ? colors.added : node.change === "changed" ? colors.changed : hue;
      context.fill();
      if (node.id === this.selected || this.marked.has(node.id)) this.outline(x, y, box, radius, colors.accent);
      return;
    }
    context.fillStyle = isEdge ? colors.paper : colors.tint[node.family] ?? colors.surface;
    context.fill();
    context.lineWidth = 1;
    context.strokeStyle = hue;
    context.stroke();
    if (!isEdge) {
      context.fillStyle = hue;
      context.beginPath();
      context.roundRect(x, y, 4, box.height, [radius, 0, 0, radius]);
      context.fill();
    }
    context.fillStyle = colors.ink;
    context.font = "600 12px system-ui, sans-serif";
    const inner = box.width - 22;
    const first = y + (label ? PADDING / 2 + LINE / 2 : box.height / 2);
    context.fillText(fitted(context, node.op, inner), x + 12, first);
    if (label) {
      context.fillStyle = colors.soft;
      context.font = "10.5px ui-monospace, 'DejaVu Sans Mono', monospace";
      context.fillText(fitted(context, label, inner), x + 12, first + LINE);
    }
    if (node.change) this.badge(node.change, x + box.width, y, colors);
    if (this.marked.has(node.id)) this.outline(x, y, box, radius, colors.accent);
    if (node.id === this.selected) this.outline(x, y, box, radius, colors.accent, 3);
  }

  private outline(x: number, y: number, box: Box, radius: number, color: string, width = 2): void {
    const { context } = this;
    const gap = 3 / Math.max(this.scale, 0.3);
    context.beginPath();
    context.roundRect(x - gap, y - gap, box.width + 2 * gap, box.height + 2 * gap, radius + gap);
    context.strokeStyle = color;
    context.lineWidth = Math.min(width / this.scale, 12);
    context.stroke();
  }

  /** What a pass did to a node, as a shape as well as a colour. */
  private badge(change: "added" | "changed", x: number, y: number, colors: Colors): void {
    const { context } = this;
    context.beginPath();
    context.arc(x - 2, y + 2, 7.5, 0, 2 * Math.PI);
    context.fillStyle = change === "added" ? colors.added : colors.changed;
    context.fill();
    context.fillStyle = colors.paper;
    context.font = "700 11px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillText(change === "added" ? "+" : "Δ", x - 2, y + 2.5);
    context.textAlign = "left";
  }

  // Moving about -----------------------------------------------------------------------------------

  private get width(): number {
    return this.element.clientWidth;
  }

  private get height(): number {
    return this.element.clientHeight;
  }

  private resize(): void {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    if (this.needsFit && this.scene) this.fitWidth();
    this.drawNow();
  }

  private screenPlace(node: number | null): { x: number; y: number } | null {
    const at = node === null ? undefined : this.scene?.position.get(node);
    if (at === undefined || !this.scene) return null;
    return {
      x: this.scene.placed.x[at]! * this.scale + this.left,
      y: this.scene.placed.y[at]! * this.scale + this.top,
    };
  }

  /** Keeps the selected node where it was on the screen when the stage changes. */
  private keep(anchor: { x: number; y: number }): void {
    const now = this.screenPlace(this.selected);
    if (now) this.panBy(anchor.x - now.x, anchor.y - now.y);
  }

  private reveal(node: number | null): void {
    const place = this.screenPlace(node);
    if (!place || !this.width) return;
    if (this.scale < 0.5) this.zoom(0.8 / this.scale, place.x, place.y);
    const now = this.screenPlace(node)!;
    const margin = 60;
    const inside = now.x > margin && now.x < this.width - margin && now.y > margin && now.y < this.height - margin;
    if (!inside) this.panBy(this.width / 2 - now.x, this.height / 2 - now.y);
  }

  private nodeAt(x: number, y: number): number | null {
    const scene = this.scene;
    if (!scene) return null;
    const gx = (x - this.left) / this.scale;
    const gy = (y - this.top) / this.scale;
    const slack = 3 / this.scale;
    for (let at = scene.nodes.length - 1; at >= 0; at -= 1) {
      const box = scene.boxes[at]!;
      const near = Math.abs(scene.placed.x[at]! - gx) <= box.width / 2 + slack;
      if (near && Math.abs(scene.placed.y[at]! - gy) <= box.height / 2 + slack) return scene.nodes[at]!.id;
    }
    return null;
  }

  private listen(): void {
    const { canvas } = this;
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const step = event.deltaMode === 1 ? 16 : 1;
        if (event.shiftKey) this.panBy(-(event.deltaX + event.deltaY) * step, 0);
        else this.zoom(Math.exp(-event.deltaY * step * 0.0018), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      this.moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    const release = (event: PointerEvent) => {
      const wasDown = this.pointers.delete(event.pointerId);
      if (wasDown && this.moved < 4 && event.type === "pointerup") this.events.select(this.nodeAt(event.offsetX, event.offsetY));
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("dblclick", (event) => this.zoom(1.8, event.offsetX, event.offsetY));
    canvas.addEventListener("keydown", (event) => this.onKey(event));
  }

  private onMove(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.hover(this.nodeAt(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
      return;
    }
    const now = { x: event.offsetX, y: event.offsetY };
    this.moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (this.pointers.size === 2) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)![1];
      const ratio = Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
      this.zoom(ratio, (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else {
      this.panBy(now.x - before.x, now.y - before.y);
    }
    this.pointers.set(event.pointerId, now);
  }

  private hover(node: number | null, x = 0, y = 0): void {
    const found = node === null ? undefined : this.scene?.graph.byId.get(node);
    this.tooltip.hidden = !found;
    if (found) {
      replace(this.tooltip, this.model.line(found));
      const right = x > this.width / 2;
      this.tooltip.style.left = right ? "auto" : `${x + 14}px`;
      this.tooltip.style.right = right ? `${this.width - x + 14}px` : "auto";
      this.tooltip.style.top = `${Math.min(y + 16, this.height - 60)}px`;
    }
    if (node === this.hovered) return;
    this.hovered = node;
    this.canvas.style.cursor = node === null ? "grab" : "pointer";
    this.draw();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions: Record<string, () => void> = {
      ArrowDown: () => this.follow(1),
      ArrowUp: () => this.follow(-1),
      ArrowRight: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      "+": () => this.zoom(1.25),
      "=": () => this.zoom(1.25),
      "-": () => this.zoom(0.8),
      "0": () => this.fit(),
      Escape: () => this.events.select(null),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  private follow(direction: 1 | -1): void {
    const scene = this.scene;
    const node = this.selected === null ? undefined : scene?.graph.byId.get(this.selected);
    if (!scene || !node) return this.step(1);
    const neighbours =
      direction === 1
        ? node.results.flatMap((value) => scene.graph.users.get(value) ?? [])
        : node.operands.flatMap((value) => scene.graph.producer.get(value) ?? []);
    const next = neighbours.find((each) => scene.position.has(each.id));
    if (next) this.events.select(next.id);
    else this.events.announce(direction === 1 ? "No node uses this." : "This has no operand that is drawn.");
  }

  private step(direction: 1 | -1): void {
    const scene = this.scene;
    if (!scene?.nodes.length) return;
    const at = this.selected === null ? -1 : (scene.position.get(this.selected) ?? -1);
    const next = at < 0 ? 0 : (at + direction + scene.nodes.length) % scene.nodes.length;
    this.events.select(scene.nodes[next]!.id);
  }
}

function finished(sketch: Sketch, placed: Placed): Scene {
  const touching = new Map<number, number[]>();
  placed.edges.forEach((edge, k) => {
    for (const end of [edge.from, edge.to]) {
      const known = touching.get(end);
      if (known) known.push(k);
      else touching.set(end, [k]);
    }
  });
  return { ...sketch, placed, touching };
}

function clamp(scale: number): number {
  return Math.min(LARGEST_SCALE, Math.max(SMALLEST_SCALE, scale));
}

function isInView(points: number[], view: { left: number; top: number; right: number; bottom: number }): boolean {
  let left = Infinity;
  let right = -Infinity;
  for (let k = 0; k < points.length; k += 2) {
    left = Math.min(left, points[k]!);
    right = Math.max(right, points[k]!);
  }
  const top = points[1]!;
  const bottom = points[points.length - 1]!;
  return right >= view.left && left <= view.right && bottom >= view.top && top <= view.bottom;
}

/** A line through points: rounded at each of them where there is room to see it. */
function trace(context: CanvasRenderingContext2D, points: number[], smooth: boolean): void {
  context.moveTo(points[0]!, points[1]!);
  const count = points.length / 2;
  for (let k = 1; k < count - 1; k += 1) {
    const x = points[2 * k]!;
    const y = points[2 * k + 1]!;
    if (!smooth) context.lineTo(x, y);
    else context.quadraticCurveTo(x, y, (x + points[2 * k + 2]!) / 2, (y + points[2 * k + 3]!) / 2);
  }
  context.lineTo(points[points.length - 2]!, points[points.length - 1]!);
}

const widths = new Map<string, string>();

function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  const key = `${context.font}|${width}|${text}`;
  const known = widths.get(key);
  if (known !== undefined) return known;
  let found = text;
  while (found.length > 1 && context.measureText(found).width > width) found = `${found.slice(0, -2).trimEnd()}…`;
  if (widths.size > 20_000) widths.clear();
  widths.set(key, found);
  return found;
}

function readColors(): Colors {
  const family: Record<string, string> = {};
  const tint: Record<string, string> = {};
  for (const name of FAMILIES) {
    family[name] = cssColor(`--${name}`);
    tint[name] = cssColor(`--${name}-tint`);
  }
  return {
    ink: cssColor("--ink"),
    soft: cssColor("--ink-soft"),
    line: cssColor("--edge"),
    paper: cssColor("--paper"),
    surface: cssColor("--surface"),
    accent: cssColor("--accent"),
    added: cssColor("--added"),
    changed: cssColor("--changed"),
    family,
    tint,
  };
}
