// What the report holds, unpacked: the graph at every stage, rebuilt from deltas, and the ways from
// a line of source to its nodes, to their kernel, and back.

export interface StageFacts {
  name: string;
  phase: "given" | "passes" | "lowering";
  ms: number | null;
  counters: Record<string, number>;
  idle: string[];
  /** What the graph would be as a program, had compiling ended there. */
  figures?: Figures | null;
  inputs: number[];
  outputs: number[];
  delta: (number | [number, number])[];
}

export interface Figures {
  kernels: number;
  bytes_moved: number;
  peak: number;
}

export interface GroupFacts {
  name: string;
  kind: string;
  nodes: number[];
  steps: number[];
  together: string[];
  apart: string[];
}

export interface KernelFacts {
  name: string;
  kind: string;
  space: string;
  schedule: string;
  launches: number;
  nodes: string[];
  together: string[];
  apart: string[];
  read: number;
  written: number;
  /** Of a call, all launches together. */
  ms?: number | null;
  /** Of one launch. */
  flops?: number | null;
  share?: number | null;
  bound?: string | null;
  reached?: number | null;
}

/** A call as it happened, in microseconds: kernel (its number, or a name), thread, begin, end. */
export interface Spans {
  call: number;
  threads: number;
  rows: [number | string, number, number, number][];
  left_out: number;
  memory: [number, number][];
}

export interface StepFacts {
  what: string;
  kernels: string[];
  interpreted: number;
  copies: number;
  chunks?: number;
  threads?: number;
}

export type Slot = [string, number, number, number, number, number];

export interface ArenaFacts {
  peak: number;
  bound: number;
  requested: number;
  steps: number;
  slots: Slot[];
}

type RecordFacts = [number, number, number[], number[], number, number, number];

export interface Facts {
  version: string;
  model: string;
  machine: string;
  threads: number;
  /** Versions and hardware, by topic, as `monograph doctor` says them. */
  installed?: Record<string, string>;
  sizes: Record<string, number>;
  missing: string;
  measured: {
    call_ms: number | null;
    /** With every launch as quick as it ever was: other programs disturb each long call somewhere. */
    undisturbed_ms?: number | null;
    note?: string;
    /** What other programs did meanwhile, if they did anything. */
    busy?: string;
    overhead?: number;
    peak_gflops?: number;
    levels?: { name: string; gbs: number }[];
    spans?: Spans;
  };
  ops: string[];
  families: string[];
  types: string[];
  names: string[];
  texts: string[];
  locations: [number, number, string, string][];
  records: RecordFacts[];
  files: { path: string; lines: Record<string, string[]> }[];
  stages: StageFacts[];
  groups: GroupFacts[];
  kernels: KernelFacts[];
  steps: StepFacts[];
  arena: ArenaFacts | null;
  memory: Record<string, number> | null;
  summary: {
    nodes_given: number;
    nodes_optimised: number;
    nodes_lowered: number;
    groups: number;
    launches: number;
    kernels: number;
    bytes_apart: number;
    bytes_moved: number;
    fallbacks: Record<string, number>;
    libraries?: Record<string, number>;
    stages: Record<string, number>;
    cache: string;
    specialised: string | null;
    conversions: number;
    served_by: string | null;
  };
  listings: string[];
  no_listings: string;
  text?: string;
  passes?: string;
  sites?: Site[];
  validation?: Validation;
  ablation?: Ablation;
  comparison?: Comparison;
  bisection?: Bisection;
}

export interface StepVerdict {
  name: string;
  word: string;
  difference: number | string;
  error: number | string | null;
  other_error: number | string | null;
  drift: number | string | null;
  sample: string;
  remark: string;
}

/** What `monograph validate` found. */
export interface Validation {
  word: string;
  first_wrong: string | null;
  framework: string;
  samples: string[];
  skipped: string[];
  steps: StepVerdict[];
  program: StepVerdict | null;
}

/** A ratio: its median over rounds, and the interval of 95 %. */
export interface Spread {
  median: number;
  low: number;
  high: number;
}

/** What a program costs beside time. */
export interface Costs {
  kernels: number;
  bytes_moved: number;
  peak: number;
  compile_seconds: number;
  error: number | string | null;
}

/** What one part of the compiler buys; without a speedup, `state` or `reason` says why. */
export interface Effect {
  part: { kind: string; name: string };
  state: string;
  speedup: Spread | null;
  costs: Costs | null;
  reason: string;
}

/** What `monograph ablate` measured. */
export interface Ablation {
  seconds: number;
  costs: Costs;
  whole: Spread | null;
  without: Effect[];
  alone: Effect[];
  remark: string;
  explained_without: number | null;
  explained_alone: number | null;
}

