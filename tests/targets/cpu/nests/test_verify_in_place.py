"""A nest is written over its input only where it is proved to read each element first, once."""

from __future__ import annotations

import pytest

from monograph.ir.dims import Dim, Symbol, dim_min
from monograph.ir.types import bool_, f32
from monograph.kernel import expr as e
from monograph.kernel.expr import Buffer, index, load
from monograph.targets.cpu.nests.loop_nest import (
    If,
    Let,
    Loop,
    LoopKind,
    LoopNest,
    Statement,
    Write,
)
from monograph.targets.cpu.nests.verify import verify_sampled
from monograph.targets.cpu.nests.verify_in_place import overwrites_in_order

N = Symbol("n")
P, X, K = Symbol("_p", 0), Symbol("i", 0), Symbol("k", 0)
GIVEN, MADE = Buffer("b0", f32, (4096,)), Buffer("o0", f32, (4096,))


def move(to: Dim, source: Dim | None = None) -> Write:
    """The element at a place, or another, is computed at the place."""
    return Write(MADE, index(to), load(GIVEN, (index(to if source is None else source),)))


def vector(symbol: Symbol, extent: Dim, *body: Statement, start: Dim = 0) -> Loop:
    return Loop(symbol, start, extent, body, LoopKind.VECTOR, 16)


def nest(extent: Dim, *body: Statement) -> LoopNest:
    return LoopNest("nest", (GIVEN,), (MADE,), (), (), P, extent, 1, body)


PROVED = {
    "one loop": nest(1, vector(X, 100, move(X))),
    "blocks, the last of them shorter": nest(
        (N + 63) // 64, vector(X, dim_min(N - 64 * P, 64), move(X), start=64 * P)
    ),
    "rows and columns of one variable": nest(
        N * 3, vector(X, 5, move((P % 3) * 5 + (P // 3) * 15 + X))
    ),
    "columns before rows": nest(8, vector(X, N, move(P + 8 * X))),
    "four rows at a time": nest(3, vector(X, 17, *(move(68 * P + 17 * k + X) for k in range(4)))),
    "rows and vectors at a time": nest(
        3, vector(X, 16, *(move(128 * P + 64 * k + 16 * m + X) for k in range(2) for m in range(4)))
    ),
    "rows in two parts": nest(
        5, vector(X, 1, move(17 * P + X)), vector(K, 16, move(17 * P + 1 + K))
    ),
    "a value that is named first": nest(
        9,
        Let(e.variable("v", f32), load(GIVEN, (index(P),))),
        Write(MADE, index(P), e.variable("v", f32)),
    ),
    "under a condition": nest(9, If(e.apply("less", index(P), index(4), dtype=bool_), (move(P),))),
}


@pytest.mark.parametrize("which", PROVED)
def test_elements_that_are_read_first_and_written_once_are_proved(which: str) -> None:
    assert overwrites_in_order(PROVED[which], {"b0"})


REFUSED = {
    "the last row again": nest(
        3, vector(X, 17, *(move(17 * dim_min(P * 2 + k, 4) + X) for k in range(2)))
    ),
    "a lot in the middle again": nest(9, move(P - P // 6)),
    "blocks that overlap": nest(4, vector(X, 65, move(64 * P + X))),
    "a row that another one reads": nest(4, vector(X, 16, move(16 * P + X, X))),
    "the element before": nest(1, vector(X, 16, move(X + 1, X))),
    "what was just written": nest(9, move(P), move(P)),
    "read behind the write": nest(9, move(P), Let(e.variable("v", f32), load(GIVEN, (index(P),)))),
    "parts that meet": nest(5, vector(X, 2, move(17 * P + X)), vector(K, 16, move(17 * P + 1 + K))),
    "a part that goes over its rows twice": nest(
        4, move(16 * P), Loop(X, 0, 4, (move(16 * P + 16 * X + 1),))
    ),
    "rows that overlap": nest(N, vector(X, N + 1, move(N * P + X))),
    "read in a loop around": nest(
        4,
        Let(e.variable("v", f32), load(GIVEN, (index(P),))),
        vector(X, 1, Write(MADE, index(P + X), e.variable("v", f32))),
    ),
    "one of two digits": nest(12, move(P % 3)),
}


@pytest.mark.parametrize("which", REFUSED)
def test_what_may_be_read_late_or_written_twice_is_not_proved(which: str) -> None:
    assert not overwrites_in_order(REFUSED[which], {"b0"})


def test_the_proof_sees_what_samples_miss() -> None:
    verify_sampled(REFUSED["a lot in the middle again"], {}, in_place={"b0": "o0"})
