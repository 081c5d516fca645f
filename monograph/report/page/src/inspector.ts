// What there is to say of the selected node: its types and neighbours, its line of source, the
// kernel that computes it and why, and links to all of them.

import { bytes, button, Child, h, plural } from "./dom";
import { GraphAt, GraphNode, isStored, Model, shortPass } from "./data";
import { State } from "./state";

export type Go = (change: Partial<State>) => void;

export function inspect(model: Model, graph: GraphAt, node: GraphNode | undefined, go: Go): Child[] {
  if (!node) return [summary(model, graph, go)];
  const place = model.place(node.location);
  return [
    h(
      "header",
      { class: "inspected" },
      h("span", { class: `chip ${node.family}` }, node.family),
      h("h2", {}, node.op),
      node.change && h("span", { class: `badge ${node.change}` }, node.change === "added" ? "+ added here" : "Δ changed here"),
    ),
    h("code", { class: "line" }, model.line(node)),
    node.attributes.length > 80 && h("p", { class: "attributes" }, node.attributes),
    place && place.line > 0 && section("Source", sourceLink(model, node, go)),
    place?.scope ? section("Module", h("code", {}, place.scope)) : null,
    section("Operands", links(model, graph, node.operands.map((value) => graph.producer.get(value)), node.operands, go)),
    section("Used by", links(model, graph, node.results.flatMap((value) => graph.users.get(value) ?? []), null, go)),
    node.regions ? section("Bodies", h("pre", { class: "regions", tabindex: 0 }, node.regions)) : null,
    ...kernels(model, node, go),
  ];
}

function sourceLink(model: Model, node: GraphNode, go: Go): HTMLElement {
  const place = model.place(node.location)!;
  return button(`${shortPath(place.file)}:${place.line}${place.func ? ` in ${place.func}` : ""}`, () => go({ file: place.fileNumber, line: place.line }), {
    class: "link code",
    title: place.file,
  });
}

export function shortPath(path: string): string {
  const parts = path.split("/");
  return parts.length > 3 ? `…/${parts.slice(-2).join("/")}` : path;
}

function links(model: Model, graph: GraphAt, nodes: (GraphNode | undefined)[], values: number[] | null, go: Go): HTMLElement {
  if (!nodes.length) return h("p", { class: "none" }, "none");
  const list = h("ul", { class: "links" });
  nodes.slice(0, 40).forEach((each, k) => {
    if (!each) return;
    const value = values?.[k] ?? each.results[0] ?? each.operands[0];
    const type = values ? each.types[each.results.indexOf(values[k]!)] : each.types[0];
    list.append(
      h(
        "li",
        {},
        h("span", { class: `dot ${each.family}` }),
        button(`%${value === undefined ? "?" : model.name(value)}`, () => go({ node: each.id }), { class: "link code" }),
        h("span", { class: "type" }, each.op === "output" && each.id < 0 ? "an output" : `${each.op} · ${type ?? ""}`),
      ),
    );
  });
  if (nodes.length > 40) list.append(h("li", { class: "none" }, `and ${nodes.length - 40} more`));
  void graph;
  return list;
}

function kernels(model: Model, node: GraphNode, go: Go): Child[] {
  const { groups, byLine } = model.groupsOf(node);
  if (!groups.length) {
    if (node.id < 0 || isStored(node)) return [];
    return [section("Kernel", h("p", { class: "none" }, model.facts.groups.length ? "No kernel: it was folded, removed, or is only another view of memory." : "Which kernel computes it is not known."))];
  }
  return groups.slice(0, 6).map((number) => {
    const group = model.facts.groups[number]!;
    const names = model.kernelsOfGroup(number);
    return section(
      byLine ? "Kernel, by its source line" : "Kernel",
      h(
        "div",
        { class: "kernel-card" },
        ...(names.length
          ? names.map((name) => button(name, () => go({ view: "kernels", kernel: name, step: group.steps[0] ?? null }), { class: "link code" }))
          : [h("span", {}, group.steps.length ? group.name : "no code: another view of memory")]),
        h("p", { class: "meta" }, `${group.kind}, ${plural(group.nodes.length, "node")}`, " ", button("show them", () => go({ stage: model.lastStage, node: group.nodes[0] ?? null }), { class: "link" })),
        reasons(group.together, "+"),
        reasons(group.apart, "−"),
      ),
    );
  });
}

