"""The five phases: build a graph, evaluate it, differentiate it, optimise it, compare it."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

import monograph.functional as F
from monograph.api import optimize_with_report
from monograph.autodiff.vjp import value_and_grad
from monograph.errors import GraphError
from monograph.frontends.trace import trace
from monograph.inspect.structure import count_by_family
from monograph.inspect.tour.page import Page
from monograph.ir.compare import structurally_equal
from monograph.ir.graph import Graph, Value, copy_node
from monograph.ir.interpret import interpret
from monograph.ir.location import Location
from monograph.ir.text.printer import print_graph
from monograph.ir.types import Array
from monograph.ir.verify import verify


def build(page: Page) -> None:
    """Phase 1: what is a computation graph, and why has it no cycles?"""
    page.chapter("1 · Build", "What is a computation graph, and why must it not have a cycle?")
    page.say("Three ways to build y = relu(x * 2 + 1); each gives the same graph.")
    by_hand = _by_hand()
    traced = trace(lambda x: F.relu(x * 2 + 1), "f32[batch, 4]")
    page.code(
        'graph = Graph("by_hand")\n'
        'x = graph.add_input("x", "f32[batch, 4]")\n'
        'doubled = graph.add("multiply", x, graph.add_constant(2.0, "f32"))\n'
        'shifted = graph.add("add", doubled, graph.add_constant(1.0, "f32"))\n'
        'graph.set_outputs([graph.add("relu", shifted)])\n\n'
        "F.relu(x * 2.0 + 1.0)                                # operators on values\n"
        'monograph.trace(lambda x: F.relu(x * 2 + 1), "f32[batch, 4]")',
        "python",
    )
    page.code(print_graph(by_hand))
    equal = structurally_equal(by_hand, traced)
    page.say(f"structurally_equal(by_hand, traced) is {equal}.")
    page.table(("family", "nodes"), [row for row in count_by_family(by_hand).items() if row[1]])
    page.say("Now bend it: let the multiply read the relu's result. The verifier answers:")
    page.code(_cycle_error(by_hand))
    page.answer(
        "Values are tensors, nodes are operations on them, and each value is made once. An edge "
        "says «needs first»; on a cycle every node would have to wait for itself, so no order of "
        "evaluation exists."
    )


def _by_hand() -> Graph:
    graph = Graph("by_hand")
    x = graph.add_input("x", "f32[batch, 4]")
    with graph.inserting_before(None, Location("by_hand.py", 3)):
        doubled = graph.add("multiply", x, graph.add_constant(2.0, "f32"))
    with graph.inserting_before(None, Location("by_hand.py", 4)):
        shifted = graph.add("add", doubled, graph.add_constant(1.0, "f32"))
        graph.set_outputs([graph.add("relu", shifted)])
    return graph


def _cycle_error(graph: Graph) -> str:
    broken = graph.clone()
    first = next(node for node in broken.nodes if node.op.name == "multiply")
    first.set_operand(0, broken.outputs[0])
    try:
        verify(broken)
    except GraphError as error:
        return str(error)
    raise AssertionError("the verifier accepted a cycle")


def evaluate(page: Page) -> None:
    """Phase 2: why must nodes run in topological order?"""
    page.chapter("2 · Evaluate", "Why are nodes evaluated in topological order?")
    graph = trace(lambda a, b: (a + b) * F.maximum(a, b), "f32[]", "f32[]", name="small")
    inputs = [np.float32(3.0), np.float32(4.0)]
    known = {value: float(item) for value, item in zip(graph.inputs, inputs, strict=True)}
    rows: list[tuple[Any, ...]] = [("input", repr(v), "", known[v]) for v in graph.inputs]
    for step, node in enumerate(graph.nodes, 1):
        prefix = Graph("prefix")
        arguments = [prefix.add_input(v.name, v.type) for v in graph.inputs]
        prefix.set_outputs(_copy_until(graph, node.result, prefix, arguments))
        result = float(interpret(prefix, inputs)[0])
        reads = ", ".join(f"%{operand.name}" for operand in node.operands)
        rows.append((step, repr(node.result), f"{node.op.name}({reads})", result))
    page.table(("step", "value", "computed as", "is"), rows)
    (result,) = interpret(graph, inputs)
    page.say(f"interpret(graph, [3.0, 4.0]) = {float(result)}")
    page.answer(
        "A node can run only when all it reads has been computed. The list of nodes is kept in "
        "such an order at all times, so the interpreter is one loop over it. Run multiply first "
        "and there is nothing yet to multiply."
    )


def _copy_until(graph: Graph, wanted: Value, target: Graph, arguments: list[Value]) -> list[Value]:
    mapping = dict(zip(graph.inputs, arguments, strict=True))
    for node in graph.nodes:
        copy_node(node, target, mapping)
        if wanted in node.results:
            break
    return [mapping[wanted]]


def backward(page: Page) -> None:
    """Phase 3: how do gradients flow, and why backwards?"""
    page.chapter("3 · Backward", "How do gradients flow, and why from the loss backwards?")
    graph = trace(
        lambda x, w: F.mean(F.square(F.tanh(x @ w))), "f64[3, 2]", "f64[2, 2]", name="loss"
    )
    both = value_and_grad(graph)
    page.say("loss = mean(tanh(x @ w)²), and the graph that value_and_grad makes of it:")
    page.code(print_graph(both))
    generator = np.random.default_rng(0)
    inputs = [generator.normal(size=(3, 2)), generator.normal(size=(2, 2))]
    _, *gradients = interpret(both, inputs)
    rows = []
    for position, (value, gradient) in enumerate(zip(graph.inputs, gradients, strict=True)):
        numeric = _finite_difference(graph, inputs, position)
        error = float(np.abs(gradient - numeric).max())
        rows.append((f"d loss / d {value.name}", str(np.round(gradient[0], 4)), f"{error:.1e}"))
    page.table(("gradient", "first row", "furthest from finite differences"), rows)
    page.answer(
        f"One backward sweep gave the gradients of both inputs: {len(both) - len(graph)} nodes "
        f"beside the {len(graph)} forward ones. Forward mode would need one sweep an input "
        "element; a model has millions of those and one loss."
    )


def _finite_difference(graph: Graph, inputs: list[Array], position: int) -> Array:
    step = 1e-6
    result = np.zeros_like(inputs[position])
    for index in np.ndindex(result.shape):
        ends = []
        for sign in (1, -1):
            moved = [array.copy() for array in inputs]
            moved[position][index] += sign * step
            ends.append(float(interpret(graph, moved)[0]))
        result[index] = (ends[0] - ends[1]) / (2 * step)
    return result


def optimise(page: Page) -> None:
    """Phase 4: does the order of passes matter?"""
    page.chapter("4 · Optimise", "Does the order of constant folding and dead code removal matter?")
    graph = trace(_with_constants, "f32[8]", name="with_constants")
    page.code(print_graph(graph))
    rows = []
    for order in ("fold_constants", "dce", "fold_constants,dce", "dce,fold_constants"):
        result, report = optimize_with_report(graph, passes=order)
        counts = " → ".join(map(str, [len(graph), *(s.nodes_after for s in report.steps)]))
        rows.append((order, counts, "yes" if _agrees(graph, result) else "NO"))
    page.table(("passes", "nodes", "same result"), rows)
    page.answer(
        "Yes. Folding replaces a node by its result and leaves the old constants without a user; "
        "that is new work for dead code elimination, never the reverse. So dce comes last, and "
        "pipelines repeat until nothing changes."
    )


def _with_constants(x: Value) -> Value:
    graph = x.graph
    scale = graph.add_constant(2.0, "f32") * graph.add_constant(3.0, "f32")
    F.exp(x)
    return x * scale + (graph.add_constant(4.0, "f32") - graph.add_constant(1.0, "f32"))


def _agrees(a: Graph, b: Graph) -> bool:
    inputs = [np.linspace(-2, 2, 8, dtype=np.float32)]
    return np.array_equal(interpret(a, inputs)[0], interpret(b, inputs)[0])


def compare(page: Page) -> None:
    """Phase 5: what does our graph record that an FX graph of the same model does not?"""
    page.chapter("5 · Compare", "What does torch.fx record of the same model, and what do we?")
    generator = np.random.default_rng(1)
    weights = {
        "fc1.weight": generator.normal(size=(8, 4)).astype(np.float32),
        "fc1.bias": generator.normal(size=8).astype(np.float32),
        "fc2.weight": generator.normal(size=(3, 8)).astype(np.float32),
        "fc2.bias": generator.normal(size=3).astype(np.float32),
    }
    ours = trace(lambda x: _mlp(x, weights), "f32[batch, 4]", name="mlp")
    page.say("A perceptron of two layers, as our graph:")
    page.code(print_graph(ours))
    if importlib.util.find_spec("torch") is None:
        page.say("torch is not installed, so there is nothing to compare with: "
                 "pip install 'monograph[torch]' and run this phase again.")  # fmt: skip
        return
    x = generator.normal(size=(5, 4)).astype(np.float32)
    theirs, reference = _torch_mlp(weights, x)
    page.say("and as torch.fx's symbolic_trace sees it:")
    page.table(("opcode", "name", "target", "args"), theirs)
    (result,) = interpret(ours, [x])
    error = float(np.abs(result - reference).max())
    page.table(
        ("", "torch.fx", "monograph"),
        [
            ("nodes", len(theirs), len(ours) + len(ours.inputs) + 1),
            ("parameters", "inside modules", "values of the graph"),
            ("shapes and dtypes", "none until ShapeProp runs", "on every value, symbolic"),
            ("granularity", "call_module fc1", "linear: matmul and add"),
            ("largest difference", "-", f"{error:.1e}"),
        ],
    )
    page.answer(
        "Both hold the same dataflow and agree to rounding. FX keeps the module hierarchy and "
        "Python targets, which suits rewriting PyTorch as PyTorch; the typed graph keeps what a "
        "compiler must know before it may move or merge anything."
    )


def _mlp(x: Value, weights: dict[str, Array]) -> Value:
    values = {name: x.graph.add_weight(name, array) for name, array in weights.items()}
    hidden = F.relu(F.linear(x, values["fc1.weight"], values["fc1.bias"]))
    return F.linear(hidden, values["fc2.weight"], values["fc2.bias"])


def _torch_mlp(weights: dict[str, Array], x: Array) -> tuple[list[tuple[str, ...]], Array]:
    """The rows of the FX graph of the same perceptron, and its result."""
    import torch

    class Perceptron(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = torch.nn.Linear(4, 8)
            self.fc2 = torch.nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.fc1(x))
            return self.fc2(hidden)  # type: ignore[no-any-return]  # modules are untyped calls

    model = Perceptron()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    graph = torch.fx.symbolic_trace(model).graph
    rows: list[tuple[str, ...]] = [
        (n.op, n.name, getattr(n.target, "__name__", str(n.target)), str(n.args))
        for n in graph.nodes
    ]
    with torch.no_grad():
        reference: Array = model(torch.from_numpy(x)).numpy()
    return rows, reference
