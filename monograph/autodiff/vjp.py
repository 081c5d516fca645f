"""Reverse-mode differentiation: a graph in, a larger graph out.

The nodes are visited once, from the last to the first. Each asks its op's ``vjp`` rule how the
gradients of its results become gradients of its operands; a value used in several places adds up
what arrives from each. A composite without a rule of its own is differentiated through its
decomposition. Only nodes on a path from a wanted input to the loss are visited, so integers, dead
branches and frozen weights cost nothing.

    x ──▶ square ──▶ sum ──▶ loss            d loss/d x = 2 * x * 1
    x ◀── * 2x  ◀── expand ◀── 1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monograph.errors import DifferentiationError, InputError, MonographError
from monograph.ir.build import constant
from monograph.ir.decompose import decompose_node
from monograph.ir.graph import Graph, Node, Value, check_graph
from monograph.ir.region import declare_input
from monograph.ir.types import TensorType
from monograph.ops import shape as shape_ops
from monograph.ops.elementwise import add


def grad(graph: Graph, wrt: Sequence[int | str] | None = None, *, loss: int = 0) -> Graph:
    """A graph of the same inputs whose outputs are the gradients of output ``loss``.

    ``wrt`` names inputs by position or name; by default every float input. An input that the loss
    does not depend on has a gradient of zeros.
    """
    return _differentiate(graph, wrt, loss, keep_outputs=False)


def value_and_grad(graph: Graph, wrt: Sequence[int | str] | None = None, *, loss: int = 0) -> Graph:
    """Like ``grad``, with the graph's own outputs in front of the gradients."""
    return _differentiate(graph, wrt, loss, keep_outputs=True)


def _differentiate(
    graph: Graph, wrt: Sequence[int | str] | None, loss: int, keep_outputs: bool
) -> Graph:
    check_graph(graph)
    positions = _positions(graph, wrt)
    _check_loss(graph, loss)
    result = graph.clone()
    result.name = f"{graph.name}_gradient"
    outputs = result.outputs
    with result.inserting_before(None):
        seed = _full(outputs[loss].tensor, 1.0)
        wanted = [result.inputs[position] for position in positions]
        gradients = backward(result, {outputs[loss]: seed}, wanted)
    result.set_outputs([*(result.outputs if keep_outputs else ()), *gradients])
    if not keep_outputs:
        result.updates = {}
    return result


def backward(graph: Graph, seeds: dict[Value, Value], wanted: Sequence[Value]) -> list[Value]:
    """Append the backward pass to ``graph``: the gradient of each wanted value, zeros if none.

    ``seeds`` maps outputs to their gradients. Composites without a rule are decomposed in place.
    """
    own = graph.outputs
    graph.set_outputs([*own, *seeds])  # so that a decomposition replaces the seeded values too
    _decompose_ruleless(graph, wanted)
    seeded = graph.outputs[len(own) :]
    graph.set_outputs(graph.outputs[: len(own)])
    active = _depends_on(graph, wanted)
    gradients: dict[Value, Value] = {}
    for value, seed in zip(seeded, seeds.values(), strict=True):
        _accumulate(gradients, value, seed)
    for node in reversed(list(graph.nodes)):
        if node in active and any(result in gradients for result in node.results):
            _step(node, gradients)
    return [
        gradients[value] if value in gradients else _full(value.tensor, 0.0) for value in wanted
    ]


def pullback(region: Graph, wrt: Sequence[int]) -> Graph:
    """The backward pass of a closed region, as a region of its own.

    Its inputs are the region's, then a gradient for each float output; its outputs are the
    gradients of the inputs ``wrt``. The forward values that it needs are computed again inside.
    """
    result = Graph(f"{region.name}_gradient")
    arguments = [result.add_input(value.name, value.type) for value in region.inputs]
    outputs = region.copy_into(result, arguments)
    seeds: dict[Value, Value] = {}
    with result.inserting_before(None):
        for position, output in enumerate(outputs):
            if not output.dtype.is_differentiable:
                continue
            arriving = declare_input(result, f"grad.{position}", output.type)
            _accumulate(seeds, output, arriving)
        wanted = [arguments[position] for position in wrt]
        result.set_outputs(backward(result, seeds, wanted))
    return result


