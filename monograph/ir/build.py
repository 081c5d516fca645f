"""Adding ops to graphs from Python: which graph, which constants, which common dtype.

``apply`` is what every public function on values ends in. It finds the graph from the operands,
turns numbers and arrays into constants, and returns the result. Where an operand is a ``Tracer``
(a variable of a rewrite pattern, say) the tracer decides what applying an op means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from monograph.errors import InputError
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.op import Op, lookup
from monograph.ir.operators import Operators
from monograph.ir.region import capture, innermost
from monograph.ir.types import (
    Array,
    DType,
    Kind,
    bool_,
    c64,
    dtype_of,
    f32,
    i64,
    promote,
)

Scalar: TypeAlias = bool | int | float | complex
Operand: TypeAlias = "Value | Tracer | Array | Scalar"


class Tracer(Operators, ABC):
    """Something other than a graph's value that ops can be applied to."""

    __slots__ = ()

    @abstractmethod
    def apply(self, op: Op, operands: Sequence[Any]) -> Any:
        """The result of applying an op to operands, at least one of which is a tracer."""


def apply(op: Op, *operands: Operand) -> Value:
    """Apply an op that has one result."""
    result: Value = apply_any(op, operands)
    return result


def apply_many(op: Op, *operands: Operand) -> tuple[Value, ...]:
    """Apply an op; always the tuple of its results."""
    results: tuple[Value, ...] | Value = apply_any(op, operands)
    return results if isinstance(results, tuple) else (results,)


def apply_any(op: Op, operands: Sequence[Any], regions: Sequence[Graph] = ()) -> Any:
    """Apply an op: its result, or the tuple of them if it has several."""
    for operand in operands:
        if isinstance(operand, Tracer):
            return operand.apply(op, operands)
    graph = graph_of(operands)
    node = graph.create(op, as_operands(graph, operands), regions=regions)
    return node.results[0] if len(node.results) == 1 else node.results


def graph_of(operands: Sequence[Any]) -> Graph:
    """The graph to compute with these operands in; the one being built if none is a value.

    That is the graph that they live in or, inside ``cond``, ``scan`` and the like, the region being
    traced, which captures values of the graphs around it.
    """
    for operand in operands:
        if isinstance(operand, Value):
            return innermost(operand.graph)
    return current_graph()


def as_operands(graph: Graph, operands: Sequence[Any]) -> tuple[Value, ...]:
    """The operands as values of ``graph``.

    Its own values stay as they are, those of a graph around it are captured (see ``region``), and
    numbers and arrays become constants of their natural dtype.
    """
    return tuple(
        capture(operand, graph) if isinstance(operand, Value) else constant(operand, graph=graph)
        for operand in operands
    )


def constant(value: Any, dtype: DType | None = None, graph: Graph | None = None) -> Value:
    """A constant in ``graph`` (the one being built, if none is given)."""
    if not isinstance(value, bool | int | float | complex | np.ndarray | np.generic | list | tuple):
        raise InputError(
            "an operand must be a value of the graph, a number or an array",
            found=f"{type(value).__name__}: {value!r:.60}",
        )
    chosen = dtype
    if chosen is None and isinstance(value, bool | int | float | complex):
        chosen = _scalar_dtype(value)
    target = current_graph() if graph is None else graph
    return target.add_constant(value, chosen)


def promote_operands(*operands: Operand) -> tuple[Value, ...]:
    """The operands as values of one dtype, cast where they must be.

    Tensors promote as ``types.promote`` says. A Python number is *weak*: it takes the dtype that
    the tensors have, unless its kind is higher (``int_tensor * 0.5`` is ``f32``).
    """
    graph = graph_of(operands)
    strong = [_dtype(operand) for operand in operands if not isinstance(operand, Scalar)]
    weak = [_scalar_dtype(operand) for operand in operands if isinstance(operand, Scalar)]
    common = strong[0] if strong else weak[0]
    for dtype in strong[1:]:
        common = promote(common, dtype)
    for dtype in weak:
        common = _meet_weak(common, dtype)
    return tuple(_as_dtype(operand, common, graph) for operand in operands)


def cast_to(value: Value, dtype: DType) -> Value:
    """The value in another dtype; itself if it already has it."""
    if value.dtype is dtype:
        return value
    return apply(lookup("cast")(dtype), value)  # type: ignore[call-arg]  # Cast has one attribute


def _as_dtype(operand: Operand, dtype: DType, graph: Graph) -> Value:
    if isinstance(operand, Value):
        return cast_to(operand, dtype)
    return constant(operand, dtype, graph)


def _dtype(operand: Any) -> DType:
    if isinstance(operand, Value):
        return operand.dtype
    return dtype_of(np.asarray(operand).dtype)


def _scalar_dtype(value: Scalar) -> DType:
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return i64
    return f32 if isinstance(value, float) else c64


def _meet_weak(tensor: DType, scalar: DType) -> DType:
    """Where a tensor and a Python number meet: the tensor's dtype if its kind can hold it."""
    order = {Kind.BOOL: 0, Kind.UNSIGNED: 1, Kind.SIGNED: 1, Kind.FLOAT: 2, Kind.COMPLEX: 3}
    if tensor.kind is Kind.STRING or order[tensor.kind] >= order[scalar.kind]:
        return tensor
    if scalar is c64 and tensor.name == "f64":
        return dtype_of("c128")
    return scalar
