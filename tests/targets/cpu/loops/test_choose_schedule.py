"""Which schedule a kernel is given, by what it reads and how it strides."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol, dim_min, likely_size
from monograph.ir.graph import Graph
from monograph.ir.types import TensorType, f32, f64
from monograph.targets.cpu.costs import COSTS, GENERIC
from monograph.targets.cpu.loops.choose_schedule import (
    choose,
)
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.loops.split_reduction import ELEMENTS_PER_PARTIAL, split_reductions
from monograph.targets.cpu.machine import host, machine_named
from tests.kernel.build import flat
from tests.targets.cpu.stepping import kernel_of


def schedule(function: Any, *types: str) -> Schedule:
    found = kernel_of(function, *types).schedule
    assert found is not None
    return found


def vector(found: Schedule) -> list[str]:
    return [symbol.name for symbol in found.vector]


def test_another_processor_has_costs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = replace(GENERIC, task_elements=512, memory_bound_instructions=0)
    monkeypatch.setitem(COSTS, machine_named("x86-64").cpu, own)
    assert schedule(lambda x: x + 1.0, "f32[1000000]").tile == 512


# Pointwise.


def test_the_axis_that_is_contiguous_is_the_vector() -> None:
    found = schedule(lambda x, c: x + c, "f32[64, 128]", "f32[64, 1]")
    assert vector(found) == ["_i1"]
    assert (found.rows, found.parallel) == (1, 1)


def test_one_long_row_is_shared_in_tiles() -> None:
    assert schedule(lambda x: x + 1.0, "f32[1000000]").tile == GENERIC.task_elements
    assert schedule(lambda x: x + 1.0, "f32[1000]").tile == 0


def test_many_rows_are_shared_whole() -> None:
    assert schedule(lambda x, b: x + b, "f32[1000, 10000]", "f32[10000]").tile == 0


def test_much_arithmetic_takes_fewer_registers() -> None:
    assert schedule(lambda x: x + 1.0, "f32[4096]").width == 32
    assert schedule(lambda x: F.sin(F.exp(x)), "f32[4096]").width == 16


def test_wide_types_have_fewer_lanes() -> None:
    assert schedule(lambda x: x + 1.0, "f64[4096]").width == 16


def test_a_little_work_is_not_handed_to_a_thread() -> None:
    light = schedule(lambda x: x + 1.0, "f32[10000000]")
    heavy = schedule(lambda x: F.sin(F.exp(x)), "f32[10000000]")
    assert light.grain > heavy.grain >= 1


def test_a_transpose_is_visited_in_squares() -> None:
    found = schedule(lambda x: F.transpose(x, (1, 0)), "f32[512, 512]")
    assert found.width == 8
    assert [copies for _, copies in found.jam] == [8]
    assert found.block is not None and found.block[1] == 2


def test_few_channels_of_pixels_are_computed_side_by_side() -> None:
    pixels = schedule(lambda x: F.transpose(x, (1, 2, 0)), "f32[4, 40, 50]")
    ((channel, copies),) = pixels.jam
    assert (channel.name, copies) == ("_i2", 4)
    assert pixels.vector[0].name == "_i1"


def test_the_last_square_of_a_ragged_axis_is_not_alone_in_its_block() -> None:
    for size in (9, 14, 17, 49, 196, 999):
        found = schedule(lambda x: F.transpose(x, (1, 0)), f"f32[64, {size}]")
        assert found.block is not None
        assert -(-size // 8) % found.block[1] != 1


def test_lines_that_share_few_sets_of_the_cache_are_read_a_few_at_a_time() -> None:
    def tile(columns: int) -> int:
        return schedule(lambda x: F.transpose(x, (1, 0)), f"f32[200, {columns}]").tile

    assert (tile(960), tile(256), tile(512), tile(2048)) == (64, 32, 16, 8)


def test_what_comes_from_far_is_turned_in_longer_runs() -> None:
    def squares(columns: int, *, beside: bool = False) -> int:
        def turned(x: Any, y: Any) -> Any:
            return F.transpose(x, (1, 0)) + (y if beside else 1.0)

        found = schedule(turned, f"f32[{columns}, {columns}]", f"f32[{columns}, {columns}]")
        assert found.prefetch_bytes == 0
        return found.tile // found.width

    assert (squares(500), squares(3000), squares(4096)) == (8, 16, 8)
    assert (squares(512, beside=True), squares(4096, beside=True)) == (8, 32)


def test_the_rows_that_a_transpose_reads_are_read_on() -> None:
    found = schedule(lambda x: F.transpose(x, (1, 0)), "f32[512, 512]")
    assert found.along_tiles and found.tile == 8 * found.width
    assert "along_tiles" in str(found)


# Rows.


def test_rows_that_share_what_is_computed_along_them_are_visited_at_once() -> None:
    found = schedule(lambda x, t: x * F.sin(t), "f32[12, 1000]", "f32[1000]")
    assert [(symbol.name, copies) for symbol, copies in found.jam] == [("_i0", 6)]
    assert schedule(lambda x, t: x * t, "f32[12, 1000]", "f32[1000]").jam == ()
    assert schedule(lambda x, t: x * F.sin(t), "f32[11, 1000]", "f32[1000]").jam == ()


def test_windows_that_overlap_are_reduced_side_by_side() -> None:
    def windows(x: Any) -> Any:
        places = F.iota((900, 25), 0) + F.iota((900, 25), 1)
        return F.sum(F.take(x, places), 1)

    assert vector(schedule(windows, "f32[1000]")) == ["_i0"]


def test_a_row_is_reduced_along_itself() -> None:
    found = schedule(lambda x: F.sum(x, axis=1), "f32[640, 100]")
    assert vector(found) == ["_r0_0"]
    assert found.parallel == 1


def test_two_sums_of_a_row_are_reduced_along_it_too() -> None:
    """What is stored once a row is no reason to gather all that is read."""
    found = schedule(lambda x: (F.sum(x, axis=1), F.max(x, axis=1)), "f32[640, 100]")
    assert vector(found) == ["_r0_0"]


def test_columns_are_reduced_side_by_side() -> None:
    found = schedule(lambda x: F.sum(x, axis=0), "f32[640, 100]")
    assert vector(found) == ["_i1"]
    assert found.tile == found.width


def test_short_rows_are_reduced_side_by_side() -> None:
    found = schedule(lambda x: (F.sum(x, axis=1), F.max(x, axis=1)), "f32[40000, 3]")
    assert vector(found) == ["_i0"]


def test_a_row_that_is_visited_again_is_kept() -> None:
    found = schedule(lambda x: F.softmax(x, -1), "f32[64, 100]")
    assert found.cache_row
    assert found.prefetch is None


def test_rows_from_memory_are_prefetched() -> None:
    found = schedule(lambda x: F.softmax(x, -1), "f32[4096, 1024]")
    assert found.prefetch is not None and found.prefetch.name == "_i0"


def normalized(x: Any, y: Any) -> Any:
    both = x + y
    return both * F.rsqrt(F.mean(both * both, axis=1, keepdims=True) + 1e-5)


def test_light_rows_from_memory_are_written_while_the_next_ones_are_read() -> None:
    found = schedule(normalized, *["f32[4096, 4096]"] * 2)
    assert found.pipelined_rows == GENERIC.pipelined_rows
    assert found.prefetch is None


@pytest.mark.parametrize("shape", ("64, 64", "4096, 4093", "300, 100000", "4096, 32"))
def test_rows_do_not_take_turns_where_that_would_not_pay(shape: str) -> None:
    """In the cache, off the lines of the cache, larger than a core's own, and very short."""
    assert schedule(normalized, *[f"f32[{shape}]"] * 2).pipelined_rows == 0


