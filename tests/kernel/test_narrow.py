"""Casts to and from numbers of eight bits and fewer, held against the interpreter bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from monograph import functional
from monograph.compiler import Options, compile_graph
from monograph.frontends.trace import trace
from monograph.ir.graph import Value
from monograph.ir.interpret import interpret
from monograph.ir.types import Array, TensorType, dtype_of, type_of_array
from monograph.ops.elementwise.convert import cast

FLOATS = ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e8m0fnu", "f4e2m1fn")
INTEGERS = ("i4", "u4", "i2", "u2")
WIDE = ("f32", "f64", "bf16", "i32", "u8", "bool", "f8e5m2", "i4")


def casts(x: Array, names: tuple[str, ...]) -> list[tuple[str, Array, Array]]:
    """``x`` in each dtype: its name, compiled (nothing in the interpreter) and interpreted."""

    def every(value: Value) -> list[Value]:
        return [cast(value, name) for name in names]

    graph = trace(every, type_of_array(x), name="casts")
    executable = compile_graph(graph, Options(strict=True, cache=False))
    with np.errstate(all="ignore"):
        expected = interpret(graph, [x])
    return list(zip(names, executable.run([x]), expected, strict=True))


def bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def assert_same(found: list[tuple[str, Array, Array]], x: Array) -> None:
    for name, got, expected in found:
        different = bits(got) != bits(expected)
        if dtype_of(name).is_float and dtype_of(name).bits >= 16:
            different &= ~(np.isnan(got) & np.isnan(expected))
        assert not different.any(), (
            f"{x.dtype} to {name}: {x[different][:4]} is {got[different][:4]}, "
            f"not {expected[different][:4]}"
        )


def patterns(name: str) -> Array:
    """Every pattern of a narrow dtype, and one more so that vectors have a tail."""
    dtype = dtype_of(name)
    count = 1 << dtype.bits
    codes = np.resize(np.arange(count, dtype=np.uint8), max(257, count + 1))
    return codes.view(dtype.numpy)


@pytest.mark.parametrize("name", FLOATS + INTEGERS)
def test_every_pattern_widens_and_narrows_as_in_the_interpreter(name: str) -> None:
    x = patterns(name)
    assert_same(casts(x, WIDE), x)


def around(name: str) -> Array:
    """Every number of a narrow float, every middle of two, and the neighbours of both."""
    numbers = patterns(name).astype(np.float64)
    finite = np.unique(numbers[np.isfinite(numbers)])
    middles = (finite[1:] + finite[:-1]) / 2
    beyond = finite[[0, -1]] * 1.0625
    points = np.concatenate([finite, middles, beyond, finite[[0, -1]] * 2])
    return np.concatenate([points, -points])


SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 1e-45)


@pytest.mark.parametrize("source", ["f32", "f64", "f16", "bf16"])
def test_halfway_cases_and_special_values_round_as_in_the_interpreter(source: str) -> None:
    dtype = dtype_of(source).numpy
    with np.errstate(all="ignore"):
        points = np.concatenate([around(name) for name in FLOATS]).astype(dtype)
        unsigned = bits(points)
        neighbours = np.concatenate([unsigned, unsigned + 1, unsigned - 1]).view(dtype)
        x = np.concatenate([neighbours, np.array(SPECIAL).astype(dtype)])
    assert_same(casts(x, (*FLOATS, *INTEGERS)), x)


def test_a_double_goes_through_f32() -> None:
    tie = 1.0625  # between 1.0 and 1.125 of f8e4m3fn
    x = np.array([tie * (1 + 2.0**-40), tie * (1 - 2.0**-20), tie, 1e300, 2.0**-200])
    found = casts(x, FLOATS)
    assert_same(found, x)
    assert found[0][1][:3].astype(np.float32).tolist() == [1.0, 1.0, 1.0]


def test_integers_keep_their_low_bits_and_floats_saturate() -> None:
    x = np.array([-9, -8, -1, 7, 8, 15, 16, 300, -300], np.int32)
    assert_same(casts(x, (*FLOATS[:4], *INTEGERS)), x)
    y = np.array([np.nan, -1e9, -8.9, -2.5, -0.5, 1.5, 3.9, 7.9, 15.9, 1e9], np.float32)
    assert_same(casts(y, INTEGERS), y)


def test_moves_of_narrow_numbers_stay_in_kernels() -> None:
    x = patterns("f8e4m3fn")[:256].reshape(16, 16)

    def moved(value: Value) -> list[Value]:
        turned = functional.transpose(value, (1, 0))
        both = functional.concat([turned, value], axis=0)
        return [both, functional.reshape(both, (8, 64))]

    graph = trace(moved, TensorType(dtype_of("f8e4m3fn"), (16, 16)), name="moves")
    executable = compile_graph(graph, Options(strict=True, cache=False))
    for got, expected in zip(executable.run([x]), interpret(graph, [x]), strict=True):
        assert (bits(got) == bits(expected)).all()


def every_pair(name: str) -> tuple[Array, Array]:
    """Every pair of numbers of a narrow integer, and one pair more so that vectors have a tail."""
    numbers = patterns(name)[: 1 << dtype_of(name).bits]
    left, right = np.meshgrid(numbers, numbers, indexing="ij")
    return tuple(np.append(side, numbers[-1]) for side in (left, right))


def arithmetic(x: Value, y: Value) -> list[Value]:
    """What leaves the range of a narrow integer, and is looked at before it is stored."""
    small = functional.bitwise_and(y, 1)
    results = [
        x + y,
        x - y,
        x * y,
        -x,
        functional.abs(x),
        functional.bitwise_not(x),
        functional.shift_left(x, small),
        functional.shift_right(x + y, small),
        functional.where(x < y, x + y, x * x),
        functional.maximum(x + x, y),
        (x + y) // y,
        functional.square(x) - y,
    ]
    return [*(cast(each, "i32") for each in results), *(each < 1 for each in results), *results]


@pytest.mark.parametrize("level", ["O0", "O2"])
@pytest.mark.parametrize("name", INTEGERS)
def test_every_op_on_narrow_integers_wraps_around(name: str, level: str) -> None:
    operands = every_pair(name)
    graph = trace(arithmetic, *map(type_of_array, operands), name="arithmetic")
    executable = compile_graph(graph, Options(level=level, strict=True, cache=False))
    for got, expected in zip(executable.run(operands), interpret(graph, operands), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("level", ["O0", "O2"])
@pytest.mark.parametrize("name", INTEGERS)
def test_sums_of_narrow_integers_wrap_around(name: str, level: str) -> None:
    x = np.resize(patterns(name), (41, 23))

    def sums(value: Value) -> list[Value]:
        found = [
            functional.sum(value, 1),
            functional.prod(value, 0),
            functional.max(value + value, 1),
            functional.cumsum(value, 1),
            functional.matmul(value, functional.transpose(value, (1, 0))),
        ]
        return [cast(each, "i32") for each in found]

    graph = trace(sums, type_of_array(x), name="sums")
    executable = compile_graph(graph, Options(level=level, strict=True, cache=False))
    for got, expected in zip(executable.run([x]), interpret(graph, [x]), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("level", ["O0", "O2"])
def test_narrow_integers_wrap_as_in_jax(level: str) -> None:
    def ops(x: Value, y: Value) -> list[Value]:
        found = [x + 3, -x, x * 3, y - 3, functional.bitwise_not(y)]
        return [*(cast(each, "i32") for each in found), x + x < 0]

    x = np.array([7, -8], np.int8).astype(dtype_of("i4").numpy)
    y = np.array([0, 9], np.uint8).astype(dtype_of("u4").numpy)
    graph = trace(ops, type_of_array(x), type_of_array(y), name="jax")
    executable = compile_graph(graph, Options(level=level, strict=True, cache=False))
    found = [result.tolist() for result in executable.run([x, y])]
    assert found == [[-6, -5], [-7, -8], [5, -8], [13, 6], [15, 6], [True, False]]
