"""Activations made of straight lines: relu and its relatives, hardtanh, hardswish.

All are composites of maximum, minimum and where, kept whole for patterns and library kernels. A NaN
stays a NaN, and at an infinity each has its limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from monograph.ir.build import Operand, apply
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, Kind, TensorType
from monograph.ops import reduce
from monograph.ops.elementwise import (
    ELEMENTWISE,
    FLOATS,
    REALS,
    SPECIAL,
    Binary,
    Clip,
    Unary,
    binary,
    float_facts,
    in_double,
    less_equal,
    logical_and,
    lower_clip,
    maximum,
    minimum,
    unary_float,
    where,
)
from monograph.ops.rules import require


def lift_negative_infinity(x: Value) -> Value:
    """``x`` with -inf replaced by the lowest number, so that times 0 it is -0.0 and not NaN."""
    return maximum(x, -float(float_facts(x.dtype).max))


def lift_negative_infinity_array(x: Array) -> Array:
    """What ``lift_negative_infinity`` computes, in NumPy."""
    return np.asarray(np.maximum(x, np.finfo(x.dtype).min))


@op("relu", traits=ELEMENTWISE | Trait.IDEMPOTENT | Trait.SUBSCRIPT, onnx="Relu")
class Relu(Unary):
    """max(x, 0): a NaN stays one, and -0.0 becomes 0.0. The gradient at 0 is 0."""

    kinds: ClassVar[frozenset[Kind]] = REALS

    def evaluate(self, x: Array) -> Any:
        return np.where(x <= 0, np.zeros((), x.dtype), x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (where(less_equal(node.result, 0.0), 0.0, grad),)

    def decompose(self, x: Value) -> Value:
        return maximum(x, 0)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return lower_clip(b, b.read(0, index), 0.0, None)


@function
def relu(x: Operand) -> Value:
    """max(x, 0)."""
    return apply(Relu(), x)


@op("relu6", traits=ELEMENTWISE | Trait.IDEMPOTENT)
class Relu6(Unary):
    """min(max(x, 0), 6); the gradient at 0 and 6 is 0."""

    def evaluate(self, x: Array) -> Any:
        return Clip(0.0, 6.0).evaluate(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (_between(node.operands[0], 0.0, 6.0, grad),)

    def decompose(self, x: Value) -> Value:
        return minimum(maximum(x, 0.0), 6.0)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return lower_clip(b, b.read(0, index), 0.0, 6.0)


def _between(x: Value, low: float, high: float, grad: Value) -> Value:
    """``grad`` where low < x < high, 0 elsewhere."""
    return where(logical_and(x > low, x < high), grad, 0.0)


@function
def relu6(x: Operand) -> Value:
    """min(max(x, 0), 6)."""
    return unary_float(Relu6(), x)


@op("leaky_relu", traits=ELEMENTWISE)
class LeakyRelu(Unary):
    """x above 0, slope * x below; the gradient at 0 is the slope."""

    slope: float = 0.01

    def evaluate(self, x: Array) -> Any:
        return np.where(x > 0, x, x * self.slope)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (where(node.operands[0] > 0.0, grad, grad * self.slope),)

    def decompose(self, x: Value) -> Value:
        return where(x > 0.0, x, x * self.slope)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from super().samples()
        yield Sample(cls(0.25), (SPECIAL,), "slope 1/4", False)
        yield Sample(cls(2.0), (np.array([-2.0, 3.0], np.float32),), "slope above 1")


@function
def leaky_relu(x: Operand, slope: float = 0.01) -> Value:
    """x above 0, slope * x below."""
    return unary_float(LeakyRelu(float(slope)), x)


@op("prelu", traits=ELEMENTWISE)
class Prelu(Binary):
    """x above 0, slope * x below, with a learnt slope that broadcasts against x."""

    kinds: ClassVar[frozenset[Kind]] = FLOATS

    def infer(self, x: TensorType, slope: TensorType) -> TensorType:
        return super().infer(x, slope)

    def evaluate(self, x: Array, slope: Array) -> Any:
        return np.where(x > 0, x, x * slope)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, slope = node.operands
        return (
            reduce.sum_to(where(x > 0.0, grad, grad * slope), x.shape),
            reduce.sum_to(where(x > 0.0, 0.0, grad * x), slope.shape),
        )

    def decompose(self, x: Value, slope: Value) -> Value:
        return where(x > 0.0, x, x * slope)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from super().samples()
        x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
        yield Sample(cls(), (x, np.array([[0.25], [-0.5], [2.0]], np.float32)), "a slope a channel")


@function
def prelu(x: Operand, slope: Operand) -> Value:
    """x above 0, slope * x below; the slope broadcasts as in NumPy."""
    return binary(Prelu(), x, slope)


@op("hardswish", traits=ELEMENTWISE)
class Hardswish(Unary):
    """x hardsigmoid(x); -0.0 at and below -3."""

    def evaluate(self, x: Array) -> Any:
        return in_double(lambda wide: lift_negative_infinity_array(wide) * hard_logistic(wide), x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        inner = where(x < 3.0, grad * (x / 3.0 + 0.5), grad)
        return (where(less_equal(x, -3.0), 0.0, inner),)

    def decompose(self, x: Value) -> Value:
        return lift_negative_infinity(x) * (relu6(x + 3.0) / 6.0)


@function
def hardswish(x: Operand) -> Value:
    """x hardsigmoid(x)."""
    return unary_float(Hardswish(), x)


@op("hardsigmoid", traits=ELEMENTWISE)
class Hardsigmoid(Unary):
    """relu6(x + 3) / 6; the gradient at ±3 is 0."""

    def evaluate(self, x: Array) -> Any:
        return in_double(hard_logistic, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (_between(node.operands[0], -3.0, 3.0, grad / 6.0),)

    def decompose(self, x: Value) -> Value:
        return relu6(x + 3.0) / 6.0


def hard_logistic(x: Array) -> Array:
    """The hardsigmoid of an array of floats."""
    return np.asarray(np.clip(x + 3, 0, 6) / 6)


@function
def hardsigmoid(x: Operand) -> Value:
    """relu6(x + 3) / 6."""
    return unary_float(Hardsigmoid(), x)


@op("hardtanh", traits=ELEMENTWISE | Trait.IDEMPOTENT)
class Hardtanh(Unary):
    """min(max(x, low), high); the gradient at the bounds is 0."""

    low: float = -1.0
    high: float = 1.0

    def infer(self, x: TensorType) -> TensorType:
        require(
            self.low <= self.high,
            "hardtanh: the bounds are out of order",
            expected="low at most high",
            found=f"{self.low} and {self.high}",
        )
        return super().infer(x)

    def evaluate(self, x: Array) -> Any:
        return Clip(self.low, self.high).evaluate(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (_between(node.operands[0], self.low, self.high, grad),)

    def decompose(self, x: Value) -> Value:
        return minimum(maximum(x, self.low), self.high)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return lower_clip(b, b.read(0, index), self.low, self.high)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from super().samples()
        yield Sample(cls(-0.5, 2.0), (np.array([-2.0, -0.25, 1.0, 3.0], np.float32),), "uneven")


@function
def hardtanh(x: Operand, low: float = -1.0, high: float = 1.0) -> Value:
    """min(max(x, low), high)."""
    return unary_float(Hardtanh(float(low), float(high)), x)
