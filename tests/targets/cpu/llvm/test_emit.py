"""What the emitter writes for a loop nest, read in its text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.interpret import interpret
from tests.targets.cpu.stepping import kernel_of, steps_of

LARGE = "f32[4096, 4096]"
"""Larger than the last cache."""


def text(function: Any, *types: Any) -> str:
    return kernel_of(function, *types).text


# Vector loops.


@pytest.mark.parametrize(
    ("size", "masked", "whole"),
    [("128", False, True), ("100", True, True), ("3", True, True), ("n", True, True)],
)
def test_a_vector_loop_has_a_masked_rest_exactly_when_needed(
    size: str, masked: bool, whole: bool
) -> None:
    found = text(lambda x: x + 1.0, f"f32[{size}]")
    assert ("llvm.masked.store" in found) == masked
    assert bool(re.search(r"store <\d+ x float>", found)) == whole


@pytest.mark.parametrize("columns", (1000, 1009, 40, 7))
@pytest.mark.parametrize("dtype", ("f32", "f16", "f64", "i32"))
def test_columns_that_fill_no_vector_are_reduced_in_shorter_ones(columns: int, dtype: str) -> None:
    found = text(lambda x: F.max(x, axis=0), f"{dtype}[50, {columns}]")
    assert "llvm.masked" not in found
    graph = monograph.trace(lambda x: F.max(x, axis=0), f"{dtype}[50, {columns}]")
    kind = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i32": np.int32}[dtype]
    x = (np.random.default_rng(0).normal(size=(50, columns)) * 100).astype(kind)
    (largest,) = compile_graph(graph, Options(cache=False))(x)
    np.testing.assert_array_equal(largest, x.max(0))


def test_short_rows_take_short_vectors() -> None:
    assert kernel_of(lambda x: x + 1.0, "f32[5]").nest.body[0].width == 4  # type: ignore[union-attr]
    assert kernel_of(lambda x: x + 1.0, "f32[1000]").nest.body[0].width == 32  # type: ignore[union-attr]


def test_neighbours_are_loaded_together() -> None:
    found = text(lambda x: x + 1.0, "f32[128]")
    assert "load <32 x float>" in found
    assert "gather" not in found


def test_elements_that_are_apart_are_gathered() -> None:
    found = text(lambda x: x[::5] + 1.0, "f32[640]")
    assert "llvm.masked.gather.v32f32" in found


@pytest.mark.parametrize("step", [2, 3, 4])
def test_elements_a_few_apart_are_picked_from_whole_loads(step: int) -> None:
    found = text(lambda x: x[::step] + 1.0, f"f32[{128 * step}]")
    assert len(re.findall(r"= load <32 x float>", found)) == step
    assert "gather" not in found


@pytest.mark.parametrize("size", [1, 3, 8, 17, 33, 100])
@pytest.mark.parametrize("step", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float64])
def test_elements_a_few_apart_are_those_and_none_beyond(step: int, size: int, dtype: Any) -> None:
    x = np.arange((size - 1) * step + 1).astype(dtype)
    compiled = monograph.compile(lambda x: x[::step] + 1, x)
    np.testing.assert_array_equal(compiled(x), x[::step] + 1)


def test_a_position_that_becomes_a_float_is_counted_in_32_bits() -> None:
    found = text(lambda x: x + F.cast(F.iota((1000,)), "f32"), "f32[1000]")
    assert re.search(r"sitofp <\d+ x i32>", found)
    assert not re.search(r"sitofp <\d+ x i64>", found)


def test_elements_in_reverse_are_loaded_together_and_turned() -> None:
    found = text(lambda x: F.flip(x, 0) + 1.0, "f32[128]")
    assert "load <32 x float>" in found and "shufflevector" in found
    assert "gather" not in found


def test_bools_are_bytes_in_memory() -> None:
    found = text(lambda x: F.logical_not(x), "bool[64]")
    assert re.search(r"load <\d+ x i8>", found)
    assert re.search(r"zext <\d+ x i1> %\w+ to <\d+ x i8>", found)


# Values that are the same in every lane.


def test_uniform_values_stay_scalars() -> None:
    found = text(lambda x, s: x * (s * s + 1.0), "f32[128]", "f32[]")
    assert re.search(r"fmul float ", found)
    assert re.search(r"fadd float ", found)
    assert len(re.findall(r"fmul <32 x float>", found)) == 1
    assert not re.search(r"fadd <", found)


def test_uniform_values_are_computed_before_the_loop() -> None:
    found = text(lambda x, s: x * (s * s + 1.0), "f32[128]", "f32[]")
    assert found.index("fmul float") < found.index("fmul <32 x float>")
    loop = found[: found.index("fmul <32 x float>")].rindex("\nloop")
    assert found.index("fmul float") < loop


def test_an_index_is_a_vector_only_where_it_is_a_number() -> None:
    assert "x i64>" not in text(lambda x: x + 1.0, "f32[128]")
    assert "x i64>" in text(lambda x: x + F.iota((128,)), "i64[128]")


# What is seldom wanted.


def test_what_is_seldom_wanted_is_branched_around() -> None:
    found = text(F.exp, "f32[128]")
    assert re.search(r"br i1 %\w+, label %seldom\d+, label %usual\d+, !prof !3", found)
    usual = found[found.index("\nusual") : found.index("\nafter")]
    seldom = found[found.index("\nseldom") : found.index("\nusual")]
    assert usual.count("llvm.fma") < seldom.count("llvm.fma")


def test_lanes_are_joined_before_they_are_tested() -> None:
    found = text(F.exp, "f32[128]")
    assert "or <16 x i32>" in found and "or <8 x i32>" in found
    assert "reduce.or.v8i1" in found


@pytest.mark.parametrize("size", (1, 5, 8, 31, 32, 33, 64, 100))
def test_lanes_that_are_far_out_do_not_touch_their_neighbours(size: int) -> None:
    ordinary = np.linspace(-20, 20, size).astype(np.float32)
    mixed = ordinary.copy()
    mixed[size // 2] = np.float32(-95.0)
    compiled = monograph.compile(F.exp, ordinary, strict=True)
    expected = compiled(ordinary).copy()
    expected[size // 2] = np.exp(np.float64(-95.0))
    np.testing.assert_array_equal(compiled(mixed), expected)


# Reductions.


def test_a_sum_of_products_is_fused() -> None:
    assert "llvm.fma.v" in text(lambda x, y: F.sum(x * y, axis=1), "f32[64, 64]", "f32[64, 64]")


def test_the_rest_of_a_reduction_keeps_its_other_lanes() -> None:
    whole = text(lambda x: F.sum(x, axis=1), "f32[64, 64]")
    rest = text(lambda x: F.sum(x, axis=1), "f32[64, 65]")
    assert "select <" not in whole
    assert "select <" in rest


# Memory.


def test_what_all_lanes_have_summed_alike_is_written_once() -> None:
    """The scale of a row is a result, in a kernel whose other rows need sums of their own."""

    def function(x: Any, w: Any) -> Any:
        scale = F.rsqrt(F.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        scaled = x * scale * w
        return scale, scaled, F.transpose(scaled) + scaled

    graph = monograph.trace(function, "f32[3, 3]", "f32[3]")
    given = [np.arange(1, 10, dtype=np.float32).reshape(3, 3), np.ones(3, np.float32)]
    found = compile_graph(graph, Options(cache=False)).run(given)
    for got, expected in zip(found, interpret(graph, given), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_what_is_written_in_place_may_alias() -> None:
    assert "noalias" not in text(lambda x: x + 1.0, "f32[128]")


def test_what_is_read_elsewhere_than_written_does_not_alias() -> None:
    found = text(lambda x: F.flip(x, 0) + 1.0, "f32[128]")
    assert "ptr noalias readonly %b0, ptr noalias %o0" in found


def test_large_results_are_written_past_the_cache() -> None:
    found = text(lambda x: x + 1.0, LARGE)
    assert re.search(r"store <32 x float> %\w+, ptr %\w+, align 64, !nontemporal !1", found)
    assert "fence seq_cst" in found


def test_small_results_are_not() -> None:
    found = text(lambda x: x + 1.0, "f32[64, 64]")
    assert "nontemporal" not in found and "fence" not in found


def test_rows_that_begin_at_any_address_are_written_past_the_cache_line_by_line() -> None:
    found = text(lambda x, b: x + b, "f32[5000, 4001]", "f32[4001]")
    assert "nontemporal" in found
    # What comes before the first line and after the last one is written on its own.
    assert found.count("call void @llvm.masked.store") == 2
    assert found.count("!nontemporal") == 1


def test_short_rows_are_not() -> None:
    assert "nontemporal" not in text(lambda x, b: x + b, "f32[100000, 201]", "f32[201]")


@pytest.mark.parametrize("columns", (4001, 4003, 1025, 17))
def test_every_element_of_such_a_row_is_written(columns: int) -> None:
    rows = 20_000_000 // columns
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    bias = np.arange(columns, dtype=np.float32)
    np.testing.assert_array_equal(monograph.compile(lambda x, b: x + b, x, bias)(x, bias), x + bias)


def test_squares_are_turned_in_registers() -> None:
    found = text(lambda x: F.transpose(x, (1, 0)), "f32[64, 64]")
    assert found.count("load <8 x float>") == 8
    assert found.count("shufflevector") == 24
    assert "gather" not in found


def test_the_edge_of_squares_is_one_more_that_overlaps() -> None:
    found = text(lambda x: F.transpose(x, (1, 0)), "f32[60, 64]")
    assert "shufflevector" in found and "gather" not in found


def test_the_edge_of_what_may_be_less_than_a_square_is_gathered() -> None:
    found = text(lambda x: F.transpose(x, (1, 0)), "f32[n, 64]")
    assert "shufflevector" in found and "llvm.masked.gather.v8f32" in found


def test_rows_are_asked_for_ahead_of_time_if_they_come_from_memory() -> None:
    assert "llvm.prefetch" in text(lambda x: F.softmax(x, -1), LARGE)
    assert "llvm.prefetch" not in text(lambda x: F.softmax(x, -1), "f32[64, 64]")


def test_rows_that_are_kept_lie_on_the_stack_aligned() -> None:
    assert "alloca [128 x float], align 64" in text(lambda x: F.softmax(x, -1), "f32[64, 100]")


# Checks.


def test_an_index_from_data_is_checked_and_others_are_not() -> None:
    kernel = kernel_of(lambda x, i: F.take(x, i, axis=0), "f32[10, 8]", "i64[5]")
    assert kernel.checked
    assert "icmp ult" in kernel.text and "atomicrmw or ptr %status" in kernel.text
    assert not kernel_of(lambda x: x + 1.0, "f32[8]").checked


# Sizes.


def test_symbolic_sizes_are_parameters() -> None:
    found = text(lambda x, b: x + b, "f32[n, m]", "f32[m]")
    assert "i64 %size.m, i64 %size.n, ptr %status" in found


def test_division_by_a_size_that_may_be_zero_does_not_trap() -> None:
    found = text(lambda x, b: x + b, "f32[n, m, 8]", "f32[m, 1]")
    divisors = re.findall(r"u(?:div|rem) i64 %\w+, (%[\w.]+)", found)
    assert divisors
    assert all(not divisor.startswith("%size.") for divisor in divisors)


def test_declarations_are_gathered_once() -> None:
    builder = steps_of(lambda x: (F.sqrt(x), F.sqrt(x + 1.0)), "f32[n]")
    names = [line.split("(")[0] for line in builder.declarations]
    assert len(names) == len(set(names))


def test_the_last_elements_are_computed_again_where_a_mask_would_take_longer() -> None:
    assert "masked" not in text(lambda x, b: x + b, "f32[64, 1]", "f32[100]")
    assert "masked" in text(lambda x, b: x + b, "f32[64, 1]", "f32[3]")
    may_be_short = text(lambda x, b: x + b, "f32[64, 1]", "f32[n]")
    assert may_be_short.count("call void @llvm.masked.store") == 1


def test_what_is_written_over_its_input_is_never_computed_again() -> None:
    assert "llvm.masked.store" in text(lambda x: x + 1.0, "f32[100]")


def test_positions_are_compared_in_half_as_many_bits() -> None:
    found = text(lambda i: F.cast(F.equal(i, F.iota((64,), 0, "i64")), "f32"), "i64[500, 1]")
    assert re.search(r"icmp eq <\d+ x i32>", found)
    assert not re.search(r"icmp eq <\d+ x i64>", found)


@pytest.mark.parametrize("number", [-(2**63), -1, 0, 3, 36, 37, 2**63 - 1])
def test_positions_compare_with_any_number(number: int) -> None:
    def function(i: Any) -> Any:
        places = F.iota((37,), 0, "i64")
        return F.equal(i, places), F.less(places, i), F.greater_equal(i, places)

    given, places = np.full((3, 1), number), np.arange(37)
    equal, less, at_least = monograph.compile(function, given, cache=False)(given)
    np.testing.assert_array_equal(equal, given == places)
    np.testing.assert_array_equal(less, places < given)
    np.testing.assert_array_equal(at_least, given >= places)


# Long sums.


@pytest.mark.parametrize(
    ("shape", "axis", "bound"), [((1, 65536), 1, 4e-7), ((16384, 8), 0, 1.2e-6)]
)
def test_rounding_hardly_grows_with_a_long_sum(
    shape: tuple[int, int], axis: int, bound: float
) -> None:
    x = np.full(shape, 0.1, np.float32)
    got = monograph.compile(lambda x: F.sum(x, axis), x)(x)
    exact = x.astype(np.float64).sum(axis)
    assert (abs(got - exact) / exact).max() < bound


@pytest.mark.parametrize("length", [1023, 1024, 1025, 2048, 2049, 5000])
def test_a_long_sum_takes_every_element_once(length: int) -> None:
    x = np.arange(3 * length, dtype=np.float32).reshape(3, length) % 5
    compiled = monograph.compile(lambda x: F.sum(x, 1), x)
    np.testing.assert_array_equal(compiled(x), x.sum(1))