def _positions(graph: Graph, wrt: Sequence[int | str] | None) -> list[int]:
    names = [value.name for value in graph.inputs]
    if wrt is None:
        return [index for index, value in enumerate(graph.inputs) if _is_float(value)]
    positions = []
    for which in [wrt] if isinstance(wrt, str) else wrt:
        position = names.index(which) if isinstance(which, str) and which in names else which
        if not isinstance(position, int) or not 0 <= position < len(names):
            raise InputError(
                f"there is no input {which!r} to differentiate by", expected=", ".join(names)
            )
        value = graph.inputs[position]
        if not _is_float(value):
            raise DifferentiationError(
                f"input %{value.name} has no gradient", expected="a float input", found=repr(value)
            )
        positions.append(position)
    return positions


def _check_loss(graph: Graph, loss: int) -> None:
    if not -len(graph.outputs) <= loss < len(graph.outputs):
        raise InputError(
            f"there is no output {loss}", expected=f"0 to {len(graph.outputs) - 1}", found=str(loss)
        )
    value = graph.outputs[loss]
    if not _is_float(value) or value.tensor.size != 1:
        raise DifferentiationError(
            "the loss must be one float",
            expected="a float output of one element",
            found=repr(value),
            hint="reduce it first, with sum or mean",
        )


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_differentiable


def _decompose_ruleless(graph: Graph, wanted: Sequence[Value]) -> None:
    """Replace composites that have no gradient rule by their decompositions, until none is left."""
    pending = [node for node in graph.nodes if _must_decompose(node)]
    active = _depends_on(graph, wanted) if pending else set()
    while pending:
        node = pending.pop()
        if node not in active:
            continue
        new = decompose_node(node)
        active.update(new)
        pending.extend(candidate for candidate in new if _must_decompose(candidate))


def _must_decompose(node: Node) -> bool:
    return node.op.is_composite() and not node.op.is_differentiable()


def _depends_on(graph: Graph, wanted: Sequence[Value]) -> set[Node]:
    """The nodes that a wanted value flows into through floats."""
    reached = set(wanted)
    active: set[Node] = set()
    for node in graph.nodes:
        if any(operand in reached for operand in node.operands):
            active.add(node)
            reached.update(result for result in node.results if _is_float(result))
    return active


def _step(node: Node, gradients: dict[Value, Value]) -> None:
    """Pass the gradients of one node's results on to its operands."""
    graph = node.graph
    with graph.inserting_before(None, node.location):
        arriving = [
            gradients[result] if result in gradients else _full(result.tensor, 0.0)
            for result in node.results
        ]
        passed = _apply_rule(node, arriving)
        if len(passed) != len(node.operands):
            raise DifferentiationError(
                f"the gradient rule of {node.op.name} gives {len(passed)} gradients",
                expected=f"{len(node.operands)}, one an operand",
                where=repr(node),
            )
        for operand, gradient in zip(node.operands, passed, strict=True):
            if gradient is not None and _is_float(operand):
                _accumulate(gradients, operand, gradient)


def _apply_rule(node: Node, arriving: Sequence[Value]) -> tuple[Value | None, ...]:
    try:
        if node.regions:
            passed = node.op.vjp(node, *arriving, pullback=pullback)
        else:
            passed = node.op.vjp(node, *arriving)
    except MonographError as error:
        source = None if node.location is None else str(node.location)
        raise error.with_context(where=repr(node), source=source) from None
    gradients: tuple[Value | None, ...] = passed
    return gradients


def _accumulate(gradients: dict[Value, Value], value: Value, gradient: Value) -> None:
    if gradient.dtype is not value.dtype or gradient.shape != value.shape:
        raise DifferentiationError(
            f"the gradient of %{value.name} has another type than it",
            expected=str(value.type),
            found=str(gradient.type),
            where=repr(gradient.producer),
        )
    earlier = gradients.get(value)
    gradients[value] = gradient if earlier is None else add(earlier, gradient)


def _full(type_: TensorType, number: float) -> Value:
    """A tensor of this type filled with a number."""
    scalar = constant(np.asarray(number, type_.dtype.numpy))
    return scalar if type_.shape == () else shape_ops.expand(scalar, type_.shape)
