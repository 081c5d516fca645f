"""A graph in double precision: the same computation, with what rounding takes away put back.

Answers are held against it. An answer is *exact* if it has the other's bits, *more accurate* if it
is nearer to the double precision than the other, *within rounding* if it is not much further, and
*wrong* otherwise. Errors are norms: ‖got − reference‖ / ‖reference‖.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.ir.data import ArrayData, Data
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.op import make
from monograph.ir.types import Array, DType, TensorType, ValueType, bf16, c64, c128, f16, f32, f64

ROUNDING = 1.2e-7
FEW = 1000
"""Elements under which an error may be small by luck."""
_WIDER = {f16: f64, bf16: f64, f32: f64, c64: c128}


@dataclass(frozen=True)
class Verdict:
    """How one answer compares with another, both held against double precision (where known)."""

    word: str
    difference: float
    """From the other answer."""
    error: float | None
    other_error: float | None


def double_precision(graph: Graph, inputs: Sequence[Any]) -> list[Array] | None:
    """The graph's outputs in double precision; None if it has no such form (it looks at bits)."""
    try:
        twin = widened(graph)
        arrays = [
            np.asarray(array).astype(value.dtype.numpy)
            if isinstance(value.type, TensorType)
            else array
            for value, array in zip(twin.inputs, inputs, strict=True)
        ]
        return interpret(twin, arrays)
    except MonographError:
        return None


def widened(graph: Graph) -> Graph:
    """The graph with every float a double."""
    result = Graph(graph.name)
    mapping: dict[Value, Value] = {}
    for value in graph.inputs:
        mapping[value] = result.add_input(value.name, _wider_type(value.type))
    for node in graph.nodes:
        changed = {name: _wider(item) for name, item in node.op.attributes().items()}
        copy = result.create(
            make(node.op.name, **changed),
            [mapping[operand] for operand in node.operands],
            regions=[widened(region) for region in node.regions],
            names=[value.name for value in node.results],
            location=node.location,
        )
        mapping.update(zip(node.results, copy.results, strict=True))
    result.set_outputs([mapping[value] for value in graph.outputs])
    return result


def judge(got: Array, other: Array, reference: Array | None) -> Verdict:
    """The word for an answer."""
    if got.shape != other.shape or got.dtype != other.dtype:
        return Verdict("wrong", np.inf, None, None)
    difference = relative_error(got, other)
    error = None if reference is None else relative_error(got, reference)
    other_error = None if reference is None else relative_error(other, reference)
    if np.array_equal(got, other, equal_nan=got.dtype.kind in "fc"):
        return Verdict("exact", 0.0, error, other_error)
    if error is None or other_error is None:
        limit = 100 * ROUNDING if got.dtype.itemsize >= 4 else 0.02
        word = "within rounding" if difference <= limit else "wrong"
        return Verdict(word, difference, error, other_error)
    factor = 3 if got.size < FEW or got.dtype.itemsize < 4 else 2
    if error <= other_error:
        return Verdict("more accurate", difference, error, other_error)
    near = error <= factor * other_error + ROUNDING
    return Verdict("within rounding" if near else "wrong", difference, error, other_error)


def relative_error(got: Array, reference: Array) -> float:
    """‖got − reference‖ / ‖reference‖; for whole numbers, the share that differs."""
    if got.dtype.kind not in "fcV" and not got.dtype.name.startswith(("bfloat", "float")):
        return float(np.mean(got != reference)) if got.size else 0.0
    kind = np.complex128 if got.dtype.kind == "c" else np.float64
    exact, found = np.asarray(reference).astype(kind), got.astype(kind)
    finite = np.isfinite(exact)
    if not np.array_equal(finite, np.isfinite(found)):
        return np.inf
    size = float(np.linalg.norm(exact[finite]))
    distance = float(np.linalg.norm(found[finite] - exact[finite]))
    return distance / size if size else distance


def _wider_type(type_: ValueType) -> ValueType:
    if not isinstance(type_, TensorType):
        return type_
    return TensorType(_WIDER.get(type_.dtype, type_.dtype), type_.shape)


def _wider(attribute: Any) -> Any:
    if isinstance(attribute, DType):
        return _WIDER.get(attribute, attribute)
    if isinstance(attribute, Data) and attribute.dtype in _WIDER:
        dtype = _WIDER[attribute.dtype]
        return ArrayData(attribute.array().astype(dtype.numpy), dtype)
    return attribute
