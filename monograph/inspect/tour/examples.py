"""Worked examples: a wasteful function made small, GELU recognised, a residual block examined."""

from __future__ import annotations

import itertools

import numpy as np

import monograph.functional as F
from monograph.api import optimize, optimize_with_report
from monograph.frontends.trace import trace
from monograph.inspect.structure import epilogues, fusable_chains, op_counts, skip_connections
from monograph.inspect.tour.page import Page
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.interpret import interpret
from monograph.ir.text.printer import print_graph
from monograph.passes.instruments import relative_error


def wasteful(x: Value) -> Value:
    """A function with something for every pass: it is what people write without noticing."""
    graph = x.graph
    scale = graph.add_constant(2.0, "f32") * graph.add_constant(3.0, "f32")
    a = F.relu(x)
    b = F.relu(x)
    kept = a * 1.0
    F.exp(x)
    return kept + F.relu(b * scale + 1.0)


def gelu_by_hand(x: Value) -> Value:
    """GELU in its tanh form, spelled out in arithmetic."""
    return 0.5 * x * (1.0 + F.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def gelu_orders() -> list[Graph]:
    """The three commutative products and sums of that spelling, each in both orders: 8 graphs."""
    graphs = []
    for outer, one, inner in itertools.product((False, True), repeat=3):

        def spelled(x: Value, outer: bool = outer, one: bool = one, inner: bool = inner) -> Value:
            cube = 0.044715 * x * x * x
            total = cube + x if inner else x + cube
            curve = F.tanh(0.7978845608 * total)
            bent = curve + 1.0 if one else 1.0 + curve
            return bent * (0.5 * x) if outer else 0.5 * x * bent

        graphs.append(trace(spelled, "f32[16]", name="gelu"))
    return graphs


def show_wasteful(page: Page) -> None:
    """Node counts after each pass."""
    page.chapter("6 · Example: waste", "How much of what was written needs to be computed?")
    graph = trace(wasteful, "f32[1024]", name="wasteful")
    page.code(print_graph(graph))
    result, report = optimize_with_report(graph, passes="fold_constants,cse,simplify,dce")
    rows: list[tuple[object, ...]] = [("as written", len(graph), "")]
    for step in report.steps:
        did = ", ".join(f"{name} {count}" for name, count in step.counters.items() if count)
        rows.append((step.name, step.nodes_after, did))
    page.table(("after", "nodes", "what it did"), rows)
    page.code(print_graph(result))
    inputs = [np.linspace(-3, 3, 1024, dtype=np.float32)]
    same = np.array_equal(interpret(graph, inputs)[0], interpret(result, inputs)[0])
    page.answer(
        f"{len(result)} of {len(graph)} nodes are left, constants included; the result is "
        f"{'equal bit for bit' if same else 'DIFFERENT'}."
    )


def show_gelu(page: Page) -> None:
    """GELU found in every spelling."""
    page.chapter("7 · Example: GELU", "Can the compiler see GELU in nine arithmetic nodes?")
    graph = trace(gelu_by_hand, "f32[16]", name="gelu_by_hand")
    page.code(print_graph(graph))
    result = optimize(graph)
    page.code(print_graph(result))
    orders = [optimize(each) for each in gelu_orders()]
    found = sum([node.op.name for node in each.nodes] == ["gelu"] for each in orders)
    inputs = [np.linspace(-4, 4, 16, dtype=np.float32)]
    error = relative_error(interpret(result, inputs)[0], interpret(graph, inputs)[0])
    page.answer(
        f"Yes: {len(graph)} nodes become {len(result)}, with a relative difference of {error:.0e}. "
        f"Sums and products may stand in any order: {found} of {len(orders)} spellings are found."
    )


def show_residual(page: Page) -> None:
    """What there is to see in a residual block."""
    page.chapter("8 · Example: a residual block", "Chain or branch, and what could be fused?")
    graph = trace(_residual_block, "f32[batch, 64]", name="residual_block")
    page.code(print_graph(graph))
    page.table(("op", "count"), list(op_counts(graph).items()))
    for skip in skip_connections(graph):
        path = " → ".join(_label(node) for node in skip.path)
        page.say(f"skip connection: %{skip.source.name} reaches {_label(skip.join)} directly, "
                 f"and again through {path}")  # fmt: skip
    rows = [
        (_label(node), f"epilogue of {_label(producer)}") for producer, node in epilogues(graph)
    ]
    chains = [(" → ".join(map(_label, chain)), "one loop") for chain in fusable_chains(graph)]
    page.table(("fusable", "as"), [*rows, *chains])
    page.answer(
        "It branches: the input is used twice. Each relu and add can run on the result of the "
        "product before it while that is still in registers."
    )


def _residual_block(x: Value) -> Value:
    generator = np.random.default_rng(2)

    def layer(name: str, value: Value) -> Value:
        weight = generator.normal(size=(64, 64)).astype(np.float32) / 8
        return F.linear(
            value,
            x.graph.add_weight(f"{name}.weight", weight),
            x.graph.add_weight(f"{name}.bias", np.linspace(0, 1, 64, dtype=np.float32)),
        )

    return x + layer("linear2", F.relu(layer("linear1", x)))


def _label(node: Node) -> str:
    return f"%{node.result.name}"
