// The left side of the graph: the text of the IR, the lines of the user's program, and the modules,
// each with the nodes that came of it.

import { Child, h, plural, replace } from "./dom";
import { GraphAt, GraphNode, isStored, Model } from "./data";
import { Go, shortPath } from "./inspector";
import { TextList } from "./text_list";

type Tab = "ir" | "source" | "modules";
interface SourceRow {
  file: number;
  line: number;
  text: string;
  head?: boolean;
}
interface ModuleRow {
  scope: string;
  depth: number;
  nodes: GraphNode[];
}

export class SourcePane {
  readonly element: HTMLElement;
  private tab: Tab = "ir";
  private graph: GraphAt | null = null;
  private sources: SourceRow[] = [];
  private nodesOfLine = new Map<string, GraphNode[]>();
  private modules: ModuleRow[] = [];
  private body = h("div", { class: "pane-body" });
  private tabs = h("div", { class: "tabs small", role: "tablist", "aria-label": "Text" });
  private ir: TextList;
  private source: TextList;
  private module: TextList;
  private selected: number | null = null;
  private needsRows: Record<Tab, boolean> = { ir: true, source: true, modules: true };

  constructor(
    private model: Model,
    private go: Go,
    private mark: (nodes: GraphNode[], label: string) => void,
  ) {
    this.ir = new TextList({
      label: "The graph as text, one node a line",
      render: (index) => this.irRow(index),
      choose: (index) => {
        const node = this.graph?.nodes[index];
        if (node) this.go({ node: node.id });
      },
    });
    this.source = new TextList({ label: "Source lines", render: (index) => this.sourceRow(index), choose: (index) => this.chooseLine(index) });
    this.module = new TextList({
      label: "Modules",
      rowHeight: 24,
      render: (index) => this.moduleRow(index),
      choose: (index) => {
        const row = this.modules[index]!;
        this.module.setCurrent(index, false);
        this.mark(row.nodes, row.scope || "the top");
      },
    });
    this.element = h("aside", { class: "pane left", "aria-label": "Text of the graph and its source" }, this.tabs, this.body);
    this.showTab("ir");
  }

  show(graph: GraphAt): void {
    this.graph = graph;
    this.nodesOfLine.clear();
    for (const node of graph.nodes) {
      const place = this.model.place(node.location);
      if (!place || place.line <= 0) continue;
      const key = `${place.fileNumber}:${place.line}`;
      const known = this.nodesOfLine.get(key);
      if (known) known.push(node);
      else this.nodesOfLine.set(key, [node]);
    }
    this.needsRows = { ir: true, source: true, modules: true };
    this.fillTab();
  }

  select(node: number | null): void {
    this.selected = node;
    const graph = this.graph;
    if (!graph) return;
    const at = graph.nodes.findIndex((each) => each.id === node);
    if (this.tab === "ir") this.ir.setCurrent(at);
    const place = at < 0 ? null : this.model.place(graph.nodes[at]!.location);
    if (this.tab === "source") {
      this.source.setCurrent(place ? this.rowOf(place.fileNumber, place.line) : -1);
    }
  }

  revealLine(file: number, line: number): void {
    this.showTab("source");
    const row = this.rowOf(file, line);
    this.source.setCurrent(row);
    this.mark(this.nodesOfLine.get(`${file}:${line}`) ?? [], `line ${line}`);
  }

  private showTab(tab: Tab): void {
    this.tab = tab;
    const names: [Tab, string][] = [
      ["ir", "IR"],
      ["source", "Source"],
      ["modules", "Modules"],
    ];
    replace(
      this.tabs,
      ...names.map(([each, label]) =>
        h("button", { type: "button", role: "tab", "aria-selected": String(each === tab), click: () => this.showTab(each) }, label),
      ),
    );
    this.fillTab();
    this.select(this.selected);
  }

  private fillTab(): void {
    const { tab, graph } = this;
    if (!graph) return;
    const list = { ir: this.ir, source: this.source, modules: this.module }[tab];
    if (this.needsRows[tab]) {
      this.needsRows[tab] = false;
      if (tab === "ir") this.ir.setCount(graph.nodes.length);
      if (tab === "source") this.makeSources();
      if (tab === "modules") this.makeModules();
    }
    const empty = tab === "source" && !this.sources.length ? "No line of source is known for these nodes." : tab === "modules" && this.modules.length < 2 ? "No module names are known for these nodes." : "";
    replace(this.body, empty ? h("p", { class: "hint" }, empty) : list.element);
    list.refresh();
  }

