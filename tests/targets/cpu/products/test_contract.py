"""How matrix products are cut up: tiles that fit registers, and where operands are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.fusion.fuse import fuse
from monograph.fusion.group import GroupKind
from monograph.ir.dims import Symbol
from monograph.ir.types import DTYPES, TensorType
from monograph.kernel.contraction import Contraction, as_contraction
from monograph.program.code import Launch
from monograph.targets.cpu.costs import GENERIC
from monograph.targets.cpu.knobs import edit
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.products.contract import is_in_network
from monograph.targets.cpu.products.product import product_nest
from monograph.targets.cpu.products.readings import Weights
from monograph.targets.cpu.products.tiles import PanelPrefetch, Reading, Segment, Tiling
from monograph.targets.cpu.products.tiling import (
    choose_tiling,
    even_block,
    is_worth_tiling,
    row_segments,
)
from monograph.targets.cpu.tuning import Recorder, Tuning
from tests.kernel.build import flat

MACHINE = machine_named("x86-64")


def contraction(function: Any, *types: str) -> Contraction:
    found = as_contraction(flat(function, *types))
    assert found is not None
    return found


def tiling(rows: object, k: int, columns: int, *, weights: Weights = Weights.RIGHT) -> Tiling:
    found = contraction(lambda x, w: x @ w, f"f32[{rows}, {k}]", f"f32[{k}, {columns}]")
    return choose_tiling(found, MACHINE, weights)[1]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (512, [(0, 6, 84), (504, 4, 2)]),
        (14, [(0, 5, 2), (10, 4, 1)]),
        (49, [(0, 5, 9), (45, 4, 1)]),
        (4, [(0, 4, 1)]),
    ],
)
def test_tiles_cover_the_rows_exactly(rows: int, expected: list[tuple[int, int, int]]) -> None:
    found = row_segments(rows, 6, least=4)
    assert sum(each.rows * each.count for each in found) == rows
    assert [(each.start, each.rows, each.count) for each in found] == expected


def test_three_vectors_a_row_leave_no_lane_empty() -> None:
    found = tiling(3136, 144, 24)
    assert (found.height, found.columns) == (4, 24)
    assert tiling("rows", 144, 72).columns == 24
    assert tiling(3136, 144, 48).columns == tiling(3136, 144, 40).columns == 16


def test_three_vectors_a_row_are_quicker_where_k_is_short() -> None:
    assert tiling(3136, 24, 144).columns == 24
    assert tiling(3136, 256, 144).columns == tiling(12, 24, 144).columns == 16


def test_weights_on_the_left_are_packed_in_tiles_and_shared() -> None:
    few, many = (
        contraction(lambda w, x: w @ x, "f32[384, 96]", f"f32[96, {columns}]")
        for columns in (196, 784)
    )
    _, beside = choose_tiling(few, MACHINE, Weights.LEFT)
    assert (beside.left, beside.right) == (Reading.TILES, Reading.IN_PLACE)
    assert beside.block_panels == 13 and beside.block_tiles * beside.height <= 48
    _, wide = choose_tiling(many, MACHINE, Weights.LEFT)
    assert (wide.left, wide.right) == (Reading.TILES, Reading.BLOCK)
    assert wide.block_panels == 2
    assert choose_tiling(few, MACHINE, Weights.NONE)[1].left is Reading.IN_PLACE


@pytest.mark.parametrize("batch", ["1", "3", "n"])
@pytest.mark.parametrize(
    ("channels", "results", "side", "groups"),
    [(24, 40, 14, 1), (300, 52, 12, 1), (24, 40, 28, 1), (22, 40, 14, 1), (48, 80, 14, 2)],
)
def test_a_product_with_every_pixel_is_right_as_the_image_lies(
    batch: str, channels: int, results: int, side: int, groups: int
) -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((results, channels // groups, 1, 1), np.float32)
    graph = monograph.trace(
        lambda x: F.relu(F.conv(x, w, groups=groups)), f"f32[{batch}, {channels}, {side}, {side}]"
    )
    executable = compile_graph(graph, Options(cache=False))
    assert not any("convert" in built.name for built in executable.program.kernels)
    x = rng.standard_normal((3 if batch == "n" else int(batch), channels, side, side), np.float32)
    (got,), (exact,) = executable.run([x]), monograph.interpret(graph, [x])
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [29, "rows"])
@pytest.mark.parametrize(("k", "columns"), [(40, 24), (600, 72), (16, 96)])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_products_in_tiles_of_three_vectors(rows: object, k: int, columns: int, dtype: str) -> None:
    generator = np.random.default_rng(k)
    numbers = DTYPES[dtype].numpy
    weight = generator.normal(size=(k, columns)).astype(numbers)
    bias = generator.normal(size=columns).astype(numbers)
    x = generator.normal(size=(29, k)).astype(numbers)
    graph = monograph.trace(lambda x: F.relu(x @ weight + bias), f"{dtype}[{rows}, {k}]")
    (got,) = compile_graph(graph, Options(cache=False)).run([x])
    exact = x.astype(np.float64) @ weight.astype(np.float64) + bias.astype(np.float64)
    rounding = {"f32": 1e-6, "f64": 1e-14, "bf16": 2**-7}[dtype]
    assert np.abs(got - np.maximum(exact, 0)).max() <= rounding * np.abs(exact).max()


@pytest.mark.parametrize("tiles", [16, 33, 66, 131, 523])
def test_two_threads_share_the_blocks_of_rows_evenly(tiles: int) -> None:
    size = even_block(tiles, 21)
    blocks = -(-tiles // size)
    assert size <= 21 and blocks >= 4
    assert -(-blocks // 2) * size <= 0.56 * tiles


def test_layers_of_a_network_with_few_weights_are_shared_by_rows() -> None:
    found = contraction(lambda x, w: x @ w, "f32[196, 64]", "f32[64, 384]")
    alone = choose_tiling(found, MACHINE, Weights.RIGHT)[1]
    assert (alone.block_panels, alone.block_tiles) == (1, 32)
    within = choose_tiling(found, MACHINE, Weights.RIGHT, in_network=True)[1]
    assert (within.block_panels, within.block_tiles) == (24, 8)
    many = contraction(lambda x, w: x @ w, "f32[196, 256]", "f32[256, 1024]")
    assert choose_tiling(many, MACHINE, Weights.RIGHT, in_network=True)[1].block_panels == 1


def test_a_convolution_of_what_another_one_wrote_is_in_a_network() -> None:
    weights = [np.full((32, 32, 1, 1), 0.01, np.float32) for _ in range(2)]

    def network(x: Any) -> Any:
        return F.conv(F.relu(F.conv(x, weights[0])), weights[1])

    graph = monograph.trace(network, "f32[1, 32, 16, 16]")
    groups = [x for x in fuse(graph).groups if x.kind is GroupKind.CONTRACTION]
    assert [is_in_network(group) for group in groups] == [False, True]


def test_rows_of_unknown_number_have_tiles_of_two_heights() -> None:
    found = tiling("n", 64, 512)
    assert found.height == 6
    assert [each.rows for each in found.rows] == [6, 5]


def test_rows_of_unknown_number_are_one_block_if_they_turn_out_few() -> None:
    assert tiling("n", 64, 512).whole * 6 == 252
    assert tiling(128, 64, 512).whole == 0


@pytest.mark.parametrize(("k", "columns"), [(40, 72), (600, 40)])
def test_any_number_of_rows_is_right_and_none_is_computed_twice(k: int, columns: int) -> None:
    draw = np.random.default_rng(0)
    weight = draw.standard_normal((k, columns), np.float32)
    program = monograph.compile(lambda x: x @ weight, f"f32[rows, {k}]", variants=0)
    for rows in (*range(1, 18), 33):
        x = draw.standard_normal((rows, k), np.float32)
        np.testing.assert_allclose(program(x), x.astype(np.float64) @ weight, rtol=1e-4, atol=1e-4)


def test_the_state_of_a_loop_is_not_copied_into_tiles() -> None:
    found = contraction(lambda x, w: x @ w, "f32[rows, 512]", "f32[512, 512]")
    outside, inside = (
        choose_tiling(found, MACHINE, Weights.RIGHT, in_loop=in_loop)[1]
        for in_loop in (False, True)
    )
    assert (outside.left, inside.left) == (Reading.TILES, Reading.IN_PLACE)
    assert [each.rows for each in inside.rows] == [6, 4, 2, 1]


@pytest.mark.parametrize(("rows", "columns"), [(1, 64), (2, 32), (3, 32)])
def test_few_rows_have_wide_tiles(rows: int, columns: int) -> None:
    found = tiling(rows, 64, 512)
    assert found.rows == (Segment(0, rows, 1),)
    assert found.columns == columns


@pytest.mark.parametrize(("rows", "columns"), [(6, 16), (7, 8), (10, 8)])
def test_rows_of_a_small_batch_are_one_tile(rows: int, columns: int) -> None:
    found = tiling(rows, 768, 3072)
    assert found.rows == (Segment(0, rows, 1),)
    assert found.columns == columns


def test_tall_tiles_do_not_read_rows_that_lie_on_the_same_lines() -> None:
    assert tiling(8, 768, 768).left is Reading.IN_PLACE
    assert tiling(8, 3072, 768).left is Reading.PACKED
    assert tiling(6, 3072, 768).left is Reading.IN_PLACE


def test_rows_that_fit_the_cache_are_one_block_handed_out_in_portions() -> None:
    found = tiling(197, 768, 768)
    assert (found.block_tiles, found.block_panels) == (found.rows[0].count, 1)
    assert [tiling(rows, 768, 768).grain for rows in (16, 128, 240)] == [3, 2, 1]
    assert tiling(512, 768, 768).block_tiles < 512 // 6


def test_doubles_have_half_the_columns() -> None:
    found = contraction(lambda x, w: x @ w, "f64[512, 64]", "f64[64, 512]")
    assert choose_tiling(found, MACHINE, Weights.RIGHT)[1].columns == 8


def test_rows_are_read_in_place_and_long_columns_are_packed() -> None:
    assert tiling(64, 512, 512).left is Reading.IN_PLACE
    types = ("f32[512, 64]", "f32[512, 512]")
    found = contraction(lambda x, w: F.transpose(x, (1, 0)) @ w, *types)
    assert choose_tiling(found, MACHINE, Weights.RIGHT)[1].left is Reading.TILES
    found = contraction(lambda x, w: F.transpose(x, (1, 0)) @ w, "f32[513, 64]", "f32[513, 512]")
    assert choose_tiling(found, MACHINE, Weights.RIGHT)[1].left is Reading.PACKED


@pytest.mark.parametrize("rows", [24, 97, 128, 131, 300])
@pytest.mark.parametrize("depth", [128, 600])
def test_rows_that_lie_side_by_side_are_right_in_tiles(rows: int, depth: int) -> None:
    graph = monograph.trace(
        lambda x, w: F.transpose(x, (1, 0)) @ w, f"f32[{depth}, {rows}]", f"f32[{depth}, 52]"
    )
    generator = np.random.default_rng(rows)
    x, w = (generator.standard_normal((depth, n)).astype(np.float32) for n in (rows, 52))
    (got,) = compile_graph(graph, Options(cache=False)).run([x, w])
    np.testing.assert_allclose(got, x.astype(np.float64).T @ w, atol=1e-4)


def test_the_last_panel_of_a_block_alone_has_lanes_to_spare() -> None:
    found = contraction(lambda x, w: x @ w, "f32[40, 64]", "f32[64, 500]")
    found, chosen = choose_tiling(found, MACHINE, Weights.NONE)
    text = str(product_nest(found, chosen, None, None, GENERIC.product))
    packing = text[: text.index("i_tile")]
    assert "vector i_lane < 16 by 16" in packing
    assert packing.count("vector") == 2


def test_rows_of_an_unknown_size_read_narrow_floats_in_tiles() -> None:
    found = contraction(lambda x, w: x @ w, "bf16[n, 64]", "bf16[64, 512]")
    assert choose_tiling(found, MACHINE, Weights.RIGHT)[1].left is Reading.TILES


def test_weights_are_packed_beforehand_and_others_by_block() -> None:
    assert tiling(64, 512, 512).right is Reading.PACKED
    assert tiling(64, 512, 512, weights=Weights.NONE).right is Reading.BLOCK
    assert tiling(64, 64, 64, weights=Weights.NONE).right is Reading.IN_PLACE


def test_many_columns_read_rows_that_are_packed_in_tiles() -> None:
    assert tiling(128, 768, 768).left is Reading.TILES
    assert tiling("n", 768, 768).left is Reading.TILES
    assert tiling(128, 768, 64).left is Reading.IN_PLACE
    assert tiling(128, 767, 768).left is Reading.IN_PLACE, "steps of k come in groups of four"


def test_packed_tiles_have_two_heights_as_others_do() -> None:
    assert tiling(128, 768, 768).rows == (Segment(0, 6, 20), Segment(120, 4, 2))


@pytest.mark.parametrize("rows", [97, 128, 131])
def test_rows_packed_in_tiles_of_two_heights_are_right(rows: int) -> None:
    rng = np.random.default_rng(rows)
    x, w = (rng.normal(size=size).astype(np.float32) for size in ((rows, 400), (400, 384)))
    graph = monograph.trace(lambda a: a @ w, f"f32[{rows}, 400]")
    (got,) = compile_graph(graph, Options(cache=False))(x)
    np.testing.assert_allclose(got, x.astype(np.float64) @ w, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(2, PanelPrefetch.NOTHING), (8, PanelPrefetch.STEPS), (64, PanelPrefetch.TILES)],
)
def test_the_more_tiles_read_a_panel_the_less_each_asks_for_the_next(
    rows: int, expected: PanelPrefetch
) -> None:
    assert tiling(rows, 768, 768).prefetch is expected


def test_rows_that_would_share_the_lines_of_the_cache_are_not_read_in_place() -> None:
    assert tiling(96, 96, 96, weights=Weights.NONE).right is Reading.IN_PLACE
    assert tiling(128, 128, 128, weights=Weights.NONE).right is Reading.BLOCK


def test_tiles_have_to_pay() -> None:
    small = contraction(lambda x, w: x @ w, "f32[4, 8]", "f32[8, 16]")
    assert not is_worth_tiling(small, Weights.RIGHT, MACHINE)


LAYOUTS = ("nn", "nt", "tn", "tt")
SIZES = (
    *((37, 29, 43), (130, 520, 70), (7, 1000, 16), (200, 700, 100), (13, 385, 17), (5, 768, 300)),
    *((101, 620, 385), (600, 64, 400)),
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_layout_is_right_to_the_rounding(sizes: tuple[int, int, int], layout: str) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(7)
    x = rng.normal(size=(m, k) if layout[0] == "n" else (k, m)).astype(np.float32)
    w = rng.normal(size=(k, n) if layout[1] == "n" else (n, k)).astype(np.float32)

    def function(x: Any, w: Any) -> Any:
        left = x if layout[0] == "n" else F.transpose(x, (1, 0))
        right = w if layout[1] == "n" else F.transpose(w, (1, 0))
        return F.relu(left @ right * 0.5)

    executable = compile_graph(monograph.trace(function, x, w), Options(cache=False))
    left = (x if layout[0] == "n" else x.T).astype(np.float64)
    right = (w if layout[1] == "n" else w.T).astype(np.float64)
    exact = np.maximum(left @ right * 0.5, 0)
    size = np.abs(left) @ np.abs(right)
    (got,) = executable(x, w)
    assert np.all(np.abs(got - exact) <= 4 * np.finfo(np.float32).eps * size)


def test_a_depth_that_is_unknown_and_never_large_is_one_round() -> None:
    depth = Symbol("s", 1, 200)
    left, right = (TensorType(DTYPES["f32"], (depth, size)) for size in (10, 128))
    graph = monograph.trace(lambda x, w: F.transpose(x) @ w, left, right)
    program = compile_graph(graph, Options(threads=1, cache=False))
    x, w = np.ones((8, 10), np.float32), np.arange(1024, dtype=np.float32).reshape(8, 128)
    np.testing.assert_allclose(program.run([x, w])[0], x.T @ w, rtol=1e-6)


def test_unknown_sizes_of_every_side_are_right() -> None:
    graph = monograph.trace(lambda a, b: a @ b, "f32[n, k]", "f32[k, m]")
    executable = compile_graph(graph, Options(cache=False))
    rng = np.random.default_rng(7)
    for n, k, m in ((1, 3, 1), (3, 40, 17), (30, 600, 50), (64, 256, 64), (513, 257, 33)):
        a, b = rng.normal(size=(n, k)), rng.normal(size=(k, m))
        got = executable(a.astype(np.float32), b.astype(np.float32))[0]
        np.testing.assert_allclose(got, a @ b, rtol=1e-3, atol=1e-3)


def test_packed_tiles_are_right_for_every_number_of_rows_and_matrices() -> None:
    graph = monograph.trace(lambda a, b: a @ b, "f32[2, n, 640]", "f32[2, 640, 400]")
    executable = compile_graph(graph, Options(cache=False))
    assert executable.program is not None
    assert "packed in tiles" in str(executable.program.kernels[-1].schedule)
    rng = np.random.default_rng(7)
    b = rng.normal(size=(2, 640, 400)).astype(np.float32)
    for rows in (1, 6, 131):
        a = rng.normal(size=(2, rows, 640)).astype(np.float32)
        np.testing.assert_allclose(executable(a, b)[0], a @ b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("rows", [1, 4, 40])
def test_narrow_floats_are_summed_in_wide_ones(dtype: str, rows: int) -> None:
    rng = np.random.default_rng(7)
    kind = DTYPES[dtype].numpy
    w = rng.normal(size=(300, 48)).astype(kind)
    x = rng.normal(size=(rows, 300)).astype(kind)
    graph = monograph.trace(lambda x: x @ w, x)
    (got,) = compile_graph(graph, Options(cache=False))(x)
    exact = x.astype(np.float64) @ w.astype(np.float64)
    rounding = 2.0**-11 if dtype == "f16" else 2.0**-8
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=rounding, atol=1e-3)


def test_few_rows_read_narrow_weights_and_many_read_wide_ones() -> None:
    def narrow(rows: int) -> bool:
        types = (f"f16[{rows}, 300]", "f16[300, 48]")
        found = contraction(lambda x, w: x @ w, *types)
        return choose_tiling(found, MACHINE, Weights.RIGHT)[1].narrow

    assert narrow(4)
    assert not narrow(64)


@pytest.mark.parametrize(("left", "right"), [(np.int8, np.int8), (np.uint8, np.int8)])
@pytest.mark.parametrize("rows", [1, 5, 37])
def test_bytes_are_summed_exactly_in_words(left: Any, right: Any, rows: int) -> None:
    rng = np.random.default_rng(7)
    a = rng.integers(np.iinfo(left).min, np.iinfo(left).max, (rows, 700)).astype(left)
    b = rng.integers(np.iinfo(right).min, np.iinfo(right).max, (700, 43)).astype(right)
    graph = monograph.trace(lambda a, b: F.cast(a, "i32") @ F.cast(b, "i32"), a, b)
    (got,) = compile_graph(graph, Options(cache=False))(a, b)
    np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


def test_few_results_of_a_long_k_are_shared_among_threads() -> None:
    rng = np.random.default_rng(7)
    a = rng.normal(size=(12, 8192)).astype(np.float32)
    b = rng.normal(size=(8192, 20)).astype(np.float32)
    graph = monograph.trace(lambda a, b: F.relu(a @ b) + 1.0, a, b)
    one, two = (compile_graph(graph, Options(cache=False, threads=n)) for n in (1, 2))
    (got,) = one(a, b)
    exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0) + 1
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(two(a, b)[0], got)
    assert one.program is not None
    extents = [step.extent for step in one.program.steps if isinstance(step, Launch)]
    assert any(isinstance(extent, int) and extent >= 8 for extent in extents)


@pytest.mark.parametrize("columns", [8, 24, 32])
def test_tiles_of_any_width_are_right(columns: int) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.normal(size=size).astype(np.float32) for size in ((9, 70), (70, 61)))
    graph = monograph.trace(lambda a, b: a @ b, a, b)
    found = Recorder()
    compile_graph(graph, Options(cache=False, tuning=found))
    (site,) = found.sites
    tuning = Tuning({site: {"columns": columns}}, edit)
    (got,) = compile_graph(graph, Options(cache=False, tuning=tuning))(a, b)
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("depth", [64, 129])
@pytest.mark.parametrize("rows", [1, 5, 37, "rows"])
def test_bytes_less_a_zero_point_are_summed_exactly(rows: int | str, depth: int) -> None:
    rng = np.random.default_rng(7)
    w = rng.integers(-128, 128, (depth, 43)).astype(np.int8)
    points = rng.integers(-128, 128, 43).astype(np.int32)

    def function(x: Any) -> Any:
        return (F.cast(x, "i32") - 131) @ (F.cast(w, "i32") - points)

    executable = compile_graph(
        monograph.trace(function, f"u8[{rows}, {depth}]"), Options(cache=False)
    )
    for size in (rows,) if isinstance(rows, int) else (1, 9, 130):
        x = rng.integers(0, 256, (size, depth)).astype(np.uint8)
        exact = (x.astype(np.int64) - 131) @ (w.astype(np.int64) - points)
        np.testing.assert_array_equal(executable(x)[0], exact)


@pytest.mark.parametrize("channels", [3, 8])
def test_a_convolution_of_bytes_is_summed_exactly(channels: int) -> None:
    rng = np.random.default_rng(7)
    w = rng.integers(-128, 128, (24, channels, 3, 3)).astype(np.int8)
    x = rng.integers(0, 256, (2, channels, 9, 11)).astype(np.uint8)

    def function(x: Any) -> Any:
        return F.conv(F.cast(x, "i32") - 131, F.cast(w, "i32"), padding=1, stride=2)

    graph = monograph.trace(function, x)
    (expected,) = monograph.interpret(graph, [x])
    (got,) = compile_graph(graph, Options(cache=False))(x)
    np.testing.assert_array_equal(got, expected)


def test_a_slot_that_one_branch_fills_with_large_words_is_not_small() -> None:
    rng = np.random.default_rng(7)
    w = rng.integers(-128, 128, (64, 48)).astype(np.int8)
    x = rng.integers(0, 256, (40, 64)).astype(np.uint8)

    def function(flag: Any, x: Any) -> Any:
        large, small = (lambda: F.cast(x, "i32") * 100_000), (lambda: F.cast(x, "i32") - 3)
        chosen = F.cond(flag, large, small)
        return chosen @ F.cast(w, "i32")

    graph = monograph.trace(function, np.asarray(True), x)
    executable = compile_graph(graph, Options(cache=False))
    for flag in (True, False):
        (expected,) = monograph.interpret(graph, [np.asarray(flag), x])
        np.testing.assert_array_equal(executable(np.asarray(flag), x)[0], expected)


@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("group", [256, 32])
def test_a_weight_of_bytes_is_what_its_scales_make_of_it(rows: int, group: int) -> None:
    rng = np.random.default_rng(7)
    w = rng.integers(-128, 128, (70, 256)).astype(np.int8)
    scales = rng.random((70, 256 // group, 1)).astype(np.float32)
    x = rng.normal(size=(rows, 256)).astype(np.float32)

    def function(x: Any) -> Any:
        parts = F.reshape(F.cast(w, "f32"), (70, 256 // group, group)) * scales
        return F.linear(x, F.reshape(parts, (70, 256)))

    (got,) = compile_graph(monograph.trace(function, x), Options(cache=False))(x)
    weight = np.repeat(scales[..., 0], group, 1).astype(np.float64) * w
    np.testing.assert_allclose(got, x @ weight.T, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_sums_of_any_number_of_rows_fit_the_stack(dtype: str) -> None:
    types = f"{dtype}[a, b, c, 600]", f"{dtype}[600, 8]"
    compiled = monograph.compile(lambda x, w: x @ w, *types)
    x, w = (np.ones(shape, dtype.replace("f", "float")) for shape in ((2, 3, 5, 600), (600, 8)))
    np.testing.assert_array_equal(compiled(x, w), np.full((2, 3, 5, 8), 600))
    many = tiling(1 << 20, 600, 8, weights=Weights.NONE)
    assert many.depth
    assert many.block_tiles * many.height * many.columns * 4 <= 1 << 20


@pytest.mark.parametrize("chip", ["x86-64-v3", "x86-64-v4"])
def test_rows_that_share_a_set_of_the_first_cache_are_few(chip: str) -> None:
    machine = machine_named(chip)
    heights = {}
    for steps in (1000, 1024):
        found = contraction(lambda x, w: x @ w, f"f32[64, {steps}]", f"f32[{steps}, 8]")
        heights[steps] = choose_tiling(found, machine, Weights.RIGHT)[1].height
    assert heights[1024] <= machine.l1 // machine.costs.set_bytes < heights[1000]
