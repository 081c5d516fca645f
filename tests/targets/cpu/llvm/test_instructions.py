"""Scalar functions at the ends of every dtype's range: the interpreter's bits, and never a trap."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import MonographError
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ir.types import dtype_of
from monograph.ops import elementwise, reduce
from tests.properties.meaning import assert_same_bits
from tests.targets.cpu.stepping import kernel_of

Array = np.ndarray[Any, Any]

SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("f64", "f32", "f16", "bf16")
BINARY = (
    *("add", "subtract", "multiply", "floor_divide", "truncate_divide", "remainder", "fmod"),
    *("maximum", "minimum", "power", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("shift_left", "shift_right", "equal", "not_equal", "less", "less_equal", "greater"),
    *("greater_equal", "logical_and", "logical_or", "logical_xor"),
)
UNARY = ("negate", "abs", "sign", "floor", "ceil", "round", "trunc", "bitwise_not", "logical_not")
LITERALS = (0.0, -0.0, np.nan, -np.nan, 1.0, np.inf, -np.inf)


def numbers(name: str) -> Array:
    """The elements at which functions go wrong."""
    dtype = dtype_of(name)
    if name == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        found = {info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, dtype.bits - 1}
        found |= {dtype.bits, -1, -2, -7} if info.min < 0 else {dtype.bits}
        return np.array(sorted(found), dtype.numpy)
    real = [0.0, 0.5, 1.0, 1.5, 2.5, 3.7, 1e-40, 6e-5, 126.6, 255.5, 32768.0, 65519.0, 65520.0]
    real += [2.0**24 + 1, 2.0**31, 2.0**32, 2.0**53 + 1, 2.0**63, 2.0**64, 1e30, 1e300, np.inf]
    with np.errstate(all="ignore"):
        both = np.array([*real, *(-number for number in real), np.nan]).astype(dtype.numpy)
    return both


def pairs(name: str) -> tuple[Array, Array]:
    chosen = numbers(name)
    a, b = zip(*itertools.product(chosen, chosen), strict=True)
    return np.array(a, chosen.dtype), np.array(b, chosen.dtype)


def assert_as_interpreted(function: Callable[..., Any], *arrays: Array) -> None:
    graph = trace(function, *arrays)
    executable = compile_graph(graph, Options(level="O0", cache=False, strict=True))
    assert_same_bits(executable.run(list(arrays)), interpret(graph, list(arrays)))


def _all_of(names: Sequence[str], *operands: Any) -> list[Any]:
    """Every function of a list that takes these operands."""
    results = []
    for name in names:
        try:
            results.append(getattr(elementwise, name)(*operands))
        except MonographError:
            continue
    assert results
    return results


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS])
def test_functions_of_two_integers_are_defined_everywhere(dtype: str) -> None:
    assert_as_interpreted(lambda a, b: _all_of(BINARY, a, b), *pairs(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_two_floats_have_the_same_bits(dtype: str) -> None:
    names = [name for name in BINARY if name not in ("power", "floor_divide", "remainder")]
    assert_as_interpreted(lambda a, b: _all_of([*names, "divide"], a, b), *pairs(dtype))


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS])
def test_functions_of_one_number_have_the_same_bits(dtype: str) -> None:
    assert_as_interpreted(lambda a: _all_of(UNARY, a), numbers(dtype))


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS])
def test_casts_to_every_dtype_have_the_same_bits(dtype: str) -> None:
    targets = [name for name in ("bool", *INTEGERS, *FLOATS) if name != dtype]
    assert_as_interpreted(
        lambda a: [elementwise.cast(a, target) for target in targets], numbers(dtype)
    )


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_extremes_with_a_literal_keep_nan_and_the_sign_of_zero(dtype: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], dtype_of(dtype).numpy)

    def function(a: Any) -> Any:
        bounds = [x.dtype.type(number) for number in LITERALS]
        return [
            extreme(*order)
            for bound in bounds
            for extreme in (elementwise.maximum, elementwise.minimum)
            for order in ((a, bound), (bound, a))
        ]

    assert_as_interpreted(function, x)


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 33, 100])
def test_positions_of_extremes_are_the_first_and_nan_wins(size: int) -> None:
    generator = np.random.default_rng(size)
    x = generator.integers(-2, 3, (5, size)).astype(np.float32)
    x[1, size // 2] = np.nan
    x[2, :] = np.nan
    x[3, :] = -np.inf

    def function(a: Any) -> Any:
        return [
            result
            for axis in (0, 1)
            for result in (reduce.argmax(a, axis), reduce.argmin(a, axis), reduce.max(a, axis))
        ]

    assert_as_interpreted(function, x)
    assert_as_interpreted(function, x.astype(np.float16))
    whole = generator.integers(-2, 3, (5, size)).astype(np.int8)
    assert_as_interpreted(function, whole)


def test_a_row_divided_by_a_tiny_number_is_not_nan() -> None:
    """0 / 1e-40 is 0, though 0 * (1 / 1e-40) is not."""
    x = np.float32([[0.0, 1e-40, 2e-40], [0.0, 3e38, 1e38]])

    def function(a: Any) -> Any:
        return a / reduce.sum(a, axis=1, keepdims=True)

    assert_as_interpreted(function, x)


def test_halves_are_compared_as_the_f32_that_they_are_read_as() -> None:
    text = kernel_of(lambda x: F.relu(x) * 2.0, "f16[4096]").text
    assert "llvm.arithmetic.fence.v32f32" in text


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "u16"])
@pytest.mark.parametrize("added", [0, 3, 100, 0.5])
def test_rounding_to_a_small_integer_is_one_conversion(dtype: str, added: float) -> None:
    limits = np.iinfo(dtype_of(dtype).numpy)
    edges = [end + off for end in (limits.min, limits.max, 0) for off in (-1, -0.5, 0, 0.5, 1, 1.5)]
    x = np.array([*edges, *numbers("f32"), -added, 0.4 - added], np.float32)
    graph = trace(lambda x: F.cast(F.round(x) + added, dtype), x)
    (expected,) = interpret(graph, [x])
    compiled = compile_graph(graph)
    assert_same_bits(compiled(x)[0], expected)
    assert_same_bits(
        compile_graph(trace(lambda x: F.cast(F.round(x) + added, dtype), x[:1]))(x[-1:])[0],
        expected[-1:],
    )
