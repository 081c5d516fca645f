"""Operations on the bits of integers; bools are taken as one bit.

Shifts are defined for every amount: one that is negative, or as large as the type is wide, moves
every bit out.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from monograph.ir.build import Operand, apply
from monograph.ir.graph import Value
from monograph.ir.op import Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, Kind
from monograph.ops.elementwise.base import (
    BITS,
    COMMUTATIVE,
    ELEMENTWISE,
    INTEGERS,
    Binary,
    Unary,
    binary,
)


class Bitwise(Binary):
    """A binary op on the bits of integers or bools."""

    kinds: ClassVar[frozenset[Kind]] = BITS


@op("bitwise_and", traits=COMMUTATIVE, onnx="BitwiseAnd")
class BitwiseAnd(Bitwise):
    """The bits that both have."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.bitwise_and(a, b)


@function
def bitwise_and(a: Operand, b: Operand) -> Value:
    """The bits that both have."""
    return binary(BitwiseAnd(), a, b)


@op("bitwise_or", traits=COMMUTATIVE, onnx="BitwiseOr")
class BitwiseOr(Bitwise):
    """The bits that either has."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.bitwise_or(a, b)


@function
def bitwise_or(a: Operand, b: Operand) -> Value:
    """The bits that either has."""
    return binary(BitwiseOr(), a, b)


@op("bitwise_xor", traits=COMMUTATIVE, onnx="BitwiseXor")
class BitwiseXor(Bitwise):
    """The bits that just one has."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return np.bitwise_xor(a, b)


@function
def bitwise_xor(a: Operand, b: Operand) -> Value:
    """The bits that just one has."""
    return binary(BitwiseXor(), a, b)


@op("bitwise_not", traits=ELEMENTWISE | Trait.INVOLUTION, onnx="BitwiseNot")
class BitwiseNot(Unary):
    """Every bit the other way; for bool, logical not."""

    kinds: ClassVar[frozenset[Kind]] = BITS

    def evaluate(self, x: Array) -> Any:
        return np.invert(x)


@function
def bitwise_not(x: Operand) -> Value:
    """Every bit the other way."""
    return apply(BitwiseNot(), x)


@op("shift_left", traits=ELEMENTWISE)
class ShiftLeft(Binary):
    """a moved b bits towards the high end; 0 if b is negative or as large as the width."""

    kinds: ClassVar[frozenset[Kind]] = INTEGERS

    def evaluate(self, a: Array, b: Array) -> Any:
        inside = _within_width(b)
        return np.where(inside, np.left_shift(a, np.where(inside, b, 0)), 0)


@function
def shift_left(a: Operand, b: Operand) -> Value:
    """a << b."""
    return binary(ShiftLeft(), a, b)


@op("shift_right", traits=ELEMENTWISE)
class ShiftRight(Binary):
    """a moved b bits towards the low end, filled with the sign (signed) or 0 (unsigned).

    If b is negative or as large as the width, only the filling is left: 0 or -1.
    """

    kinds: ClassVar[frozenset[Kind]] = INTEGERS

    def evaluate(self, a: Array, b: Array) -> Any:
        inside = _within_width(b)
        shifted = np.right_shift(a, np.where(inside, b, 0))
        return np.where(inside, shifted, np.where(a < 0, -1, 0).astype(a.dtype))


@function
def shift_right(a: Operand, b: Operand) -> Value:
    """a >> b."""
    return binary(ShiftRight(), a, b)


def _within_width(amount: Array) -> Array:
    return np.asarray((amount >= 0) & (amount < amount.dtype.itemsize * 8))
