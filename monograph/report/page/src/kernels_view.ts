// Kernels: in the order in which they run, on the roofline, in a table, and the code of one of them.

import { button, bytes, Child, h, integer, milliseconds, percent, plural, replace, svg } from "./dom";
import { KernelFacts, Listings, Model } from "./data";
import { Go, reasons, section } from "./inspector";
import { State } from "./state";
import { TextList } from "./text_list";

const STAGES: Record<string, string> = { kernels: "Kernel", nests: "Loop nest", llvm: "LLVM IR", asm: "Assembly" };
const FAMILY: Record<string, string> = {
  contraction: "contraction",
  attention: "contraction",
  convolution: "contraction",
  rows: "reduction",
  reduction: "reduction",
  pointwise: "pointwise",
  elementwise: "pointwise",
};

export function familyOfKind(kind: string): string {
  return FAMILY[kind] ?? "other";
}

type Sort = "order" | "name" | "launches" | "moved" | "ms";

export class KernelsView {
  readonly element: HTMLElement;
  private timeline = h("div", { class: "timeline" });
  private roofline = h("div", { class: "roofline" });
  private table = h("div", { class: "kernel-table" });
  private details = h("div", { class: "kernel-details" });
  private code: TextList;
  private lines: string[] = [];
  private codeTabs = h("div", { class: "tabs small", role: "tablist", "aria-label": "Listing" });
  private sort: Sort = "order";
  private kernel: string | null = null;
  private listing = "nests";
  private wanted = 0;

  constructor(
    private model: Model,
    private listings: Listings,
    private go: Go,
  ) {
    this.code = new TextList({
      label: "Listing of the kernel",
      rowHeight: 17,
      render: (index) => ({ class: "code", content: [h("span", { class: "number" }, index + 1), h("span", { class: "text" }, this.lines[index]!)] }),
    });
    const codeBox = h("div", { class: "code-box" }, this.codeTabs, this.code.element);
    this.element = h(
      "section",
      { class: "view kernels", "aria-label": "Kernels" },
      h("div", { class: "charts" }, this.timeline, this.roofline),
      h("div", { class: "split" }, this.table, h("div", { class: "kernel-pane" }, this.details, codeBox)),
    );
    this.drawTimeline(null);
    this.drawRoofline(null);
  }

  show(state: State): void {
    const kernel = state.kernel ?? this.kernel ?? this.firstKernel();
    this.kernel = kernel;
    this.listing = this.model.facts.listings.includes(state.listing) ? state.listing : "nests";
    this.drawTable();
    this.drawDetails(state);
    this.drawTimeline(state.step);
    this.drawRoofline(kernel);
    void this.drawCode();
  }

  private firstKernel(): string | null {
    const step = this.model.facts.steps.find((each) => each.kernels.length);
    return step?.kernels[0] ?? this.model.facts.kernels[0]?.name ?? null;
  }

  // The steps in order -----------------------------------------------------------------------------

