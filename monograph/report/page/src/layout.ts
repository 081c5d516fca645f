// Where nodes stand. A graph is cut into blocks where a single value is handed on (between the
// layers of a model), each block is laid out by dagre, and equal blocks are laid out once: time
// grows with the number of different blocks, not with the number of layers.

import { Graph, layout as dagreLayout } from "@dagrejs/dagre";

export interface Box {
  id: number;
  width: number;
  height: number;
}

export interface Placed {
  x: Float32Array;
  y: Float32Array;
  edges: Path[];
  width: number;
  height: number;
}

export interface Path {
  from: number;
  to: number;
  /** x, y of each point. */
  points: number[];
  /** A value that is handed over many blocks: drawn when one of its ends is looked at. */
  far: boolean;
}

/** Boxes that a block has at least, and at most; fewer in a graph that is LARGE, since dagre's time
 * grows faster than a block. */
const LEAST = 10;
const MOST = 110;
const MOST_OF_LARGE = 40;
const LARGE = 1500;
/** A value that is still read this many boxes after it was made (a mask, say) is not drawn to
 * readers further away than NEAR: it would tie all layers into one block. */
const FAR = 60;
const NEAR = 12;
const GAP = 34;

interface Block {
  begin: number;
  end: number;
  /** The node before the block whose value enters it, or -1. */
  entry: number;
}

interface Relative {
  x: number[];
  y: number[];
  edges: Map<string, number[]>;
  entryX: number;
  width: number;
  height: number;
}

/** Places boxes, which stand in an order of evaluation; edges are pairs of their positions. How far it
 * is, from 0 to 1, is told block by block. */
export function place(boxes: Box[], pairs: [number, number][], progress: (share: number) => void = () => {}): Placed {
  const count = boxes.length;
  const x = new Float32Array(count);
  const y = new Float32Array(count);
  const edges: Path[] = [];
  const known = new Map<string, Relative>();
  const reach = new Int32Array(count);
  for (const [from, to] of pairs) reach[from] = Math.max(reach[from]!, to - from);
  const isFar = (from: number, to: number): boolean => reach[from]! > FAR && to - from > NEAR;
  const near = pairs.filter(([from, to]) => !isFar(from, to));
  const blocks = cut(count, near);
  const blockOf = new Int32Array(count);
  blocks.forEach((block, k) => blockOf.fill(k, block.begin, block.end));
  const inside: [number, number][][] = blocks.map(() => []);
  const entering: [number, number][][] = blocks.map(() => []);
  for (const [from, to] of pairs) {
    const here = blockOf[to]!;
    if (isFar(from, to)) edges.push({ from, to, points: [], far: true });
    else if (blockOf[from] === here) inside[here]!.push([from, to]);
    else if (blocks[here]!.entry === from) entering[here]!.push([from, to]);
    else edges.push({ from, to, points: [], far: true });
  }
  let top = 0;
  let left = Infinity;
  let right = -Infinity;
  blocks.forEach((block, k) => {
    progress(k / blocks.length);
    const own = inside[k]!.map(([from, to]): [number, number] => [from - block.begin, to - block.begin]);
    const targets = entering[k]!.map(([, to]) => to - block.begin);
    const shape = boxes.slice(block.begin, block.end).map((box) => `${box.width}×${box.height}`);
    const key = JSON.stringify([shape, own, targets]);
    let relative = known.get(key);
    if (!relative) {
      relative = placeBlock(boxes.slice(block.begin, block.end), own, targets);
      known.set(key, relative);
    }
    const entry = block.entry;
    const shift = entry >= 0 ? x[entry]! - relative.entryX : -relative.width / 2;
    for (let n = block.begin; n < block.end; n += 1) {
      x[n] = relative.x[n - block.begin]! + shift;
      y[n] = relative.y[n - block.begin]! + top;
      left = Math.min(left, x[n]! - boxes[n]!.width / 2);
      right = Math.max(right, x[n]! + boxes[n]!.width / 2);
    }
    for (const [from, to] of [...inside[k]!, ...entering[k]!]) {
      const found = relative.edges.get(`${from >= block.begin ? from - block.begin : "e"}>${to - block.begin}`)!;
      const points = found.map((value, at) => value + (at % 2 === 0 ? shift : top));
      if (from < block.begin) points.unshift(x[from]!, y[from]! + boxes[from]!.height / 2);
      edges.push({ from, to, points, far: false });
    }
    top += relative.height + GAP;
  });
  const offset = 40 - (Number.isFinite(left) ? left : 0);
  for (let n = 0; n < count; n += 1) x[n] = x[n]! + offset;
  for (const edge of edges) {
    edge.points = edge.points.map((value, at) => (at % 2 === 0 ? value + offset : value));
    if (edge.far) edge.points = around(boxes, x, y, edge.from, edge.to);
  }
  return { x, y, edges, width: count ? right - left + 80 : 0, height: top };
}

/** Blocks of consecutive boxes, each of which only one box before it hands a value to. */
function cut(count: number, pairs: [number, number][]): Block[] {
  const last = new Int32Array(count).fill(-1);
  for (const [from, to] of pairs) last[from] = Math.max(last[from]!, to);
  const most = count > LARGE ? MOST_OF_LARGE : MOST;
  const blocks: Block[] = [];
  let begin = 0;
  let entry = -1;
  const alive = new Set<number>();
  for (let at = 0; at < count; at += 1) {
    for (const each of alive) if (last[each]! <= at) alive.delete(each);
    if (last[at]! > at) alive.add(at);
    const size = at + 1 - begin;
    if ((alive.size === 1 && size >= LEAST) || size >= most) {
      blocks.push({ begin, end: at + 1, entry });
      begin = at + 1;
      entry = alive.size === 1 ? [...alive][0]! : -1;
    }
  }
  if (begin < count) blocks.push({ begin, end: count, entry });
  return blocks;
}

function placeBlock(boxes: Box[], pairs: [number, number][], targets: number[]): Relative {
  const graph = new Graph({ multigraph: false });
  graph.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 30, edgesep: 12, ranker: "tight-tree" });
  graph.setDefaultEdgeLabel(() => ({}));
  boxes.forEach((box, k) => graph.setNode(String(k), { width: box.width, height: box.height }));
  if (targets.length) graph.setNode("e", { width: 2, height: 2 });
  for (const [from, to] of pairs) graph.setEdge(String(from), String(to));
  for (const to of targets) graph.setEdge("e", String(to));
  dagreLayout(graph);
  const x: number[] = [];
  const y: number[] = [];
  boxes.forEach((_, k) => {
    const found = graph.node(String(k)) as { x: number; y: number };
    x.push(found.x);
    y.push(found.y);
  });
  const edges = new Map<string, number[]>();
  for (const each of graph.edges()) {
    const found = graph.edge(each) as { points: { x: number; y: number }[] };
    edges.set(`${each.v}>${each.w}`, found.points.flatMap((point) => [point.x, point.y]));
  }
  const size = graph.graph() as { width?: number; height?: number };
  const entryX = targets.length ? (graph.node("e") as { x: number }).x : 0;
  return { x, y, edges, entryX, width: size.width ?? 0, height: size.height ?? 0 };
}

/** A way down the left side, for values that pass many blocks by. */
function around(boxes: Box[], x: Float32Array, y: Float32Array, from: number, to: number): number[] {
  const out = y[from]! + boxes[from]!.height / 2;
  const into = y[to]! - boxes[to]!.height / 2;
  const side = Math.min(x[from]!, x[to]!) - 60;
  return [x[from]!, out, side, out + 40, side, into - 40, x[to]!, into];
}