export function reasons(texts: string[], sign: string): HTMLElement | null {
  if (!texts.length) return null;
  const list = h("ul", { class: "reasons" });
  for (const text of texts.slice(0, 12)) {
    list.append(h("li", {}, h("span", { class: sign === "+" ? "plus" : "minus", "aria-label": sign === "+" ? "together:" : "apart:" }, sign), text));
  }
  if (texts.length > 12) list.append(h("li", { class: "none" }, `and ${texts.length - 12} more reasons`));
  return list;
}

export function section(title: string, ...children: Child[]): HTMLElement {
  return h("section", {}, h("h3", {}, title), ...children);
}

/** What stands there while nothing is selected: the stage, and what its pass did. */
function summary(model: Model, graph: GraphAt, go: Go): HTMLElement {
  const stage = model.facts.stages[graph.stage]!;
  const added = graph.nodes.filter((node) => node.change === "added");
  const changed = graph.nodes.filter((node) => node.change === "changed");
  const counters = Object.entries(stage.counters);
  const list = (title: string, nodes: GraphNode[], clickable: boolean): HTMLElement | null => {
    if (!nodes.length) return null;
    const items = nodes.slice(0, 30).map((node) => {
      const name = node.results.map((value) => `%${model.name(value)}`).join(", ") || node.op;
      return h(
        "li",
        {},
        h("span", { class: `dot ${node.family}` }),
        clickable ? button(name, () => go({ node: node.id }), { class: "link code" }) : h("code", {}, name),
        h("span", { class: "type" }, node.op),
      );
    });
    return section(`${title} (${nodes.length})`, h("ul", { class: "links" }, ...items, nodes.length > 30 && h("li", { class: "none" }, `and ${nodes.length - 30} more`)));
  };
  return h(
    "div",
    {},
    h("header", { class: "inspected" }, h("span", { class: "chip plain" }, stage.phase), h("h2", {}, shortPass(stage.name))),
    shortPass(stage.name) === stage.name ? null : h("code", { class: "line" }, stage.name),
    h(
      "p",
      { class: "meta" },
      plural(model.nodeCount(graph.stage), "node"),
      stage.ms === null ? "" : ` · ${stage.ms.toFixed(2)} ms`,
    ),
    stage.figures ? h("p", { class: "meta", title: "Had compiling ended here" }, `${plural(stage.figures.kernels, "kernel")} · ${bytes(stage.figures.bytes_moved)} moved · ${bytes(stage.figures.peak)} alive`) : null,
    counters.length ? section("Counted", h("ul", { class: "links" }, ...counters.map(([name, count]) => h("li", {}, `${name}: ${count}`)))) : null,
    graph.stage === 0 ? h("p", { class: "hint" }, "Click a node, or move along the slider above to see what each pass did. Nodes that a pass added carry a +, those that it changed a Δ.") : null,
    list("Added", added, true),
    list("Changed", changed, true),
    list("Removed", graph.removed, false),
    stage.idle.length ? section("Then changed nothing", h("p", { class: "none" }, stage.idle.join(", "))) : null,
    model.facts.missing ? section("Not shown", h("p", { class: "hint" }, model.facts.missing)) : null,
    model.facts.memory && graph.stage === model.lastStage ? h("p", { class: "meta" }, `This graph runs in an arena of ${bytes(model.facts.memory.peak ?? 0)}.`) : null,
  );
}