  private drawTimeline(chosen: number | null): void {
    const { steps, threads, measured } = this.model.facts;
    if (!steps.length) {
      replace(this.timeline, h("h3", {}, "Timeline"), h("p", { class: "hint" }, this.model.facts.summary.specialised ?? "This program has no native code: the interpreter runs it."));
      return;
    }
    const timed = steps.every((step) => !step.kernels.length || (step.ms !== null && step.ms !== undefined));
    const width = 1000;
    const lane = 24;
    const lanes = Math.max(1, Math.min(threads, 8));
    const total = timed ? steps.reduce((sum, step) => sum + (step.ms ?? 0), 0) : steps.length;
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${lanes * lane}`, style: `height:${Math.min(lanes * lane, 150)}px`, preserveAspectRatio: "none", role: "img", "aria-label": `Timeline of ${plural(steps.length, "step")}` });
    let at = 0;
    steps.forEach((step, number) => {
      const length = timed ? (step.ms ?? 0) : 1;
      const x = (at / total) * width;
      const w = Math.max((length / total) * width - (steps.length > 300 ? 0 : 1), 0.7);
      at += length;
      const kernel = this.model.kernelsByName.get(step.kernels[0] ?? "");
      const family = kernel ? familyOfKind(kernel.kind) : step.interpreted ? "control" : "memory";
      const high = Math.max(1, Math.min(step.threads ?? 1, lanes));
      const isChosen = number === chosen || (chosen === null && step.kernels.includes(this.kernel ?? ""));
      const label = `step ${number}: ${step.kernels.join(", ") || step.what}${step.threads ? `, ${plural(step.threads, "thread")} (${plural(step.chunks ?? 1, "chunk")})` : ""}${step.ms ? `, ${milliseconds(step.ms)}` : ""}`;
      const bar = svg("rect", { x, y: (lanes - high) * lane, width: w, height: high * lane, class: `bar ${family}${isChosen ? " chosen" : ""}`, "data-step": number }, svg("title", {}, label));
      bar.addEventListener("click", () => this.go({ kernel: step.kernels[0] ?? null, step: number }));
      drawing.append(bar);
    });
    const most = Math.max(...steps.map((step) => step.threads ?? 1));
    replace(
      this.timeline,
      h("h3", {}, "Timeline"),
      h(
        "p",
        { class: "meta" },
        `${plural(steps.length, "step")}, height is threads (of ${threads}; at most ${most} have work in one step). `,
        timed
          ? `Width is measured time: ${milliseconds(total)}${measured.call_ms ? `; a whole call takes ${milliseconds(measured.call_ms)}` : ""}. ${measured.note ?? ""}`
          : `Steps were not timed one by one, so all are drawn equally wide.${measured.call_ms ? ` A whole call takes ${milliseconds(measured.call_ms)}.` : ""}`,
      ),
      drawing,
    );
  }

  private drawRoofline(chosen: string | null): void {
    const { measured, kernels } = this.model.facts;
    const peak = measured.peak_gflops;
    const bandwidth = measured.bandwidth_gbs;
    const points = kernels.filter((each) => each.ms && each.flops && each.read + each.written > 0);
    if (!peak || !bandwidth || !points.length) {
      const why = !peak || !bandwidth ? "The peak arithmetic and the bandwidth of this machine were not measured" : "No kernel was timed by itself";
      replace(this.roofline, h("h3", {}, "Roofline"), h("p", { class: "hint" }, `${why}, so that no kernel has a place on a roofline. The bytes that each moves are in the table below.`));
      return;
    }
    const [width, height, left, bottom] = [460, 200, 48, 28];
    const xs = points.map((each) => each.flops! / (each.read + each.written));
    const lowX = Math.min(0.05, ...xs) / 1.5;
    const highX = Math.max((peak / bandwidth) * 4, ...xs) * 1.5;
    const speeds = points.map((each) => each.flops! / (each.ms! * 1e6));
    const highY = peak * 1.6;
    const lowY = Math.min(peak / 1000, ...speeds) / 1.5;
    const x = (value: number) => left + ((Math.log(value) - Math.log(lowX)) / (Math.log(highX) - Math.log(lowX))) * (width - left - 8);
    const y = (value: number) => height - bottom - ((Math.log(value) - Math.log(lowY)) / (Math.log(highY) - Math.log(lowY))) * (height - bottom - 8);
    const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Roofline with ${plural(points.length, "kernel")}` });
    for (let power = Math.ceil(Math.log10(lowY)); power <= Math.log10(highY); power += 1) {
      drawing.append(svg("line", { x1: left, x2: width - 8, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }), svg("text", { x: left - 6, y: y(10 ** power) + 3, class: "axis end" }, `${10 ** power}`));
    }
    for (let power = Math.ceil(Math.log10(lowX)); power <= Math.log10(highX); power += 1) {
      drawing.append(svg("line", { x1: x(10 ** power), x2: x(10 ** power), y1: 8, y2: height - bottom, class: "grid" }), svg("text", { x: x(10 ** power), y: height - bottom + 13, class: "axis middle" }, `${10 ** power}`));
    }
    const ridge = peak / bandwidth;
    drawing.append(
      svg("path", { d: `M${x(lowX)},${y(Math.max(lowY, lowX * bandwidth))} L${x(ridge)},${y(peak)} L${x(highX)},${y(peak)}`, class: "roof" }),
      svg("text", { x: width - 10, y: y(peak) - 5, class: "axis end" }, `${peak.toFixed(0)} GFLOP/s`),
      svg("text", { x: (left + width) / 2, y: height - 3, class: "axis middle" }, "FLOP per byte moved"),
      svg("text", { x: x(lowX) + 6, y: 16, class: "axis" }, `GFLOP/s; ${bandwidth.toFixed(1)} GB/s`),
    );
    for (const each of points) {
      const point = svg("circle", { cx: x(each.flops! / (each.read + each.written)), cy: y(each.flops! / (each.ms! * 1e6)), r: each.name === chosen ? 6.5 : 4.5, class: `point ${familyOfKind(each.kind)}${each.name === chosen ? " chosen" : ""}` }, svg("title", {}, `${each.name}: ${(each.flops! / (each.ms! * 1e6)).toFixed(1)} GFLOP/s`));
      point.addEventListener("click", () => this.go({ kernel: each.name, step: null }));
      drawing.append(point);
    }
    const apart = kernels.length - points.length;
    replace(this.roofline, h("h3", {}, "Roofline"), drawing, apart > 0 && h("p", { class: "meta" }, `${plural(apart, "kernel")} without arithmetic or without a time of ${apart === 1 ? "its" : "their"} own ${apart === 1 ? "is" : "are"} not on it.`));
  }

  // The table --------------------------------------------------------------------------------------

  private drawTable(): void {
    const { kernels } = this.model.facts;
    if (!kernels.length) {
      replace(this.table, h("p", { class: "hint" }, "There are no kernels."));
      return;
    }
    const timed = kernels.some((each) => each.ms);
    const whole = kernels.reduce((sum, each) => sum + (each.ms ?? 0) * Math.max(1, each.launches), 0);
    const keys: Record<Sort, (each: KernelFacts, k: number) => number | string> = {
      order: (_, k) => k,
      name: (each) => each.name,
      launches: (each) => -each.launches,
      moved: (each) => -(each.read + each.written) * Math.max(1, each.launches),
      ms: (each) => -(each.ms ?? 0) * Math.max(1, each.launches),
    };
    const rows = kernels.map((each, k) => ({ each, key: keys[this.sort](each, k) }));
    rows.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    const head = (label: string, key: Sort, cls = "") =>
      h("th", { class: cls, "aria-sort": this.sort === key ? "ascending" : "none", scope: "col" }, button(label, () => this.resort(key), { class: "sort" }));
    const body = rows.map(({ each }) =>
      h(
        "tr",
        { class: each.name === this.kernel ? "chosen" : "" },
        h("td", {}, h("span", { class: `dot ${familyOfKind(each.kind)}` }), button(each.name, () => this.go({ kernel: each.name, step: null }), { class: "link code", "aria-current": each.name === this.kernel ? "true" : null })),
        h("td", { class: "figure" }, each.launches ? integer(each.launches) : "on load"),
        h("td", { class: "figure" }, bytes(each.read + each.written)),
        timed && h("td", { class: "figure" }, each.ms ? milliseconds(each.ms * Math.max(1, each.launches)) : "–"),
        timed && h("td", { class: "figure" }, each.ms && each.launches ? percent((each.ms * each.launches) / whole) : "–"),
      ),
    );
    replace(
      this.table,
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, head("Kernel", "name"), head("Launches", "launches", "figure"), head("Bytes", "moved", "figure"), timed && head("Time", "ms", "figure"), timed && h("th", { class: "figure", scope: "col" }, "Share"))),
        h("tbody", {}, ...body),
      ),
    );
  }

  private resort(key: Sort): void {
    this.sort = this.sort === key ? "order" : key;
    this.drawTable();
  }

  // One kernel -------------------------------------------------------------------------------------

  private drawDetails(state: State): void {
    const facts = this.kernel === null ? undefined : this.model.kernelsByName.get(this.kernel);
    if (!facts) {
      replace(this.details, h("p", { class: "hint" }, "Choose a kernel."));
      return;
    }
    const groups = this.model.groupsOfKernel.get(facts.name) ?? [];
    const at = state.step === null ? groups[0] : this.model.groupOfStep(state.step);
    const group = at === undefined || at < 0 ? undefined : this.model.facts.groups[at];
    const which = group ? groups.indexOf(at!) : -1;
    const links: Child[] = [];
    if (group) {
      links.push(button(`Show its ${plural(group.nodes.length, "node")} in the graph`, () => this.go({ view: "graph", stage: this.model.lastStage, node: group.nodes.at(-1) ?? null }), { class: "link" }));
      if (groups.length > 1) {
        const turn = (by: number) => this.go({ step: this.stepOf(groups[(which + by + groups.length) % groups.length]!, facts.name) });
        links.push(" · ", button("‹", () => turn(-1), { class: "link", "aria-label": "previous launch" }), ` launch ${which + 1} of ${groups.length} `, button("›", () => turn(1), { class: "link", "aria-label": "next launch" }));
      }
    }
    replace(
      this.details,
      h("header", { class: "inspected" }, h("span", { class: `chip ${familyOfKind(facts.kind)}` }, facts.kind), h("h2", { class: "code" }, facts.name)),
      h("p", { class: "meta" }, `over ${facts.space}; reads ${bytes(facts.read)}, writes ${bytes(facts.written)}; `, facts.launches ? plural(facts.launches, "launch").replace("launchs", "launches") : "once, on loading"),
      links.length ? h("p", { class: "meta" }, ...links) : null,
      facts.schedule ? section("Schedule", h("code", { class: "line" }, facts.schedule)) : null,
      section("Nodes", h("pre", { class: "nodes", tabindex: 0 }, facts.nodes.join("\n"))),
      reasons(facts.together, "+"),
      reasons(facts.apart, "−"),
    );
  }

  /** The step in which a group launches a kernel. */
  private stepOf(group: number, kernel: string): number | null {
    const { groups, steps } = this.model.facts;
    return groups[group]!.steps.find((step) => steps[step]!.kernels.includes(kernel)) ?? null;
  }

  private async drawCode(): Promise<void> {
    const { listings, no_listings } = this.model.facts;
    this.wanted += 1;
    const wanted = this.wanted;
    replace(
      this.codeTabs,
      ...listings.map((each) => h("button", { type: "button", role: "tab", "aria-selected": String(each === this.listing), click: () => this.go({ listing: each }) }, STAGES[each] ?? each)),
    );
    if (!listings.length) {
      this.lines = [no_listings || "There are no listings."];
    } else {
      const found = await this.listings.stage(this.listing);
      if (wanted !== this.wanted) return;
      const text = this.kernel === null ? undefined : found[this.kernel];
      this.lines = (text ?? "This kernel has no listing of its own at this stage.").split("\n");
    }
    this.code.setCount(this.lines.length);
  }
}
