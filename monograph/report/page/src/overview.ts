// The first thing to see: what the model became, pass by pass, in figures.

import { button, bytes, h, integer, milliseconds, percent, plural } from "./dom";
import { Model, shortPass } from "./data";
import { headlines } from "./findings_view";
import { Go } from "./inspector";

export function overview(model: Model, go: Go): HTMLElement {
  const { facts } = model;
  const { summary } = facts;
  const saved = summary.bytes_apart ? 1 - summary.bytes_moved / summary.bytes_apart : 0;
  const cards: [string, string, string][] = [
    ["Nodes", `${integer(summary.nodes_given)} → ${integer(summary.nodes_optimised)}`, summary.nodes_lowered ? `${integer(summary.nodes_lowered)} when lowered` : ""],
    ["Kernels", integer(summary.kernels), `${integer(summary.launches)} launches in ${integer(summary.groups)} groups`],
    ["Bytes moved", bytes(summary.bytes_moved), summary.bytes_apart ? `${percent(saved)} less than ${bytes(summary.bytes_apart)} without fusion` : ""],
    ["Arena", facts.memory ? bytes(facts.memory.peak!) : "–", facts.memory?.requested ? `${percent(facts.memory.peak! / facts.memory.requested)} of ${bytes(facts.memory.requested)} without reuse` : ""],
    ["A call", facts.measured.call_ms ? milliseconds(facts.measured.call_ms) : "not measured", [facts.threads ? plural(facts.threads, "thread") : "", facts.measured.note].filter(Boolean).join(", ")],
  ];
  const fallbacks = Object.entries(summary.fallbacks);
  return h(
    "section",
    { class: "view overview", "aria-label": "Overview" },
    h("div", { class: "cards" }, ...cards.map(([label, value, note]) => h("div", { class: "card" }, h("h3", {}, label), h("p", { class: "value" }, value), h("p", { class: "meta" }, note)))),
    h("div", { class: "columns" }, h("div", {}, passes(model, go)), h("div", {}, found(model, go), stages(model), facts.missing ? notice(facts.missing) : null, summary.specialised ? notice(`Calls complete this program, since ${summary.specialised}`) : null, fallbacks.length ? interpreted(fallbacks) : null, machine(model))),
  );
}

function passes(model: Model, go: Go): HTMLElement {
  const { stages } = model.facts;
  const most = Math.max(1, ...stages.map((_, k) => model.nodeCount(k)));
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
      h("td", { class: "figure" }, stage.ms === null ? "" : `${stage.ms.toFixed(2)} ms`),
      h("td", { class: "bars", "aria-hidden": "true" }, bar),
    );
  });
  const idle = stages.reduce((sum, stage) => sum + stage.idle.length, 0);
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, "Passes that changed the graph"),
    h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Pass"), h("th", { class: "figure", scope: "col" }, "Nodes"), h("th", { class: "figure", scope: "col" }, "Change"), h("th", { class: "figure", scope: "col" }, "Time"), h("th", { class: "bars", "aria-hidden": "true" }))), h("tbody", {}, ...rows)),
    idle ? h("p", { class: "meta" }, `${plural(idle, "other run")} of passes changed nothing.`) : null,
  );
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
  return h("div", { class: "panel" }, h("h2", {}, "Where and how"), h("dl", { class: "pairs" }, ...rows.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)))));
}

function interpreted(fallbacks: [string, number][]): HTMLElement {
  return h("div", { class: "panel" }, h("h2", {}, "In the interpreter"), h("ul", { class: "links" }, ...fallbacks.map(([op, count]) => h("li", {}, `${count} × ${op}`))));
}

function notice(text: string): HTMLElement {
  return h("div", { class: "panel notice", role: "note" }, h("h2", {}, "Not shown"), h("p", {}, text));
}

/** What the checks and measurements say, in a line each. */
function found(model: Model, go: Go): HTMLElement | null {
  const lines = headlines(model.facts);
  if (!lines.length) return null;
  return h("div", { class: "panel" }, h("h2", {}, "Findings"), h("ul", { class: "links" }, ...lines.map((line) => h("li", {}, button(line, () => go({ view: "findings" }), { class: "link" })))));
}
