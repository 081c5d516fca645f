"""Loops over lanes that are no power of two: each part is done, side by side with the others."""

from __future__ import annotations

import pytest

from monograph.ir.dims import Symbol
from monograph.ir.types import f32
from monograph.kernel import expr as e
from monograph.kernel.contraction import as_contraction
from monograph.kernel.expr import Buffer
from monograph.targets.cpu.costs import GENERIC
from monograph.targets.cpu.loops.vector_parts import in_vector_parts
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    Loop,
    LoopKind,
    LoopNest,
    Prefetch,
    Statement,
    Write,
)
from monograph.targets.cpu.nests.verify import verify_nest
from monograph.targets.cpu.products.packing import panels_of
from monograph.targets.cpu.products.product import product_nest
from monograph.targets.cpu.products.tiles import Reading, Segment, Tiling
from tests.kernel.build import flat

LANE, STEP = Symbol("_i_lane", 0, 23), Symbol("_r_k", 0, 4)
RIGHT, OUT = Buffer("right", f32, (120,)), Buffer("out", f32, (24,))


def summed(width: int) -> Loop:
    """Sum the rows of a matrix, a lane for each column."""
    total = e.variable("s", f32)
    element = e.load(RIGHT, (e.index(STEP * 24 + LANE),))
    body: tuple[Statement, ...] = (
        Prefetch(RIGHT, e.index(LANE)),
        Accumulator(total, "sum"),
        Loop(STEP, 0, 5, (Combine(total, "sum", element, e.index(0)),)),
        Write(OUT, e.index(LANE), total),
    )
    return Loop(LANE, 0, width, body, LoopKind.VECTOR, width)


def nest(loop: Loop) -> LoopNest:
    parallel = Symbol("_p", 0, 0)
    return LoopNest("sum", (RIGHT,), (OUT,), (), (), parallel, 1, 1, (loop,))


def test_each_part_has_its_own_sums_in_one_loop_over_k() -> None:
    loop = in_vector_parts(summed(24))
    assert (loop.width, loop.extent) == (8, 8)
    kinds = [type(each).__name__ for each in loop.body]
    assert kinds == [*["Prefetch"] * 2, *["Accumulator"] * 3, "Loop", *["Write"] * 3]
    inner = next(each for each in loop.body if isinstance(each, Loop))
    assert len(inner.body) == 3
    assert verify_nest(nest(loop)) == verify_nest(nest(summed(24)))


@pytest.mark.parametrize("width", [8, 16])
def test_whole_vectors_stay_as_they_are(width: int) -> None:
    loop = summed(width)
    assert in_vector_parts(loop) is loop


@pytest.mark.parametrize("depth", [0, 5])
@pytest.mark.parametrize("right", [Reading.PACKED, Reading.BLOCK, Reading.IN_PLACE])
def test_products_in_three_parts_stay_in_bounds(right: Reading, depth: int) -> None:
    found = as_contraction(flat(lambda x, w: x @ w, "f32[14, 13]", "f32[13, 48]"))
    assert found is not None
    segments = (Segment(0, 4, 3), Segment(12, 2, 1))
    tiling = Tiling(segments, 4, 24, depth, 2, 1, Reading.IN_PLACE, right)
    panels = panels_of(found, 24).outputs[0] if right is Reading.PACKED else None
    assert verify_nest(product_nest(found, tiling, None, panels, GENERIC.product)) > 14 * 13 * 48
