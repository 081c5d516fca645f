// Kernels: in the order in which they run, on the roofline, in a table, and the code of one of them.

import { button, bytes, Child, h, integer, milliseconds, percent, plural, replace } from "./dom";
import { KernelFacts, Listings, Model } from "./data";
import { Go, reasons, section } from "./inspector";
import { familyOfKind } from "./families";
import { Roofline } from "./roofline";
import { State } from "./state";
import { TextList } from "./text_list";
import { Timeline } from "./timeline";

const STAGES: Record<string, string> = { plan: "Plan", kernels: "Kernel", nests: "Loop nest", llvm: "LLVM IR", asm: "Assembly", source: "Source" };
type Sort = "order" | "name" | "launches" | "moved" | "ms";

export class KernelsView {
  readonly element: HTMLElement;
  private timeline: Timeline;
  private roofline: Roofline;
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
    this.timeline = new Timeline(model, go);
    this.roofline = new Roofline(model, go);
    this.code = new TextList({
      label: "Listing of the kernel",
      rowHeight: 17,
      render: (index) => ({ class: "code", content: [h("span", { class: "number" }, index + 1), h("span", { class: "text" }, this.lines[index]!)] }),
    });
    const codeBox = h("div", { class: "code-box" }, this.codeTabs, this.code.element);
    this.element = h(
      "section",
      { class: "view kernels", "aria-label": "Kernels" },
      h("div", { class: "charts" }, this.timeline.element, this.roofline.element),
      h("div", { class: "split" }, this.table, h("div", { class: "kernel-pane" }, this.details, codeBox)),
    );
  }

  show(state: State): void {
    const kernel = state.kernel ?? this.kernel ?? this.firstKernel();
    this.kernel = kernel;
    const { listings } = this.model.facts;
    this.listing = listings.includes(state.listing) ? state.listing : (listings.at(-1) ?? "nests");
    this.drawTable();
    this.drawDetails(state);
    this.timeline.show(kernel, state.step);
    this.roofline.show(kernel);
    void this.drawCode();
  }

  private firstKernel(): string | null {
    const step = this.model.facts.steps.find((each) => each.kernels.length);
    return step?.kernels[0] ?? this.model.facts.kernels[0]?.name ?? null;
  }

  // The table --------------------------------------------------------------------------------------

  private drawTable(): void {
    const { kernels } = this.model.facts;
    if (!kernels.length) {
      replace(this.table, h("p", { class: "hint" }, "There are no kernels."));
      return;
    }
    const timed = kernels.some((each) => each.ms);
    const keys: Record<Sort, (each: KernelFacts, k: number) => number | string> = {
      order: (_, k) => k,
      name: (each) => each.name,
      launches: (each) => -each.launches,
      moved: (each) => -(each.read + each.written) * Math.max(1, each.launches),
      ms: (each) => -(each.ms ?? 0),
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
        timed && h("td", { class: "figure" }, each.ms ? milliseconds(each.ms) : "–"),
        timed && h("td", { class: "figure" }, each.share ? percent(each.share) : "–"),
        timed && h("td", { class: "figure" }, each.reached ? `${percent(each.reached)} ${each.bound}` : "–"),
      ),
    );
    replace(
      this.table,
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, head("Kernel", "name"), head("Launches", "launches", "figure"), head("Bytes", "moved", "figure"), timed && head("Time", "ms", "figure"), timed && h("th", { class: "figure", scope: "col" }, "Share"), timed && h("th", { class: "figure", scope: "col", title: "What it reached of its roof, and which roof that is: above 100 % where it multiplies less than was counted (Winograd), or where the machine was busy when it was measured" }, "Of the roof"))),
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
      h("p", { class: "meta" }, `over ${facts.space}; reads ${bytes(facts.read)}, writes ${bytes(facts.written)}; `, facts.launches ? plural(facts.launches, "launch").replace("launchs", "launches") : "once, on loading", facts.ms ? `; ${milliseconds(facts.ms)} of a call${facts.share ? ` (${percent(facts.share)})` : ""}` : "", facts.reached ? `, ${percent(facts.reached)} of what ${facts.bound === "compute" ? "arithmetic" : facts.bound} allows` : ""),
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
