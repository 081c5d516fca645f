// What other commands found out about the model: whether it is right, what each part of the compiler
// buys, how it stands beside others, and what is at fault.

import { Ablation, Bisection, Comparison, Contender, Costs, Effect, Facts, shortPass, Spread, Validation } from "./data";
import { bytes, Child, h, integer, milliseconds, percent, plural, svg } from "./dom";

/** What there is to say, in a line each; nothing if nothing was asked. */
export function headlines(facts: Facts): string[] {
  const { validation, ablation, comparison, bisection } = facts;
  const lines: string[] = [];
  if (validation) lines.push(`Is it right? ${validation.word}${validation.first_wrong ? `, first after ${shortPass(validation.first_wrong)}` : ""}`);
  if (bisection) lines.push(bisection.kind === null ? "At fault: nothing" : `At fault: ${shortPass(bisection.step)}`);
  if (ablation) {
    const best = ranked(ablation.without)[0];
    lines.push(best ? `Ablation: without ${best.part.name} ${times(best.speedup!)} × as slow` : "Ablation: no part has a measurable effect");
  }
  if (comparison) {
    const ran = comparison.contenders.filter((each) => each.median !== null);
    const quickest = ran.reduce((a, b) => (a.median! <= b.median! ? a : b));
    lines.push(`Comparison: ${quickest.name} is the fastest of ${ran.length}`);
  }
  return lines;
}

export function findings(facts: Facts): HTMLElement {
  const { validation, ablation, comparison, bisection } = facts;
  const panels = [
    bisection ? fault(bisection) : null,
    validation ? checks(validation) : null,
    comparison ? beside(comparison) : null,
    ablation ? parts(ablation) : null,
  ];
  return h("section", { class: "view findings", "aria-label": "Findings" }, ...panels);
}

function table(head: string[], rows: HTMLElement[]): HTMLElement {
  const cells = head.map((each, k) => h("th", { scope: "col", class: k > 1 ? "figure" : "" }, each));
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ...cells)), h("tbody", {}, ...rows)));
}

function figure(text: Child): HTMLElement {
  return h("td", { class: "figure" }, text);
}

function error(value: number | string | null | undefined): string {
  if (typeof value === "number") return value === 0 ? "0" : value.toExponential(1);
  return value ?? "–";
}

function times(spread: Spread): string {
  const short = (value: number) => (value < 10 ? value.toFixed(2) : value.toFixed(0));
  return spread.low === spread.high ? short(spread.median) : `${short(spread.median)} (${short(spread.low)}–${short(spread.high)})`;
}

/** As in `inspect/compare.py`: what timing by turns cannot tell from 1. */
const SMALLEST_EFFECT = 0.01;

function isNoise(spread: Spread): boolean {
  return (spread.low <= 1 && 1 <= spread.high) || Math.abs(spread.median - 1) < SMALLEST_EFFECT;
}

// Bars on one logarithmic scale ------------------------------------------------------------------

interface Scale {
  low: number;
  high: number;
}

function scaleOf(spreads: Spread[]): Scale {
  return { low: Math.min(0.95, ...spreads.map((each) => each.low)), high: Math.max(1.05, ...spreads.map((each) => each.high)) };
}

/** A bar from 1 to the median, and the interval of 95 % as a line. */
function bar(spread: Spread | null, { low, high }: Scale, style: string): HTMLElement {
  const x = (value: number) => (100 * Math.log(value / low)) / Math.log(high / low);
  const drawing = spread && [
    svg("rect", { class: style, x: Math.min(x(1), x(spread.median)), y: 3, width: Math.max(Math.abs(x(spread.median) - x(1)), 0.5), height: 8 }),
    svg("line", { class: "spread", x1: x(spread.low), x2: x(spread.high), y1: 7, y2: 7 }),
  ];
  const one = svg("line", { class: "one", x1: x(1), x2: x(1), y1: 0, y2: 14 });
  return h("td", { class: "bars", "aria-hidden": "true" }, svg("svg", { viewBox: "0 0 100 14", preserveAspectRatio: "none" }, ...(drawing ?? []), one));
}

// Is it right? -------------------------------------------------------------------------------------

function checks(found: Validation): HTMLElement {
  const steps = [...found.steps, ...(found.program ? [found.program] : [])];
  const rows = steps.map((each) =>
    h("tr", { title: each.remark }, h("td", { class: "code" }, shortPass(each.name)), h("td", {}, each.word), ...[each.difference, each.error, each.other_error, each.drift].map((value) => figure(error(value)))),
  );
  return h(
    "div",
    { class: `panel ${found.word === "wrong" ? "notice" : ""}` },
    h("h2", {}, `Is it right? ${found.word}${found.first_wrong ? `, first after ${shortPass(found.first_wrong)}` : ""}`),
    table(["Step", "Verdict", "Moved by", "Error", "Before", "In f64"], rows),
    h("p", { class: "meta" }, `${plural(found.samples.length, "sample")}: ${found.samples.join(", ")}. Errors are norms against double precision, of the answer after each step and before it.`),
    ...found.skipped.map((each) => h("p", { class: "meta" }, `Not run: ${each}`)),
  );
}

// What each part buys ------------------------------------------------------------------------------

