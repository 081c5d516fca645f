"""A loop is cut at the places where its formula changes, and each piece has plain positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.dims import Symbol
from monograph.ir.types import bool_
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Index
from monograph.targets.cpu.loops.borders import on_piece, pieces
from monograph.targets.cpu.nests.verify import verify_nest
from tests.targets.cpu.stepping import kernel_of


def compared(function: str, left: Any, right: Any) -> e.Expr:
    return e.apply(function, e.index(left), e.index(right), dtype=bool_)


@pytest.mark.parametrize("function", ["less", "less_equal", "greater", "greater_equal"])
@pytest.mark.parametrize("step", [1, -1, 2, -3])
def test_each_piece_knows_what_holds_in_it(function: str, step: int) -> None:
    axis = e.axis("_i0", 10)
    condition = compared(function, 2 + step * axis.symbol, 2 + step * 6)
    first, second = pieces((condition,), axis, {axis.symbol})
    for piece in (first, second):
        assert isinstance(piece.start, int) and isinstance(piece.extent, int)
        inside = Symbol("_j", 0, piece.extent - 1)
        (holds,) = {
            getattr(np, function)(2 + step * at, 2 + step * 6)
            for at in range(piece.start, piece.start + piece.extent)
        }
        found = on_piece(condition, axis, inside, piece)
        assert found is e.literal(bool(holds), bool_)


def test_a_remainder_that_starts_over_is_a_border() -> None:
    axis = e.axis("_i0", 10)
    position = e.index((axis.symbol + 7) % 10)
    first, second = pieces((position,), axis, {axis.symbol})
    assert (first.extent, second.extent) == (3, 7)
    inside = Symbol("_j", 0, 6)
    found = on_piece(position, axis, inside, second)
    assert isinstance(found, Index) and found.dim is inside


def test_a_border_that_moves_with_another_loop_is_none() -> None:
    axis, other = e.axis("_i0", 10), e.axis("_i1", 10)
    condition = compared("less", axis.symbol, other.symbol)
    assert len(pieces((condition,), axis, {axis.symbol, other.symbol})) == 1


def test_borders_in_no_known_order_are_left() -> None:
    n, m, size = Symbol("n"), Symbol("m"), Symbol("size")
    axis = Axis(Symbol("_i0", 0, None), n + m + size)
    first, second = compared("less", axis.symbol, n), compared("less", axis.symbol, m)
    assert len(pieces((first, second), axis, {axis.symbol})) == 1
    assert len(pieces((first,), axis, {axis.symbol})) == 2


def test_of_too_many_borders_those_around_the_longest_stretch_are_cut_at() -> None:
    axis = e.axis("_i0", 100)
    conditions = tuple(compared("less", axis.symbol, at) for at in (*range(1, 9), 97, 98))
    moving = {axis.symbol}
    assert len(pieces(conditions, axis, moving)) == 1
    found = pieces(conditions, axis, moving, is_coarse=True)
    assert [(piece.start, piece.extent) for piece in found] == [(0, 8), (8, 89), (97, 3)]
    assert len(found[1].settled) == len(conditions)


def test_a_padded_row_is_read_without_gathering() -> None:
    kernel = kernel_of(lambda x: F.pad(x, [0, 3], [0, 3], value=1.0), "f32[4, 50]")
    assert "gather" not in kernel.text
    assert verify_nest(kernel.nest) > 0


def test_narrow_floats_are_moved_as_they_are() -> None:
    kernel = kernel_of(lambda x, y: F.concat([x, y], 1), "bf16[50, 30]", "bf16[50, 41]")
    assert "cast" not in str(kernel.nest)


@pytest.mark.parametrize("size", [17, 33, 64, 100])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.pad(x, [1, 3], [2, 5]),
        lambda x: F.roll(x, [2, 5], [0, 1]) + x,
        lambda x: F.concat([x, x * 2.0, x[:, 1:]], 1),
        lambda x: F.concat([x, x[1:]], 0),
    ],
    ids=["pad", "roll", "concat", "rows"],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_cut_loops_compute_the_same(function: Any, size: int, symbolic: bool) -> None:
    x = np.random.default_rng(size).normal(size=(6, size)).astype(np.float32)
    graph = monograph.trace(function, "f32[6, n]" if symbolic else f"f32[6, {size}]")
    (expected,) = monograph.interpret(graph, [x])
    (got,) = monograph.compile(graph, cache=False)(x)
    np.testing.assert_array_equal(got, expected)
