"""Arithmetic, comparison, bits, selection and casts at their edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from monograph.errors import EvaluationError, MonographError, TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.op import make
from monograph.ir.types import DTYPES, dtype_of
from monograph.ops import elementwise as E
from tests.ops.running import (
    assert_same,
    complex_gradients,
    gradients,
    run,
    run_decomposed,
)

INF, NAN = math.inf, math.nan
FLOATS = ["f64", "f32", "f16", "bf16"]
SMALL_INTEGERS = ["i8", "u8", "i4", "u4", "i2", "u2"]


def every_pair(dtype: str) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    """All pairs of values of a small integer type, as a column, a row and Python ints."""
    kind = dtype_of(dtype)
    low, high = (int(end) for end in E.limits(kind))
    values = list(range(low, high + 1))
    array = np.array(values).astype(kind.numpy)
    return array[:, None], array, list(itertools.product(values, values))


def wrapped(value: int, dtype: str) -> int:
    kind = dtype_of(dtype)
    low, _ = E.limits(kind)
    return (value - int(low)) % (1 << kind.bits) + int(low)


def c_divide(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGER_MEANING: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, _: a + b,
    "subtract": lambda a, b, _: a - b,
    "multiply": lambda a, b, _: a * b,
    "floor_divide": lambda a, b, _: a // b if b else 0,
    "remainder": lambda a, b, _: a % b if b else 0,
    "truncate_divide": lambda a, b, _: c_divide(a, b) if b else 0,
    "fmod": lambda a, b, _: a - c_divide(a, b) * b if b else 0,
    "maximum": lambda a, b, _: max(a, b),
    "minimum": lambda a, b, _: min(a, b),
    "bitwise_and": lambda a, b, _: a & b,
    "bitwise_or": lambda a, b, _: a | b,
    "bitwise_xor": lambda a, b, _: a ^ b,
    "shift_left": lambda a, b, bits: a << b if 0 <= b < bits else 0,
    "shift_right": lambda a, b, bits: a >> (b if 0 <= b < bits else bits),
    "power": lambda a, b, bits: integer_power(a, b),
}


def integer_power(a: int, b: int) -> int:
    if b >= 0:
        return a**b
    return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)


@pytest.mark.parametrize("dtype", SMALL_INTEGERS)
@pytest.mark.parametrize("name", INTEGER_MEANING)
def test_integers_on_every_pair_of_values(name: str, dtype: str) -> None:
    column, row, pairs = every_pair(dtype)
    bits = dtype_of(dtype).bits
    meaning = INTEGER_MEANING[name]
    expected = [wrapped(meaning(a, b, bits), dtype) for a, b in pairs]
    op = make(name)
    assert run(op, column, row).astype(int).ravel().tolist() == expected
    if op.is_composite():
        assert run_decomposed(op, column, row).astype(int).ravel().tolist() == expected


@pytest.mark.parametrize("dtype", ["i16", "i32", "i64"])
def test_the_smallest_integer_by_minus_one_is_itself(dtype: str) -> None:
    kind = dtype_of(dtype).numpy
    smallest = np.iinfo(kind).min
    a, b = np.array([smallest], kind), np.array([-1], kind)
    assert run(E.floor_divide, a, b).tolist() == [smallest]
    assert run(E.truncate_divide, a, b).tolist() == [smallest]
    assert run(E.remainder, a, b).tolist() == [0]
    assert run(E.fmod, a, b).tolist() == [0]
    assert run(E.negate, a).tolist() == [smallest]
    assert run(E.abs, a).tolist() == [smallest]


def test_wide_shifts_move_everything_out() -> None:
    a = np.array([-5, 5], np.int64)[:, None]
    amounts = np.array([-1, 0, 1, 63, 64, 1000], np.int64)
    assert run(E.shift_left, a, amounts).tolist() == [
        [0, -5, -10, -(2**63), 0, 0],
        [0, 5, 10, -(2**63), 0, 0],
    ]
    assert run(E.shift_right, a, amounts).tolist() == [
        [-1, -5, -3, -1, -1, -1],
        [0, 5, 2, 0, 0, 0],
    ]
    big = np.array([2**63 + 1], np.uint64)
    assert run(E.shift_right, big, np.array([63, 64, 2**63], np.uint64)).tolist() == [1, 0, 0]


def float_pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    kind = dtype_of(dtype).numpy
    ordinary = generator.normal(scale=3.0, size=60)
    whole = generator.integers(-9, 9, size=60) * 0.1
    edges = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 1e-40, 3e38, 0.1, 0.3]
    values = np.concatenate([ordinary, whole, edges]).astype(kind)
    return values[:, None], values


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_float_division_decomposes_to_the_bit(name: str, dtype: str) -> None:
    a, b = float_pairs(dtype)
    op = make(name)
    assert_same(run_decomposed(op, a, b), run(op, a, b))


def test_float_floor_divide_is_pythons() -> None:
    a, b = float_pairs("f64")
    pairs = [(x, y) for x in a.ravel().tolist() for y in b.tolist() if y != 0]
    quotients = run(E.floor_divide, *(np.array(side) for side in zip(*pairs, strict=True)))
    assert_same(quotients, [x // y for x, y in pairs])
    rests = run(E.remainder, *(np.array(side) for side in zip(*pairs, strict=True)))
    assert_same(rests, [x % y for x, y in pairs])


def test_float_division_by_zero_is_ieee() -> None:
    a, zero = np.array([1.0, -1.0, 0.0, NAN]), np.array([0.0])
    assert_same(run(E.divide, a, zero), [INF, -INF, NAN, NAN])
    assert_same(run(E.floor_divide, a, zero), [INF, -INF, NAN, NAN])
    assert_same(run(E.truncate_divide, a, zero), [INF, -INF, NAN, NAN])
    assert_same(run(E.remainder, a, zero), [NAN] * 4)
    assert_same(run(E.fmod, a, zero), [NAN] * 4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_maximum_and_minimum_order_zeros_and_keep_nan(dtype: str) -> None:
    kind = dtype_of(dtype).numpy
    a = np.array([0.0, -0.0, -0.0, 0.0, NAN, 1.0, -INF], kind)
    b = np.array([-0.0, 0.0, -0.0, 0.0, 1.0, NAN, INF], kind)
    as_f64 = [run(op, a, b).astype(np.float64) for op in (E.maximum, E.minimum)]
    assert_same(as_f64[0], [0.0, 0.0, -0.0, 0.0, NAN, NAN, INF])
    assert_same(as_f64[1], [-0.0, -0.0, -0.0, 0.0, NAN, NAN, -INF])


def test_rounding_of_halves_zeros_and_infinities() -> None:
    x = np.array([-2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, INF, -INF, NAN])
    assert_same(run(E.round, x), [-2, -2, -0.0, -0.0, 0, 0, 2, 2, INF, -INF, NAN])
    assert_same(run(E.floor, x), [-3, -2, -1, -0.0, 0, 0, 1, 2, INF, -INF, NAN])
    assert_same(run(E.ceil, x), [-2, -1, -0.0, -0.0, 0, 1, 2, 3, INF, -INF, NAN])
    assert_same(run(E.trunc, x), [-2, -1, -0.0, -0.0, 0, 0, 1, 2, INF, -INF, NAN])
    assert run(E.round, np.array([7, -3])).tolist() == [7, -3]


def test_sign_and_magnitude() -> None:
    x = np.array([-2.0, -0.0, 0.0, 3.0, NAN, -INF])
    assert_same(run(E.sign, x), [-1, 0.0, 0.0, 1, NAN, -1])
    assert_same(run(E.abs, x), [2, 0.0, 0.0, 3, NAN, INF])
    assert_same(run(E.negate, x), [2, 0.0, -0.0, -3, NAN, INF])
    signs = np.array([-0.0, 1.0, -1.0])
    assert_same(run(E.copysign, np.array([1.0, -0.0, INF]), signs), [-1, 0, -INF])
    assert run(E.sign, np.array([-5, 0, 9])).tolist() == [-1, 0, 1]


def test_power_follows_c99() -> None:
    bases = np.array([NAN, 1.0, -8.0, 0.0, -0.0, -2.0, 2.0, INF])
    exponents = np.array([0.0, NAN, 1 / 3, -1.0, -1.0, 3.0, -INF, -1.0])
    assert_same(run(E.power, bases, exponents), [1, 1, NAN, INF, -INF, -8, 0, 0])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "power", "atan2"])
def test_floats_are_computed_wide_and_rounded_once(name: str, dtype: str) -> None:
    generator = np.random.default_rng(2)
    kind = dtype_of(dtype).numpy
    a, b = generator.uniform(0.5, 2.0, (2, 200)).astype(kind)
    exact = run(make(name), a.astype(np.float64), b.astype(np.float64))
    got = run(make(name), a, b)
    assert got.dtype == kind
    np.testing.assert_array_equal(got, exact.astype(np.float32).astype(kind))


def test_comparisons_with_nan_and_zeros() -> None:
    a, b = np.array([NAN, 0.0, 1.0]), np.array([NAN, -0.0, 2.0])
    assert run(E.equal, a, b).tolist() == [False, True, False]
    assert run(E.not_equal, a, b).tolist() == [True, False, True]
    assert run(E.less, a, b).tolist() == [False, False, True]
    assert run(E.less_equal, a, b).tolist() == [False, True, True]
    assert run(E.greater, a, b).tolist() == [False, False, False]
    assert run(E.greater_equal, a, b).tolist() == [False, True, False]


def test_comparison_of_large_integers_is_exact() -> None:
    a, b = np.array([2**53]), np.array([2**53 + 1])
    assert run(E.less, a, b).tolist() == [True]
    assert run(E.equal, a, b).tolist() == [False]


@pytest.mark.parametrize("dtype", ["bool", "f32", "bf16", "i64", "u4"])
def test_logic_takes_anything_that_is_not_zero_as_true(dtype: str) -> None:
    x = np.array([0, 1, 0, 1]).astype(dtype_of(dtype).numpy)
    y = np.array([0, 0, 1, 1]).astype(dtype_of(dtype).numpy)
    assert run(E.logical_and, x, y).tolist() == [False, False, False, True]
    assert run(E.logical_or, x, y).tolist() == [False, True, True, True]
    assert run(E.logical_xor, x, y).tolist() == [False, True, True, False]
    assert run(E.logical_not, x).tolist() == [True, False, True, False]


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_tests(dtype: str) -> None:
    x = np.array([NAN, INF, -INF, 0.0, 1.5]).astype(dtype_of(dtype).numpy)
    assert run(E.is_nan, x).tolist() == [True, False, False, False, False]
    assert run(E.is_inf, x).tolist() == [False, True, True, False, False]
    assert run(E.is_finite, x).tolist() == [False, False, False, True, True]


def test_float_tests_of_integers_are_trivial() -> None:
    x = np.array([1, 2])
    assert run(E.is_nan, x).tolist() == [False, False]
    assert run(E.is_finite, x).tolist() == [True, True]


# Casts.


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", ["i64", "i32", "i16", "i8", "i4", "i2", "u64", "u8", "u4", "u2"])
def test_float_to_integer_truncates_and_saturates(source: str, target: str) -> None:
    low, high = (int(end) for end in E.limits(dtype_of(target)))
    x = np.array([NAN, INF, -INF, 0.9, -0.9, 1.5, -1.5, 1e30, -1e30])
    with np.errstate(over="ignore"):  # 1e30 is infinite in f16, and saturates all the same
        x = x.astype(dtype_of(source).numpy)
    got = run(lambda x: E.cast(x, target), x).astype(object).tolist()
    minus_one = max(low, -1)
    assert [int(value) for value in got] == [0, high, low, 0, 0, 1, minus_one, high, low]


def test_float_to_integer_is_exact_at_the_ends_of_the_range() -> None:
    top = float(2**63)
    below = float(np.nextafter(top, 0))
    x = np.array([top, below, -top, np.nextafter(-top, -INF), 2.0**64, 2.0**64 - 2048])
    signed = run(lambda x: E.cast(x, "i64"), x).tolist()
    assert signed == [2**63 - 1, int(below), -(2**63), -(2**63), 2**63 - 1, 2**63 - 1]
    unsigned = run(lambda x: E.cast(x, "u64"), x).tolist()
    assert unsigned == [2**63, int(below), 0, 0, 2**64 - 1, 2**64 - 2048]


@pytest.mark.parametrize("target", ["i64", "i32", "i16", *SMALL_INTEGERS, "u16", "u32", "u64"])
def test_integer_to_integer_wraps(target: str) -> None:
    values = [-(2**63), -300, -129, -9, -1, 0, 3, 8, 130, 70000, 2**40 + 5, 2**63 - 1]
    got = run(lambda x: E.cast(x, target), np.array(values)).astype(object)
    assert [int(value) for value in got] == [wrapped(value, target) for value in values]


@pytest.mark.parametrize("source", [name for name in DTYPES if name not in ("string", "f8e8m0fnu")])
def test_everything_to_bool_is_whether_it_is_not_zero(source: str) -> None:
    x = np.array([0, 1]).astype(dtype_of(source).numpy)
    assert run(lambda x: E.cast(x, "bool"), x).tolist() == [False, True]


def test_nan_is_true_and_minus_zero_is_false() -> None:
    x = np.array([NAN, -0.0, 1e-320])
    assert run(lambda x: E.cast(x, "bool"), x).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("f16", [INF, -INF, NAN, -0.0, 1.0]),
        ("bf16", [INF, -INF, NAN, -0.0, 1.0]),
        ("f8e5m2", [INF, -INF, NAN, -0.0, 1.0]),
        ("f8e4m3fn", [NAN, NAN, NAN, -0.0, 1.0]),
        ("f8e4m3fnuz", [NAN, NAN, NAN, 0.0, 1.0]),
        ("f8e5m2fnuz", [NAN, NAN, NAN, 0.0, 1.0]),
        ("f8e8m0fnu", [NAN, NAN, NAN, NAN, 1.0]),
    ],
)
def test_what_a_narrow_float_cannot_hold(target: str, expected: list[float]) -> None:
    x = np.array([INF, -INF, NAN, -0.0, 1.0], np.float32)
    assert_same(run(lambda x: E.cast(x, target), x).astype(np.float64), expected)


def test_f4_saturates_and_has_no_nan() -> None:
    x = np.array([INF, -1e9, 5.1, 0.3, NAN], np.float32)
    got = run(lambda x: E.cast(x, "f4e2m1fn"), x).astype(np.float64)
    assert got.tolist() == [6.0, -6.0, 6.0, 0.5, 0.0]


@pytest.mark.parametrize("packed", ["i4", "u4", "i2", "u2", "f4e2m1fn"])
def test_packed_types_go_both_ways(packed: str) -> None:
    x = np.array([[0, 1], [1, 0]], np.float32)
    there = run(lambda x: E.cast(x, packed), x)
    assert there.dtype == dtype_of(packed).numpy
    assert run(lambda x: E.cast(x, "f32"), there).tolist() == x.tolist()


def test_cast_of_strings_in_the_interpreter() -> None:
    text = np.array(["10", "-3"], object)
    assert run(lambda x: E.cast(x, "i64"), text).tolist() == [10, -3]
    assert run(lambda x: E.cast(x, "f32"), text).tolist() == [10.0, -3.0]
    assert run(lambda x: E.cast(x, "string"), np.array([1.5, -2.0])).tolist() == ["1.5", "-2"]
    with pytest.raises(EvaluationError, match="cast failed"):
        run(lambda x: E.cast(x, "f32"), np.array(["ten"], object))


# Selection.


def test_clip_keeps_nan_and_lets_high_win() -> None:
    x = np.array([NAN, -INF, -2.0, -0.0, 0.5, INF])
    assert_same(run(lambda x: E.clip(x, 0.0, 1.0), x), [NAN, 0, 0, 0.0, 0.5, 1])
    assert_same(run(lambda x: E.clip(x, None, -1.0), x), [NAN, -INF, -2, -1, -1, -1])
    assert_same(run(lambda x: E.clip(x, 2.0, 1.0), x), [NAN, 1, 1, 1, 1, 1])
    assert_same(run(lambda x: E.clip(x), x), x)


def test_clip_of_integers() -> None:
    x = np.array([-5, 0, 5], np.int8)
    assert run(lambda x: E.clip(x, -1000, 2), x).tolist() == [-5, 0, 2]
    assert run(lambda x: E.clip(x, 0.5, 2), x).tolist() == [0.5, 0.5, 2.0]
    packed = x.astype(ml_dtypes.int4)
    assert run(lambda x: E.clip(x, -100, 3), packed).astype(int).tolist() == [-5, 0, 3]
    large = np.array([2**62 + 1])
    assert run(lambda x: E.clip(x, -INF, INF), large).tolist() == [2**62 + 1]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3fn", "f8e5m2"])
def test_clip_of_narrow_floats_decomposes_to_the_bit(dtype: str) -> None:
    kind = dtype_of(dtype).numpy
    x = np.array([-1e4, -1.3, 0.0, 0.7, 400.0, 1e4, NAN]).astype(kind)
    for op in (E.Clip(-1.1, 0.3), E.Clip(-1e30, 1e30), E.Clip(None, 1e6)):
        both = [result.astype(np.float64) for result in (run(op, x), run_decomposed(op, x))]
        assert_same(both[0], both[1])


def test_clip_with_tensors_as_bounds() -> None:
    x, low = np.array([-1.0, 0.5, 3.0]), np.array([0.0, 1.0, 2.0])
    assert run(E.clip, x, low).tolist() == [0.0, 1.0, 3.0]
    assert run(lambda x, high: E.clip(x, None, high), x, low).tolist() == [-1.0, 0.5, 2.0]


def test_where_takes_numbers_and_any_condition() -> None:
    condition = np.array([0, 2, 0])
    got = run(lambda c, x: E.where(c, x, 0), condition, np.array([1.5, 2.5, 3.5], np.float32))
    assert got.dtype == np.float32
    assert got.tolist() == [0.0, 2.5, 0.0]


# Functions promote.


def test_division_of_integers_is_in_f32() -> None:
    got = run(E.divide, np.array([1, 2]), np.array([2, 0]))
    assert got.dtype == np.float32
    assert got.tolist() == [0.5, INF]


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [("i32", "f16", "f16"), ("f16", "bf16", "f32"), ("u8", "i8", "i16"), ("bool", "i8", "i8")],
)
def test_operands_meet_in_one_dtype(a: str, b: str, result: str) -> None:
    arrays = (np.ones(2, dtype_of(a).numpy), np.ones(2, dtype_of(b).numpy))
    assert run(E.add, *arrays).dtype == dtype_of(result).numpy


def test_a_python_number_does_not_widen() -> None:
    x = np.ones(2, ml_dtypes.bfloat16)
    assert run(lambda x: (1 - x) * 0.5 + 2**0.5, x).dtype == ml_dtypes.bfloat16
    assert run(lambda x: x * 2.5, np.ones(2, np.int8)).dtype == np.float32


# Gradients where they need a decision.


def test_ties_share_the_gradient() -> None:
    a, b = np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 2.0])
    assert [g.tolist() for g in gradients(E.maximum, a, b)] == [[0, 0.5, 1], [1, 0.5, 0]]
    assert [g.tolist() for g in gradients(E.minimum, a, b)] == [[1, 0.5, 0], [0, 0.5, 1]]


def test_clip_passes_gradient_on_its_bounds() -> None:
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, NAN])
    (got,) = gradients(lambda x: E.clip(x, -1.0, 1.0), x)
    assert got.tolist() == [0, 1, 1, 1, 0, 0]


def test_gradients_at_kinks_are_zero_or_one() -> None:
    x = np.array([-2.0, 0.0, 3.0])
    assert gradients(E.abs, x)[0].tolist() == [-1, 0, 1]
    assert gradients(lambda x: E.copysign(x, -1.0), x)[0].tolist() == [1, 0, -1]
    for flat in (E.sign, E.floor, E.ceil, E.round, E.trunc):
        assert gradients(lambda x, flat=flat: flat(x) + 0.0 * x, x)[0].tolist() == [0, 0, 0]


def test_power_has_finite_gradients_at_zero_and_below() -> None:
    base = np.array([0.0, 0.0, -2.0, -2.0, 3.0])
    exponent = np.array([0.0, 2.0, 2.0, 3.0, 2.0])
    by_base, by_exponent = gradients(E.power, base, exponent)
    assert by_base.tolist() == [0, 0, -4, 12, 6]
    np.testing.assert_allclose(by_exponent, [0, 0, 0, 0, 9 * math.log(3)])


def test_stop_gradient_stops() -> None:
    (got,) = gradients(lambda x: x * E.stop_gradient(x), np.array([3.0, 4.0]))
    assert got.tolist() == [3.0, 4.0]


def test_cast_gradient_returns_to_the_operands_dtype() -> None:
    x = np.array([1.0, 2.0], np.float32)
    (got,) = gradients(lambda x: E.cast(x, "f16") * 3.0, x)
    assert got.dtype == np.float32
    assert got.tolist() == [3.0, 3.0]


# Complex numbers.


def complex_array(dtype: str, count: int = 6) -> np.ndarray:
    generator = np.random.default_rng(11)
    return (generator.normal(size=count) + 1j * generator.normal(size=count)).astype(dtype)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_parts(dtype: str) -> None:
    z = complex_array(dtype)
    half = np.zeros(0, dtype).real.dtype
    for function, expected in ((E.real, z.real), (E.imag, z.imag), (E.abs, np.abs(z))):
        got = run(function, z)
        assert got.dtype == half
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    again = run(lambda z: E.complex(E.real(z), E.imag(z)), z)
    np.testing.assert_array_equal(again, z)
    np.testing.assert_array_equal(run(E.conj, z), z.conj())


def test_complex_keeps_zeros_and_infinities_apart() -> None:
    got = run(E.complex, np.array([-0.0, INF]), np.array([-0.0, NAN]))
    assert_same(got.real, [-0.0, INF])
    assert_same(got.imag, [-0.0, NAN])


def test_real_and_conj_of_real_numbers_add_nothing() -> None:
    graph = trace(lambda x: E.conj(E.real(x)), "f32[3]")
    assert len(graph) == 0


COMPLEX_BINARY: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "subtract": torch.subtract,
    "multiply": torch.multiply,
    "divide": torch.divide,
    "power": torch.pow,
}


@pytest.mark.parametrize("name", COMPLEX_BINARY)
def test_complex_gradients_agree_with_torch(name: str) -> None:
    a, b = complex_array("complex128"), complex_array("complex128")[::-1].copy()
    leaves = [torch.tensor(array, requires_grad=True) for array in (a, b)]
    result = COMPLEX_BINARY[name](*leaves)
    (result.real + 2 * result.imag).sum().backward()
    for got, leaf in zip(complex_gradients(make(name), a, b), leaves, strict=True):
        np.testing.assert_allclose(got, leaf.grad.numpy(), rtol=1e-10)


@pytest.mark.parametrize("name", ["negate", "conj"])
def test_complex_unary_gradients_agree_with_torch(name: str) -> None:
    z = complex_array("complex128")
    leaf = torch.tensor(z, requires_grad=True)
    result = {"negate": torch.neg, "conj": torch.conj}[name](leaf)
    (result.real + 2 * result.imag).sum().backward()
    np.testing.assert_allclose(complex_gradients(make(name), z)[0], leaf.grad.resolve_conj())


@pytest.mark.parametrize("name", ["abs", "real", "imag"])
def test_gradients_of_real_parts_agree_with_torch(name: str) -> None:
    z = complex_array("complex128")
    leaf = torch.tensor(z, requires_grad=True)
    {"abs": torch.abs, "real": torch.real, "imag": torch.imag}[name](leaf).sum().backward()
    np.testing.assert_allclose(gradients(make(name), z)[0], leaf.grad.numpy(), rtol=1e-12)


def test_gradients_of_complex_from_parts() -> None:
    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    got = complex_gradients(E.complex, a, b)
    assert [g.tolist() for g in got] == [[1, 1], [2, 2]]
    (from_real,) = complex_gradients(lambda x: E.cast(x, "c128") * (1 + 1j), a)
    assert from_real.tolist() == [3, 3]


# What the type rules refuse.


@pytest.mark.parametrize(
    ("name", "attributes", "types", "message"),
    [
        ("add", {}, ["f32[2]", "f64[2]"], "different dtypes"),
        ("add", {}, ["f32[2]", "f32[3]"], "do not broadcast"),
        ("add", {}, ["string[2]", "string[2]"], "no meaning"),
        ("subtract", {}, ["bool[2]", "bool[2]"], "no meaning"),
        ("divide", {}, ["i32[2]", "i32[2]"], "no meaning"),
        ("floor_divide", {}, ["c64[2]", "c64[2]"], "no meaning"),
        ("remainder", {}, ["bool[2]", "bool[2]"], "no meaning"),
        ("power", {}, ["bool[2]", "bool[2]"], "no meaning"),
        ("maximum", {}, ["c64[2]", "c64[2]"], "no meaning"),
        ("less", {}, ["c64[2]", "c64[2]"], "no meaning"),
        ("atan2", {}, ["i32[2]", "i32[2]"], "no meaning"),
        ("logical_and", {}, ["i32[2]", "i32[2]"], "no meaning"),
        ("logical_not", {}, ["f32[2]"], "no meaning"),
        ("bitwise_and", {}, ["f32[2]", "f32[2]"], "no meaning"),
        ("bitwise_not", {}, ["f32[2]"], "no meaning"),
        ("shift_left", {}, ["bool[2]", "bool[2]"], "no meaning"),
        ("where", {}, ["i32[2]", "f32[2]", "f32[2]"], "condition is not bool"),
        ("where", {}, ["bool[2]", "f32[2]", "i32[2]"], "different dtypes"),
        ("where", {}, ["bool[2]", "f32[2]", "f32[3]"], "do not broadcast"),
        ("clip", {"low": 0.5}, ["i32[2]"], "whole bounds"),
        ("clip", {"low": NAN}, ["i32[2]"], "whole bounds"),
        ("clip", {"low": 300.0}, ["u8[2]"], "leave nothing"),
        ("clip", {"high": -1.0}, ["u8[2]"], "leave nothing"),
        ("clip", {"low": 0.0}, ["bool[2]"], "no meaning"),
        ("cast", {"dtype": dtype_of("f32")}, ["c64[2]"], "two parts"),
        ("cast", {"dtype": dtype_of("c64")}, ["string[2]"], "strings hold real"),
        ("cast", {"dtype": dtype_of("string")}, ["c64[2]"], "two parts"),
        ("floor", {}, ["i32[2]"], "no meaning"),
        ("round", {}, ["c64[2]"], "no meaning"),
        ("negate", {}, ["bool[2]"], "no meaning"),
        ("abs", {}, ["string[2]"], "no meaning"),
        ("is_nan", {}, ["i32[2]"], "no meaning"),
        ("real", {}, ["f32[2]"], "no meaning"),
        ("conj", {}, ["f32[2]"], "no meaning"),
        ("complex", {}, ["f16[2]", "f16[2]"], "no complex number of such parts"),
        ("complex", {}, ["i32[2]", "i32[2]"], "no meaning"),
        ("add", {}, ["f32[2]"], "wrong number of operands"),
        ("add", {}, ["i8[2]!q(0.5; 0)", "i8[2]"], "quantized"),
        ("cast", {"dtype": dtype_of("f32")}, ["i8[2]!q(0.5; 0)"], "quantized"),
    ],
)
def test_type_rules_refuse(
    name: str, attributes: dict[str, Any], types: list[str], message: str
) -> None:
    with pytest.raises(TypeRuleError, match=message) as caught:
        trace(make(name, **attributes), *types, name="test")
    assert caught.value.expected
    assert caught.value.found


def test_a_symbolic_dimension_meets_a_number() -> None:
    graph = trace(E.add, "f32[n, 1]", "f32[3]")
    assert str(graph.outputs[0].type) == "f32[n, 3]"
    graph = trace(E.where, "bool[n]", "f32[n]", "f32[1]")
    assert str(graph.outputs[0].type) == "f32[n]"


def test_errors_are_the_projects_own() -> None:
    with pytest.raises(MonographError):
        trace(lambda x: E.cast(x, "f7"), "f32[2]")


@pytest.mark.parametrize("shape", [(), (1,), (4,)])
def test_a_power_is_ieee_s_whatever_the_rank_of_the_exponent(shape: tuple[int, ...]) -> None:
    exponent = np.full(shape, 0.5)
    got = [run(E.Power(), np.array([base] * 4), exponent)[0] for base in (-np.inf, -0.0, 9.0)]
    assert got == [np.inf, 0.0, 3.0]
    assert not np.signbit(got[1])
