"""The pipelines lose nothing that the program needs: a size that only the data decides stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import monograph.functional as F
from monograph.frontends.trace import trace
from monograph.ir.build import apply
from monograph.ir.dims import Symbol
from monograph.ir.graph import Value
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, UnrankedType, dtype_of
from monograph.ir.verify import verify
from monograph.ops.sequence import ConcatFromSequence, Declare, SequenceConstruct
from monograph.passes.manager import run_pipeline
from monograph.passes.pipeline import LEVELS, pipeline_for

NUMBERS = np.array([3, 0, 1, 1, 0, 3, 2], np.int32)


def suppressed(x: Value) -> Value:
    corners = F.expand(F.cast(F.iota((1, 7, 4), 2), "f32"), (1, 7, 4))
    scores = F.reshape(F.cast(x, "f32"), (1, 1, 7))
    return F.non_max_suppression(corners, scores, 2, np.float32(0.5), np.float32(0.0))


def joined(x: Value) -> Value:
    return apply(ConcatFromSequence(0, Symbol("joined")), apply(SequenceConstruct(), x, x))


def declared(x: Value) -> Value:
    forgotten = apply(Declare(UnrankedType(x.dtype)), x)
    return apply(Declare(TensorType(x.dtype, (Symbol("said"),))), forgotten)


MAKERS: dict[str, Callable[[Value], Value]] = {
    "nonzero": lambda x: F.nonzero(x),
    "unique": lambda x: F.unique(x)[0],
    "unique_counts": lambda x: F.unique(x)[3],
    "unique_consecutive": lambda x: F.unique_consecutive(x)[0],
    "bincount": lambda x: F.bincount(x),
    "non_max_suppression": suppressed,
    "concat_from_sequence": joined,
    "declare": declared,
}
"""Tensors whose sizes are known once they are computed."""

READERS: dict[str, Callable[[Value], Value]] = {
    "times_zero": lambda v: v * 0,
    "and_false": lambda v: F.logical_and(F.equal(v, 1), F.zeros_like(v, "bool")),
    "zeros": lambda v: F.zeros_like(v) + 1,
    "where": lambda v: F.where(F.ones_like(v, "bool"), F.full_like(v, 2), v),
    "expand": lambda v: F.expand(F.zeros((1,)), (v.shape[0],)),
    "iota": lambda v: F.iota((v.shape[0],)),
    "dim": lambda v: F.dim(v.shape[0] * 2),
    "reduced": lambda v: F.sum(F.ones_like(v)),
    "concat": lambda v: F.concat([F.zeros_like(v), F.ones_like(v)], 0),
    "clip": lambda v: F.minimum(F.maximum(v, 4), 4),
}
"""What needs the sizes of a tensor and none of its elements."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_size_outlives_the_reading_of_what_has_it(maker: str, level: str) -> None:
    def work(x: Value) -> list[Value]:
        return [reader(MAKERS[maker](x)) for reader in READERS.values()]

    graph = trace(work, NUMBERS)
    expected = interpret(graph, [NUMBERS])
    run_pipeline(graph, pipeline_for(level))
    verify(graph)
    for name, got, wanted in zip(READERS, interpret(graph, [NUMBERS]), expected, strict=True):
        np.testing.assert_array_equal(got, wanted, name)


def test_a_tensor_whose_size_nobody_asks_for_is_removed() -> None:
    def work(x: Value) -> Value:
        for maker in MAKERS.values():
            maker(x)
        return x + 1

    graph = trace(work, NUMBERS)
    run_pipeline(graph, pipeline_for("O1"))
    assert [node.op.name for node in graph.nodes] == ["constant", "add"]


def test_a_branch_that_is_dead_goes_although_its_size_is_an_inputs() -> None:
    def work(x: Value) -> Value:
        F.cond(F.any(F.equal(x, 1)), lambda: F.iota(x.shape), lambda: F.zeros(x.shape, "i64"))
        return F.iota(x.shape)

    graph = trace(work, TensorType(dtype_of("i32"), (Symbol("n"),)))
    run_pipeline(graph, pipeline_for("O1"))
    assert [node.op.name for node in graph.nodes] == ["iota"]