/** One way to run the model; without a median it did not run, and `reason` says why. */
export interface Contender {
  name: string;
  reason: string;
  median: number | null;
  times_ours: Spread | null;
  error: number | string | null;
  verdict: string;
  remark: string;
  compile_seconds: number | null;
  memory: number | null;
}

/** What `monograph compare` measured. */
export interface Comparison {
  rounds: number;
  contenders: Contender[];
}

/** What `monograph bisect` found; `kind` is null where nothing is wrong. */
export interface Bisection {
  kind: string | null;
  step: string;
  rewrite: string;
  cured_by: string[];
  symptom: string;
  sample: string;
  nodes: number;
  nodes_left: number;
  repro: string;
  tried: number;
  seconds: number;
}

/** A kernel whose schedule may be changed: what was chosen, and the values that knobs may be turned to. */
export interface Site {
  digest: string;
  name: string;
  choice: string;
  launches: number;
  knobs: Record<string, number[]>;
  edits: Record<string, number>;
}

/** A pass without the options that it ran with, which can be many. */
export function shortPass(name: string): string {
  return name.replace(/\{.*\}$/, "{…}");
}

export type Change = "added" | "changed";

export interface GraphNode {
  /** Stands for the node in every stage; negative for inputs and outputs of the graph. */
  id: number;
  op: string;
  family: string;
  results: number[];
  types: string[];
  operands: number[];
  attributes: string;
  location: number;
  regions: string;
  change: Change | null;
}

export interface GraphAt {
  stage: number;
  nodes: GraphNode[];
  byId: Map<number, GraphNode>;
  producer: Map<number, GraphNode>;
  users: Map<number, GraphNode[]>;
  removed: GraphNode[];
}

export const OUTPUT_IDS = -1_000_000;

/** Whether a node only holds numbers: drawn when somebody asks for it. */
export function isStored(node: GraphNode): boolean {
  return node.id >= 0 && node.family === "data";
}

export class Model {
  private records: number[][] = [];
  private graphs = new Map<number, GraphAt>();
  private groupOfNode = new Map<number, number>();
  private groupsOfPlace = new Map<number, Set<number>>();
  readonly groupsOfKernel = new Map<string, number[]>();
  readonly kernelsByName = new Map<string, KernelFacts>();

  constructor(readonly facts: Facts) {
    let before: number[] = [];
    for (const stage of facts.stages) {
      before = applyDelta(before, stage.delta);
      this.records.push(before);
    }
    facts.kernels.forEach((kernel) => this.kernelsByName.set(kernel.name, kernel));
    facts.groups.forEach((group, number) => {
      group.nodes.forEach((node) => this.groupOfNode.set(node, number));
      for (const kernel of this.kernelsOfGroup(number)) {
        const known = this.groupsOfKernel.get(kernel);
        if (known) known.push(number);
        else this.groupsOfKernel.set(kernel, [number]);
      }
    });
    const last = facts.stages.length - 1;
    for (const node of last >= 0 ? this.graphAt(last).nodes : []) {
      const group = this.groupOfNode.get(node.id);
      if (group === undefined || node.location < 0) continue;
      const known = this.groupsOfPlace.get(node.location) ?? new Set();
      this.groupsOfPlace.set(node.location, known.add(group));
    }
  }

  get lastStage(): number {
    return this.facts.stages.length - 1;
  }

  name(value: number): string {
    return this.facts.names[value] ?? "?";
  }

  graphAt(stage: number): GraphAt {
    let graph = this.graphs.get(stage);
    if (!graph) {
      graph = this.build(stage);
      this.graphs.set(stage, graph);
      // A large model has many stages: the graphs of a few are kept.
      for (const old of this.graphs.keys()) if (this.graphs.size > 6 && old !== stage) this.graphs.delete(old);
    }
    return graph;
  }

