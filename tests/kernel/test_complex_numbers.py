"""Complex numbers in kernels: no interpreter, and what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monograph.compiler import Options, compile_graph
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol
from monograph.ir.graph import Value
from monograph.ir.interpret import interpret
from monograph.ir.types import Array, TensorType, c64, i64, type_of_array
from monograph.kernel.lower import is_lowerable
from monograph.ops import cumulative, elementwise, index, joining, linalg, reduce, shape
from tests.kernel.build import kernel_of

STRICT = Options(strict=True, cache=False)


def numbers(*sizes: int, seed: int = 0) -> Array:
    parts = np.random.default_rng(seed).normal(size=(2, *sizes))
    return np.asarray(parts[0] + 1j * parts[1], np.complex64)


def run(function: Callable[..., Any], *arrays: Array) -> list[Array]:
    graph = trace(function, *map(type_of_array, arrays), name="complex")
    return compile_graph(graph, STRICT).run(list(arrays))


def test_numbers_that_are_only_moved_are_pieces_of_eight_bytes() -> None:
    x, y = numbers(13, 30), numbers(30, 17, seed=1)
    x[0, 0], y[2, 3] = complex(-0.0, np.nan), complex(np.inf, -0.0)

    def joined(x: Value, y: Value) -> Value:
        return joining.concat([shape.transpose(x, (1, 0)), y], 1)

    kernel = kernel_of(joined, "c64[13, 30]", "c64[30, 17]", strides={0: (40, 1)})
    assert {buffer.dtype for buffer in kernel.buffers} == {i64}
    (moved,) = run(joined, x, y)
    expected = np.concatenate([x.T, y], 1)
    np.testing.assert_array_equal(moved.view(np.int64), expected.view(np.int64))


def test_a_number_that_decides_where_others_go_is_taken_apart() -> None:
    x = numbers(20, 20)

    def gated(x: Value) -> Value:
        turned = shape.transpose(x, (1, 0))
        return elementwise.where(elementwise.real(x) > 0.0, turned, x)

    np.testing.assert_array_equal(*run(gated, x), np.where(x.real > 0, x.T, x))


def test_moves_sums_and_products_need_no_interpreter() -> None:
    x, y = numbers(13, 7), numbers(13, 7, seed=1)

    def several(x: Value, y: Value) -> list[Value]:
        turned = shape.transpose(y, (1, 0))
        joined = joining.concat([x, elementwise.conj(y)], 0)
        return [
            linalg.matmul(x, turned),
            reduce.sum(joined, 0),
            shape.reshape(joined, (7, 26)),
            elementwise.abs(x * y - y),
        ]

    product, total, moved, size = run(several, x, y)
    joined = np.concatenate([x, y.conj()])
    np.testing.assert_allclose(product, x @ y.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, joined.sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(moved, joined.reshape(7, 26))
    np.testing.assert_allclose(size, np.abs(x * y - y), rtol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "axes"), [("[3, 4, 5]", 1), ("[n, 4, 5]", (0, 2)), ("[n, m, 5]", None)]
)
def test_products_along_axes_need_no_interpreter(sizes: str, axes: Any) -> None:
    x = numbers(3, 4, 5)
    for keepdims in (False, True):
        graph = trace(lambda x, keepdims=keepdims: reduce.prod(x, axes, keepdims), f"c64{sizes}")
        (found,) = compile_graph(graph, STRICT).run([x])
        np.testing.assert_allclose(found, np.prod(x, axes, keepdims=keepdims), rtol=1e-5)


def test_a_product_of_no_complex_numbers_is_one() -> None:
    (found,) = run(lambda x: reduce.prod(x, 0), numbers(0, 3))
    np.testing.assert_array_equal(found, np.ones(3, np.complex64))


@pytest.mark.parametrize("mode", ["set", "add", "multiply"])
def test_writing_where_data_says_needs_no_interpreter(mode: str) -> None:
    x, updates = numbers(4, 3), numbers(5, 3, seed=1)
    places = np.array([[0], [2], [2], [1], [2]])
    columns = np.array([[0, 1, 1], [2, 2, 2], [0, 1, 2], [1, 1, 0]])

    def several(x: Value, places: Value, updates: Value, columns: Value) -> list[Value]:
        return [
            index.scatter(x, places, updates, mode),
            index.scatter_within(x, places - 1, updates, mode),
            index.put_along_axis(x, columns, updates[:4], 1, mode),
        ]

    graph = trace(several, *map(type_of_array, (x, places, updates, columns)))
    found = run(several, x, places, updates, columns)
    for mine, expected in zip(found, interpret(graph, [x, places, updates, columns]), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_magnitudes_neither_overflow_nor_lose_infinities(dtype: type) -> None:
    huge = 1e38 if dtype is np.complex64 else 1e308
    inf, nan = np.inf, np.nan
    x: Array = np.array([huge + huge * 1j, complex(inf, nan), complex(nan, -inf), 0, 3 - 4j], dtype)
    (size,) = run(elementwise.abs, x)
    np.testing.assert_allclose(size, np.abs(x), rtol=1e-6)


def test_a_quotient_of_large_numbers_is_finite() -> None:
    x = np.array([1e300 + 1e300j, 1e-300j, 2 - 3j], np.complex128)
    (found,) = run(elementwise.divide, x, x)
    np.testing.assert_allclose(found, np.ones(3), rtol=1e-14)


def test_a_symbolic_size_is_one_compile_for_all() -> None:
    type_ = TensorType(c64, (Symbol("n", 1), 3))
    graph = trace(lambda x: elementwise.multiply(x, x), type_, name="square")
    executable = compile_graph(graph, STRICT)
    for rows in (1, 2, 9, 40):
        x = numbers(rows, 3)
        np.testing.assert_allclose(executable.run([x])[0], x * x, rtol=1e-5)


def test_what_complex_numbers_have_no_formula_for_is_not_lowered() -> None:
    graph = trace(lambda x: reduce.prod(x, 0), TensorType(c64, (4,)), name="product")
    assert not all(map(is_lowerable, graph.nodes))


@pytest.mark.parametrize("axis", [0, 1])
def test_running_results_are_loops(axis: int) -> None:
    x = numbers(40, 9)

    def running(x: Value) -> list[Value]:
        return [cumulative.cumsum(x, axis), cumulative.cumprod(x, axis)]

    total, product = run(running, x)
    np.testing.assert_allclose(total, np.cumsum(x, axis), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(product, np.cumprod(x, axis), rtol=1e-3, atol=1e-5)
