"""Partial evaluation: constants and shapes that are known while a model is imported.

ONNX passes shapes around as tensors: ``Shape → Gather → Concat → Reshape``. To make symbolic shapes
of them again, the graph built so far is evaluated on demand, on small arrays whose elements are
numbers or, for integers, dimensions:

    %1 = dim(value = batch)
    %2 = stack(%1, %c)          contents of %2: [batch, 768]

Whatever can be evaluated without knowing an input is; anything else is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from monograph.errors import MonographError
from monograph.ir.dims import (
    Dim,
    Symbol,
    SymbolicDim,
    dim_max,
    dim_min,
    provably_at_least,
    provably_different,
    provably_equal,
    provably_less,
    shape_product,
)
from monograph.ir.graph import Node, Value
from monograph.ir.op import Family, Op
from monograph.ir.types import Array, TensorType, string
from monograph.ops import data, elementwise, index, reduce
from monograph.rewrite.constant_evaluator import ConstantEvaluator, find_data

MAX_COMPUTED_ELEMENTS = 4096
"""How many elements a computed value may have; constants and weights may have any number."""

Symbolic: TypeAlias = Callable[[Any, list[Array]], Any]


class Unknown(Exception):
    """Contents that depend on more than is known."""


class KnownValues(ConstantEvaluator):
    """The contents of values of the graphs of one import, as far as they are known.

    ``outer`` maps an input of a region to the value outside that it stands for.
    """

    def __init__(self) -> None:
        super().__init__(MAX_COMPUTED_ELEMENTS)
        self.outer: dict[Value, Value] = {}
        self.missed: dict[Value, None] = {}
        """The values that were asked for and are not known, in order."""

    def array(self, value: Value) -> Array | None:
        """The contents as an array of the value's dtype; None if any element is unknown."""
        stored = find_data(self.origin(value))
        if stored is not None:
            return stored.array()
        found = self.contents(self.origin(value))
        if found is None or _is_symbolic(value, found):
            self.missed[self.origin(value)] = None
            return None
        return found

    def dims(self, value: Value) -> tuple[Dim, ...] | None:
        """The contents of an integer scalar or vector as dimensions; None if unknown."""
        if not isinstance(value.type, TensorType) or not value.dtype.is_integer:
            return None
        return self.whole_numbers(value)

    def whole_numbers(self, value: Value) -> tuple[Dim, ...] | None:
        """The contents of a scalar or vector, of integers or of floats that were integers."""
        if not isinstance(value.type, TensorType) or value.rank > 1:
            return None
        found = self.contents(self.origin(value))
        if found is None:
            self.missed[self.origin(value)] = None
            return None
        items = found.reshape(-1)
        if not all(isinstance(item, SymbolicDim) or float(item).is_integer() for item in items):
            return None
        return tuple(item if isinstance(item, SymbolicDim) else int(item) for item in items)

    def origin(self, value: Value) -> Value:
        """The value, in the outermost graph, that this one stands for."""
        while value in self.outer:
            value = self.outer[value]
        return value

    def evaluate(self, node: Node, arrays: Sequence[Array]) -> Sequence[Array]:
        """The results of a node, whose elements may be dimensions."""
        operands = [self.origin(operand) for operand in node.operands]
        has_dims = any(map(_is_symbolic, operands, arrays)) or any(True for _ in node.op.symbols())
        if not has_dims:
            return super().evaluate(node, arrays)
        try:
            with np.errstate(all="ignore"):
                return _symbolic(node.op, list(arrays), node.results)
        except (MonographError, Unknown, ValueError, ArithmeticError, LookupError, TypeError):
            return ()


def _is_symbolic(value: Value, array: Array) -> bool:
    return array.dtype == object and value.dtype is not string


# Evaluating with dimensions in the place of integers.


def _symbolic(op: Op, arrays: list[Array], results: Sequence[Value]) -> tuple[Array, ...]:
    is_whole = results[0].dtype.is_integer or results[0].dtype.name == "bool"
    if not is_whole and not isinstance(op, elementwise.Cast):
        raise Unknown
    rule = _RULES.get(type(op))
    if rule is not None:
        made = rule(op, arrays)
    elif op.family is Family.SHAPE and not any(True for _ in op.symbols()):
        made = op.evaluate(*(array.astype(object) for array in arrays))
    else:
        raise Unknown
    parts = made if len(results) > 1 else (made,)
    return tuple(map(_narrow, parts, results))


def _narrow(made: Any, result: Value) -> Array:
    """The elements in the value's own dtype, unless there are symbols among them."""
    found = np.asarray(made, object)
    if any(isinstance(item, SymbolicDim) for item in found.reshape(-1)):
        return found
    return found.astype(result.dtype.numpy)


