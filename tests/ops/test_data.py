"""Sources of data: what fills a tensor, ranges, identity matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monograph.errors import TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ir.types import DTYPES, dtype_of, f32, i64, string
from monograph.ops import data
from tests.ops.running import refuses


def run(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    return interpret(trace(function, *arrays), arrays)[0]


@pytest.mark.parametrize("name", [name for name in DTYPES if name not in ("string", "f8e8m0fnu")])
def test_zeros_and_ones_of_every_dtype(name: str) -> None:
    for function, number in ((data.zeros, 0), (data.ones, 1)):
        got = run(lambda function=function: function((2,), name))
        assert got.dtype == dtype_of(name).numpy
        assert got.astype(np.complex64).tolist() == [number, number]


def test_full_takes_the_dtype_of_its_number() -> None:
    assert run(lambda: data.full((), True)).dtype == np.bool_
    assert run(lambda: data.full((), 3)).dtype == np.int64
    assert run(lambda: data.full((), 3.0)).dtype == np.float32


def test_full_of_a_value_of_the_graph() -> None:
    got = run(lambda x: data.full((2, 3), x, "f16"), np.float32(2.5))
    assert got.dtype == np.float16
    assert got.tolist() == [[2.5] * 3] * 2


def test_full_keeps_the_sign_of_zero_and_all_of_an_integer() -> None:
    assert np.signbit(run(lambda: data.full((1,), -0.0, "f32")))[0]
    assert int(run(lambda: data.full((), 2**63 + 1, "u64"))) == 2**63 + 1


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (2.5, "i32"),
        (300, "u8"),
        (-1, "u8"),
        (8, "i4"),
        (2, "bool"),
        (float("nan"), "i32"),
        (0, "string"),
    ],
)
def test_full_refuses_what_the_dtype_cannot_hold(value: Any, dtype: str) -> None:
    refuses("not one of the dtype", lambda: data.full((), value, dtype))


def test_shapes_are_checked() -> None:
    refuses("negative", lambda: data.zeros((2, -1)))
    refuses("negative", lambda: data.iota((-1,)))
    refuses("out of range", lambda: data.iota((), 0))
    refuses("out of range", lambda: data.iota((3,), 1))
    refuses("number type", lambda: data.iota((3,), 0, "bool"))
    assert DTYPES["string"] is string


def test_like() -> None:
    x = np.zeros((2, 3), np.int16)
    assert run(data.ones_like, x).dtype == np.int16
    assert run(lambda v: data.zeros_like(v, f32), x).dtype == np.float32
    assert run(lambda v: data.full_like(v, 7), x).tolist() == [[7] * 3] * 2
    graph = trace(data.zeros_like, "f32[n, 2]")
    assert interpret(graph, [np.ones((4, 2), np.float32)])[0].shape == (4, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        (5,),
        (2, 7),
        (0, 10, 3),
        (10, 0, -3),
        (5, 2),
        (2, 5, -1),
        (1.5, 4.0, 0.5),
        (0.0, 1.0, 0.1),
        (3, 0, -0.5),
    ],
)
def test_arange_is_numpy_s(arguments: tuple[Any, ...]) -> None:
    got = run(lambda: data.arange(*arguments))
    expected = np.arange(*arguments)
    assert got.dtype == (np.float32 if expected.dtype.kind == "f" else np.int64)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_symbolic_ranges() -> None:
    graph = trace(lambda x: data.arange(x.shape[0]), "f32[n]")
    assert interpret(graph, [np.zeros(4, np.float32)])[0].tolist() == [0, 1, 2, 3]
    tail = trace(lambda x: data.arange(x.shape[0], x.shape[0] + 6, 2, "i32"), "f32[n]")
    assert interpret(tail, [np.zeros(4, np.float32)])[0].tolist() == [4, 6, 8]
    refuses("step is zero", lambda: data.arange(0, 4, 0))
    with pytest.raises(TypeRuleError, match="symbolic bounds"):
        trace(lambda x: data.arange(0.5, x.shape[0]), "f32[n]")


@pytest.mark.parametrize(
    "arguments", [(0, 1, 5), (3.0, -2.0, 7), (2, 9, 1), (1, 2, 0), (0.1, 0.7, 23)]
)
def test_linspace_is_numpy_s_and_ends_exactly(arguments: tuple[Any, ...]) -> None:
    start, stop, count = arguments
    got = run(lambda: data.linspace(start, stop, count, "f64"))
    np.testing.assert_allclose(got, np.linspace(start, stop, count), rtol=1e-14)
    if count > 1:
        assert got[-1] == stop


def test_symbolic_linspace() -> None:
    graph = trace(lambda x: data.linspace(0, 1, x.shape[0]), "f32[n]")
    for size in (1, 2, 5):
        got = interpret(graph, [np.zeros(size, np.float32)])[0]
        np.testing.assert_allclose(got, np.linspace(0, 1, size), rtol=1e-6)


@pytest.mark.parametrize("arguments", [(3,), (2, 4), (4, 2, 1), (3, 3, -1), (0,)])
def test_eye_is_numpy_s(arguments: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(run(lambda: data.eye(*arguments)), np.eye(*arguments))
    assert run(lambda: data.eye(2, dtype=i64)).dtype == np.int64


def test_dim_is_a_scalar_of_the_graph() -> None:
    graph = trace(lambda x: data.dim(x.shape[0] * 2 + 1), "f32[n]")
    assert interpret(graph, [np.zeros(3, np.float32)])[0] == 7
