"""What is special about counting, order statistics and distances: ties, NaN, unknown lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from monograph.errors import EvaluationError
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol
from monograph.ir.interpret import interpret
from monograph.ops import distance, quantiles, statistics
from tests.ops.against_torch import agree, draw
from tests.ops.running import gradients, refuses, run

NAN, INF = np.nan, np.inf


def run_all(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    return interpret(trace(function, *arrays, name="test"), list(arrays))


def both(ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: np.ndarray) -> None:
    """Equal values, whatever their dtype."""
    expected = theirs(*(torch.tensor(array) for array in arrays))
    many = tuple(expected) if isinstance(expected, tuple) else (expected,)
    for got, want in zip(run_all(ours, *arrays), many, strict=True):
        assert got.dtype == want.numpy().dtype
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-6, atol=1e-6)


# Lengths that the data decide.


def test_lengths_become_symbols() -> None:
    graph = trace(lambda x: (statistics.bincount(x, minimum=3), *statistics.unique(x)), "i64[n]")
    shapes = [[str(dim) for dim in output.shape] for output in graph.outputs]
    assert shapes == [["bins"], ["unique"], ["unique"], ["n"], ["unique"]]
    assert graph.outputs[0].shape[0] == Symbol("bins", 3)
    results = interpret(graph, [np.array([1, 0, 1])])
    assert [result.tolist() for result in results] == [[1, 2, 0], [0, 1], [1, 0], [1, 0, 1], [1, 2]]
    assert [len(result) for result in interpret(graph, [np.array([7, 7])])] == [8, 1, 1, 2, 1]


def test_two_counts_in_one_graph_have_names_of_their_own() -> None:
    graph = trace(lambda x, y: (statistics.bincount(x), statistics.bincount(y)), "i64[n]", "i64[n]")
    assert [str(output.shape[0]) for output in graph.outputs] == ["bins", "bins_1"]


def test_bincount_weights() -> None:
    x, weights = np.array([2, 0, 2]), np.array([1, 2, 4])
    both(statistics.bincount, torch.bincount, x, weights)
    both(statistics.bincount, torch.bincount, x, weights.astype(np.float32))


def test_elements_without_a_bin() -> None:
    with pytest.raises(EvaluationError, match="no bin"):
        run(statistics.bincount, np.array([1, -1]))
    with pytest.raises(EvaluationError, match="no bin"):
        run(statistics.Bincount(2), np.array([1, 2]))


def test_unique_in_order_of_occurrence() -> None:
    values, first, inverse, counts = run_all(
        lambda x: statistics.unique(x, sorted=False), np.array([5, 1, 5, 3, 1])
    )
    assert values.tolist() == [5, 1, 3]
    assert first.tolist() == [0, 1, 3]
    assert inverse.tolist() == [0, 1, 0, 2, 1]
    assert counts.tolist() == [2, 2, 1]


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_unique_as_torch(axis: int | None) -> None:
    x = np.random.default_rng(0).integers(0, 2, (5, 3, 2)).astype(np.float32)

    def ours(x: Any) -> Any:
        values, _, inverse, counts = statistics.unique(x, axis)
        return values, inverse, counts

    def theirs(x: Any) -> Any:
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True, dim=axis)
        return values, inverse.reshape(-1), counts

    both(ours, theirs, x)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16"])
def test_unique_keeps_the_dtype(dtype: str) -> None:
    x = np.array([1, 0, 1]).astype(dtype)
    values = run_all(statistics.unique, x)[0]
    assert values.dtype == x.dtype
    np.testing.assert_array_equal(values, np.unique(x))


# Places and bins.


def test_searchsorted_with_a_sorter() -> None:
    x = draw(3, 5).astype(np.float32)
    order = np.argsort(x, -1)
    values = draw(3, 4, seed=1).astype(np.float32)
    both(
        lambda x, v, o: statistics.searchsorted(x, v, True, o),
        lambda x, v, o: torch.searchsorted(x, v, right=True, sorter=o),
        x,
        values,
        order,
    )


def test_bucketize() -> None:
    edges = np.array([1, 3, 5])
    np.testing.assert_array_equal(
        run(lambda x: statistics.bucketize(x, edges), np.array([1, 2, 5, 6])), [0, 1, 2, 3]
    )
    np.testing.assert_array_equal(
        run(lambda x: statistics.bucketize(x, edges, True), np.array([1, 2, 5, 6])), [1, 1, 3, 3]
    )


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram_as_torch(weighted: bool, density: bool) -> None:
    x = np.concatenate([draw(40), [-1.0, 2.0, 0.5, 99.0]]).reshape(4, 11)
    weights = np.abs(draw(4, 11, seed=1))
    edges = np.array([-1.0, 0.0, 0.5, 2.0])

    def theirs(x: Any, w: Any, e: Any) -> Any:
        return torch.histogram(x, e, weight=w if weighted else None, density=density)[0]

    def ours(x: Any, w: Any, e: Any) -> Any:
        return statistics.histogram(x, e, w if weighted else None, density)

    both(ours, theirs, x, weights, edges)


def test_histogram_in_two_dimensions() -> None:
    x, first, second = draw(50, 2), np.linspace(-2, 2, 4), np.array([-1.0, 0.0, 3.0])
    for density in (False, True):
        both(
            lambda x, a, b, d=density: statistics.histogram(x, [a, b], None, d),
            lambda x, a, b, d=density: torch.histogramdd(x, [a, b], density=d)[0],
            x,
            first,
            second,
        )


@pytest.mark.parametrize("bounds", [None, (-1.0, 1.0), (0.0, 0.25)])
def test_uniform_histogram_as_torch(bounds: Any) -> None:
    for x in (draw(30).astype(np.float32), np.full(5, 2.0, np.float32), np.array([0.0, 1.0, -1.0])):
        low, high = bounds or (None, None)
        got = run(lambda x, low=low, high=high: statistics.histogram_uniform(x, 4, low, high), x)
        expected = torch.histc(torch.tensor(x), 4, *(bounds or (0, 0)))
        np.testing.assert_array_equal(got, expected.numpy())


# Order.


@pytest.mark.parametrize("ignore_nan", [False, True])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_median_as_torch(axis: int, keepdims: bool, ignore_nan: bool) -> None:
    x = draw(4, 5, 3).astype(np.float32)
    x[1, 2, 0] = x[2, 2, 0] = x[0, 0, 1] = NAN
    reference = torch.nanmedian if ignore_nan else torch.median
    both(
        lambda x: quantiles.median(x, axis, keepdims, ignore_nan),
        lambda x: tuple(reference(x, axis, keepdims)),
        x,
    )


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0])
def test_quantiles_of_a_scalar(axis: int | None, keepdims: bool) -> None:
    for q in (np.array(0.3), np.array([0.0, 0.5])):
        both(
            lambda x, q: quantiles.quantile(x, q, axis, keepdims),
            lambda x, q: torch.quantile(x, q, axis, keepdims),
            np.array(4.0),
            q,
        )


def test_a_histogram_of_nothing() -> None:
    got = run(lambda x: statistics.histogram_uniform(x, 3), np.zeros((0, 2), np.float32))
    np.testing.assert_array_equal(got, np.zeros(3))


def test_median_of_nothing_but_nan_and_of_a_scalar() -> None:
    values, indices = run_all(lambda x: quantiles.median(x, ignore_nan=True), np.full(3, NAN))
    assert np.isnan(values)
    assert indices == 0
    values, indices = run_all(quantiles.median, np.array(4))
    assert values == 4
    assert values.shape == indices.shape == ()


@pytest.mark.parametrize("k", [1, 3, 5])
def test_kth_value_as_torch(k: int) -> None:
    x = draw(4, 5).astype(np.float32)
    x[0, 1] = NAN
    both(lambda x: quantiles.kth_value(x, k), lambda x: tuple(torch.kthvalue(x, k)), x)
    both(
        lambda x: quantiles.kth_value(x, 2, 0, True),
        lambda x: tuple(torch.kthvalue(x, 2, 0, True)),
        x,
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_mode_as_torch(axis: int) -> None:
    x = np.random.default_rng(3).integers(0, 4, (7, 9)).astype(np.float32)
    both(lambda x: quantiles.mode(x, axis), lambda x: tuple(torch.mode(x, axis)), x)
    both(lambda x: quantiles.mode(x, axis, True), lambda x: tuple(torch.mode(x, axis, True)), x)


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("ignore_nan", [False, True])
def test_quantiles_as_torch(
    interpolation: Any, axis: int | None, keepdims: bool, ignore_nan: bool
) -> None:
    x = draw(4, 5)
    x[1, 1] = x[2, 1] = NAN
    reference = torch.nanquantile if ignore_nan else torch.quantile
    for q in (np.array(0.3), np.array([0.0, 0.5, 0.62, 1.0])):
        both(
            lambda x, q: quantiles.quantile(x, q, axis, keepdims, interpolation, ignore_nan),
            lambda x, q: reference(x, q, axis, keepdims, interpolation=interpolation),
            x,
            q,
        )


def test_gradients_of_order_statistics() -> None:
    x = draw(4, 5)
    for types in (None, ["f64[rows, columns]"]):
        agree(
            lambda x: quantiles.quantile(x, np.array([0.2, 0.7]), 1),
            lambda x: torch.quantile(x, torch.tensor([0.2, 0.7], dtype=torch.float64), 1),
            x,
            types=types,
        )
        agree(lambda x: quantiles.median(x)[0], lambda x: x.median(-1)[0], x, types=types)
        agree(lambda x: quantiles.mode(x, 0)[0], lambda x: x.mode(0)[0], x, types=types)


# Distances.


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, 3.0, INF])
def test_distances_as_torch(p: float) -> None:
    a, b = draw(2, 4, 3), draw(2, 5, 3, seed=1)
    b[0, 0] = a[0, 0]
    reference = "donot_use_mm_for_euclid_dist"

    def theirs(a: Any, b: Any) -> Any:
        return torch.cdist(a, b, p, compute_mode=reference)

    if p == 0:
        both(lambda a, b: distance.pairwise_distance(a, b, p), theirs, a, b)
        both(lambda a: distance.self_distance(a, p), lambda a: torch.pdist(a, p), a[0])
        return
    agree(lambda a, b: distance.pairwise_distance(a, b, p), theirs, a, b)
    types = ["f64[b, m, k]", "f64[b, n, k]"]
    agree(lambda a, b: distance.pairwise_distance(a, b, p), theirs, a, b, types=types)
    agree(lambda a: distance.self_distance(a, p), lambda a: torch.pdist(a, p), a[0])


def test_distance_of_empty_vectors() -> None:
    a, b = np.zeros((2, 0)), np.zeros((3, 0))
    for p in (0.0, 2.0, INF):
        got = run(lambda a, b, p=p: distance.pairwise_distance(a, b, p), a, b)
        np.testing.assert_array_equal(got, np.zeros((2, 3)))


def test_distance_has_no_gradient_at_zero() -> None:
    x = np.ones((2, 3))
    for p in (1.5, 2.0, 3.0):
        (got,) = gradients(lambda x, p=p: distance.self_distance(x, p), x)
        np.testing.assert_array_equal(got, np.zeros((2, 3)))


@pytest.mark.parametrize("shape", [(), (5,), (1, 4), (3, 6)])
@pytest.mark.parametrize("correction", [0, 1])
def test_covariance_as_torch(shape: tuple[int, ...], correction: int) -> None:
    x = draw(*shape) + 1j * draw(*shape, seed=1)
    observations = shape[-1] if shape else 1
    counts = np.arange(1, observations + 1)
    weights = np.linspace(0.5, 2, observations)
    if not shape:
        counts, weights = counts[0], weights[0]
    for array in (np.asarray(x.real), np.asarray(x)):
        both(
            lambda x: distance.covariance(x, correction),
            lambda x: torch.cov(x, correction=correction),
            array,
        )
        both(
            lambda x, f, w: distance.covariance(x, correction, f, w),
            lambda x, f, w: torch.cov(x, correction=correction, fweights=f, aweights=w),
            array,
            np.asarray(counts),
            np.asarray(weights),
        )
        both(
            lambda x, w: distance.covariance(x, correction, None, w),
            lambda x, w: torch.cov(x, correction=correction, aweights=w),
            array,
            np.asarray(weights),
        )
        both(distance.correlation, torch.corrcoef, array)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, INF])
def test_renormalize_as_torch(p: float) -> None:
    x = draw(3, 4, 2)
    for axis in (0, 1, -1):
        agree(
            lambda x, a=axis: distance.renormalize(x, p, a, 1.0),
            lambda x, a=axis: torch.renorm(x, p, a, 1.0),
            x,
            tolerance=1e-6,
        )


def test_type_rules() -> None:
    refuses("a vector is needed", statistics.bincount, "i64[2, 2]")
    refuses("an integer operand", statistics.bincount, "f32[2]")
    refuses("lengths of elements and weights", statistics.bincount, "i64[2]", "f32[3]")
    refuses("a length is negative", statistics.Bincount(-1), "i64[2]")
    refuses("the ranks do not fit", statistics.searchsorted, "f32[2, 3]", "f32[3]")
    refuses("dimensions 0 differ", statistics.searchsorted, "f32[2, 3]", "f32[4, 3]")
    refuses("have no order", statistics.searchsorted, "c64[3]", "c64[3]")
    refuses("have no order", statistics.unique, "c64[3]")
    refuses("that many", statistics.Unique(4), "f32[3]")
    refuses("axis 1 is out of range", lambda x: statistics.unique(x, 1), "f32[3]")
    refuses("no elements along axis 0", lambda x: quantiles.median(x, 0), "f32[0]")
    refuses("not that many elements", lambda x: quantiles.kth_value(x, 4), "f32[3]")
    refuses("not that many elements", lambda x: quantiles.kth_value(x, 0), "f32[3]")
    refuses("neither a number nor a vector", quantiles.quantile, "f32[3]", "f32[1, 1]")
    refuses(
        "no such interpolation",
        lambda x: quantiles.quantile(x, 0.5, interpolation="cubic"),  # type: ignore[arg-type]
        "f32[3]",
    )
    refuses("negative norm", lambda x: distance.self_distance(x, -1.0), "f32[3, 2]")
    refuses("rows of vectors", distance.pairwise_distance, "f32[3]", "f32[3]")
    refuses("must be known", distance.self_distance, "f32[n, 2]")
    refuses("rows of observations", distance.covariance, "f32[2, 2, 2]")
    refuses("no such norm", lambda x: distance.renormalize(x, 0.0, 0, 1.0), "f32[3, 2]")