def _each(function: Callable[[Any, Any], Any]) -> Symbolic:
    """A rule that applies a function to each pair of elements."""
    vectorized = np.frompyfunc(function, 2, 1)
    return lambda op, arrays: vectorized(*(array.astype(object) for array in arrays))


def _floor_divide(a: Dim, b: Dim) -> Dim:
    if provably_less(0, b):
        return a // b
    raise Unknown


def _remainder(a: Dim, b: Dim) -> Dim:
    if provably_less(0, b):
        return a % b
    raise Unknown


def _truncate_divide(a: Dim, b: Dim) -> Dim:
    """Division that rounds towards zero: down if the numerator cannot be negative.

    Where sizes above zero settle that, it is left to ``specialize.nonempty``, which gives shorter
    expressions: ``(height-1)//32`` instead of ``max(height-1, 0)//32-max(1-height, 0)//32``.
    """
    if not provably_less(0, b):
        raise Unknown
    if provably_at_least(a, 0):
        return a // b
    if provably_at_least(_of_nonempty(a), 0):
        raise Unknown
    return dim_max(a, 0) // b - dim_max(-a, 0) // b


def _of_nonempty(dim: Dim) -> Dim:
    """The dimension, where no size in it is zero."""
    if isinstance(dim, int):
        return dim
    empty = [symbol for symbol in dim.symbols() if symbol.lower == 0]
    return dim.substitute({each: Symbol(each.name, 1, each.upper) for each in empty})


def _fmod(a: Dim, b: Dim) -> Dim:
    """The remainder with the sign of the numerator, which is known not to be negative."""
    if provably_at_least(a, 0) and provably_less(0, b):
        return a % b
    raise Unknown


def _proven(holds: bool, fails: bool) -> bool:
    if holds or fails:
        return holds
    raise Unknown


def _where(op: Op, arrays: list[Array]) -> Array:
    condition, a, b = arrays
    if condition.dtype == object:
        raise Unknown
    return np.where(condition, a.astype(object), b.astype(object))


def _cast(op: elementwise.Cast, arrays: list[Array]) -> Array:
    """Whole numbers stay what they are, as floats too; f32 holds those up to 2**24."""
    if op.dtype.bits < 32 or not (op.dtype.is_integer or op.dtype.is_float):
        raise Unknown
    return arrays[0]


def _reduction_rule(combine: Callable[[list[Dim]], Dim]) -> Symbolic:
    """A rule for a reduction of a vector: ``min(length, 300)`` is often computed so."""

    def rule(op: reduce.Prod, arrays: list[Array]) -> Array:
        (x,) = arrays
        if x.ndim != 1 or not x.size:
            raise Unknown
        total = np.empty((1,) if op.keepdims else (), object)
        total[...] = combine(x.tolist())
        return total

    return rule


_RULES: Mapping[type[Op], Symbolic] = {
    data.DimValue: lambda op, arrays: np.array(op.value, object),
    elementwise.Add: _each(lambda a, b: a + b),
    elementwise.Subtract: _each(lambda a, b: a - b),
    elementwise.Multiply: _each(lambda a, b: a * b),
    elementwise.FloorDivide: _each(_floor_divide),
    elementwise.TruncateDivide: _each(_truncate_divide),
    elementwise.Remainder: _each(_remainder),
    elementwise.Fmod: _each(_fmod),
    elementwise.Maximum: _each(dim_max),
    elementwise.Minimum: _each(dim_min),
    elementwise.Equal: _each(lambda a, b: _proven(provably_equal(a, b), provably_different(a, b))),
    elementwise.NotEqual: _each(
        lambda a, b: _proven(provably_different(a, b), provably_equal(a, b))
    ),
    elementwise.Less: _each(lambda a, b: _proven(provably_less(a, b), provably_at_least(a, b))),
    elementwise.Greater: _each(lambda a, b: _proven(provably_less(b, a), provably_at_least(b, a))),
    elementwise.Negate: lambda op, arrays: -arrays[0].astype(object),
    elementwise.Where: _where,
    elementwise.Cast: _cast,
    reduce.Prod: _reduction_rule(shape_product),
    reduce.Sum: _reduction_rule(lambda dims: sum(dims, start=0)),
    reduce.Max: _reduction_rule(lambda dims: dim_max(*dims)),
    reduce.Min: _reduction_rule(lambda dims: dim_min(*dims)),
    index.Take: lambda op, arrays: op.evaluate(*arrays),
    index.Gather: lambda op, arrays: op.evaluate(*arrays),
}
