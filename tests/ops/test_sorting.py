"""What is special about order and running results: ties, NaN, ends, zeros."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import monograph
from monograph.errors import EvaluationError, TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol
from monograph.ir.interpret import interpret
from monograph.ir.types import DTYPES, TensorType, f32, type_of_array
from monograph.ops import cumulative, sorting
from monograph.passes.lower_composites import LowerComposites
from tests.ops.running import assert_same, gradients, run

NAN, INF = np.nan, np.inf
DIGITS = np.array([3, 1, 2, 3, 1, 0])
ORDERED = [name for name, dtype in DTYPES.items() if not (dtype.is_complex or name == "string")]


# Order.


def test_nan_sorts_as_the_largest() -> None:
    array = np.array([1, NAN, -INF, INF, NAN, 0], np.float32)
    assert_same(run(sorting.sort, array), [-INF, 0, 1, INF, NAN, NAN])
    descending = run(lambda x: sorting.sort(x, descending=True), array)
    assert_same(descending, [NAN, NAN, INF, 1, 0, -INF])
    order = run(lambda x: sorting.argsort(x, descending=True), array)
    np.testing.assert_array_equal(order, [1, 4, 3, 0, 5, 2])


@pytest.mark.parametrize("descending", [False, True])
def test_equal_elements_keep_their_order(descending: bool) -> None:
    order = run(lambda x: sorting.argsort(x, descending=descending), DIGITS)
    np.testing.assert_array_equal(order, [0, 3, 2, 1, 4, 5] if descending else [5, 1, 4, 2, 0, 3])
    zeros = np.array([0.0, -0.0, 0.0], np.float32)
    assert_same(run(lambda x: sorting.sort(x, descending=descending), zeros), zeros)


@pytest.mark.parametrize("name", ORDERED)
def test_every_ordered_dtype_sorts(name: str) -> None:
    dtype = DTYPES[name]
    low = 1 if dtype.kind.name == "UNSIGNED" or name == "f8e8m0fnu" else -1
    array = np.array([1, low, 1, low, 1], np.float32).astype(dtype.numpy)
    got = run(sorting.sort, array)
    assert got.dtype == dtype.numpy
    np.testing.assert_array_equal(got, np.sort(array.astype(np.float32)).astype(dtype.numpy))
    values, indices = _top_k(array, 1, largest=False)
    assert values.dtype == dtype.numpy
    assert values[0] == array[1 if array[1] < array[0] else 0]
    assert indices.dtype == np.int64


def _top_k(array: np.ndarray, k: int, **options: Any) -> list[np.ndarray]:
    return interpret(trace(lambda x: sorting.top_k(x, k, **options), array), [array])


def test_top_k_prefers_the_lower_index() -> None:
    for options, values, indices in [
        ({}, [3, 3, 2], [0, 3, 2]),
        ({"largest": False}, [0, 1, 1], [5, 1, 4]),
        ({"sorted": False}, [3, 2, 3], [0, 2, 3]),
    ]:
        got = _top_k(DIGITS, 3, **options)
        np.testing.assert_array_equal(got[0], values)
        np.testing.assert_array_equal(got[1], indices)


def test_top_k_counts_nan_as_the_largest() -> None:
    values, indices = _top_k(np.array([1, NAN, INF, NAN], np.float32), 3)
    assert_same(values, [NAN, NAN, INF])
    np.testing.assert_array_equal(indices, [1, 3, 2])


def test_the_gradient_of_a_sort_returns_to_where_elements_came_from() -> None:
    array = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, -1.0]])
    weights = np.array([10.0, 20.0, 30.0])
    (got,) = gradients(lambda x: sorting.sort(x) * weights, array)
    np.testing.assert_array_equal(got, [[30, 10, 20], [20, 30, 10]])
    (top,) = gradients(lambda x: sorting.top_k(x, 2)[0] * weights[:2], array)
    np.testing.assert_array_equal(top, [[10, 0, 20], [20, 10, 0]])


def test_a_symbolic_k() -> None:
    n, k = Symbol("n"), Symbol("k")

    def top(x: Any, y: Any) -> Any:
        return sorting.top_k(x, y.shape[0])[0]

    graph = trace(top, TensorType(f32, (n,)), TensorType(f32, (k,)))
    assert graph.outputs[0].shape == (k,)
    x = np.array([1, 5, 3], np.float32)
    np.testing.assert_array_equal(interpret(graph, [x, x[:2]])[0], [5, 3])
    with pytest.raises(EvaluationError, match="not that many elements"):
        interpret(graph, [x[:1], x])


@pytest.mark.parametrize(
    ("message", "function", "type_"),
    [
        ("have no order", sorting.sort, "c64[3]"),
        ("have no order", sorting.argsort, "string[3]"),
        ("axis 1 is out of range", lambda x: sorting.sort(x, 1), "f32[3]"),
        ("axis -1 is out of range", sorting.argsort, "f32[]"),
        ("not that many", lambda x: sorting.top_k(x, 4), "f32[3]"),
        ("not that many", lambda x: sorting.top_k(x, -1), "f32[3]"),
        ("axis 2 is out of range", sorting.TopK(1, 2), "f32[3, 3]"),
        ("numbers are needed", cumulative.Cumsum(0), "bool[3]"),
        ("numbers are needed", cumulative.Cumprod(0), "string[3]"),
        ("have no order", cumulative.Cummax(0), "c64[3]"),
        ("axis 0 is out of range", lambda x: cumulative.cumsum(x, 0), "f32[]"),
        ("axis -3 is out of range", lambda x: cumulative.cummax(x, -3), "f32[2, 2]"),
    ],
)
def test_what_the_type_rules_refuse(message: str, function: Any, type_: str) -> None:
    with pytest.raises(TypeRuleError, match=message) as caught:
        trace(function, type_)
    assert caught.value.expected is not None
    assert caught.value.found is not None


# Running results.


def test_running_results_from_either_end() -> None:
    array = np.array([1, 2, 3, 4])
    for exclusive, reverse, sums, products in [
        (False, False, [1, 3, 6, 10], [1, 2, 6, 24]),
        (True, False, [0, 1, 3, 6], [1, 1, 2, 6]),
        (False, True, [10, 9, 7, 4], [24, 24, 12, 4]),
        (True, True, [9, 7, 4, 0], [24, 12, 4, 1]),
    ]:
        options = {"exclusive": exclusive, "reverse": reverse}
        got = run(lambda x, o=options: cumulative.cumsum(x, 0, **o), array)
        np.testing.assert_array_equal(got, sums)
        got = run(lambda x, o=options: cumulative.cumprod(x, 0, **o), array)
        np.testing.assert_array_equal(got, products)


def test_running_maximum() -> None:
    array = np.array([1, 3, 2, NAN, 9], np.float32)
    assert_same(run(lambda x: cumulative.cummax(x, 0), array), [1, 3, 3, NAN, NAN])
    backwards = run(lambda x: cumulative.cummax(x, 0, reverse=True), array)
    assert_same(backwards, [NAN, NAN, NAN, NAN, 9])


def test_the_latest_of_equal_elements_has_the_gradient_of_a_running_maximum() -> None:
    array = np.array([2.0, 2.0, 1.0, 3.0])
    (got,) = gradients(lambda x: cumulative.cummax(x, 0), array)
    np.testing.assert_array_equal(got, [1, 2, 0, 1])
    (got,) = gradients(lambda x: cumulative.cummax(x, 0, reverse=True), array[::-1].copy())
    np.testing.assert_array_equal(got, [1, 0, 2, 1])


def test_narrow_floats_run_in_f32() -> None:
    ones = np.ones(1024, ml_dtypes.bfloat16)
    got = run(lambda x: cumulative.cumsum(x, 0), ones)
    assert got[-1] == 1024  # in bf16 itself it would stop at 256


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_gradient_of_a_running_product_stands_zeros(exclusive: bool, reverse: bool) -> None:
    array = np.array([2.0, 0.0, 3.0, 0.0, 4.0])
    weights = np.array([1.0, 10.0, 100.0, 1000.0, 10000.0])

    def loss(x: Any) -> Any:
        return cumulative.cumprod(x, 0, exclusive, reverse) * weights

    (got,) = gradients(loss, array)
    expected = [
        (np.sum(run(loss, array + e)) - np.sum(run(loss, array - e))) / 2 for e in np.eye(5)
    ]
    np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "int64", "float64"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 5, 12])
def test_the_first_of_many_are_those_of_a_stable_sort(dtype: str, largest: bool, k: int) -> None:
    x = (np.random.default_rng(k).normal(size=(7, 100, 2)) * 20).astype(dtype)
    if np.issubdtype(x.dtype, np.floating):
        x[0, ::3], x[1], x[2, ::2], x[3, ::2] = np.nan, np.nan, np.inf, -0.0
    else:
        x[0], x[1] = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
    graph = trace(lambda x: sorting.top_k(x, k, 1, largest), type_of_array(x))
    expected = interpret(graph, [x])
    for got, wanted in zip(monograph.compile(graph, cache=False)(x), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_few_of_many_are_selected_and_half_of_them_sorted() -> None:
    def ops(k: int) -> set[str]:
        graph = trace(lambda x: sorting.top_k(x, k, 1), "f32[3, 100]")
        LowerComposites().run(graph)
        return {node.op.name for node in graph.nodes}

    assert "top_k_indices" in ops(5) and "argsort" not in ops(5)
    assert "argsort" in ops(50) and "top_k_indices" not in ops(50)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("size", [100, 5000])
def test_integers_of_any_range_are_sorted_by_their_digits(
    dtype: str, descending: bool, size: int
) -> None:
    random, info = np.random.default_rng(size), np.iinfo(dtype)
    rows = [
        random.integers(low, high, size, dtype, endpoint=True)
        for low, high in (
            (info.min, info.max),
            (info.min, info.min + 3),
            (info.max - 90, info.max),
            (5, 5),
        )
    ]
    x = np.stack(rows)
    graph = trace(lambda x: sorting.argsort(x, 1, descending), type_of_array(x))
    (expected,) = interpret(graph, [x])
    (got,) = monograph.compile(graph, cache=False)(x)
    np.testing.assert_array_equal(got, expected)
