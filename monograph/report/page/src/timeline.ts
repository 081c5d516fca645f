// The quickest call as it happened: a lane for each thread, a bar for each run of a kernel, and under
// them the bytes of the arena that are alive. Without times, the steps in order, all equally wide.

import { bytes, h, milliseconds, plural, replace, svg } from "./dom";
import { Model, Spans } from "./data";
import { Go } from "./inspector";
import { familyOfKind } from "./families";

const WIDTH = 1000;
const LANE = 22;
const MOST_LANES = 16;
const MEMORY = 30;

export class Timeline {
  readonly element = h("div", { class: "timeline" });

  constructor(
    private model: Model,
    private go: Go,
  ) {}

  show(kernel: string | null, step: number | null): void {
    const { steps, measured, summary } = this.model.facts;
    if (!steps.length) {
      replace(this.element, h("h3", {}, "Timeline"), h("p", { class: "hint" }, summary.specialised ?? "This program has no native code: the interpreter runs it."));
    } else if (measured.spans?.rows.length) this.drawSpans(measured.spans, kernel);
    else this.drawSteps(kernel, step);
  }

  private drawSpans(spans: Spans, chosen: string | null): void {
    const { measured, kernels } = this.model.facts;
    const lanes = Math.min(spans.threads, MOST_LANES);
    const height = lanes * LANE + (spans.memory.length ? MEMORY + 6 : 0);
    const drawing = this.drawing(height, `The quickest call: ${plural(spans.rows.length, "run")} of kernels on ${plural(spans.threads, "thread")}, ${milliseconds(spans.call / 1e3)}`);
    const x = (time: number) => (time / spans.call) * WIDTH;
    for (let lane = 0; lane < lanes; lane += 1) drawing.append(svg("rect", { x: 0, y: lane * LANE, width: WIDTH, height: LANE - 2, class: "lane" }));
    const spent = new Map<string, number>();
    for (const [which, thread, began, ended] of spans.rows) {
      const facts = typeof which === "number" ? kernels[which] : undefined;
      const name = facts?.name ?? String(which);
      spent.set(name, (spent.get(name) ?? 0) + ended - began);
      if (thread >= lanes) continue;
      const family = facts ? familyOfKind(facts.kind) : "memory";
      const label = `${name}, thread ${thread}: ${milliseconds((ended - began) / 1e3)} from ${milliseconds(began / 1e3)}`;
      const bar = svg("rect", { x: x(began), y: thread * LANE, width: Math.max(x(ended) - x(began), 0.6), height: LANE - 2, class: `bar ${family}${name === chosen ? " chosen" : ""}` }, svg("title", {}, label));
      if (facts) bar.addEventListener("click", () => this.go({ kernel: name, step: null }));
      drawing.append(bar);
    }
    if (spans.memory.length) drawing.append(...this.memory(spans, lanes * LANE + 4, x));
    const busy = [...spent.values()].reduce((sum, each) => sum + each, 0) / (spans.call * spans.threads);
    replace(
      this.element,
      h("h3", {}, "Timeline"),
      h(
        "p",
        { class: "meta" },
        `The quickest call, ${milliseconds(spans.call / 1e3)}, on ${plural(spans.threads, "thread")}, which were in kernels for ${(busy * 100).toFixed(0)} % of it; ${measured.note ?? ""}. `,
        `Recording takes ${measured.overhead ? `${Math.max(0, (measured.overhead - 1) * 100).toFixed(1)} %` : "little"}. `,
        spans.left_out ? `${plural(spans.left_out, "shorter run")} left out. ` : "",
        spans.memory.length ? `Below: bytes of the arena alive, at most ${bytes(Math.max(...spans.memory.map((each) => each[1])))}.` : "",
      ),
      drawing,
    );
  }

  private memory(spans: Spans, top: number, x: (time: number) => number): SVGElement[] {
    const most = Math.max(1, ...spans.memory.map((each) => each[1]));
    const y = (size: number) => top + MEMORY - (size / most) * MEMORY;
    const points: string[] = [];
    spans.memory.forEach(([at, size], k) => {
      const until = spans.memory[k + 1]?.[0] ?? spans.call;
      points.push(`${x(at)},${y(size)}`, `${x(until)},${y(size)}`);
    });
    const first = x(spans.memory[0]![0]);
    return [svg("path", { d: `M${first},${top + MEMORY} L${points.join(" L")} L${WIDTH},${top + MEMORY} Z`, class: "alive" })];
  }

  private drawSteps(kernel: string | null, chosen: number | null): void {
    const { steps, threads, measured } = this.model.facts;
    const lanes = Math.max(1, Math.min(threads, 8));
    const drawing = this.drawing(lanes * LANE, `${plural(steps.length, "step")} in order`);
    const length = WIDTH / steps.length;
    steps.forEach((step, number) => {
      const facts = this.model.kernelsByName.get(step.kernels[0] ?? "");
      const family = facts ? familyOfKind(facts.kind) : step.interpreted ? "control" : "memory";
      const high = Math.max(1, Math.min(step.threads ?? 1, lanes));
      const isChosen = number === chosen || (chosen === null && step.kernels.includes(kernel ?? ""));
      const label = `step ${number}: ${step.kernels.join(", ") || step.what}${step.threads ? `, ${plural(step.threads, "thread")} (${plural(step.chunks ?? 1, "chunk")})` : ""}`;
      const bar = svg(
        "rect",
        { x: number * length, y: (lanes - high) * LANE, width: Math.max(length - (steps.length > 300 ? 0 : 1), 0.7), height: high * LANE, class: `bar ${family}${isChosen ? " chosen" : ""}`, "data-step": number },
        svg("title", {}, label),
      );
      bar.addEventListener("click", () => this.go({ kernel: step.kernels[0] ?? null, step: number }));
      drawing.append(bar);
    });
    const most = Math.max(...steps.map((step) => step.threads ?? 1));
    replace(
      this.element,
      h("h3", {}, "Timeline"),
      h(
        "p",
        { class: "meta" },
        `${plural(steps.length, "step")}, height is threads (of ${threads}; at most ${most} have work in one step). `,
        `They were not timed one by one (${measured.note ?? "nothing was measured"}), so all are drawn equally wide.${measured.call_ms ? ` A whole call takes ${milliseconds(measured.call_ms)}.` : ""}`,
      ),
      drawing,
    );
  }

  private drawing(height: number, label: string): SVGSVGElement {
    return svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, style: `height:${Math.min(height, 190)}px`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  }
}