  private irRow(index: number): { content: Child[]; class?: string } {
    const node = this.graph!.nodes[index]!;
    return {
      class: `ir ${node.change ?? ""} ${isStored(node) ? "stored" : ""}`,
      content: [h("span", { class: `dot ${node.family}` }), h("span", { class: "change", "aria-label": node.change ?? "" }, node.change === "added" ? "+" : node.change ? "Δ" : ""), h("span", { class: "text" }, this.model.line(node))],
    };
  }

  // Source -----------------------------------------------------------------------------------------

  private makeSources(): void {
    this.sources = [];
    const used = new Map<number, Set<number>>();
    for (const key of this.nodesOfLine.keys()) {
      const [file, line] = key.split(":").map(Number) as [number, number];
      used.set(file, (used.get(file) ?? new Set()).add(line));
    }
    for (const [file, lines] of used) {
      const facts = this.model.facts.files[file]!;
      this.sources.push({ file, line: 0, text: facts.path, head: true });
      const chunks = Object.entries(facts.lines);
      if (!chunks.length) for (const line of [...lines].sort((a, b) => a - b)) this.sources.push({ file, line, text: "" });
      for (const [first, texts] of chunks) {
        texts.forEach((text, k) => this.sources.push({ file, line: Number(first) + k, text }));
      }
    }
    this.source.setCount(this.sources.length);
    const first = this.sources.findIndex((row) => this.nodesOfLine.has(`${row.file}:${row.line}`));
    if (first > 8) this.source.reveal(first);
  }

  private rowOf(file: number, line: number): number {
    return this.sources.findIndex((row) => row.file === file && row.line === line);
  }

  private sourceRow(index: number): { content: Child[]; class?: string } {
    const row = this.sources[index]!;
    if (row.head) return { class: "head", content: [h("span", { class: "text", title: row.text }, shortPath(row.text))] };
    const nodes = this.nodesOfLine.get(`${row.file}:${row.line}`);
    return {
      class: nodes ? "source used" : "source",
      content: [
        h("span", { class: "number" }, row.line),
        h("span", { class: "count", title: nodes ? plural(nodes.length, "node") : "" }, nodes ? nodes.length : ""),
        h("span", { class: "text" }, row.text || (nodes ? "(the text of this file is not in the report)" : "")),
      ],
    };
  }

  private chooseLine(index: number): void {
    const row = this.sources[index]!;
    if (row.head) return;
    this.source.setCurrent(index, false);
    this.mark(this.nodesOfLine.get(`${row.file}:${row.line}`) ?? [], `line ${row.line}`);
  }

  // Modules ----------------------------------------------------------------------------------------

  private makeModules(): void {
    const found = new Map<string, GraphNode[]>();
    for (const node of this.graph!.nodes) {
      const scope = this.model.place(node.location)?.scope ?? "";
      if (isStored(node) || node.id < 0) continue;
      const parts = scope ? scope.split(".") : [];
      for (let depth = 0; depth <= parts.length; depth += 1) {
        const key = parts.slice(0, depth).join(".");
        const known = found.get(key);
        if (known) known.push(node);
        else found.set(key, [node]);
      }
    }
    // A module whose only child holds all of its nodes is shown with it.
    this.modules = [...found]
      .map(([scope, nodes]) => ({ scope, depth: scope ? scope.split(".").length : 0, nodes }))
      .sort((a, b) => compareScopes(a.scope, b.scope));
    this.module.setCount(this.modules.length);
  }

  private moduleRow(index: number): { content: Child[]; class?: string } {
    const row = this.modules[index]!;
    const name = row.scope ? row.scope.split(".").pop()! : this.model.facts.model;
    return {
      class: "module",
      content: [
        h("span", { class: "text", style: `padding-left:${row.depth * 14}px`, title: row.scope }, name),
        h("span", { class: "count" }, row.nodes.length),
      ],
    };
  }
}

function compareScopes(a: string, b: string): number {
  const left = a.split(".");
  const right = b.split(".");
  for (let k = 0; k < Math.min(left.length, right.length); k += 1) {
    const order = left[k]!.localeCompare(right[k]!, "en", { numeric: true });
    if (order) return order;
  }
  return left.length - right.length;
}
