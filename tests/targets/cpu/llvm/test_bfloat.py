"""bf16 in registers: rounding, NaN, and loops whose lanes stand in pairs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import monograph
from monograph import functional as F
from tests.targets.cpu.stepping import kernel_of

BF16 = ml_dtypes.bfloat16
EVERY = np.arange(1 << 16, dtype=np.uint16).view(BF16)
PAIRED = "bitcast <32 x i16>"
"""What reads two elements as one word."""


def agree(got: Any, expected: Any) -> None:
    """The same numbers, and NaN where the other is."""
    got, expected = np.asarray(got), np.asarray(expected)
    nan = np.isnan(expected.astype(np.float32))
    assert np.array_equal(np.isnan(got.astype(np.float32)), nan)
    assert np.array_equal(got.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])


def test_every_number_is_read_computed_with_and_rounded() -> None:
    compiled = monograph.compile(lambda x: x * 3.0, EVERY)
    with np.errstate(all="ignore"):
        agree(compiled(EVERY), (EVERY.astype(np.float32) * 3).astype(BF16))


@pytest.mark.parametrize(
    "bits", [0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0x7F7FFFFF, 0x3F808000]
)
def test_a_nan_stays_one_and_ties_go_to_the_even_number(bits: int) -> None:
    x = np.full(40, bits, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        agree(monograph.compile(lambda x: F.cast(x, "bf16"), x)(x), x.astype(BF16))


@pytest.mark.parametrize("size", [1, 7, 16, 31, 32, 33, 63, 64, 97, 1000])
def test_pairs_go_where_they_came_from(size: int) -> None:
    x, y = EVERY[0x3E00 : 0x3E00 + size], EVERY[0x3F10 : 0x3F10 + size]
    compiled = monograph.compile(lambda x, y: x * y + x, x, y)
    wide, other = x.astype(np.float32), y.astype(np.float32)
    agree(compiled(x, y), (wide * other + wide).astype(BF16))


def test_a_loop_over_bf16_alone_stands_in_pairs() -> None:
    assert PAIRED in kernel_of(lambda x, y: x * y, "bf16[4096]", "bf16[4096]").text


def test_a_loop_that_also_reads_f32_does_not() -> None:
    mixed = kernel_of(lambda x, y: F.cast(x, "f32") * y, "bf16[4096]", "f32[4096]")
    assert PAIRED not in mixed.text


def test_a_loop_that_asks_where_a_lane_is_does_not() -> None:
    def ramp(x: Any) -> Any:
        return x * F.cast(F.iota((4096,)), "bf16")

    x = np.ones(4096, BF16)
    assert PAIRED not in kernel_of(ramp, "bf16[4096]").text
    agree(monograph.compile(ramp, x)(x), np.arange(4096).astype(BF16))


@pytest.mark.parametrize("axis", [0, 1])
def test_sums_of_pairs_take_every_element(axis: int) -> None:
    x = (np.arange(70 * 90) % 7).reshape(70, 90).astype(BF16)
    compiled = monograph.compile(lambda x: F.cast(F.sum(F.cast(x, "f32"), axis), "bf16"), x)
    agree(compiled(x), x.astype(np.float32).sum(axis).astype(BF16))


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_rows_too_short_for_pairs_keep_their_order(columns: int) -> None:
    x = np.arange(6 * columns).reshape(6, columns).astype(BF16)
    compiled = monograph.compile(lambda x: F.pad(x, [1, 0], [0, 1]), x)
    agree(compiled(x), np.pad(x, ((1, 0), (0, 1))))


@pytest.mark.parametrize(
    "function", [lambda x: x * 3.0, F.sigmoid, lambda x: F.softmax(F.reshape(x, (64, 1024)), 1)]
)
def test_nans_of_bf16_need_no_care(function: Any) -> None:
    assert "fcmp uno" not in kernel_of(function, "bf16[65536]").text


def test_every_nan_comes_out_as_one() -> None:
    x = EVERY[np.isnan(EVERY.astype(np.float32))]
    for function in (F.exp, F.sigmoid, F.tanh, F.log, F.sin, F.sqrt, lambda x: x + 1.0):
        got = np.asarray(monograph.compile(function, x)(x)).astype(np.float32)
        assert np.isnan(got).all()
    rows = np.zeros((len(x), 40), BF16)
    rows[:, 7] = x
    assert np.isnan(np.asarray(monograph.compile(lambda x: F.softmax(x, 1), rows)(rows))).all()


def test_nans_of_f16_and_f32_do() -> None:
    for kind, bits in ((np.float16, np.uint16(0x7FFF)), (np.float32, np.uint32(0x7FFFFFFF))):
        x = np.full(64, bits).view(kind)
        got = np.asarray(monograph.compile(lambda x: F.cast(F.cast(x, "f32") * 2.0, "bf16"), x)(x))
        assert np.isnan(got.astype(np.float32)).all()
