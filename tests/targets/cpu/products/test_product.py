"""The loops of a matrix product: in bounds, without races, and right for every way of cutting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.dims import Symbol
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, f32
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction, as_contraction
from monograph.kernel.expr import Axis
from monograph.targets.cpu.costs import GENERIC
from monograph.targets.cpu.nests.verify import verify_nest
from monograph.targets.cpu.products.blocks import depth_loops, round_size
from monograph.targets.cpu.products.packing import (
    can_store_tiles,
    panels_of,
    rows_of,
    tiles_of,
    tiles_read,
)
from monograph.targets.cpu.products.product import product_nest
from monograph.targets.cpu.products.tiles import PanelPrefetch, Reading, Segment, Tiling
from tests.kernel.build import flat
from tests.kernel.test_contraction import windows

PLAIN = Tiling((Segment(0, 4, 3),), 4, 8, 0, 2, 2, Reading.IN_PLACE, Reading.BLOCK)


def contraction(function: Any, *types: str) -> Contraction:
    found = as_contraction(flat(function, *types))
    assert found is not None
    return found


@pytest.mark.parametrize("left", [Reading.IN_PLACE, Reading.PACKED])
@pytest.mark.parametrize("right", [Reading.IN_PLACE, Reading.PACKED, Reading.BLOCK])
@pytest.mark.parametrize("depth", [0, 5])
def test_every_reading_stays_in_bounds(left: Reading, right: Reading, depth: int) -> None:
    found = contraction(lambda x, w: x @ w, "f32[14, 13]", "f32[13, 21]")
    segments = (Segment(0, 4, 3), Segment(12, 2, 1))
    tiling = replace(PLAIN, rows=segments, left=left, right=right, depth=depth)
    rows = rows_of(found).outputs[0] if left is Reading.PACKED else None
    panels = panels_of(found, 8).outputs[0] if right is Reading.PACKED else None
    nest = product_nest(found, tiling, rows, panels, GENERIC.product)
    assert verify_nest(nest) > 14 * 13 * 21


@pytest.mark.parametrize("right", [Reading.PACKED, Reading.BLOCK])
@pytest.mark.parametrize("depth", [0, 8])
def test_packed_tiles_of_the_left_operand_stay_in_bounds(right: Reading, depth: int) -> None:
    found = contraction(lambda x, w: x @ w, "f32[14, 20]", "f32[20, 21]")
    segments = (Segment(0, 4, 3), Segment(12, 2, 1))
    tiling = replace(PLAIN, rows=segments, left=Reading.TILES, right=right, depth=depth)
    tiles = tiles_of(found, 4, round_size(found.k, depth)).outputs[0]
    panels = panels_of(found, 8).outputs[0] if right is Reading.PACKED else None
    nest = product_nest(found, tiling, tiles, panels, GENERIC.product)
    assert verify_nest(nest) > 14 * 20 * 21


@pytest.mark.parametrize("right", [Reading.PACKED, Reading.BLOCK])
@pytest.mark.parametrize("depth", [0, 8])
def test_tiles_of_rows_side_by_side_stay_in_bounds(right: Reading, depth: int) -> None:
    found = contraction(lambda x, w: F.transpose(x, (1, 0)) @ w, "f32[20, 14]", "f32[20, 21]")
    segments = (Segment(0, 4, 3), Segment(12, 2, 1))
    tiling = replace(PLAIN, rows=segments, left=Reading.TILES, right=right, depth=depth)
    tiles = tiles_of(found, 4, round_size(found.k, depth), segments).outputs[0]
    panels = panels_of(found, 8).outputs[0] if right is Reading.PACKED else None
    nest = product_nest(found, tiling, tiles, panels, GENERIC.product)
    assert verify_nest(nest) > 14 * 20 * 21


@pytest.mark.parametrize("depth", [0, 8])
def test_a_result_is_stored_in_tiles_of_the_next_product_in_bounds(depth: int) -> None:
    found = contraction(lambda x, w: x @ w, "f32[14, 20]", "f32[20, 32]")
    following = contraction(lambda x, w: x @ w, "f32[14, 32]", "f32[32, 24]")
    segments = (Segment(0, 4, 3), Segment(12, 2, 1))
    tiles = tiles_read(following, 4, 16, segments)
    assert tiles is not None and can_store_tiles(found, tiles, 8)
    assert not can_store_tiles(found, replace(tiles, steps=24), 8)
    assert tiles.buffer.shape == tiles_of(following, 4, 16, segments).outputs[0].shape
    tiling = replace(PLAIN, rows=segments, depth=depth)
    assert (
        verify_nest(product_nest(found, tiling, None, None, GENERIC.product, tiles)) > 14 * 20 * 32
    )


def test_tiles_ask_for_what_their_epilogue_reads_of_each_row() -> None:
    found = contraction(
        lambda x, w, bias, residual: x @ w + bias + residual,
        *("f32[12, 16]", "f32[16, 32]", "f32[32]", "f32[12, 32]"),
    )
    tiling = replace(PLAIN, right=Reading.PACKED)
    text = str(product_nest(found, tiling, None, panels_of(found, 8).outputs[0], GENERIC.product))
    asked = [line for line in text.splitlines() if "prefetch" in line]
    assert len(asked) == 4  # a line of the residual for each row, none of the bias
    assert all("b3[" in line for line in asked)


def test_tiles_ask_for_the_next_panel_together() -> None:
    found = contraction(lambda x, w: x @ w, "f32[12, 16]", "f32[16, 32]")
    tiling = replace(
        PLAIN, right=Reading.PACKED, block_tiles=3, depth=8, prefetch=PanelPrefetch.TILES
    )
    text = str(product_nest(found, tiling, None, panels_of(found, 8).outputs[0], GENERIC.product))
    assert text.count("(far)") == 1
    before = text[: text.index("(far)")].splitlines()[-2]
    assert "for r_several < 4" in before  # of three tiles each asks for three of eight steps


def test_steps_that_are_left_over_ask_for_nothing() -> None:
    found = contraction(lambda x, w: x @ w, "f32[12, 21]", "f32[21, 32]")
    tiling = replace(
        PLAIN, right=Reading.PACKED, block_tiles=3, depth=0, prefetch=PanelPrefetch.TILES
    )
    nest = product_nest(found, tiling, None, panels_of(found, 8).outputs[0], GENERIC.product)
    assert verify_nest(nest) > 0
    assert "for r_several < 10" in str(nest)
    assert "for r0_0 from 20 < 1" in str(nest)


def test_few_tiles_ask_for_the_next_panel_with_every_step() -> None:
    found = contraction(lambda x, w: x @ w, "f32[4, 16]", "f32[16, 32]")
    tiling = replace(
        PLAIN, rows=(Segment(0, 4, 1),), right=Reading.PACKED, prefetch=PanelPrefetch.STEPS
    )
    text = str(product_nest(found, tiling, None, panels_of(found, 8).outputs[0], GENERIC.product))
    asked = [line.strip() for line in text.splitlines() if "(far)" in line]
    assert asked[0] == "prefetch right[i_lane+128*i_panel+256*_p+32*r_several+128]  (far)"
    assert len(asked) == 4  # steps in a round


def test_several_axes_of_k_are_several_loops() -> None:
    found = windows()
    tiling = replace(PLAIN, rows=(Segment(0, 4, 16),), right=Reading.PACKED, depth=12)
    nest = product_nest(found, tiling, None, panels_of(found, 8).outputs[0], GENERIC.product)
    assert verify_nest(nest) > 0
    assert "for r2 < 3" in str(nest)


@pytest.mark.parametrize(
    ("extents", "depth", "outer", "inner"),
    [
        ((768,), 256, [3], [256]),
        ((700,), 256, [3], [240]),
        ((3, 3, 64), 256, [3], [3, 64]),
        ((3, 3, 512), 256, [3, 3, 2], [256]),
        ((3, 3, 4), 256, [], [3, 3, 4]),
        ((100,), 0, [], [100]),
    ],
)
def test_k_is_cut_into_rounds_of_like_size(
    extents: tuple[int, ...], depth: int, outer: list[int], inner: list[int]
) -> None:
    axes = tuple(e.axis(f"_r{k}", extent) for k, extent in enumerate(extents))
    outside, inside, _ = depth_loops(axes, depth)
    assert [axis.extent for axis in outside] == outer
    bounds = [a.extent if isinstance(a.extent, int) else a.extent.bounds()[1] for a in inside]
    assert bounds == inner


def test_an_unknown_depth_is_cut_too() -> None:
    size = Symbol("k")
    outside, inside, places = depth_loops((Axis(Symbol("_r0", 0), size),), 256)
    assert [str(axis.extent) for axis in outside] == ["(k+255)//256"]
    assert [axis.symbol.upper for axis in inside] == [255]
    assert list(map(str, places.values())) == ["256*_r0b+_r0i"]


def test_a_tiling_says_how_it_cuts() -> None:
    assert str(PLAIN) == (
        "tile(3·4 rows, 8 columns) block(8 rows, 16 columns, all of k) "
        "left(in place) right(packed by block)"
    )


def test_a_product_may_have_fewer_rows_than_a_tile_where_its_size_is_guessed() -> None:
    """Sizes stand for the ends of their ranges: windows as large as the image leave five rows."""
    height, width, side = (Symbol(name, 2, 4096) for name in ("h", "w", "k"))
    image = TensorType(f32, (5, 5, height, width))
    weight = TensorType(f32, (side, 5, side, side))
    graph = monograph.trace(lambda x, w: F.conv(x, w, stride=3), image, weight)
    generator = np.random.default_rng(0)
    inputs = [generator.normal(size=s).astype(np.float32) for s in ((5, 5, 9, 8), (3, 5, 3, 3))]
    (found,) = compile_graph(graph, Options(cache=False)).run(inputs)
    np.testing.assert_allclose(found, interpret(graph, inputs)[0], rtol=1e-4, atol=1e-4)
