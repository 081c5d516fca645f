// The first thing to see: what the model became, pass by pass, in figures.

import { button, bytes, h, integer, milliseconds, percent, plural } from "./dom";
import { Figures, Model, shortPass } from "./data";
import { headlines } from "./findings_view";
import { Go } from "./inspector";

const MOST_SLOW = 8;

export function overview(model: Model, go: Go): HTMLElement {
  const { facts } = model;
  const { summary } = facts;
  const saved = summary.bytes_apart ? 1 - summary.bytes_moved / summary.bytes_apart : 0;
  const cards: [string, string, string][] = [
    ["Nodes", `${integer(summary.nodes_given)} → ${integer(summary.nodes_optimised)}`, summary.nodes_lowered ? `${integer(summary.nodes_lowered)} when lowered` : ""],
    ["Kernels", integer(summary.kernels), `${integer(summary.launches)} launches in ${integer(summary.groups)} groups`],
    ["Bytes moved", bytes(summary.bytes_moved), summary.bytes_apart ? `${percent(saved)} less than ${bytes(summary.bytes_apart)} without fusion` : ""],
    ["Arena", facts.memory ? bytes(facts.memory.peak!) : "–", facts.memory?.requested ? `${percent(facts.memory.peak! / facts.memory.requested)} of ${bytes(facts.memory.requested)} without reuse` : ""],
    call(model),
  ];
  const fallbacks = Object.entries(summary.fallbacks);
  const libraries = Object.entries(summary.libraries ?? {});
  return h(
    "section",
    { class: "view overview", "aria-label": "Overview" },
    h("div", { class: "cards" }, ...cards.map(([label, value, note]) => h("div", { class: "card" }, h("h3", {}, label), h("p", { class: "value" }, value), h("p", { class: "meta" }, note)))),
    h("div", { class: "columns" }, h("div", {}, passes(model, go), slowest(model, go)), h("div", {}, found(model, go), stages(model), facts.measured.busy ? notice("Timed beside other programs", `${facts.measured.busy.charAt(0).toUpperCase()}${facts.measured.busy.slice(1)}.`) : null, facts.missing ? notice("Not shown", facts.missing) : null, summary.specialised ? notice("Not shown", `Calls complete this program, since ${summary.specialised}`) : null, libraries.length ? counted("By a library", libraries) : null, fallbacks.length ? counted("In the interpreter", fallbacks) : null, machine(model))),
  );
}

/** The card of a call's time: undisturbed where kernels were timed, the quickest whole call beside. */
function call(model: Model): [string, string, string] {
  const { measured, threads } = model.facts;
  const on = threads ? plural(threads, "thread") : "";
  if (!measured.call_ms) return ["A call", "not measured", [on, measured.note].filter(Boolean).join(", ")];
  const whole = milliseconds(measured.call_ms);
  if (!measured.undisturbed_ms) return ["A call", whole, [on, measured.note].filter(Boolean).join(", ")];
  return ["A call", milliseconds(measured.undisturbed_ms), [on, "undisturbed", `and ${whole} ${measured.note}`].filter(Boolean).join(", ")];
}

/** Where the time of a call goes: the kernels that take the most. */
function slowest(model: Model, go: Go): HTMLElement | null {
  const timed = model.facts.kernels.filter((each) => each.ms && each.share).sort((a, b) => b.ms! - a.ms!);
  if (!timed.length) return null;
  const most = timed[0]!.share!;
  const shown = timed.slice(0, MOST_SLOW);
  const rows = shown.map((each) =>
    h(
      "tr",
      {},
      h("td", {}, button(each.name, () => go({ view: "kernels", kernel: each.name, step: null }), { class: "link code" })),
      h("td", { class: "figure" }, `${integer(each.launches)} ×`),
      h("td", { class: "figure" }, milliseconds(each.ms!)),
      h("td", { class: "figure" }, percent(each.share!)),
      h("td", { class: "figure" }, each.reached ? `${percent(each.reached)} ${each.bound}` : "–"),
      h("td", { class: "bars", "aria-hidden": "true" }, h("span", { class: "node-bar passes", style: `width:${(each.share! / most) * 100}%` })),
    ),
  );
  const head = ["Kernel", "Launches", "Time", "Of a call", "Of the roof"].map((each, k) => h("th", { scope: "col", class: k ? "figure" : "" }, each));
  const left = timed.slice(MOST_SLOW).reduce((sum, each) => sum + each.share!, 0);
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, "Where the time goes"),
    h("table", {}, h("thead", {}, h("tr", {}, ...head, h("th", { class: "bars", "aria-hidden": "true" }))), h("tbody", {}, ...rows)),
    left ? h("p", { class: "meta" }, `${plural(timed.length - MOST_SLOW, "other kernel")} take ${percent(left)}.`) : null,
  );
}

