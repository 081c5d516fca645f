"""Ops that only programs from torch need: a size that is read from data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import Dim, Symbol
from monograph.ir.graph import Value
from monograph.ir.op import Family, Op, Sample, Trait, op
from monograph.ir.types import Array, TensorType, i64
from monograph.ops.rules import require
from monograph.ops.shape import reshape


@op("bind_dim", family=Family.SHAPE, traits=Trait.EFFECT)
class BindDim(Op):
    """Let a symbol stand for the number that a scalar holds: ``n = count.item()``.

    The result has no elements; its first dimension is the symbol, which is how running the op
    settles the symbol's value for every op after it.
    """

    size: Dim

    def infer(self, count: TensorType) -> TensorType:
        require(
            count.dtype is i64 and count.rank == 0,
            "bind_dim: a size is one integer",
            expected="i64[]",
            found=count,
        )
        return count.with_shape((self.size, 0))

    def evaluate(self, count: Array) -> Array:
        if int(count) < 0:
            raise EvaluationError("a size read from data is negative", found=str(int(count)))
        return np.empty((int(count), 0), np.int64)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(Symbol("n", 0)), (np.array(3),), "", False)


def bind_dim(count: Value, symbol: Symbol) -> None:
    """Add a ``bind_dim`` for a tensor of one integer."""
    apply(BindDim(symbol), reshape(cast_to(count, i64), ()))
