// A list of many lines, of which those in view are in the document. One line is current; arrow keys,
// Home and End move it.

import { Child, h } from "./dom";

export interface Row {
  content: Child[];
  class?: string;
  label?: string;
}

export interface TextListOptions {
  label: string;
  rowHeight?: number;
  render(index: number): Row;
  choose?(index: number): void;
}

export class TextList {
  readonly element: HTMLElement;
  private spacer: HTMLElement;
  private count = 0;
  private current = -1;
  private drawn = "";
  private readonly rowHeight: number;
  private readonly id = `list${Math.random().toString(36).slice(2)}`;

  constructor(private options: TextListOptions) {
    this.rowHeight = options.rowHeight ?? 19;
    this.spacer = h("div", { class: "rows", role: "presentation" });
    this.element = h(
      "div",
      { class: "text-list", role: "listbox", tabindex: 0, "aria-label": options.label },
      this.spacer,
    );
    this.element.addEventListener("scroll", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.element.addEventListener("click", (event) => {
      const row = (event.target as Element).closest<HTMLElement>("[data-index]");
      if (row) this.options.choose?.(Number(row.dataset.index));
    });
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  setCount(count: number): void {
    this.count = count;
    this.current = -1;
    this.element.scrollTop = 0;
    this.spacer.style.height = `${count * this.rowHeight}px`;
    this.refresh();
  }

  /** Draws the rows again: what they say has changed. */
  refresh(): void {
    this.drawn = "";
    this.draw();
  }

  setCurrent(index: number, reveal = true): void {
    this.current = index;
    if (reveal && index >= 0) this.reveal(index);
    this.refresh();
  }

  reveal(index: number): void {
    const top = index * this.rowHeight;
    const { scrollTop, clientHeight } = this.element;
    if (!clientHeight) requestAnimationFrame(() => this.element.clientHeight && this.reveal(index));
    else if (top < scrollTop || top + this.rowHeight > scrollTop + clientHeight) {
      this.element.scrollTop = Math.max(0, top - clientHeight / 2);
    }
  }

  private draw(): void {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this.rowHeight) - 8);
    const last = Math.min(this.count, Math.ceil((scrollTop + clientHeight) / this.rowHeight) + 8);
    const range = `${first}-${last}`;
    if (range === this.drawn) return;
    this.drawn = range;
    const rows: HTMLElement[] = [];
    for (let index = first; index < last; index += 1) rows.push(this.row(index));
    this.spacer.replaceChildren(...rows);
    if (this.current >= first && this.current < last) {
      this.element.setAttribute("aria-activedescendant", `${this.id}-${this.current}`);
    } else this.element.removeAttribute("aria-activedescendant");
  }

  private row(index: number): HTMLElement {
    const row = this.options.render(index);
    const isCurrent = index === this.current;
    return h(
      "div",
      {
        id: `${this.id}-${index}`,
        class: `row ${row.class ?? ""}${isCurrent ? " current" : ""}`,
        role: "option",
        "aria-selected": String(isCurrent),
        "aria-setsize": this.count,
        "aria-posinset": index + 1,
        "aria-label": row.label,
        "data-index": index,
        style: `top:${index * this.rowHeight}px;height:${this.rowHeight}px`,
      },
      ...row.content,
    );
  }

  private onKey(event: KeyboardEvent): void {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 1);
    const moves: Record<string, number> = {
      ArrowDown: this.current + 1,
      ArrowUp: this.current - 1,
      PageDown: this.current + page,
      PageUp: this.current - page,
      Home: 0,
      End: this.count - 1,
    };
    const next = moves[event.key];
    if (event.key === "Enter" || event.key === " ") {
      if (this.current >= 0) this.options.choose?.(this.current);
    } else if (next !== undefined && this.count) {
      this.setCurrent(Math.min(this.count - 1, Math.max(0, next)));
    } else return;
    event.preventDefault();
  }
}
