// The page: a head, views to choose from, and one state that all of them show.

import { button, h, plural, replace } from "./dom";
import { Facts, GraphNode, Listings, Model, shortPass, unpack } from "./data";
import { EditView } from "./edit_view";
import { findings, headlines } from "./findings_view";
import { GraphView } from "./graph_view";
import { inspect } from "./inspector";
import { KernelsView } from "./kernels_view";
import { serveLayouts } from "./layouts";
import { MemoryView } from "./memory_view";
import { overview } from "./overview";
import { Search } from "./search";
import { SourcePane } from "./source_pane";
import { read, State, View, write } from "./state";

const NAMES: Record<View, string> = { overview: "Overview", graph: "Graph", kernels: "Kernels", memory: "Memory", findings: "Findings", edit: "Edit" };
const LEGEND = ["contraction", "reduction", "pointwise", "shape", "data", "control", "other"];

class Page {
  private state: State = read(location.hash);
  private views: Record<string, HTMLElement> = {};
  private graphView: GraphView;
  private sourcePane: SourcePane;
  private kernelsView: KernelsView;
  private memoryView: MemoryView | null = null;
  private search: Search;
  private inspector = h("aside", { class: "pane right", "aria-label": "Details", tabindex: -1 });
  private slider: HTMLInputElement;
  private sliderLabel = h("output", { class: "stage-name", for: "stage" });
  private marks = h("div", { class: "marks" });
  private live = h("div", { class: "visually-hidden", role: "status", "aria-live": "polite" });
  private tabs = h("nav", { class: "tabs", role: "tablist", "aria-label": "Views" });
  private main = h("main", {});
  private root: HTMLElement;
  private shownStage = -1;

  constructor(
    private model: Model,
    listings: Listings,
    editor: EditView | null,
  ) {
    const go = (change: Partial<State>) => this.go(change);
    this.graphView = new GraphView(model, { select: (node) => this.go({ node }), announce: (text) => this.announce(text) });
    this.sourcePane = new SourcePane(model, go, (nodes, label) => this.mark(nodes, label));
    this.kernelsView = new KernelsView(model, listings, go);
    this.search = new Search(model, () => model.graphAt(this.state.stage), (node) => this.found(node), (nodes) => this.graphView.mark(nodes.map((node) => node.id)));
    const last = Math.max(0, model.lastStage);
    this.slider = h("input", { id: "stage", type: "range", min: 0, max: last, value: 0, "aria-label": "Pass" });
    this.slider.addEventListener("input", () => this.go({ stage: Number(this.slider.value), node: this.state.node }, true));
    this.views = { graph: this.makeGraph(), kernels: this.kernelsView.element };
    if (editor) this.views.edit = editor.element;
    if (headlines(model.facts).length) this.views.findings = findings(model.facts);
    this.root = h("div", { class: "page" }, this.head(), this.main, this.live);
    if (!model.facts.stages.length) delete this.views.graph;
  }

  mount(): void {
    document.body.querySelector(".page")?.remove();
    document.body.append(this.root);
    this.render();
  }

  get elementState(): State {
    return this.state;
  }

  private head(): HTMLElement {
    const { facts } = this.model;
    return h(
      "header",
      { class: "head" },
      h("a", { class: "skip", href: "#graph" }, "Skip to the graph"),
      h("div", { class: "title" }, h("span", { class: "brand" }, "Monograph"), h("h1", { title: facts.model }, facts.model)),
      this.tabs,
      h("div", { class: "tools" }, this.search.element, button("◐", () => this.toggleTheme(), { class: "icon", "aria-label": "Light or dark", title: "Light or dark" })),
    );
  }