def test_heavy_rows_do_not_take_turns() -> None:
    assert schedule(lambda x: F.softmax(x, -1), "f32[4096, 4096]").pipelined_rows == 0


def test_long_rows_of_a_softmax_are_visited_in_parts() -> None:
    assert schedule(lambda x: F.softmax(x, -1), "f32[64, 65536]").softmax_block
    assert not schedule(lambda x: F.softmax(x, -1), "f32[64, 1024]").softmax_block
    assert not schedule(lambda x: F.softmax(x, -1), "f16[64, 65536]").softmax_block
    assert not schedule(
        lambda x: x - F.sum(x, axis=1, keepdims=True), "f32[64, 65536]"
    ).softmax_block


def test_a_portion_is_as_much_work_however_wide_its_vectors_are() -> None:
    """A vector of several registers takes an instruction for each."""
    found = schedule(lambda x: x + 1.0, "f32[10000000]")
    assert found.width == 32
    registers = found.grain * found.tile // 8
    assert GENERIC.task_instructions // 4 < registers * 3 <= GENERIC.task_instructions, (
        "a load, a sum and a store for each"
    )


def test_several_outputs_of_a_small_product_share_what_they_read() -> None:
    found = schedule(lambda x, w: x @ w, "f32[8, 8]", "f32[8, 16]")
    assert [copies for _, copies in found.jam] == [4]


