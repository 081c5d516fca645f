// Editing, where a server stands behind the page: the graph's text and the passes go there, and what
// became of them comes back.

import { button, h, milliseconds, replace } from "./dom";
import { Facts, Model } from "./data";
import { SchedulesView } from "./schedules_view";

export interface Answer {
  facts?: Facts;
  listings?: Record<string, Record<string, string>>;
  error?: string;
}

export class EditView {
  readonly element: HTMLElement;
  private text: HTMLTextAreaElement;
  private passes: HTMLInputElement;
  private level: HTMLSelectElement;
  private threads: HTMLInputElement;
  private status = h("p", { class: "status", role: "status", "aria-live": "polite" });
  private error = h("pre", { class: "error", role: "alert", hidden: true, tabindex: 0 });
  private run: HTMLButtonElement;
  private schedules = new SchedulesView(() => replace(this.status, "changed: compile to see what it takes"));
  /** What a call took before the edit, to compare with. */
  private before: number | null;

  constructor(
    model: Model,
    private address: string,
    private answered: (answer: Answer) => void,
  ) {
    const { facts } = model;
    this.before = facts.measured.call_ms;
    this.schedules.show(facts.sites ?? []);
    this.text = h("textarea", { spellcheck: "false", "aria-label": "The graph as text", autocapitalize: "off", wrap: "off" });
    this.text.value = facts.text ?? "";
    this.passes = h("input", { type: "text", "aria-label": "Passes to run", spellcheck: "false", placeholder: "the level's own" });
    this.passes.value = facts.passes ?? "";
    this.level = h("select", { "aria-label": "Level" }, ...["O0", "O1", "O2", "O3"].map((each) => h("option", { value: each, selected: each === "O2" }, each)));
    this.threads = h("input", { type: "number", min: 1, max: 64, value: facts.threads || 1, "aria-label": "Threads" });
    this.run = button("Compile and measure", () => void this.compile(), { class: "primary", title: "Ctrl + Enter" });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        void this.compile();
      }
    });
    this.element = h(
      "section",
      { class: "view edit", "aria-label": "Edit" },
      h("div", { class: "controls" }, h("label", {}, "Level ", this.level), h("label", { class: "wide" }, "Passes ", this.passes), h("label", {}, "Threads ", this.threads), this.run, this.status),
      this.error,
      this.text,
      this.schedules.element,
      h("p", { class: "meta" }, "Weights are named by digest: those of the model keep their contents, others are filled with random numbers. Ctrl + Enter compiles."),
    );
  }

  private async compile(): Promise<void> {
    if (this.run.disabled) return;
    this.run.disabled = true;
    this.error.hidden = true;
    replace(this.status, "compiling…");
    const started = performance.now();
    try {
      const response = await fetch(this.address, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ text: this.text.value, passes: this.passes.value, level: this.level.value, threads: Number(this.threads.value), tuning: this.schedules.tuning }),
      });
      const answer = (await response.json()) as Answer;
      if (answer.error !== undefined) this.fail(answer.error);
      else {
        const ms = answer.facts?.measured.call_ms;
        const was = ms && this.before ? ` (before: ${milliseconds(this.before)}, ${(this.before / ms).toFixed(2)} times as fast)` : "";
        replace(this.status, `compiled in ${milliseconds(performance.now() - started)}${ms ? `, a call takes ${milliseconds(ms)}${was}` : ""}`);
        this.before = ms ?? null;
        this.schedules.show(answer.facts?.sites ?? []);
        this.answered(answer);
      }
    } catch (error) {
      this.fail(`The server does not answer: ${String(error)}`);
    } finally {
      this.run.disabled = false;
    }
  }

  private fail(text: string): void {
    replace(this.status, "not compiled; the page shows what was compiled last");
    replace(this.error, text);
    this.error.hidden = false;
  }
}
