"""What is special about convolution: geometry, groups, what a stride leaves, higher orders."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from monograph.autodiff.vjp import grad
from monograph.errors import EvaluationError, TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ops import reduce
from monograph.ops.conv import Conv, ConvTranspose, ConvWeightGradient, conv, conv_transpose
from tests.ops.against_torch import agree, draw
from tests.ops.running import refuses, run, run_decomposed

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def geometry(seed: int) -> tuple[int, dict[str, list[int]], int]:
    """Spatial rank, attributes and groups, at random but the same for a seed."""
    generator = np.random.default_rng(seed)
    rank = 1 + seed % 3
    pick = {
        "kernel": generator.integers(1, 4, rank),
        "stride": generator.integers(1, 4, rank),
        "padding": generator.integers(0, 3, rank),
        "dilation": generator.integers(1, 4, rank),
        "size": generator.integers(5, 9, rank),
    }
    span = pick["dilation"] * (pick["kernel"] - 1) + 1
    pick["size"] = np.maximum(pick["size"], span - 2 * pick["padding"])
    return rank, {key: value.tolist() for key, value in pick.items()}, 1 + seed % 4


@pytest.mark.parametrize("seed", range(40))
def test_conv_agrees_with_torch_for_any_geometry(seed: int) -> None:
    rank, pick, groups = geometry(seed)
    x = draw(2, 2 * groups, *pick["size"])
    weight = draw(3 * groups, 2, *pick["kernel"], seed=1)
    options = {key: pick[key] for key in ("stride", "padding", "dilation")}
    agree(
        lambda x, w, b: conv(x, w, b, groups=groups, **options),
        lambda x, w, b: CONV[rank](x, w, b, groups=groups, **options),
        *(x, weight, draw(3 * groups, seed=2)),
    )


@pytest.mark.parametrize("seed", range(40))
def test_conv_transpose_agrees_with_torch_for_any_geometry(seed: int) -> None:
    rank, pick, groups = geometry(seed)
    generator = np.random.default_rng(seed)
    limits = [max(pair) for pair in zip(pick["stride"], pick["dilation"], strict=True)]
    options = {key: pick[key] for key in ("stride", "padding", "dilation")}
    options["output_padding"] = [int(generator.integers(0, limit)) for limit in limits]
    agree(
        lambda x, w, b: conv_transpose(x, w, b, groups=groups, **options),
        lambda x, w, b: TRANSPOSE[rank](x, w, b, groups=groups, **options),
        draw(2, 2 * groups, *pick["size"]),
        draw(2 * groups, 3, *pick["kernel"], seed=1),
        draw(3 * groups, seed=2),
    )


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("size", [7, 8, 9])
def test_symbolic_batch_and_sizes(stride: int, size: int) -> None:
    def ours(x: Any, w: Any) -> Any:
        return conv(x, w, stride=stride, padding=1, groups=2)

    def theirs(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, None, stride, 1, 1, 2)

    types = ["f64[batch, 4, height, width]", "f64[6, 2, 3, 3]"]
    agree(ours, theirs, draw(2, 4, size, size + 1), draw(6, 2, 3, 3, seed=1), types=types)


def test_symbolic_sizes_of_a_transposed_convolution() -> None:
    agree(
        lambda x, w: conv_transpose(x, w, stride=2, padding=1, output_padding=1),
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1),
        *(draw(2, 3, 4, 5), draw(3, 2, 3, 3, seed=1)),
        types=["f64[batch, 3, height, width]", "f64[3, 2, 3, 3]"],
    )


def test_the_result_of_a_symbolic_size_is_a_formula() -> None:
    graph = trace(
        lambda x, w: conv(x, w, stride=2, padding=((1, 2), (0, 0)), dilation=(2, 1)),
        *("f32[n, 3, h, w]", "f32[8, 3, 3, 3]"),
    )
    assert str(graph.outputs[0].type) == "f32[n, 8, h//2, (w+1)//2-1]"


@pytest.mark.parametrize(
    ("stride", "dilation", "size"), [(1, 1, 7), (1, 2, 8), (2, 1, 7), (3, 2, 8)]
)
def test_same_padding_makes_ceil_of_size_over_stride(stride: int, dilation: int, size: int) -> None:
    x, weight = draw(1, 2, size), draw(3, 2, 4, seed=1)
    got = run(lambda x, w: conv(x, w, stride=stride, padding="same", dilation=dilation), x, weight)
    assert got.shape == (1, 3, -(-size // stride))
    if stride == 1:
        same = F.conv1d(torch.tensor(x), torch.tensor(weight), padding="same", dilation=dilation)
        np.testing.assert_allclose(got, same.numpy(), rtol=1e-12)


def test_same_padding_of_a_symbolic_size_needs_stride_one() -> None:
    types = ("f32[n, 2, h]", "f32[3, 2, 3]")
    graph = trace(lambda x, w: conv(x, w, padding="same"), *types)
    assert str(graph.outputs[0].type) == "f32[n, 3, h]"
    refuses("'same' padding depends", lambda x, w: conv(x, w, padding="same", stride=2), *types)


def test_the_ways_to_write_padding_are_one() -> None:
    x, weight = draw(1, 1, 5, 5), draw(1, 1, 3, 3, seed=1)
    spellings = [1, (1, 1), ((1, 1), (1, 1)), "same"]
    results = [run(lambda x, w, p=p: conv(x, w, padding=p), x, weight) for p in spellings]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    assert run(lambda x, w: conv(x, w, padding="valid"), x, weight).shape == (1, 1, 3, 3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_floats_are_rounded_once(dtype: type) -> None:
    x, weight = draw(1, 8, 6).astype(dtype), draw(4, 8, 3, seed=1).astype(dtype)
    got = run(conv, x, weight)
    exact = run(conv, x.astype(np.float64), weight.astype(np.float64))
    assert got.dtype == dtype
    step = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=step, atol=4e-7)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_integers_wrap(dtype: type) -> None:
    x = np.full((1, 1, 3), 100, dtype)
    got = run(conv, x, np.full((1, 1, 3), 3, dtype))
    assert got.dtype == dtype
    assert got.item() == np.array(900).astype(dtype).item()


def test_padding_larger_than_the_kernel_gives_the_bias() -> None:
    x, weight, bias = draw(1, 1, 2), draw(1, 1, 2, seed=1), np.array([2.5])
    got = run(lambda x, w, b: conv(x, w, b, padding=4), x, weight, bias)
    np.testing.assert_array_equal(got[0, 0, :3], 2.5)
    np.testing.assert_array_equal(got[0, 0, -3:], 2.5)


def test_second_derivatives_stay_in_the_family() -> None:
    x, weight = draw(1, 2, 6), draw(2, 2, 3, seed=1)
    graph = trace(lambda x, w: reduce.sum(conv(x, w, stride=2) * conv(x, w, stride=2)), x, weight)
    by_x = grad(graph, [0])

    def penalty(x: Any, w: Any) -> Any:
        (gradient,) = by_x.copy_into(x.graph, [x, w])
        return reduce.sum(gradient * gradient)

    ours = interpret(grad(trace(penalty, x, weight)), [x, weight])
    leaves = [torch.tensor(array, requires_grad=True) for array in (x, weight)]
    loss = (F.conv1d(*leaves, stride=2) ** 2).sum()
    (inner,) = torch.autograd.grad(loss, leaves[0], create_graph=True)
    for got, want in zip(ours, torch.autograd.grad((inner**2).sum(), leaves), strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-9)


def test_the_weight_gradient_is_a_convolution_even_where_the_stride_leaves_a_rest() -> None:
    op = ConvWeightGradient((3, 3), (2, 3), ((1, 0), (0, 1)), (1, 2), 2)
    x, gradient = draw(3, 4, 8, 9), draw(3, 6, 4, 2, seed=1)
    np.testing.assert_allclose(run_decomposed(op, x, gradient), run(op, x, gradient), rtol=1e-9)


def test_a_window_that_does_not_fit_is_found_at_run_time_if_not_before() -> None:
    graph = trace(lambda x, w: conv(x, w), "f32[1, 1, n]", "f32[1, 1, 5]")
    with pytest.raises(EvaluationError, match="larger than the padded operand"):
        interpret(graph, [np.zeros((1, 1, 2), np.float32), np.zeros((1, 1, 5), np.float32)])
    refuses("larger than the padded operand", conv, "f32[1, 1, 2]", "f32[1, 1, 5]")


REFUSED = {
    "one to three spatial dimensions": ("f32[2, 3]", "f32[4, 3]"),
    "the ranks of the operands differ": ("f32[2, 3, 4]", "f32[4, 3]"),
    "the channels of x": ("f32[2, 3, 4]", "f32[4, 2, 1]"),
    "real numbers are needed": ("c64[2, 3, 4]", "c64[4, 3, 1]"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_operands_that_do_not_fit_are_refused(message: str) -> None:
    refuses(message, conv, *REFUSED[message])


def test_attributes_that_do_not_fit_are_refused() -> None:
    types = ("f32[1, 4, 8, 8]", "f32[4, 4, 3, 3]")
    none = ((0, 0), (0, 0))
    refuses("stride does not fit", Conv((1,), none, (1, 1)), *types)
    refuses("stride does not fit", Conv((1, 0), none, (1, 1)), *types)
    refuses("dilation does not fit", Conv((1, 1), none, (1, -1)), *types)
    refuses("padding", Conv((1, 1), ((0, 0),), (1, 1)), *types)
    refuses("padding", Conv((1, 1), ((0, 0), (-1, 0)), (1, 1)), *types)
    refuses("groups must be positive", Conv((1, 1), none, (1, 1), 0), *types)
    refuses("the channels of x", Conv((1, 1), none, (1, 1), 2), *types)
    refuses("do not divide", Conv((1, 1), none, (1, 1), 2), types[0], "f32[5, 2, 3, 3]")
    refuses("bias", Conv((1, 1), none, (1, 1)), *types, "f32[4, 1]")
    refuses("bias", Conv((1, 1), none, (1, 1)), *types, "f32[5]")
    refuses("different dtypes", Conv((1, 1), none, (1, 1)), types[0], "f64[4, 4, 3, 3]")
    refuses("stride does not fit", lambda x, w: conv(x, w, stride=(1, 2, 3)), *types)
    refuses("padding does not fit", lambda x, w: conv(x, w, padding="full"), *types)
    refuses("padding does not fit", lambda x, w: conv(x, w, padding=((1, 1, 1), 0)), *types)


def test_attributes_of_the_transpose_that_do_not_fit_are_refused() -> None:
    types = ("f32[1, 4, 8]", "f32[4, 2, 3]")
    refuses("output_padding is too large", ConvTranspose((2,), ((0, 0),), (2,), (1,)), *types)
    refuses("output_padding does not fit", ConvTranspose((2,), ((0, 0),), (-1,), (1,)), *types)
    refuses(
        "the channels of x", ConvTranspose((1,), ((0, 0),), (0,), (1,)), types[0], "f32[3, 2, 3]"
    )
    refuses("do not divide", ConvTranspose((1,), ((0, 0),), (0,), (1,), 3), *types)
    refuses("removes more", ConvTranspose((1,), ((9, 9),), (0,), (1,)), *types)
    with pytest.raises(TypeRuleError, match="no one meaning"):
        trace(lambda x, w: conv_transpose(x, w, padding="same"), *types)


def test_equal_channels_give_equal_results() -> None:
    """A library of matrix products may add up the last columns in another order than the first."""
    x = draw(1, 300, 5, 5).astype(np.float32)
    weight = np.repeat(draw(1, 300, 3, 3, seed=1), 41, axis=0).astype(np.float32)
    y = run(conv, x, weight)
    assert y.shape == (1, 41, 3, 3)
    np.testing.assert_array_equal(y, np.repeat(y[:, :1], 41, axis=1))
