"""Sign, magnitude and rounding to whole numbers."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from monograph.ir.build import Operand, Tracer, apply, as_operands, graph_of
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Op, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, Kind, TensorType
from monograph.ops.elementwise.base import BITS, ELEMENTWISE, NUMBERS, Unary
from monograph.ops.elementwise.convert import cast, real_part_dtype


@op("abs", traits=ELEMENTWISE | Trait.IDEMPOTENT, onnx="Abs")
class Abs(Unary):
    """The magnitude: real for complex numbers; the smallest integer stays itself."""

    kinds: ClassVar[frozenset[Kind]] = NUMBERS

    def infer(self, x: TensorType) -> TensorType:
        own = super().infer(x)
        return own.with_dtype(real_part_dtype(x.dtype)) if x.dtype.is_complex else own

    def evaluate(self, x: Array) -> Any:
        return np.abs(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        return (cast(grad, x.dtype) * sign(x),)


@function
def abs(x: Operand) -> Value:
    """|x|."""
    return apply(Abs(), x)


@op("sign", traits=ELEMENTWISE, onnx="Sign")
class Sign(Unary):
    """-1, 0 or 1; NaN for NaN, and +0.0 for both zeros. A complex number keeps its direction."""

    kinds: ClassVar[frozenset[Kind]] = NUMBERS

    def evaluate(self, x: Array) -> Any:
        return np.sign(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (None,)


@function
def sign(x: Operand) -> Value:
    """-1, 0 or 1."""
    return apply(Sign(), x)


def _apply_rounding(op_: Op, x: Operand) -> Value:
    """Apply a rounding op; integers are whole already."""
    if isinstance(x, Tracer):
        return apply(op_, x)
    (value,) = as_operands(graph_of([x]), [x])
    return value if value.dtype.kind in BITS else apply(op_, value)


@op("floor", traits=ELEMENTWISE | Trait.IDEMPOTENT, onnx="Floor")
class Floor(Unary):
    """The largest whole number that is not above; a zero keeps its sign."""

    def evaluate(self, x: Array) -> Any:
        return np.floor(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (None,)


@function
def floor(x: Operand) -> Value:
    """The largest whole number not above x."""
    return _apply_rounding(Floor(), x)


@op("ceil", traits=ELEMENTWISE | Trait.IDEMPOTENT, onnx="Ceil")
class Ceil(Unary):
    """The smallest whole number that is not below; -0.5 gives -0.0."""

    def evaluate(self, x: Array) -> Any:
        return np.ceil(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (None,)


@function
def ceil(x: Operand) -> Value:
    """The smallest whole number not below x."""
    return _apply_rounding(Ceil(), x)


@op("round", traits=ELEMENTWISE | Trait.IDEMPOTENT, onnx="Round")
class Round(Unary):
    """The nearest whole number; halves go to the even one, and -0.5 gives -0.0."""

    def evaluate(self, x: Array) -> Any:
        return np.rint(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (None,)


@function
def round(x: Operand) -> Value:
    """The nearest whole number, halves to even."""
    return _apply_rounding(Round(), x)


@op("trunc", traits=ELEMENTWISE | Trait.IDEMPOTENT)
class Trunc(Unary):
    """The whole part, towards zero; the sign of a zero result is that of x."""

    def evaluate(self, x: Array) -> Any:
        return np.trunc(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (None,)


@function
def trunc(x: Operand) -> Value:
    """The whole part of x."""
    return _apply_rounding(Trunc(), x)
