"""Arithmetic: + - * / and their relatives.

Integers wrap around. Division by zero is defined: integers give 0, floats what IEEE 754 says.
Gradients of complex numbers follow PyTorch: the gradient of a real loss points to its steepest
ascent, so that a product passes on the conjugate of the other factor.
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
from monograph.ir.types import Array, DType, Kind
from monograph.ops import math, reduce
from monograph.ops.elementwise.base import (
    COMMUTATIVE,
    CONTINUOUS,
    COUNTED,
    ELEMENTWISE,
    FLOATS,
    NUMBERS,
    REALS,
    Binary,
    Unary,
    binary,
    binary_float,
    in_double,
)
from monograph.ops.elementwise.comparison import equal, logical_and, not_equal
from monograph.ops.elementwise.convert import conj
from monograph.ops.elementwise.rounding import floor, sign
from monograph.ops.elementwise.select import where


@op("add", traits=COMMUTATIVE | Trait.SUBSCRIPT, onnx="Add")
class Add(Binary):
    """a + b; for bool, logical or."""

    kinds: ClassVar[frozenset[Kind]] = COUNTED

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.add(a, b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        return reduce.sum_to(grad, a.shape), reduce.sum_to(grad, b.shape)


@function
def add(a: Operand, b: Operand) -> Value:
    """a + b."""
    return binary(Add(), a, b)


@op("subtract", traits=ELEMENTWISE | Trait.SUBSCRIPT, onnx="Sub")
class Subtract(Binary):
    """a - b."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.subtract(a, b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        return reduce.sum_to(grad, a.shape), reduce.sum_to(negate(grad), b.shape)


@function
def subtract(a: Operand, b: Operand) -> Value:
    """a - b."""
    return binary(Subtract(), a, b)


