"""Whether some or all elements are true, and how many. None of these has a gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.graph import Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, bool_
from monograph.ops.reduce.arithmetic import sum
from monograph.ops.reduce.base import Reduction, as_axes, lower_reduction, one_value
from monograph.ops.rules import require


class Quantifier(Reduction):
    """A reduction of truth values."""

    def infer(self, x: TensorType) -> TensorType:
        """bool without the reduced axes."""
        require(
            x.dtype is bool_,
            f"{self.name}: truth values are needed",
            expected="a bool operand",
            found=x,
        )
        return super().infer(x)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """Along the axes, one after the other."""
        return lower_reduction(b, self.name, self.axes, self.keepdims, index)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Mixed, empty and 0-d operands."""
        x = np.array([[True, False, True], [False, False, False], [True, True, True]])
        yield Sample(cls((1,)), (x,))
        yield Sample(cls((0, 1), True), (x[::2],), "both axes kept, strided")
        yield Sample(cls(()), (np.array(True),), "scalar")
        yield Sample(cls((0,)), (np.zeros((0, 2), np.bool_),), "empty")


@op("any", traits=Trait.REDUCTION)
class Any(Quantifier):
    """Whether some element along axes is true; false for none."""

    def evaluate(self, x: Array) -> Array:
        return np.asarray(np.any(x, axis=self.axes, keepdims=self.keepdims))


@function
def any(x: Operand, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
    """Whether some element along ``axis`` is true (not zero)."""
    value = cast_to(one_value(x), bool_)
    return apply(Any(as_axes("any", axis, value.rank), keepdims), value)


@op("all", traits=Trait.REDUCTION)
class All(Quantifier):
    """Whether every element along axes is true; true for none."""

    def evaluate(self, x: Array) -> Array:
        return np.asarray(np.all(x, axis=self.axes, keepdims=self.keepdims))


@function
def all(x: Operand, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
    """Whether every element along ``axis`` is true (not zero)."""
    value = cast_to(one_value(x), bool_)
    return apply(All(as_axes("all", axis, value.rank), keepdims), value)


@function
def count_nonzero(
    x: Operand, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> Value:
    """How many elements along ``axis`` are not zero, as ``i64``."""
    return sum(cast_to(one_value(x), bool_), axis, keepdims)
