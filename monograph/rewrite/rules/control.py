"""Branches that are decided when the graph is compiled, and loops that never turn."""

from __future__ import annotations

from monograph.ir.graph import Graph, Node, Value
from monograph.ops.control import If, Scan, While
from monograph.rewrite.constants import splat
from monograph.rewrite.rule import Rule, rewrite


@rewrite("if_decided", root=If, floats="exact: the branch that would run is the one that stays")
def if_decided(node: Node) -> tuple[Value, ...] | None:
    """if(true, a, b) → the body of ``then`` in place of the node; of ``else`` for false."""
    predicate, *operands = node.operands
    decided = splat(predicate)
    if decided is None:
        return None
    region = node.regions[0 if bool(decided) else 1]
    if [value.type for value in operands] != [value.type for value in region.inputs]:
        return None
    return tuple(region.copy_into(node.graph, operands))


@rewrite("if_alike", root=If, floats="exact: each result is the same operand in both branches")
def if_alike(node: Node) -> tuple[Value, ...] | None:
    """if(p, a, a) → a, where both branches hand on the same operands."""
    then, otherwise = node.regions
    if len(then) or len(otherwise) or _has_new_outputs(then) or _has_new_outputs(otherwise):
        return None
    chosen = [value.index for value in then.outputs]
    if chosen != [value.index for value in otherwise.outputs]:
        return None
    return tuple(node.operands[1 + index] for index in chosen)


@rewrite("while_never", root=While, floats="exact: the body never runs")
def while_never(node: Node) -> tuple[Value, ...] | None:
    """A loop whose condition is false → its operands."""
    (goes_on,) = node.regions[0].outputs
    decided = splat(goes_on)
    return None if decided is None or bool(decided) else node.operands


@rewrite("scan_unused", root=Scan, floats="exact: what is dropped was not read")
def scan_unused(node: Node) -> tuple[Value, ...] | None:
    """A scan without the stacked results that nobody reads (those stand for themselves)."""
    assert isinstance(node.op, Scan)
    carries = node.op.carries
    stacked = node.results[carries:]
    kept = [index for index, result in enumerate(stacked) if result.is_used]
    if len(kept) == len(stacked):
        return None
    body = node.regions[0].clone()
    outputs = body.outputs
    body.set_outputs([*outputs[:carries], *(outputs[carries + index] for index in kept)])
    made = node.graph.create(node.op, node.operands, regions=(body,)).results
    replacements = dict(zip(kept, made[carries:], strict=True))
    return (*made[:carries], *(replacements.get(index, old) for index, old in enumerate(stacked)))


def _has_new_outputs(region: Graph) -> bool:
    return any(value.producer is not None for value in region.outputs)


RULES: tuple[Rule, ...] = (if_decided, if_alike, while_never, scan_unused)
