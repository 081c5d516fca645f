"""Rounds of k and blocks of rows and panels, of known sizes and of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monograph.ir.dims import Dim, Symbol, evaluate_dim
from monograph.targets.cpu.products.blocks import (
    MAX_SUM_BYTES,
    Blocks,
    blocks_of,
    clip_axis,
    with_bounded_sums,
)
from monograph.targets.cpu.products.tiles import Reading, Tiling

TILES = Symbol("tiles", 1, None)
PLAIN = Tiling((), 6, 16, 256, 21, 8, Reading.TILES, Reading.PACKED)
OPEN = Tiling((), 6, 16, 256, 21, 8, Reading.TILES, Reading.PACKED, whole=42)


def known(dim: Dim, tiles: int) -> int:
    return dim if isinstance(dim, int) else evaluate_dim(dim, {TILES: tiles})


def test_blocks_of_a_known_number_are_as_the_tiling_says() -> None:
    assert blocks_of(PLAIN, 64) == Blocks(4, 21, 8)


@pytest.mark.parametrize("tiles", [1, 22, 42])
def test_few_tiles_are_one_block_of_single_panels(tiles: int) -> None:
    found = blocks_of(OPEN, TILES)
    assert [known(each, tiles) for each in (found.count, found.tiles, found.panels)] == [
        *(1, tiles, 1)
    ]


@pytest.mark.parametrize("tiles", [43, 64, 171])
def test_many_tiles_are_blocks_of_about_the_same_size(tiles: int) -> None:
    found = blocks_of(OPEN, TILES)
    count, size, panels = (known(each, tiles) for each in (found.count, found.tiles, found.panels))
    assert count == -(-tiles // 21)
    assert size == -(-tiles // count) <= 21
    assert panels == 8


def test_the_last_block_may_be_smaller() -> None:
    block = Symbol("block", 0, None)
    axis = clip_axis("tile", 50, block * 21, 21, 21)
    assert not isinstance(axis.extent, int)
    assert [evaluate_dim(axis.extent, {block: number}) for number in range(3)] == [21, 21, 8]


@pytest.mark.parametrize("tiles", [1, 21, 1 << 18])
@pytest.mark.parametrize("panels", [1, 8, 1 << 12])
def test_the_sums_of_a_block_fit_the_stack(tiles: int, panels: int) -> None:
    asked = replace(PLAIN, block_tiles=tiles, block_panels=panels)
    found = with_bounded_sums(asked, 4)
    size = found.block_tiles * found.block_panels * PLAIN.height * PLAIN.columns * 4
    assert 0 < size <= MAX_SUM_BYTES
    fits = tiles * panels * PLAIN.height * PLAIN.columns * 4 <= MAX_SUM_BYTES
    assert (found == asked) == fits
    whole = replace(asked, depth=0)
    assert with_bounded_sums(whole, 4) is whole
