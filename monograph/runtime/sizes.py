"""What must hold of the sizes that symbolic dimensions take, checked once for each of them.

A type rule lets a symbolic shape pass unless it is surely wrong: ``pad`` with a border of two, of
a dimension that may have any size, is refused only when a size of one turns up. The interpreter
finds out as it runs; native code would read where nothing is. So before a program first runs at
some sizes, the type rules are asked again with the numbers in place of the symbols.
"""

from __future__ import annotations

from collections.abc import Mapping

from monograph.errors import EvaluationError, MonographError
from monograph.ir.dims import Symbol, SymbolicDim, substitute_shape
from monograph.ir.graph import Graph, Node, infer_types
from monograph.ir.op import Trait
from monograph.ir.types import TensorType, ValueType


def nodes_to_check(graph: Graph) -> tuple[Node, ...]:
    """Nodes whose type rule may refuse some sizes of the symbols that they depend on."""
    return tuple(node for node in graph.walk() if _depends_on_sizes(node) and not _is_safe(node))


def check_sizes(nodes: tuple[Node, ...], bindings: Mapping[Symbol, int]) -> None:
    """Hold every node's type rule against these sizes; the first refusal is the error."""
    for node in nodes:
        _check(node, bindings)


def _depends_on_sizes(node: Node) -> bool:
    types = [value.type for value in (*node.operands, *node.results)]
    return not node.regions and any(
        isinstance(type_, TensorType) and not type_.is_static for type_ in types
    )


def _is_safe(node: Node) -> bool:
    """Whether the rule cannot fail: elements at the same places, or a plain permutation."""
    if node.op.name in ("transpose", "output", "cast"):
        return True
    if not node.op.has(Trait.ELEMENTWISE):
        return False
    shape = node.results[0].shape
    return all(operand.shape in (shape, ()) for operand in node.operands)


def _check(node: Node, bindings: Mapping[Symbol, int]) -> None:
    operands = [_bound(value.type, bindings) for value in node.operands]
    declared = [_bound(value.type, bindings) for value in node.results]
    if not all(map(_is_known, (*operands, *declared))):
        return  # a symbol of a region's own, bound when that runs
    try:
        inferred = infer_types(node.op.substitute(bindings), operands, ())
    except MonographError as error:
        source = None if node.location is None else str(node.location)
        raise error.with_context(where=repr(node), source=source) from None
    for expected, found in zip(declared, inferred, strict=True):
        if found != expected:
            raise EvaluationError(
                f"{node.op.name}: the sizes do not fit together",
                expected=str(expected),
                found=str(found),
                where=repr(node),
            )


def _bound(type_: ValueType, bindings: Mapping[Symbol, int]) -> ValueType:
    if not isinstance(type_, TensorType):
        return type_
    return type_.with_shape(substitute_shape(type_.shape, bindings))


def _is_known(type_: ValueType) -> bool:
    return isinstance(type_, TensorType) and not any(
        isinstance(dim, SymbolicDim) for dim in type_.shape
    )