  private build(number: number): GraphAt {
    const stage = this.facts.stages[number]!;
    const before = number > 0 ? this.records[number - 1]! : [];
    const here = this.records[number]!;
    const known = new Map(before.map((record) => [this.facts.records[record]![0], record]));
    const nodes: GraphNode[] = [];
    for (let k = 0; k < stage.inputs.length; k += 2) {
      nodes.push(this.edge(-1 - k / 2, "input", [stage.inputs[k]!], [this.facts.types[stage.inputs[k + 1]!]!], []));
    }
    for (const record of here) {
      const node = this.node(record);
      const old = known.get(node.id);
      if (number > 0) node.change = old === undefined ? "added" : old === record ? null : "changed";
      nodes.push(node);
    }
    stage.outputs.forEach((value, k) => nodes.push(this.edge(OUTPUT_IDS - k, "output", [], [], [value])));
    const byId = new Map(nodes.map((node) => [node.id, node]));
    const producer = new Map<number, GraphNode>();
    const users = new Map<number, GraphNode[]>();
    for (const node of nodes) for (const value of node.results) producer.set(value, node);
    for (const node of nodes) {
      for (const value of new Set(node.operands)) {
        const known = users.get(value);
        if (known) known.push(node);
        else users.set(value, [node]);
      }
    }
    const removed = before
      .filter((record) => !byId.has(this.facts.records[record]![0]))
      .map((record) => this.node(record));
    return { stage: number, nodes, byId, producer, users, removed };
  }

  private edge(id: number, op: string, results: number[], types: string[], operands: number[]): GraphNode {
    return { id, op, family: "data", results, types, operands, attributes: "", location: -1, regions: "", change: null };
  }

  private node(record: number): GraphNode {
    const [id, op, results, operands, text, location, regions] = this.facts.records[record]!;
    const { facts } = this;
    return {
      id,
      op: facts.ops[op]!,
      family: facts.families[op]!,
      results: results.filter((_, k) => k % 2 === 0),
      types: results.filter((_, k) => k % 2 === 1).map((type) => facts.types[type]!),
      operands,
      attributes: text < 0 ? "" : facts.texts[text]!,
      location,
      regions: regions < 0 ? "" : facts.texts[regions]!,
      change: null,
    };
  }

  nodeCount(stage: number): number {
    return this.records[stage]?.length ?? 0;
  }

  // From nodes to what runs them, and back ---------------------------------------------------------

  kernelsOfGroup(number: number): string[] {
    const group = this.facts.groups[number];
    if (!group) return [];
    return [...new Set(group.steps.flatMap((step) => this.facts.steps[step]?.kernels ?? []))];
  }

  /** The groups that compute a node; of one that a pass has replaced, those of its source line. */
  groupsOf(node: GraphNode): { groups: number[]; byLine: boolean } {
    const own = this.groupOfNode.get(node.id);
    if (own !== undefined) return { groups: [own], byLine: false };
    if (node.id < 0 || isStored(node)) return { groups: [], byLine: false };
    return { groups: [...(this.groupsOfPlace.get(node.location) ?? [])], byLine: true };
  }

  groupOfStep(step: number): number {
    return this.facts.groups.findIndex((group) => group.steps.includes(step));
  }

  place(location: number): { file: string; fileNumber: number; line: number; func: string; scope: string } | null {
    const found = this.facts.locations[location];
    if (!found) return null;
    const [fileNumber, line, func, scope] = found;
    return { file: this.facts.files[fileNumber]?.path ?? "", fileNumber, line, func, scope };
  }

  /** A node as the text form writes it. */
  line(node: GraphNode): string {
    const operands = node.operands.map((value) => `%${this.name(value)}`).join(", ");
    if (node.op === "output" && node.id <= OUTPUT_IDS) return `return ${operands}`;
    const results = node.results.map((value) => `%${this.name(value)}`).join(", ");
    if (node.op === "input" && node.id < 0) return `input ${results}: ${node.types.join(", ")}`;
    const stored = node.op === "weight" || node.op === "constant";
    const inside = stored ? node.attributes : operands;
    const braces = node.attributes && !stored ? ` {${node.attributes}}` : "";
    return `${results}${results ? " = " : ""}${node.op}(${inside})${braces}${results ? " : " : ""}${node.types.join(", ")}`;
  }
}

export function applyDelta(before: number[], delta: (number | [number, number])[]): number[] {
  return delta.flatMap((part) => (typeof part === "number" ? [part] : before.slice(part[0], part[0] + part[1])));
}

/** What ``page.pack`` packed. */
export async function unpack<T>(text: string): Promise<T> {
  const binary = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([binary]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as T;
}

export class Listings {
  private found = new Map<string, Promise<Record<string, string>>>();

  constructor(private given: Record<string, Record<string, string>> | null = null) {}

  stage(stage: string): Promise<Record<string, string>> {
    if (this.given) return Promise.resolve(this.given[stage] ?? {});
    let found = this.found.get(stage);
    if (!found) {
      const text = document.getElementById(`data-listing-${stage}`)?.textContent;
      found = text ? unpack<Record<string, string>>(text) : Promise.resolve({});
      this.found.set(stage, found);
    }
    return found;
  }
}