function passes(model: Model, go: Go): HTMLElement {
  const { stages } = model.facts;
  const most = Math.max(1, ...stages.map((_, k) => model.nodeCount(k)));
  const counted = stages.some((stage) => stage.figures);
  const rows = stages.map((stage, k) => {
    const count = model.nodeCount(k);
    const change = k ? count - model.nodeCount(k - 1) : 0;
    const bar = h("span", { class: `node-bar ${stage.phase}`, style: `width:${(count / most) * 100}%` });
    return h(
      "tr",
      {},
      h("td", {}, button(shortPass(stage.name), () => go({ view: "graph", stage: k, node: null }), { class: "link code", title: stage.name })),
      h("td", { class: "figure" }, integer(count)),
      h("td", { class: `figure ${change < 0 ? "less" : change > 0 ? "more" : ""}` }, change ? `${change > 0 ? "+" : "−"}${integer(Math.abs(change))}` : k ? "±0" : ""),
      ...(counted ? figureCells(stage.figures) : []),
      h("td", { class: "figure" }, stage.ms === null ? "" : `${stage.ms.toFixed(2)} ms`),
      h("td", { class: "bars", "aria-hidden": "true" }, bar),
    );
  });
  const idle = stages.reduce((sum, stage) => sum + stage.idle.length, 0);
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, "Passes that changed the graph"),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Pass"), h("th", { class: "figure", scope: "col" }, "Nodes"), h("th", { class: "figure", scope: "col" }, "Change"), ...(counted ? ["Kernels", "Moved", "Alive"].map((each) => h("th", { class: "figure", scope: "col" }, each)) : []), h("th", { class: "figure", scope: "col" }, "Time"), h("th", { class: "bars", "aria-hidden": "true" }))), h("tbody", {}, ...rows)),
    idle || counted ? h("p", { class: "meta" }, [idle ? `${plural(idle, "other run")} of passes changed nothing.` : "", counted ? "Kernels, bytes moved and memory alive are those of a program for which compiling had ended there." : ""].filter(Boolean).join(" ")) : null,
  );
}

function figureCells(figures: Figures | null | undefined): HTMLElement[] {
  const texts = figures ? [integer(figures.kernels), bytes(figures.bytes_moved), bytes(figures.peak)] : ["", "", ""];
  return texts.map((each) => h("td", { class: "figure" }, each));
}

function stages(model: Model): HTMLElement {
  const entries = Object.entries(model.facts.summary.stages).filter(([, ms]) => ms >= 0.01);
  const total = entries.reduce((sum, [, ms]) => sum + ms, 0);
  const most = Math.max(1e-9, ...entries.map(([, ms]) => ms));
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, `Compiled in ${milliseconds(total)}`),
    h("table", {}, h("tbody", {}, ...entries.map(([name, ms]) => h("tr", {}, h("td", {}, name), h("td", { class: "figure" }, milliseconds(ms)), h("td", { class: "bars", "aria-hidden": "true" }, h("span", { class: "node-bar passes", style: `width:${(ms / most) * 100}%` })))))),
  );
}

function machine(model: Model): HTMLElement {
  const { facts } = model;
  const sizes = Object.entries(facts.sizes);
  const rows: [string, string][] = [
    ["Machine", facts.machine],
    ["Threads", String(facts.threads || "–")],
    ["Cache", facts.summary.cache],
  ];
  if (sizes.length) rows.push(["Sizes", sizes.map(([name, size]) => `${name} = ${size}`).join(", ")]);
  if (facts.summary.served_by) rows.push(["Served by", facts.summary.served_by]);
  return h("div", { class: "panel" }, h("h2", {}, "Where and how"), h("dl", { class: "pairs" }, ...rows.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)))), installed(facts.installed));
}

/** Versions and hardware: what a reader needs to measure the same again. */
function installed(facts: Record<string, string> | undefined): HTMLElement | null {
  const topics = Object.entries(facts ?? {});
  if (!topics.length) return null;
  return h("details", {}, h("summary", {}, "Versions and hardware"), h("dl", { class: "told" }, ...topics.flatMap(([topic, text]) => [h("dt", {}, topic), h("dd", {}, text)])));
}

/** Ops that no kernel of ours computes, and how many nodes each is. */
function counted(title: string, ops: [string, number][]): HTMLElement {
  return h("div", { class: "panel" }, h("h2", {}, title), h("ul", { class: "links" }, ...ops.map(([op, count]) => h("li", {}, `${count} × ${op}`))));
}

function notice(title: string, text: string): HTMLElement {
  return h("div", { class: "panel notice", role: "note" }, h("h2", {}, title), h("p", {}, text));
}

/** What the checks and measurements say, in a line each. */
function found(model: Model, go: Go): HTMLElement | null {
  const lines = headlines(model.facts);
  if (!lines.length) return null;
  return h("div", { class: "panel" }, h("h2", {}, "Findings"), h("ul", { class: "links" }, ...lines.map((line) => h("li", {}, button(line, () => go({ view: "findings" }), { class: "link" })))));
}