# Streaming.


def test_results_stream_if_no_cache_would_hold_them() -> None:
    assert schedule(lambda x: x + 1.0, "f32[4096, 4096]").streaming == {"o0"}
    assert schedule(lambda x: x + 1.0, "f32[512, 512]").streaming == frozenset()


def test_a_small_result_of_a_large_input_does_not_stream() -> None:
    assert schedule(lambda x: F.sum(x, axis=1), "f32[4096, 4096]").streaming == frozenset()


def test_rows_across_memory_that_are_written_along_are_visited_side_by_side() -> None:
    found = schedule(lambda x: F.softmax(x, 0), "f32[100, 64]")
    assert vector(found) == ["_i1"]
    assert found.tile == found.width and found.cache_row
    kept = kernel_of(lambda x: F.softmax(x, 0), "f32[100, 64]").nest.scratch
    assert [buffer.shape for buffer in kept] == [(100 * found.width,)]


def test_a_few_columns_are_no_vector() -> None:
    assert vector(schedule(lambda x: F.softmax(x, 0), "f32[100, 3]")) != ["_i1"]


def test_columns_too_long_to_keep_are_summed_in_parts() -> None:
    found = schedule(lambda x: F.softmax(x, 0), "f32[100000, 64]")
    assert not found.cache_row and found.partial


def test_what_reads_nothing_is_packed_too() -> None:
    def squared() -> Any:
        same = F.full((10, 9), 0.5, f64)
        return F.matmul(F.transpose(same, (1, 0)), same), same

    executable = compile_graph(trace(squared), Options(level="O0", cache=False))
    np.testing.assert_allclose(executable()[0], np.full((9, 9), 2.5))


# Sizes that are not known.


def test_a_product_of_sizes_is_planned_for_by_its_factors() -> None:
    batch, length = Symbol("b", 0, 64), Symbol("n", 0, 1 << 20)
    assert likely_size(batch) == 64
    assert likely_size(batch * 1024 + 1) == 64 * 1024 + 1
    assert likely_size(length * 3) == 512 * 3


def test_a_size_that_depends_on_an_index_is_planned_for_by_the_first() -> None:
    index = Symbol("_i_piece", 0, 7)
    assert likely_size(dim_min(100, 705 - index * 100)) == 100


