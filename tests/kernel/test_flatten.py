"""Axes merge exactly where every access walks through them in one stride."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph import functional as F
from monograph.ir.dims import Symbol
from monograph.kernel.evaluate import evaluate_kernel
from monograph.kernel.flatten import coefficient, flatten
from tests.kernel.build import axes, flat, kernel_of


def test_a_pointwise_kernel_is_one_long_loop() -> None:
    assert axes(flat(lambda x, y: x * y, "f32[4, 8, 16]", "f32[4, 8, 16]")) == ["512"]


def test_a_bias_keeps_its_axis_apart() -> None:
    assert axes(flat(lambda x, b: x + b, "f32[4, 8, 16]", "f32[16]")) == ["32", "16"]


def test_a_column_keeps_its_axis_apart() -> None:
    assert axes(flat(lambda x, c: x + c, "f32[4, 8, 16]", "f32[4, 1, 1]")) == ["4", "128"]


def test_a_transpose_merges_only_what_stays_together() -> None:
    assert axes(flat(lambda x: F.transpose(x, (2, 0, 1)), "f32[4, 8, 16]")) == ["16", "32"]


def test_axes_of_size_one_are_dropped() -> None:
    assert axes(flat(lambda x, b: x + b, "f32[4, 1, 8]", "f32[8]")) == ["4", "8"]


def test_symbolic_axes_merge_as_well() -> None:
    assert axes(flat(lambda x: F.exp(x), "f32[n, m]")) == ["m*n"]


def test_a_strided_input_merges_what_its_strides_allow() -> None:
    types = ("f32[4, 8, 16]",)
    assert axes(flat(lambda x: F.exp(x), *types, strides={0: (256, 16, 1)})) == ["4", "128"]
    assert axes(flat(lambda x: F.exp(x), *types, strides={0: (128, 16, 1)})) == ["512"]


def test_a_strided_buffer_spans_from_its_first_to_its_last_element() -> None:
    kernel = flat(lambda x: F.exp(x), "f32[4, 8]", strides={0: (16, 2)})
    assert kernel.inputs[0].shape == (3 * 16 + 7 * 2 + 1,)


def test_reductions_over_several_axes_are_one_range() -> None:
    kernel = flat(lambda x: F.sum(x, axis=(1, 2)), "f32[4, 8, 16]")
    assert "sum(r0_1 < 128:" in str(kernel)


def test_reductions_over_axes_that_are_apart_stay_two_ranges() -> None:
    kernel = flat(lambda x: F.sum(x, axis=(0, 2)), "f32[4, 8, 16]")
    assert "sum(r0_0 < 4, r0_1 < 16:" in str(kernel)


def test_a_reduction_of_one_element_is_that_element() -> None:
    kernel = flat(lambda x: F.exp(F.sum(x, axis=1)), "f32[8, 1]")
    assert str(kernel).endswith("o0[i0] = exp(b0[i0])\n")


def test_the_position_of_the_largest_of_one_is_zero() -> None:
    assert str(flat(lambda x: F.argmax(x, 1), "f32[8, 1]")).endswith("o0[i0] = 0\n")


def test_nothing_is_stored_in_an_empty_buffer() -> None:
    assert flat(lambda x: F.exp(x), "f32[0, 8]").stores == ()


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x: F.transpose(F.exp(x), (2, 0, 1)), ["f32[3, 4, 5]"]),
        (lambda x, b: F.sum(x + b, axis=(0, 2)), ["f32[3, 4, 5]", "f32[5]"]),
        (lambda x: F.softmax(F.reshape(x, (12, 5)), 0), ["f32[3, 4, 5]"]),
        (lambda x: F.slice(F.flip(x, 2), [1, 1], [3, 4], axes=[0, 2]), ["f32[3, 4, 5]"]),
    ],
    ids=["transpose", "sum", "softmax", "slice"],
)
def test_a_flat_kernel_means_the_same(function: Any, types: list[str]) -> None:
    rng = np.random.default_rng(0)
    shapes = [[int(n) for n in t[4:-1].split(",")] for t in types]
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    kernel = kernel_of(function, *types)
    (expected,) = evaluate_kernel(kernel, arrays)
    (got,) = evaluate_kernel(flatten(kernel), [array.reshape(-1) for array in arrays])
    np.testing.assert_allclose(got, expected.reshape(-1), rtol=1e-6)


def test_how_much_a_position_grows_with_a_variable() -> None:
    i, n = Symbol("_i0", 0, 7), Symbol("n", 1)
    assert coefficient(3 * i + 5, i) == 3
    assert coefficient(n * i + i, i) == n + 1
    assert coefficient(n + 5, i) == 0
    assert coefficient(i * i, i) is None
    assert coefficient((i + 1) // 2, i) is None


def test_a_place_that_was_divided_and_not_moved_is_whole_again() -> None:
    kernel = flat(lambda x: F.reshape(F.slice(x, [1], [9]), (10, 8)), "f32[9, 10]")
    assert axes(kernel) == ["80"]
    assert "//" not in str(kernel)


def test_axes_that_a_remainder_joins_merge() -> None:
    assert axes(flat(lambda x: F.roll(x, 3), "f32[4, 8]")) == ["32"]
