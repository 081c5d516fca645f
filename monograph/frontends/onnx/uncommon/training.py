"""Training, as ``ai.onnx.preview.training`` has it: one step of an optimizer, and gradients."""

from __future__ import annotations

from collections.abc import Sequence

from monograph import functional as F
from monograph.autodiff.vjp import grad
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Graph, Node, Value, copy_node, current_graph

DOMAIN = "ai.onnx.preview.training"


def _tensors(node: OnnxNode, kinds: int) -> list[tuple[Value, ...]]:
    """The operands after rate and count: one tuple (x, gradient, state…) for each tensor."""
    rest = node.given()[2:]
    count = len(rest) // kinds
    if count * kinds != len(rest):
        raise node.error(f"{kinds} operands are needed for each tensor", found=str(len(rest)))
    return [tuple(rest[index::count]) for index in range(count)]


def _regularize(node: OnnxNode, x: Value, gradient: Value) -> Value:
    coefficient = node.number("norm_coefficient", 0.0)
    return gradient if coefficient == 0.0 else F.add(F.multiply(x, coefficient), gradient)


def _by_kind(updates: Sequence[tuple[Value, ...]]) -> tuple[Value, ...]:
    """The new x of every tensor, then the new first state of every tensor, and so on."""
    return tuple(value for kind in zip(*updates, strict=True) for value in kind)


@converter("Adagrad", domain=DOMAIN)
def adagrad(node: OnnxNode) -> tuple[Value, ...]:
    """A step by the gradient over the root of all squared gradients so far."""
    rate, count = node.input(0), cast_to(node.input(1), node.input(0).dtype)
    rate = F.divide(rate, F.add(F.multiply(count, node.number("decay_factor", 0.0)), 1.0))
    updates = []
    for x, gradient, squares in _tensors(node, 3):
        direction = _regularize(node, x, gradient)
        total = F.add(squares, F.square(direction))
        divisor = F.add(F.sqrt(total), node.number("epsilon", 1e-6))
        step = F.divide(F.multiply(cast_to(rate, x.dtype), direction), divisor)
        updates.append((F.subtract(x, step), total))
    return _by_kind(updates)


@converter("Adam", domain=DOMAIN)
def adam(node: OnnxNode) -> tuple[Value, ...]:
    """A step by averages of the gradient and of its square."""
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)
    shrink = 1.0 - node.number("norm_coefficient_post", 0.0)
    rate = _adam_rate(node, alpha, beta)
    updates = []
    for x, gradient, average, squares in _tensors(node, 4):
        direction = _regularize(node, x, gradient)
        moved = F.add(F.multiply(average, alpha), F.multiply(direction, 1.0 - alpha))
        total = F.add(F.multiply(squares, beta), F.multiply(F.square(direction), 1.0 - beta))
        divisor = F.add(F.sqrt(total), node.number("epsilon", 1e-6))
        step = F.divide(F.multiply(cast_to(rate, x.dtype), moved), divisor)
        updates.append((F.multiply(F.subtract(x, step), shrink), moved, total))
    return _by_kind(updates)


def _adam_rate(node: OnnxNode, alpha: float, beta: float) -> Value:
    """The learning rate, corrected for averages that started from zero."""
    rate, count = node.input(0), node.input(1)
    steps = cast_to(F.maximum(count, 1), rate.dtype)
    by_square = F.sqrt(F.subtract(1.0, F.power(F.full_like(steps, beta), steps)))
    by_average = F.subtract(1.0, F.power(F.full_like(steps, alpha), steps))
    corrected = F.divide(F.multiply(rate, by_square), by_average)
    return F.where(F.greater(count, 0), corrected, rate)


@converter("Momentum", domain=DOMAIN)
def momentum(node: OnnxNode) -> tuple[Value, ...]:
    """A step by a decaying sum of gradients, looking ahead in mode ``nesterov``."""
    mode, alpha = node.string("mode"), node.number("alpha")
    if mode not in ("standard", "nesterov"):
        raise node.error("an unknown mode", expected="standard or nesterov", found=repr(mode))
    rate, count = node.input(0), node.input(1)
    beta = F.where(F.greater(count, 0), node.number("beta"), 1.0)
    updates = []
    for x, gradient, velocity in _tensors(node, 3):
        direction = _regularize(node, x, gradient)
        weighted = F.multiply(cast_to(beta, x.dtype), direction)
        moved = F.add(F.multiply(velocity, alpha), weighted)
        ahead = moved if mode == "standard" else F.add(direction, F.multiply(moved, alpha))
        step = F.multiply(cast_to(rate, x.dtype), ahead)
        updates.append((F.subtract(x, step), moved))
    return _by_kind(updates)


@converter("Gradient", domain=DOMAIN)
def gradient(node: OnnxNode) -> tuple[Value, ...]:
    """The derivatives of tensor ``y`` by the tensors ``xs``, at the values that are operands.

    The part of the graph from ``xs`` and ``zs`` to ``y`` becomes a graph of its own, which is
    differentiated and put in here.
    """
    wrt, fixed = node.strings("xs"), node.strings("zs", ())
    ends = [_optional_operand(node, name) for name in (*wrt, *fixed)]
    if len(ends) != len(node.inputs):
        raise node.error(
            "one operand is needed for each tensor",
            expected=str(len(ends)),
            found=str(len(node.inputs)),
        )
    part, outside = _part(_optional_operand(node, node.string("y")), ends)
    derived = grad(part, range(len(wrt)))
    return tuple(derived.copy_into(current_graph(), [*node.given(), *outside]))


def _optional_operand(node: OnnxNode, name: str) -> Value:
    try:
        value = node.scope.find(name)
    except KeyError:
        value = None
    if value is None or value.graph is not current_graph():
        raise node.error(f"there is no tensor {name!r} here to differentiate")
    return value


def _part(y: Value, ends: Sequence[Value]) -> tuple[Graph, list[Value]]:
    """The sum of ``y`` as a graph of ``ends`` and of the other values that it returns."""
    needed = _between(y, set(ends))
    part = Graph("part")
    mapping: dict[Value, Value] = {}
    for position, end in enumerate(ends):
        made = part.add_input(f"x{position}", end.type)
        mapping.setdefault(end, made)
    given = dict(mapping)
    outside: list[Value] = []
    for each in needed:
        for operand in each.operands:
            if operand not in mapping and operand.producer not in needed:
                mapping[operand] = part.add_input(f"outer{len(outside)}", operand.type)
                outside.append(operand)
        copy_node(each, part, mapping)
        mapping.update(given)  # an end may be one of several results of a node
    with part.as_current():
        loss = mapping[y]
        part.set_outputs([F.sum(loss) if loss.rank else loss])
    return part, outside


def _between(y: Value, ends: set[Value]) -> dict[Node, None]:
    """The nodes that ``y`` needs, in order, without looking past ``ends``."""
    needed: set[Node] = set()
    stack = [y]
    while stack:
        value = stack.pop()
        producer = value.producer
        if value in ends or producer is None or producer in needed:
            continue
        needed.add(producer)
        stack.extend(producer.operands)
    return {node: None for node in y.graph.nodes if node in needed}