/** The parts that count, the most first. */
function ranked(effects: Effect[]): Effect[] {
  const size = (each: Effect) => Math.abs(Math.log(each.speedup!.median));
  return effects.filter((each) => each.speedup && !isNoise(each.speedup)).sort((a, b) => size(b) - size(a));
}

function parts(found: Ablation): HTMLElement {
  const shares = [
    found.explained_without === null ? null : `${percent(found.explained_without)} by what is lost without each`,
    found.explained_alone === null ? null : `${percent(found.explained_alone)} by what each gains alone`,
  ].filter((each) => each !== null);
  const alone = found.alone.length ? effects("Alone", "× faster", found.alone, null) : [h("p", { class: "meta" }, `Each part alone: ${found.remark}`)];
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, "What each part of the compiler buys"),
    h("p", { class: "meta" }, `A call takes ${milliseconds(found.seconds * 1e3)}${found.whole ? `, ${times(found.whole)} times as fast as with every part left out` : ""}. Ratios are medians over rounds, with the interval in which the true one lies with 95 % confidence.`),
    ...effects("Left out", "× slower", found.without, found.costs),
    ...alone,
    shares.length ? h("p", { class: "meta" }, `Of the whole, as logarithms of ratios add up, single parts explain ${shares.join(" and ")}.`) : null,
  );
}

function effects(title: string, ratio: string, all: Effect[], whole: Costs | null): HTMLElement[] {
  const quiet = all.filter((each) => each.speedup && isNoise(each.speedup));
  const measured = [...ranked(all), ...quiet];
  const scale = scaleOf(measured.map((each) => each.speedup!));
  const row = (name: string, speedup: Spread | null, said: string, costs: Costs | null) =>
    h("tr", {}, h("td", { class: "code" }, name), bar(speedup, scale, speedup && isNoise(speedup) ? "noise" : "effect"), figure(said), ...costCells(costs));
  const rows = measured.map((each) => row(each.part.name, each.speedup, isNoise(each.speedup!) ? "no measurable effect" : times(each.speedup!), each.costs));
  if (whole) rows.unshift(row("nothing", null, "1", whole));
  const reasons = new Map<string, string[]>();
  for (const each of all) {
    if (each.speedup) continue;
    const reason = each.reason || each.state;
    reasons.set(reason, [...(reasons.get(reason) ?? []), each.part.name]);
  }
  const idle = [...reasons].map(([reason, names]) => h("p", { class: "meta" }, `${reason}: ${names.join(", ")}`));
  const head = ["Part", "", ratio, "Kernels", "Moved", "Alive", "Compiled in", "Error"];
  return [h("h3", {}, title), ...(rows.length ? [table(head, rows)] : []), ...idle];
}

function costCells(costs: Costs | null): HTMLElement[] {
  if (!costs) return ["–", "–", "–", "–", "–"].map(figure);
  return [integer(costs.kernels), bytes(costs.bytes_moved), bytes(costs.peak), milliseconds(costs.compile_seconds * 1e3), error(costs.error)].map(figure);
}

// Beside others ------------------------------------------------------------------------------------

function beside(found: Comparison): HTMLElement {
  const ran = found.contenders.filter((each) => each.median !== null);
  const scale = scaleOf(ran.map((each) => each.times_ours!));
  const row = (each: Contender) =>
    h("tr", { title: each.remark }, h("td", {}, each.name), bar(each.times_ours, scale, "effect"), figure(milliseconds(each.median! * 1e3)), figure(times(each.times_ours!)), figure(error(each.error)), figure(each.verdict || "–"), figure(each.compile_seconds === null ? "–" : `${each.compile_seconds.toFixed(1)} s`), figure(each.memory === null ? "–" : bytes(each.memory)));
  const missing = found.contenders.filter((each) => each.median === null);
  return h(
    "div",
    { class: "panel" },
    h("h2", {}, "Beside others"),
    table(["", "", "Median", "× ours", "Error", "Answer", "Compiled in", "Memory"], ran.map(row)),
    ...missing.map((each) => h("p", { class: "meta" }, `${each.name} did not run: ${each.reason}`)),
    h("p", { class: "meta" }, `${plural(found.rounds, "round")} by turns in one process; × ours: median and 95 % interval; errors against double precision.`),
  );
}

// What is at fault ---------------------------------------------------------------------------------

function fault(found: Bisection): HTMLElement {
  if (found.kind === null) {
    return h("div", { class: "panel" }, h("h2", {}, "At fault: nothing"), h("p", {}, `No pass, kernel or gradient is wrong; searched for ${found.seconds.toFixed(1)} s.`));
  }
  const rows: [string, Child][] = [
    ["Rewrite", found.rewrite],
    ["Symptom", `${found.symptom} (inputs: ${found.sample})`],
    ["Cured by", found.cured_by.length ? `doing without ${found.cured_by.join(", ")}` : "–"],
    ["Reduced", `${plural(found.nodes, "node")} of the model, ${integer(found.nodes_left)} left; ${plural(found.tried, "smaller case")} tried`],
  ];
  return h(
    "div",
    { class: "panel notice" },
    h("h2", {}, `At fault: ${shortPass(found.step)}`),
    h("dl", { class: "told" }, ...rows.flatMap(([label, value]) => [h("dt", {}, label), h("dd", {}, value)])),
    h("h3", {}, "A program that shows it"),
    h("pre", { class: "nodes", tabindex: 0, "aria-label": "A program that shows it" }, found.repro.trimEnd()),
  );
}
