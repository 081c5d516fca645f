// Finding nodes: by op, name, type, attribute, module or source line.

import { button, h, replace } from "./dom";
import { GraphAt, GraphNode, Model } from "./data";

const MOST_SHOWN = 50;

export class Search {
  readonly element: HTMLElement;
  private input: HTMLInputElement;
  private results = h("div", { class: "results", role: "listbox", id: "found", "aria-label": "Nodes found", hidden: true });
  private found: GraphNode[] = [];
  private current = 0;

  constructor(
    private model: Model,
    private graph: () => GraphAt,
    private choose: (node: number) => void,
    private mark: (nodes: GraphNode[]) => void,
  ) {
    this.input = h("input", { type: "search", placeholder: "Search nodes  /", role: "combobox", "aria-expanded": "false", "aria-controls": "found", "aria-label": "Search nodes by op, name, type, module or line", autocomplete: "off", spellcheck: "false" });
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (event) => this.onKey(event));
    this.input.addEventListener("blur", () => setTimeout(() => this.open(false), 150));
    this.element = h("div", { class: "search" }, this.input, this.results);
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  private search(): void {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? this.graph().nodes.filter((node) => this.matches(node, words)) : [];
    this.found = [0, 1, 2, 3].flatMap((rank) => found.filter((node) => this.rank(node, words) === rank));
    this.current = 0;
    this.mark(this.found);
    this.open(words.length > 0);
  }

  private matches(node: GraphNode, words: string[]): boolean {
    const place = this.model.place(node.location);
    const text = `${this.model.line(node)} ${place ? `${place.file}:${place.line} ${place.scope}` : ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }

  /** The op or value that was typed, then ops like it; weights, named after modules, last. */
  private rank(node: GraphNode, words: string[]): number {
    const named = new Set([node.op, ...node.results.map((value) => this.model.name(value))].map((each) => each.toLowerCase()));
    if (words.some((word) => named.has(word.replace(/^%/, "")))) return 0;
    if (words.some((word) => node.op.includes(word))) return 1;
    return node.family === "data" ? 3 : 2;
  }

  private open(shown: boolean): void {
    this.results.hidden = !shown;
    this.input.setAttribute("aria-expanded", String(shown));
    if (!shown) return;
    const rows = this.found.slice(0, MOST_SHOWN).map((node, k) =>
      h("div", { role: "option", id: `found-${k}`, "aria-selected": String(k === this.current), class: "result" }, h("span", { class: `dot ${node.family}` }), button(this.model.line(node), () => this.pick(k), { class: "link code", tabindex: -1 })),
    );
    const count = this.found.length;
    replace(this.results, h("p", { class: "meta", role: "status" }, count ? `${count} found${count > MOST_SHOWN ? `, the first ${MOST_SHOWN} shown` : ""}` : "Nothing found at this stage."), ...rows);
    this.input.setAttribute("aria-activedescendant", count ? `found-${this.current}` : "");
    rows[this.current]?.scrollIntoView({ block: "nearest" });
  }

  private pick(k: number): void {
    const node = this.found[k];
    this.open(false);
    if (node) this.choose(node.id);
  }

  private onKey(event: KeyboardEvent): void {
    const shown = Math.min(this.found.length, MOST_SHOWN);
    if (event.key === "Enter") this.pick(this.current);
    else if (event.key === "Escape") {
      this.input.value = "";
      this.search();
      this.input.blur();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && shown) {
      event.preventDefault();
      this.current = (this.current + (event.key === "ArrowDown" ? 1 : -1) + shown) % shown;
      this.open(true);
    }
  }
}
