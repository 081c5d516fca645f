"""Ops that only programs from torch need: sizes that are read from data, checks of data."""

from __future__ import annotations

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import apply, as_operands, cast_to, graph_of
from monograph.ir.dims import Dim, Symbol, shape_product
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Family, Op, Trait, op
from monograph.ir.types import Array, TensorType, bool_, i64
from monograph.ops.rules import require, result_symbols
from monograph.ops.shape import reshape


@op("torch.bind_dim", family=Family.SHAPE, traits=Trait.EFFECT)
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

    def binds(self) -> tuple[Symbol, ...]:
        return result_symbols(self.size)


@op("torch.check", family=Family.CONTROL, traits=Trait.EFFECT)
class Check(Op):
    """An error with this message unless every element of the condition is true."""

    message: str

    def infer(self, condition: TensorType) -> tuple[TensorType, ...]:
        require(
            condition.dtype is bool_,
            "check: a condition is bool",
            expected="bool",
            found=condition,
        )
        return ()

    def evaluate(self, condition: Array) -> tuple[Array, ...]:
        if not condition.all():
            raise EvaluationError(self.message)
        return ()

    def lower_loops(self, b: LoopBuilder) -> None:
        size = shape_product(b.operands[0].shape)
        with b.parallel((size,)) as (place,):
            b.require(b.reshaped(0, (size,), [place]), self.message)


def check(condition: Value, message: str) -> None:
    """Add a ``torch.check``: an error when the graph runs, unless the condition holds."""
    graph = graph_of([condition])
    graph.create(Check(message), as_operands(graph, [cast_to(condition, bool_)]))


def bind_dim(count: Value, symbol: Symbol) -> None:
    """Add a ``torch.bind_dim`` for a tensor of one integer."""
    apply(BindDim(symbol), reshape(cast_to(count, i64), ()))
