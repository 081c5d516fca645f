"""Tiles of a number of rows that is known only when it runs, and how a tiling is printed."""

from __future__ import annotations

import itertools

import pytest

from monograph.ir.dims import Dim, Symbol, evaluate_dim
from monograph.targets.cpu.products.tiles import (
    Reading,
    Segment,
    Tiling,
    exact_segments,
    open_segments,
    tile_count,
    tile_start,
)

ROWS = Symbol("rows", 1, None)
SEGMENTS = open_segments(ROWS, 6)


def known(dim: Dim, rows: int) -> int:
    return dim if isinstance(dim, int) else evaluate_dim(dim, {ROWS: rows})


@pytest.mark.parametrize("rows", [31, 36, 37, 128, 197, 1009])
def test_tiles_of_two_heights_cover_the_rows_exactly(rows: int) -> None:
    high, low = SEGMENTS
    counts = known(high.count, rows), known(low.count, rows)
    assert 6 * counts[0] + 5 * counts[1] == rows
    assert known(low.start, rows) == 6 * counts[0]


@pytest.mark.parametrize("rows", [1, 7, 25, 30])
def test_few_rows_have_tiles_of_one_height(rows: int) -> None:
    high, low = (known(each.count, rows) for each in SEGMENTS)
    assert (high, low) == (-(-rows // 6), 0)


@pytest.mark.parametrize("rows", [20, 31, 128])
def test_each_tile_begins_where_the_one_before_ends(rows: int) -> None:
    tiles = range(known(tile_count(SEGMENTS, 6, ROWS), rows))
    starts = [known(tile_start(SEGMENTS, 6, tile), rows) for tile in tiles]
    heights = [after - before for before, after in itertools.pairwise(starts)]
    assert starts[0] == 0
    assert heights == sorted(heights, reverse=True)
    assert set(heights) <= {5, 6}
    assert rows - 6 <= starts[-1] < rows


def test_an_open_tiling_names_its_heights() -> None:
    tiling = Tiling(SEGMENTS, 6, 16, 256, 21, 8, Reading.TILES, Reading.PACKED, whole=42)
    text = str(tiling)
    assert text.startswith("tile(6 and 5 rows, 16 columns)")
    assert "whole(up to 252 rows)" in text


def test_a_known_tiling_counts_its_tiles() -> None:
    segments = (Segment(0, 6, 20), Segment(120, 4, 2))
    tiling = Tiling(segments, 6, 16, 256, 21, 8, Reading.TILES, Reading.PACKED)
    assert str(tiling).startswith("tile(20·6+2·4 rows, 16 columns)")


@pytest.mark.parametrize("rows", range(1, 200, 7))
def test_there_are_never_more_low_tiles_than_rows_in_one(rows: int) -> None:
    _, low = SEGMENTS
    assert known(low.count, rows) <= low.most == 5


def test_rows_that_might_be_fewer_than_none_have_a_bounded_number_of_low_tiles() -> None:
    rows = Symbol("height", 0) * (Symbol("width", 0) - 1)
    _, low = open_segments(rows, 14)
    assert low.most == 13


@pytest.mark.parametrize("height", [1, 2, 6, 8, 9, 14])
def test_exact_tiles_cover_any_number_of_rows_once_in_order(height: int) -> None:
    segments = exact_segments(ROWS, height)
    assert not any(each.overhangs for each in segments)
    for rows in range(1, 3 * height + 2):
        end = 0
        for number, each in enumerate(segments):
            count = known(each.count, rows)
            assert number == 0 or count <= each.most == 1
            assert count == 0 or known(each.start, rows) == end
            end += count * each.rows
        assert end == rows
