"""What is special about pooling: overhanging windows, padding, NaN, ties, adaptive sizes."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import monograph
from monograph.errors import EvaluationError
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ops.adaptive_pool import (
    adaptive_avg_pool,
    adaptive_max_pool,
    global_avg_pool,
    global_max_pool,
)
from monograph.ops.pool import (
    AvgPool,
    MaxPool,
    MaxPoolGradient,
    MaxPoolWithIndices,
    avg_pool,
    max_pool,
    max_pool_with_indices,
)
from tests.ops.against_torch import agree, draw
from tests.ops.running import assert_same, gradients, refuses, run

NAN, INF = np.nan, np.inf
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOL = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def geometry(seed: int) -> tuple[int, dict[str, list[int]]]:
    """Spatial rank and attributes that torch accepts, at random but the same for a seed."""
    generator = np.random.default_rng(seed)
    rank = 1 + seed % 3
    kernel = generator.integers(1, 5, rank)
    pick = {
        "kernel": kernel,
        "stride": generator.integers(1, 5, rank),
        "padding": [int(generator.integers(0, size // 2 + 1)) for size in kernel],
        "dilation": generator.integers(1, 3, rank),
        "size": generator.integers(7, 11, rank),
    }
    return rank, {key: list(map(int, value)) for key, value in pick.items()}


@pytest.mark.parametrize("kernel, padding", [(5_000, 0), ((5_000, 3), (2, 1)), (9, 3)])
def test_windows_far_larger_than_the_image_agree_with_torch(kernel: Any, padding: Any) -> None:
    x = draw(1, 2, 6, 5)
    for counts in (True, False):
        agree(
            lambda x, counts=counts: avg_pool(x, kernel, None, padding, counts, True),
            lambda x, counts=counts: F.avg_pool2d(x, kernel, None, padding, True, counts),
            x,
        )
    agree(
        lambda x: max_pool(x, kernel, None, padding, ceil_mode=True),
        lambda x: F.max_pool2d(x, kernel, None, padding, ceil_mode=True),
        x,
    )
    compiled = monograph.compile(lambda x: avg_pool(x, kernel, None, padding, ceil_mode=True), x)
    mean = F.avg_pool2d(torch.tensor(x), kernel, None, padding, True)
    np.testing.assert_allclose(compiled(x), mean.numpy(), rtol=1e-6)
    places = run(lambda x: max_pool_with_indices(x, kernel, None, padding, 1, True)[1], x)
    _, expected = F.max_pool2d_with_indices(torch.tensor(x), kernel, None, padding, 1, True)
    assert_same(places, expected.numpy())


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("seed", range(18))
def test_max_pool_agrees_with_torch_for_any_geometry(seed: int, ceil_mode: bool) -> None:
    rank, pick = geometry(seed)
    agree(
        lambda x: max_pool(
            x, pick["kernel"], pick["stride"], pick["padding"], pick["dilation"], ceil_mode
        ),
        lambda x: MAX_POOL[rank](
            x, pick["kernel"], pick["stride"], pick["padding"], pick["dilation"], ceil_mode
        ),
        draw(2, 2, *pick["size"]),
    )


@pytest.mark.parametrize(("ceil_mode", "include"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize("seed", range(18))
def test_avg_pool_agrees_with_torch_for_any_geometry(
    seed: int, ceil_mode: bool, include: bool
) -> None:
    rank, pick = geometry(seed)
    symbols = ", ".join(["n", "c", "h", "w", "d"][: rank + 2])
    for types in (None, [f"f64[{symbols}]"]):
        agree(
            lambda x: avg_pool(
                x, pick["kernel"], pick["stride"], pick["padding"], include, ceil_mode
            ),
            lambda x: AVG_POOL[rank](
                x, pick["kernel"], pick["stride"], pick["padding"], ceil_mode, include
            ),
            draw(2, 2, *pick["size"]),
            types=types,
        )


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_max_pool_of_symbolic_sizes(ceil_mode: bool) -> None:
    for size in (6, 7, 8):
        agree(
            lambda x: max_pool(x, 3, 2, 1, 1, ceil_mode),
            lambda x: F.max_pool2d(x, 3, 2, 1, 1, ceil_mode),
            draw(2, 3, size, size + 1),
            types=["f64[n, c, h, w]"],
        )


def test_the_last_window_must_start_inside_the_operand() -> None:
    # Size 4, kernel 2, stride 3, padding 1: rounding up makes 3 windows, of which the last would
    # start in the high padding.
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 4)
    assert_same(run(lambda x: max_pool(x, 2, 3, 1, 1, True), x), [[[1, 4]]])
    assert_same(run(lambda x: max_pool(x, 3, 3, 0, 1, True), x), [[[3, 4]]])


def test_what_overhangs_does_not_count_in_a_mean() -> None:
    x = np.full((1, 1, 4), 6.0, np.float32)
    assert_same(run(lambda x: avg_pool(x, 3, 3, 0, True, True), x), [[[6, 6]]])
    assert_same(run(lambda x: avg_pool(x, 3, 2, 1, True, True), x), [[[4, 6, 3]]])
    assert_same(run(lambda x: avg_pool(x, 3, 2, 1, False, True), x), [[[6, 6, 6]]])


def test_a_window_of_padding_alone_has_mean_zero_and_the_lowest_maximum() -> None:
    x = np.ones((1, 1, 1), np.float32)
    assert_same(run(AvgPool((1,), (1,), ((1, 0),), False), x), [[[0, 1]]])
    assert_same(run(MaxPool((1,), (1,), ((1, 0),), (1,)), x), [[[-INF, 1]]])
    graph = trace(MaxPoolWithIndices((1,), (1,), ((1, 0),), (1,)), x)
    np.testing.assert_array_equal(interpret(graph, [x])[1], [[[-1, 0]]])
    spread = run(MaxPoolGradient((1,), (1,), ((1, 0),), (1,)), x, np.full((1, 1, 2), 3, np.float32))
    assert_same(spread, [[[3]]])


def test_nan_wins_a_maximum_and_padding_never_does() -> None:
    x = np.array([[[1, NAN, 2, -INF, -INF, -INF]]], np.float32)
    assert_same(run(lambda x: max_pool(x, 2), x), [[[NAN, 2, -INF]]])
    padded = MaxPoolWithIndices((3,), (3,), ((1, 2),), (1,))
    values, places = interpret(trace(padded, x), [x])
    assert_same(values, [[[NAN, 2, -INF]]])
    np.testing.assert_array_equal(places, [[[1, 2, 5]]])


def test_the_first_of_equal_maxima_takes_the_gradient() -> None:
    x = np.ones((1, 1, 4, 4))
    (ours,) = gradients(lambda x: max_pool(x, 2), x)
    leaf = torch.tensor(x, requires_grad=True)
    F.max_pool2d(leaf, 2).sum().backward()
    assert leaf.grad is not None
    assert_same(ours, leaf.grad.numpy())


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_maxima_of_integers(dtype: type) -> None:
    lowest = np.iinfo(dtype).min
    x = np.array([[[lowest, lowest, 5, 7]]], dtype)
    got = run(lambda x: max_pool(x, 2, 2, 1), x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, [[[lowest, 5, 7]]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_floats_of_every_width(dtype: type) -> None:
    x = draw(1, 2, 6, 6).astype(dtype)
    exact = x.astype(np.float64)
    np.testing.assert_array_equal(
        run(lambda x: max_pool(x, 3), x).astype(np.float64), run(lambda x: max_pool(x, 3), exact)
    )
    mean = run(lambda x: avg_pool(x, 3), x)
    assert mean.dtype == dtype
    step = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(
        mean.astype(np.float64), run(lambda x: avg_pool(x, 3), exact), rtol=step, atol=1e-6
    )


def test_a_mean_of_f16_does_not_overflow_on_the_way() -> None:
    x = np.full((1, 1, 16), 60000, np.float16)
    assert_same(run(lambda x: avg_pool(x, 16), x), np.full((1, 1, 1), 60000, np.float16))


def test_windows_over_fewer_dimensions_leave_the_others_alone() -> None:
    x = draw(3, 4, 8)
    np.testing.assert_array_equal(
        run(lambda x: max_pool(x, (2,)), x), x.reshape(3, 4, 4, 2).max(-1)
    )
    np.testing.assert_array_equal(
        run(lambda x: max_pool(x, (4, 8)), x), x.max((1, 2), keepdims=True)
    )
    assert run(lambda x: max_pool_with_indices(x, (4, 8))[1], x).shape == (3, 1, 1)


@pytest.mark.parametrize("wanted", [1, 2, 3, 4, 5, 7, 9, 12])
def test_adaptive_pools_agree_with_torch(wanted: int) -> None:
    x = draw(2, 3, 7, 9)
    for types in (None, ["f64[n, 3, h, w]"]):
        agree(
            lambda x: adaptive_avg_pool(x, wanted),
            lambda x: F.adaptive_avg_pool2d(x, wanted),
            *(x,),
            types=types,
        )
        agree(
            lambda x: adaptive_max_pool(x, (wanted, 3)),
            lambda x: F.adaptive_max_pool2d(x, (wanted, 3)),
            *(x,),
            types=types,
        )


def test_adaptive_pools_that_divide_are_pools_of_fixed_windows() -> None:
    graph = trace(lambda x: adaptive_avg_pool(x, (2, None)), "f32[n, 3, 8, 6]")
    assert [node.op for node in graph.nodes] == [AvgPool((4, 1), (4, 1), ((0, 0), (0, 0)))]


def test_an_infinity_stays_in_its_own_adaptive_window() -> None:
    x = np.array([[[INF, 1, 2, 3, 4]]], np.float32)
    assert_same(run(lambda x: adaptive_avg_pool(x, 3), x), [[[INF, 2, 3.5]]])


def test_global_pools_agree_with_torch() -> None:
    x = draw(2, 3, 4, 5)
    agree(global_avg_pool, lambda x: F.adaptive_avg_pool2d(x, 1), x)
    agree(global_max_pool, lambda x: F.adaptive_max_pool2d(x, 1), x)


def test_second_derivatives_of_a_maximum_choose_the_same_elements() -> None:
    op = MaxPoolGradient((2,), (2,), ((1, 1),), (1,))
    x, outputs = draw(1, 2, 6), draw(1, 2, 4, seed=1)
    weights = draw(1, 2, 6, seed=2)

    def weighted(given: Any) -> Any:
        return op(x, given) * weights

    (by_outputs,) = gradients(weighted, outputs)
    _, places = interpret(trace(MaxPoolWithIndices(**op.attributes()), x), [x])
    np.testing.assert_allclose(by_outputs, np.take_along_axis(weights, places, -1))


def test_what_does_not_fit_is_refused() -> None:
    plain = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,)}
    refuses("a kernel is empty", MaxPool((0,), **plain), "f32[1, 1, 4]")
    refuses("the kernel does not fit", MaxPool((), (), (), ()), "f32[1, 1, 4]")
    refuses("stride does not fit", MaxPool((2, 2), **plain), "f32[1, 1, 4, 4]")
    refuses("the window is larger", MaxPool((6,), **plain), "f32[1, 1, 4]")
    refuses("real numbers are needed", MaxPool((2,), **plain), "bool[1, 1, 4]")
    refuses("a float operand", AvgPool((2,), (1,), ((0, 0),)), "i32[1, 1, 4]")
    refuses("the kernel does not fit", lambda x: max_pool(x, 2), "f32[4, 4]")
    refuses("output_size does not fit", lambda x: adaptive_avg_pool(x, (2, 0)), "f32[1, 1, 4, 4]")
    refuses("no spatial dimension", lambda x: adaptive_avg_pool(x, 2), "f32[1, 4]")
    refuses("nothing to pool", lambda x: adaptive_avg_pool(x, 2), "f32[1, 4, 0]")
    refuses("differ", MaxPoolGradient((2,), **plain), "f32[1, 1, 4]", "f32[1, 1, 4]")
    refuses("wrong rank", MaxPoolGradient((2,), **plain), "f32[1, 1, 4]", "f32[1, 3]")


def test_a_window_that_does_not_fit_is_found_at_run_time_if_not_before() -> None:
    graph = trace(lambda x: max_pool(x, 6, 1), "f32[1, 1, n]")
    with pytest.raises(EvaluationError, match="larger than the padded operand"):
        interpret(graph, [np.zeros((1, 1, 1), np.float32)])