  private makeGraph(): HTMLElement {
    const stored = h("input", { type: "checkbox", id: "stored" });
    stored.addEventListener("change", () => {
      this.graphView.withStored = stored.checked;
      this.graphView.show(this.state.stage);
    });
    const step = (by: number) => this.go({ stage: Math.min(this.model.lastStage, Math.max(0, this.state.stage + by)) });
    const last = Math.max(1, this.model.lastStage);
    this.model.facts.stages.forEach((stage, k) => {
      this.marks.append(h("span", { class: `mark ${stage.phase}`, style: `left:${(k / last) * 100}%`, title: stage.name }));
    });
    return h(
      "section",
      { class: "view graph-view", "aria-label": "Graph" },
      h(
        "div",
        { class: "stage-bar" },
        button("‹", () => step(-1), { class: "icon", "aria-label": "Previous pass", title: "Previous pass  [" }),
        h("div", { class: "slider" }, this.slider, this.marks),
        button("›", () => step(1), { class: "icon", "aria-label": "Next pass", title: "Next pass  ]" }),
        this.sliderLabel,
        h("span", { class: "grow" }),
        h("label", { class: "stored", for: "stored" }, stored, " weights"),
        button("−", () => this.graphView.zoom(0.8), { class: "icon", "aria-label": "Zoom out" }),
        button("+", () => this.graphView.zoom(1.25), { class: "icon", "aria-label": "Zoom in" }),
        button("Fit", () => this.graphView.fit(), { class: "icon wide", "aria-label": "Fit the graph" }),
      ),
      h("div", { class: "panes" }, this.sourcePane.element, h("div", { class: "canvas-box" }, this.graphView.element, h("ul", { class: "legend", "aria-label": "Colours" }, ...LEGEND.map((each) => h("li", {}, h("span", { class: `dot ${each}` }), each)))), this.inspector),
    );
  }

  // State ------------------------------------------------------------------------------------------

  go(change: Partial<State>, replaces = false): void {
    const next: State = { ...this.state, ...change };
    if (change.file === undefined) {
      next.file = null;
      next.line = null;
    } else next.view = "graph";
    if (change.node !== undefined && change.node !== null && change.view === undefined) next.view = "graph";
    const hash = write(next);
    if (hash === write(this.state)) {
      this.render();
      return;
    }
    this.state = next;
    if (replaces) history.replaceState(null, "", hash);
    else history.pushState(null, "", hash);
    this.render();
  }

  restore(): void {
    this.state = read(location.hash);
    this.render();
  }

  private render(): void {
    const { model } = this;
    const last = Math.max(0, model.lastStage);
    this.state.stage = Math.min(last, Math.max(0, this.state.stage));
    const view = this.state.view === "overview" || this.state.view === "memory" || this.views[this.state.view] ? this.state.view : "overview";
    this.drawTabs(view);
    const element = this.viewElement(view);
    if (this.main.firstElementChild !== element) replace(this.main, element);
    if (view === "graph") this.renderGraph();
    if (view === "kernels") this.kernelsView.show(this.state);
  }

  private viewElement(view: View): HTMLElement {
    if (view === "overview") return (this.views.overview ??= overview(this.model, (change) => this.go(change)));
    if (view === "memory") {
      this.memoryView ??= new MemoryView(this.model, (change) => this.go(change));
      return this.memoryView.element;
    }
    return this.views[view]!;
  }

  /** Not every page has findings, a graph or an editor. */
  private shownViews(): View[] {
    return (Object.keys(NAMES) as View[]).filter((each) => !["edit", "findings", "graph"].includes(each) || this.views[each]);
  }

  private drawTabs(view: View): void {
    replace(this.tabs, ...this.shownViews().map((each) => h("button", { type: "button", role: "tab", "aria-selected": String(each === view), click: () => this.go({ view: each }) }, NAMES[each])));
  }

