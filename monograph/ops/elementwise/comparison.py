"""Comparison, logic and tests of floats: ops whose result is bool."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from monograph.ir.build import Operand, Tracer, apply, as_operands, cast_to, graph_of
from monograph.ir.graph import Value
from monograph.ir.op import Op, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, Kind, TensorType, bool_
from monograph.ops.elementwise.base import (
    ANYTHING,
    BOOLEANS,
    COMMUTATIVE,
    CONTINUOUS,
    ELEMENTWISE,
    Binary,
    Comparison,
    Unary,
    binary,
    unary_float,
)


@op("equal", traits=ELEMENTWISE | Trait.COMMUTATIVE, onnx="Equal")
class Equal(Comparison):
    """a == b; false where either is NaN, and 0.0 equals -0.0."""

    kinds: ClassVar[frozenset[Kind]] = ANYTHING

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.equal(a, b)


@function
def equal(a: Operand, b: Operand) -> Value:
    """a == b, as bool."""
    return binary(Equal(), a, b)


@op("not_equal", traits=ELEMENTWISE | Trait.COMMUTATIVE)
class NotEqual(Comparison):
    """a != b; true where either is NaN."""

    kinds: ClassVar[frozenset[Kind]] = ANYTHING

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.not_equal(a, b)


@function
def not_equal(a: Operand, b: Operand) -> Value:
    """a != b, as bool."""
    return binary(NotEqual(), a, b)


@op("less", traits=ELEMENTWISE, onnx="Less")
class Less(Comparison):
    """a < b; false where either is NaN."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.less(a, b)


@function
def less(a: Operand, b: Operand) -> Value:
    """a < b, as bool."""
    return binary(Less(), a, b)


@op("less_equal", traits=ELEMENTWISE, onnx="LessOrEqual")
class LessEqual(Comparison):
    """a <= b; false where either is NaN."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.less_equal(a, b)


@function
def less_equal(a: Operand, b: Operand) -> Value:
    """a <= b, as bool."""
    return binary(LessEqual(), a, b)


@op("greater", traits=ELEMENTWISE, onnx="Greater")
class Greater(Comparison):
    """a > b; false where either is NaN."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.greater(a, b)


@function
def greater(a: Operand, b: Operand) -> Value:
    """a > b, as bool."""
    return binary(Greater(), a, b)


@op("greater_equal", traits=ELEMENTWISE, onnx="GreaterOrEqual")
class GreaterEqual(Comparison):
    """a >= b; false where either is NaN."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.greater_equal(a, b)


@function
def greater_equal(a: Operand, b: Operand) -> Value:
    """a >= b, as bool."""
    return binary(GreaterEqual(), a, b)


class Logical(Binary):
    """A binary op on bools."""

    kinds: ClassVar[frozenset[Kind]] = BOOLEANS


def truth(x: Operand) -> Operand:
    """The operand as bool: true where it is not 0."""
    if isinstance(x, Tracer):
        return x
    (value,) = as_operands(graph_of([x]), [x])
    return cast_to(value, bool_)


def _logical(op_: Op, a: Operand, b: Operand) -> Value:
    graph = graph_of([a, b])
    if isinstance(a, Tracer) or isinstance(b, Tracer):
        return apply(op_, a, b)
    return apply(op_, *map(truth, as_operands(graph, [a, b])))


@op("logical_and", traits=COMMUTATIVE, onnx="And")
class LogicalAnd(Logical):
    """Whether both are true."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.logical_and(a, b)


@function
def logical_and(a: Operand, b: Operand) -> Value:
    """Whether both are true (not 0)."""
    return _logical(LogicalAnd(), a, b)


@op("logical_or", traits=COMMUTATIVE, onnx="Or")
class LogicalOr(Logical):
    """Whether either is true."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.logical_or(a, b)


@function
def logical_or(a: Operand, b: Operand) -> Value:
    """Whether either is true (not 0)."""
    return _logical(LogicalOr(), a, b)


@op("logical_xor", traits=COMMUTATIVE, onnx="Xor")
class LogicalXor(Logical):
    """Whether just one is true."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.logical_xor(a, b)


@function
def logical_xor(a: Operand, b: Operand) -> Value:
    """Whether just one is true (not 0)."""
    return _logical(LogicalXor(), a, b)


@op("logical_not", traits=ELEMENTWISE | Trait.INVOLUTION, onnx="Not")
class LogicalNot(Unary):
    """Whether it is false."""

    kinds: ClassVar[frozenset[Kind]] = BOOLEANS

    def evaluate(self, x: Array) -> Any:
        return np.logical_not(x)


@function
def logical_not(x: Operand) -> Value:
    """Whether it is false (0)."""
    return apply(LogicalNot(), truth(x))


class FloatTest(Unary):
    """A question about one float; a complex number is asked about both parts."""

    kinds: ClassVar[frozenset[Kind]] = CONTINUOUS

    def infer(self, x: TensorType) -> TensorType:
        """bool in the operand's shape."""
        return super().infer(x).with_dtype(bool_)


@op("is_nan", traits=ELEMENTWISE)
class IsNan(FloatTest):
    """Whether it is not a number."""

    def evaluate(self, x: Array) -> Any:
        return np.isnan(x)


@function
def is_nan(x: Operand) -> Value:
    """Whether it is NaN; never so for integers."""
    return unary_float(IsNan(), x)


@op("is_inf", traits=ELEMENTWISE)
class IsInf(FloatTest):
    """Whether it is infinite, of either sign."""

    def evaluate(self, x: Array) -> Any:
        return np.isinf(x)


@function
def is_inf(x: Operand) -> Value:
    """Whether it is infinite; never so for integers."""
    return unary_float(IsInf(), x)


@op("is_finite", traits=ELEMENTWISE)
class IsFinite(FloatTest):
    """Whether it is neither NaN nor infinite."""

    def evaluate(self, x: Array) -> Any:
        return np.isfinite(x)


@function
def is_finite(x: Operand) -> Value:
    """Whether it is neither NaN nor infinite; always so for integers."""
    return unary_float(IsFinite(), x)