@op("multiply", traits=COMMUTATIVE | Trait.SUBSCRIPT, onnx="Mul")
class Multiply(Binary):
    """a * b; for bool, logical and."""

    kinds: ClassVar[frozenset[Kind]] = COUNTED

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.multiply(a, b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        return reduce.sum_to(grad * conj(b), a.shape), reduce.sum_to(grad * conj(a), b.shape)


@function
def multiply(a: Operand, b: Operand) -> Value:
    """a * b."""
    return binary(Multiply(), a, b)


@op("divide", traits=ELEMENTWISE)
class Divide(Binary):
    """a / b for floats: IEEE 754 division, so 1 / 0 is infinite and 0 / 0 is NaN."""

    kinds: ClassVar[frozenset[Kind]] = CONTINUOUS

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.divide(a, b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        quotient = grad / conj(b)
        return (
            reduce.sum_to(quotient, a.shape),
            reduce.sum_to(negate(quotient * conj(node.result)), b.shape),
        )


@function
def divide(a: Operand, b: Operand) -> Value:
    """a / b; integers become f32 first."""
    return binary_float(Divide(), a, b)


@op("floor_divide", traits=ELEMENTWISE)
class FloorDivide(Binary):
    """The largest whole number not above the exact a / b.

    For integers, division by zero gives 0 and the smallest number divided by -1 gives itself. For
    floats it is Python's ``//``: worked out from ``fmod``, because a rounded a / b may already have
    reached the next whole number; an infinite ``a`` gives NaN, and ``a // 0`` is ``a / 0``.
    """

    kinds: ClassVar[frozenset[Kind]] = REALS

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.floor_divide(a, b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return None, None

    def decompose(self, a: Value, b: Value) -> Value:
        rest = fmod(a, b)
        off = _signs_differ(rest, b)
        if a.dtype.is_integer:
            quotient = truncate_divide(a, b)
            return where(off, quotient - 1, quotient)
        ratio = a / b
        quotient = (a - rest) / b
        quotient = where(off, quotient - 1.0, quotient)
        whole = floor(quotient)
        nearest = where(quotient - whole > 0.5, whole + 1.0, whole)
        signed = where(equal(quotient, 0.0), copysign(0.0, ratio), nearest)
        return where(equal(b, 0.0), ratio, signed)


def _signs_differ(rest: Value, b: Value) -> Value:
    """Where a remainder that is not 0 has another sign than the divisor."""
    return logical_and(not_equal(rest, 0), not_equal(rest < 0, b < 0))


@function
def floor_divide(a: Operand, b: Operand) -> Value:
    """floor(a / b), in the dtype of the operands."""
    return binary(FloorDivide(), a, b)


@op("truncate_divide", traits=ELEMENTWISE)
class TruncateDivide(Binary):
    """a / b rounded towards zero.

    For integers, division by zero gives 0 and the smallest number divided by -1 gives itself.
    """

    kinds: ClassVar[frozenset[Kind]] = REALS

    def evaluate(self, a: Array, b: Array) -> Any:
        if a.dtype.kind == "f":
            return np.trunc(np.divide(a, b))
        floored = np.floor_divide(a, b)
        inexact = (np.fmod(a, b) != 0) & ((a < 0) != (b < 0))
        return floored + inexact.astype(a.dtype)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return None, None


@function
def truncate_divide(a: Operand, b: Operand) -> Value:
    """trunc(a / b), in the dtype of the operands."""
    return binary(TruncateDivide(), a, b)


@op("remainder", traits=ELEMENTWISE)
class Remainder(Binary):
    """What ``floor_divide`` leaves: a - floor(a / b) * b, with the sign of the divisor.

    An integer's remainder by zero is 0; a float's is NaN. A zero result has the sign of ``b``.
    """

    kinds: ClassVar[frozenset[Kind]] = REALS

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.remainder(a, b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        return (
            reduce.sum_to(grad, a.shape),
            reduce.sum_to(negate(grad * floor_divide(a, b)), b.shape),
        )

    def decompose(self, a: Value, b: Value) -> Value:
        rest = fmod(a, b)
        moved = where(_signs_differ(rest, b), rest + b, rest)
        if a.dtype.is_integer:
            return moved
        return where(equal(rest, 0.0), copysign(0.0, b), moved)


@function
def remainder(a: Operand, b: Operand) -> Value:
    """a modulo b, with the sign of b (Python's ``%``)."""
    return binary(Remainder(), a, b)


@op("fmod", traits=ELEMENTWISE)
class Fmod(Binary):
    """What ``truncate_divide`` leaves: a - trunc(a / b) * b, exact, with the sign of the dividend.

    An integer's remainder by zero is 0; a float's is NaN.
    """

    kinds: ClassVar[frozenset[Kind]] = REALS

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.fmod(a, b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        return (
            reduce.sum_to(grad, a.shape),
            reduce.sum_to(negate(grad * truncate_divide(a, b)), b.shape),
        )


@function
def fmod(a: Operand, b: Operand) -> Value:
    """a modulo b, with the sign of a (C's ``%`` and ``fmod``)."""
    return binary(Fmod(), a, b)


@op("power", traits=ELEMENTWISE | Trait.TRANSCENDENTAL)
class Power(Binary):
    """a ** b.

    Floats follow C99 (anything ** 0 is 1, 1 ** anything is 1, a negative base with a fractional
    exponent is NaN). Integers wrap; a negative exponent gives the truncated 1 / a**-b: 0 unless
    ``a`` is 1 or -1, and 0 for ``a`` = 0 too.
    """

    def evaluate(self, a: Array, b: Array) -> Any:
        if a.dtype.kind in "iu":
            return _integer_power(a, b)
        return in_double(_float_power, a, b)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        base, exponent = b.broadcast(0, index), b.broadcast(1, index)
        dtype = b.results[0].dtype
        if not dtype.is_integer:
            return b.apply("power", base, exponent)
        return _lower_integer_power(b, base, exponent, base.dtype)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        slope = where(equal(b, 0), 0.0, b * power(a, where(equal(b, 0), 1.0, b - 1.0)))
        # The exponent's gradient, a**b log a, exists for positive bases alone; elsewhere it is 0.
        exists = not_equal(a, 0) if a.dtype.is_complex else a > 0
        rate = where(exists, node.result * math.log(where(exists, a, 1.0)), 0.0)
        return (
            reduce.sum_to(grad * conj(slope), a.shape),
            reduce.sum_to(grad * conj(rate), b.shape),
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from super().samples()
        bases = np.array([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0], np.float32)
        exponents = np.array([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0], np.float32)
        yield Sample(cls(), (bases[:, None], exponents), "whole and half exponents", False)
        whole = np.array([-3, -2, -1, 0, 1, 2, 3, 40], np.int64)
        yield Sample(cls(), (whole[:, None], whole), "i64", False)
        zeros = np.zeros(6, np.complex64)
        powers = np.array([-1, -1 + 1j, 1j, 0, 1 + 1j, 2], np.complex64)
        yield Sample(cls(), (zeros, powers), "of complex zero", False)


def _float_power(a: Array, b: Array) -> Array:
    """IEEE's power: for a single exponent of 0.5 NumPy takes the root, also of -inf and -0."""
    result = np.power(a, b)
    special = (b == 0.5) & ((a == 0) | (a == -np.inf))
    return np.where(special, np.abs(a), result) if np.any(special) else np.asarray(result)


def _integer_power(base: Array, exponent: Array) -> Array:
    """Repeated squaring, modulo 2**bits; a negative exponent truncates 1 / base**-exponent."""
    base, exponent = np.broadcast_arrays(base, exponent)
    result, square = np.ones_like(base), base.copy()
    left = np.where(exponent < 0, np.zeros_like(exponent), exponent)
    while left.any():
        result = np.where(left & 1 == 1, result * square, result)
        square = square * square
        left = left >> 1
    odd = exponent & 1 == 1
    unit = np.where(base == 1, 1, np.where(base == -1, np.where(odd, -1, 1), 0))
    return np.where(exponent < 0, unit.astype(base.dtype), result)


def _lower_integer_power(b: Lowering, base: Scalar, exponent: Scalar, dtype: DType) -> Scalar:
    """Repeated squaring, one step for each bit of the exponent."""
    zero, one = b.literal(0, dtype), b.literal(1, dtype)
    is_odd = b.apply("equal", b.apply("bitwise_and", exponent, one), one)
    power, square, left = one, base, exponent
    for _ in range(dtype.bits):
        is_set = b.apply("equal", b.apply("bitwise_and", left, one), one)
        power = b.select(is_set, b.apply("multiply", power, square), power)
        square = b.apply("multiply", square, square)
        left = b.apply("shift_right", left, one)
    if dtype.kind is not Kind.SIGNED:
        return power
    minus = b.literal(-1, dtype)
    of_minus = b.select(is_odd, minus, one)
    unit = b.select(b.apply("equal", base, minus), of_minus, zero)
    unit = b.select(b.apply("equal", base, one), one, unit)
    return b.select(b.apply("less", exponent, zero), unit, power)


@function
def power(a: Operand, b: Operand) -> Value:
    """a ** b."""
    return binary(Power(), a, b)


@op("atan2", traits=ELEMENTWISE | Trait.TRANSCENDENTAL)
class Atan2(Binary):
    """The angle of the point (x = b, y = a), in [-π, π]; the signs of zeros count."""

    kinds: ClassVar[frozenset[Kind]] = FLOATS

    def evaluate(self, a: Array, b: Array) -> Any:
        return in_double(np.arctan2, a, b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        scaled = grad / (a * a + b * b)
        return reduce.sum_to(scaled * b, a.shape), reduce.sum_to(negate(scaled * a), b.shape)


@function
def atan2(a: Operand, b: Operand) -> Value:
    """atan(a / b) in the right quadrant."""
    return binary_float(Atan2(), a, b)


@op("copysign", traits=ELEMENTWISE)
class Copysign(Binary):
    """The magnitude of a with the sign of b; the signs of zeros and NaNs count."""

    kinds: ClassVar[frozenset[Kind]] = FLOATS

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.copysign(a, b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        return reduce.sum_to(grad * sign(a) * copysign(1.0, b), a.shape), None


@function
def copysign(a: Operand, b: Operand) -> Value:
    """The magnitude of a with the sign of b."""
    return binary_float(Copysign(), a, b)


@op("negate", traits=ELEMENTWISE | Trait.INVOLUTION, onnx="Neg")
class Negate(Unary):
    """-x; the smallest integer stays itself, and unsigned ones wrap."""

    kinds: ClassVar[frozenset[Kind]] = NUMBERS

    def evaluate(self, x: Array) -> Any:
        return np.negative(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (negate(grad),)


@function
def negate(x: Operand) -> Value:
    """-x."""
    return apply(Negate(), x)