  private renderGraph(): void {
    const { stage, node, file, line } = this.state;
    const graph = this.model.graphAt(stage);
    if (stage !== this.shownStage) {
      this.shownStage = stage;
      this.slider.value = String(stage);
      this.sourcePane.show(graph);
      this.graphView.show(stage);
      const facts = this.model.facts.stages[stage]!;
      replace(this.sliderLabel, h("strong", { title: facts.name }, shortPass(facts.name)), ` ${stage + 1} of ${this.model.facts.stages.length} · ${plural(this.model.nodeCount(stage), "node")}`);
      this.slider.setAttribute("aria-valuetext", `${shortPass(facts.name)}, ${stage + 1} of ${this.model.facts.stages.length}`);
    }
    const found = node === null ? undefined : graph.byId.get(node);
    const group = found ? this.model.groupsOf(found) : null;
    const mates = group && !group.byLine && stage === this.model.lastStage ? group.groups.flatMap((each) => this.model.facts.groups[each]!.nodes) : [];
    this.graphView.mark(mates.length > 1 ? mates : []);
    this.graphView.select(found ? found.id : null, true);
    this.sourcePane.select(found ? found.id : null);
    if (file !== null && line !== null) this.sourcePane.revealLine(file, line);
    replace(this.inspector, ...inspect(this.model, graph, found, (change) => this.go(change)));
    this.inspector.scrollTop = 0;
    if (found) this.announce(`${this.model.line(found)}${found.change ? `, ${found.change} by this pass` : ""}`);
  }

  private mark(nodes: GraphNode[], label: string): void {
    this.graphView.mark(nodes.map((node) => node.id));
    const first = nodes.find((node) => node.family !== "data") ?? nodes[0];
    this.announce(nodes.length ? `${label}: ${plural(nodes.length, "node")}` : `No node comes from ${label} at this stage.`);
    if (!first) return;
    const inspected = inspect(this.model, this.model.graphAt(this.state.stage), first, (change) => this.go(change));
    replace(this.inspector, h("p", { class: "meta" }, `${label}: ${plural(nodes.length, "node")}, marked in the graph`), ...inspected);
    this.graphView.select(first.id, true);
  }

  /** Show what was searched for; the keys are the graph's from then on. */
  private found(node: number): void {
    this.go({ view: "graph", node });
    this.graphView.focus();
  }

  private announce(text: string): void {
    replace(this.live, text);
  }

  // Theme and keys ---------------------------------------------------------------------------------

  private toggleTheme(): void {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    this.graphView.recolor();
  }

  onKey(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (target.closest("input:not([type=range], [type=checkbox]), textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const views: Record<string, View> = { "1": "overview", "2": "graph", "3": "kernels", "4": "memory", "5": "findings" };
    if (event.key === "/") {
      event.preventDefault();
      this.search.focus();
    } else if (event.key === "[" || event.key === "]") {
      this.go({ view: "graph", stage: Math.min(this.model.lastStage, Math.max(0, this.state.stage + (event.key === "]" ? 1 : -1))) });
    } else if (views[event.key] && this.shownViews().includes(views[event.key]!)) this.go({ view: views[event.key]! });
  }

  recolor(): void {
    this.graphView.recolor();
  }

  get drawing(): GraphView {
    return this.graphView;
  }
}

async function start(): Promise<void> {
  const started = performance.now();
  const facts = await unpack<Facts>(document.getElementById("data-facts")!.textContent!);
  const address = document.documentElement.dataset.live;
  let page: Page;
  let model = new Model(facts);
  const editor = address
    ? new EditView(model, address, (answer) => {
        model = new Model(answer.facts!);
        page = new Page(model, new Listings(answer.listings ?? {}), editor);
        page.mount();
        expose(page);
      })
    : null;
  page = new Page(model, new Listings(), editor);
  page.mount();
  addEventListener("popstate", () => page.restore());
  addEventListener("keydown", (event) => page.onKey(event));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.recolor());
  expose(page);
  document.documentElement.dataset.ready = String(Math.round(performance.now() - started));
}

/** What tests and the console may ask of the page. */
function expose(page: Page): void {
  (window as unknown as { monograph: Page }).monograph = page;
}

// Large graphs are laid out by this very script in a worker, where there is no document.
if (typeof document === "undefined") serveLayouts();
else void start();