@pytest.mark.parametrize(
    ("shape", "type_"),
    [
        ((7 * ELEMENTS_PER_PARTIAL + 5,), f"f32[{7 * ELEMENTS_PER_PARTIAL + 5}]"),
        ((300, 301), "f32[k, n]"),
        ((9 * ELEMENTS_PER_PARTIAL,), "f32[n]"),
    ],
    ids=["static", "two sizes", "one size"],
)
def test_the_pieces_of_a_sum_end_where_it_does(shape: tuple[int, ...], type_: str) -> None:
    size = math.prod(shape)
    beyond = np.full(size + 2 * ELEMENTS_PER_PARTIAL, np.nan, np.float32)
    x = beyond[:size].reshape(shape)
    x[...] = np.random.default_rng(0).normal(size=shape)
    compiled = monograph.compile(lambda x: (F.sum(x), F.max(x), F.argmax(x), F.sum(x * x)), type_)
    total, largest, place, squares = compiled(x)
    np.testing.assert_allclose(total, x.sum(dtype=np.float64), rtol=1e-4)
    np.testing.assert_allclose(squares, (x.astype(np.float64) ** 2).sum(), rtol=1e-5)
    assert (largest, place) == (x.max(), x.argmax())


def test_a_sum_of_unknown_length_is_reduced_in_vectors() -> None:
    both = split_reductions(flat(lambda x: F.sum(x), "f32[n]"), GENERIC.fusion)
    assert both is not None
    found = choose(both.pieces, host())
    assert vector(found) == ["_r0_0"] and found.width > 1


def test_what_may_be_small_is_not_written_past_the_cache() -> None:
    assert schedule(lambda x: x + 1.0, "f32[100000000]").streaming
    assert not schedule(lambda x: x + 1.0, "f32[b*1000000]").streaming


def test_rows_that_may_be_empty_are_one_kernel() -> None:
    graph = Graph("rows")
    x = graph.add_input("x", TensorType(f32, (Symbol("b"), Symbol("n", 0, 9999))))
    with graph.as_current():
        graph.set_outputs([F.softmax(x)])
    executable = compile_graph(graph, Options(cache=False))
    assert len(executable.report.kernels) == 1
    for shape in ((3, 5), (2, 0)):
        array = np.ones(shape, np.float32)
        np.testing.assert_allclose(executable(array)[0], array / max(shape[1], 1), rtol=1e-6)


def test_what_comes_from_memory_is_asked_for_ahead() -> None:
    assert schedule(lambda x, y: F.relu(x * y + x) * 0.5, *["f32[4096, 4096]"] * 2).prefetch_bytes


def test_what_the_cache_holds_or_hardly_computes_is_not() -> None:
    assert not schedule(lambda x, y: F.relu(x * y + x) * 0.5, *["f32[64, 64]"] * 2).prefetch_bytes
    assert not schedule(lambda x: x * 2.0, "f32[4096, 4096]").prefetch_bytes
    assert not schedule(lambda x: F.sum(x, 1), "f32[4096, 4096]").prefetch_bytes


def test_looking_for_a_position_in_memory_asks_ahead() -> None:
    assert schedule(lambda x: F.argmax(x, 1), "f32[4096, 4096]").prefetch_bytes


def test_what_is_the_same_in_every_lane_does_not_narrow_the_vector() -> None:
    found = schedule(
        lambda x, y: F.cross_entropy(x, y, reduction="none"), "f32[512, 32000]", "i64[512]"
    )
    assert found.width == 32


def test_rows_that_are_only_reduced_have_registers_to_spare() -> None:
    def sum_of_exponentials(x: Any) -> Any:
        return F.sum(F.exp(x - F.max(x, axis=1, keepdims=True)), 1)

    assert schedule(sum_of_exponentials, "f32[64, 4096]").width == 32
    assert schedule(lambda x: F.softmax(x, 1), "f32[64, 4096]").width == 16


def test_results_stream_earlier_beside_rows_that_are_asked_for_ahead() -> None:
    def streams(function: Any, rows: int) -> bool:
        return bool(schedule(function, f"f32[{rows}, 1024]").streaming)

    def softmax(x: Any) -> Any:
        return F.softmax(x, 1)

    assert (streams(softmax, 512), streams(softmax, 2048)) == (False, True)
    assert not streams(lambda x: x - F.mean(x, axis=1, keepdims=True), 2048)
