"""What is special about norms and softmax: infinities, narrow floats, mixed dtypes, state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from monograph.autodiff.vjp import grad
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.op import Op
from monograph.ops import reduce
from monograph.ops.batch_norm import (
    BatchNorm,
    BatchNormTraining,
    batch_norm,
    batch_norm_training,
)
from monograph.ops.norm import (
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RmsNorm,
    group_norm,
    instance_norm,
    layer_norm,
    rms_norm,
)
from monograph.ops.softmax import LogSoftmax, Softmax, log_softmax, softmax
from tests.ops.against_torch import agree, draw
from tests.ops.running import assert_same, gradients, refuses, run, run_decomposed

NAN, INF = np.nan, np.inf
NARROW = [np.float16, ml_dtypes.bfloat16]


# Softmax.


def test_a_row_without_an_answer_is_nan() -> None:
    rows = [[1, 2, INF], [-INF, -INF, -INF], [NAN, 1, 2], [INF, INF, 0]]
    x = np.array(rows, np.float32)
    for op in (Softmax(1), LogSoftmax(1)):
        for got in (run(op, x), run_decomposed(op, x)):
            assert_same(got, np.full((4, 3), NAN, np.float32))


def test_minus_infinity_takes_no_share() -> None:
    x = np.array([[0, -INF, 0]], np.float32)
    assert_same(run(softmax, x), [[0.5, 0, 0.5]])
    got = run(log_softmax, x)
    np.testing.assert_allclose(got, [[-np.log(2), -INF, -np.log(2)]], rtol=1e-6)


def test_large_elements_do_not_overflow() -> None:
    x = np.array([1e38, 1e38, -1e38], np.float32)
    assert_same(run(softmax, x), [0.5, 0.5, 0])
    np.testing.assert_allclose(run(log_softmax, np.float32([1000, 0])), [0, -1000])


def test_log_softmax_keeps_what_softmax_loses() -> None:
    x = np.array([0, 200], np.float32)
    assert run(softmax, x)[0] == 0
    assert run(log_softmax, x)[0] == -200


@pytest.mark.parametrize("function", [softmax, log_softmax])
def test_softmax_of_symbolic_rows(function: Callable[..., Any]) -> None:
    theirs = {softmax: F.softmax, log_softmax: F.log_softmax}[function]
    agree(
        lambda x: function(x, 1),
        lambda x: theirs(x, 1),
        draw(3, 5, 2),
        types=["f64[a, b, c]"],
    )


def test_integers_are_made_floats() -> None:
    got = run(softmax, np.array([1, 1], np.int64))
    assert got.dtype == np.float32
    assert_same(got, [0.5, 0.5])


# Norms.


@pytest.mark.parametrize("axis", [-1, -2, 0])
def test_layer_norm_and_rms_norm_of_symbolic_shapes(axis: int) -> None:
    x = draw(2, 3, 4)
    shape, names = x.shape[axis:], ["a", "b", "c"][axis:]
    parameters = f"f64[{', '.join(names)}]"
    agree(
        lambda x, s, b: layer_norm(x, s, b, axis),
        lambda x, s, b: F.layer_norm(x, shape, s, b),
        *(x, draw(*shape, seed=1), draw(*shape, seed=2)),
        types=["f64[a, b, c]", parameters, parameters],
    )
    agree(
        lambda x, s: rms_norm(x, s, axis),
        lambda x, s: F.rms_norm(x, shape, s, 1e-6),
        *(x, draw(*shape, seed=1)),
        types=["f64[a, b, c]", parameters],
    )


def test_norms_of_channels_with_symbolic_shapes() -> None:
    x, scale, bias = draw(2, 6, 3, 4), draw(6, seed=1), draw(6, seed=2)
    types = ["f64[n, c, h, w]", "f64[c]", "f64[c]"]
    agree(
        lambda x, s, b: group_norm(x, 3, s, b),
        lambda x, s, b: F.group_norm(x, 3, s, b),
        *(x, scale, bias),
        types=types,
    )
    agree(
        instance_norm,
        lambda x, s, b: F.instance_norm(x, None, None, s, b),
        *(x, scale, bias),
        types=types,
    )
    agree(
        lambda x, s, b: batch_norm_training(x, s, b)[0],
        lambda x, s, b: F.batch_norm(x, None, None, s, b, True),
        *(x, scale, bias),
        types=types,
    )


def test_a_bias_without_a_scale() -> None:
    x, bias = draw(2, 4, 3), draw(4, seed=1)
    ones = torch.ones(4, dtype=torch.float64)
    agree(lambda x, b: group_norm(x, 2, bias=b), lambda x, b: F.group_norm(x, 2, ones, b), x, bias)
    agree(
        lambda x, b: instance_norm(x, bias=b),
        lambda x, b: F.instance_norm(x, None, None, ones, b),
        *(x, bias),
    )
    row = draw(3, seed=2)
    agree(lambda x, b: layer_norm(x, bias=b), lambda x, b: F.layer_norm(x, (3,), None, b), x, row)


def test_statistics_far_from_zero_keep_their_digits() -> None:
    x = (draw(4, 256) + 1000).astype(np.float32)
    exact = run(LayerNorm(1), x.astype(np.float64))
    theirs = F.layer_norm(torch.tensor(x), (256,)).numpy()
    ours = np.abs(run(LayerNorm(1), x) - exact).max()
    assert ours <= max(2 * np.abs(theirs - exact).max(), 1e-4)


PARAMETERS = [draw(8, seed=1), draw(8, seed=2)]
OPS: dict[str, tuple[Op, list[np.ndarray]]] = {
    "softmax": (Softmax(1), []),
    "log_softmax": (LogSoftmax(1), []),
    "layer_norm": (LayerNorm(1), PARAMETERS),
    "rms_norm": (RmsNorm(1), PARAMETERS[:1]),
    "group_norm": (GroupNorm(2), PARAMETERS),
    "batch_norm": (BatchNorm(), [*PARAMETERS, draw(8, seed=3), np.abs(draw(8, seed=4))]),
}


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", OPS)
def test_narrow_floats_are_rounded_once(name: str, dtype: type) -> None:
    op, parameters = OPS[name]
    operands = [array.astype(dtype) for array in (draw(6, 8), *parameters)]
    exact = run(op, *(array.astype(np.float64) for array in operands))
    step = float(ml_dtypes.finfo(dtype).eps)
    for got in (run(op, *operands), run_decomposed(op, *operands)):
        assert got.dtype == dtype
        np.testing.assert_allclose(got.astype(np.float64), exact, rtol=0.51 * step, atol=1e-6)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", OPS)
def test_gradients_of_narrow_floats_are_rounded_last(name: str, dtype: type) -> None:
    op, parameters = OPS[name]
    operands = [array.astype(dtype) for array in (draw(6, 8), *parameters)]
    weights = draw(6, 8, seed=9).astype(dtype)
    ours = gradients(lambda *values: op(*values) * weights, *operands)
    wide = [array.astype(np.float64) for array in operands]
    exact = gradients(lambda *values: op(*values) * weights.astype(np.float64), *wide)
    step = float(ml_dtypes.finfo(dtype).eps)
    for got, want in zip(ours, exact, strict=True):
        assert got.dtype == dtype
        scale = np.abs(want).max()
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=2 * step, atol=step * scale)


def test_parameters_may_be_wider_than_the_operand() -> None:
    x = draw(4, 8).astype(ml_dtypes.bfloat16)
    scale, bias = (array.astype(np.float32) for array in PARAMETERS)
    got = run(layer_norm, x, scale, bias)
    assert got.dtype == ml_dtypes.bfloat16
    exact = run(layer_norm, x.astype(np.float64), scale.astype(np.float64), bias.astype(np.float64))
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=0.004, atol=1e-6)
    assert [g.dtype for g in gradients(layer_norm, x, scale, bias)] == [
        ml_dtypes.bfloat16,
        np.float32,
        np.float32,
    ]


def test_squares_of_f16_do_not_overflow() -> None:
    x = np.full((1, 4), 1000, np.float16)
    assert_same(run(rms_norm, x), np.ones((1, 4), np.float16))
    assert_same(run(layer_norm, x), np.zeros((1, 4), np.float16))


# Batch norm.


def test_batch_norm_agrees_with_torch() -> None:
    x = draw(3, 8, 4)
    scale, bias, mean, variance = OPS["batch_norm"][1]
    agree(
        lambda x, s, b: batch_norm(x, s, b, mean, variance),
        lambda x, s, b: F.batch_norm(x, torch.tensor(mean), torch.tensor(variance), s, b),
        *(x, scale, bias),
    )
    agree(
        lambda x: batch_norm(x, None, None, mean, variance, 0.1),
        lambda x: F.batch_norm(x, torch.tensor(mean), torch.tensor(variance), eps=0.1),
        x,
    )


def test_statistics_of_the_batch_are_f32_for_narrow_operands() -> None:
    x = draw(16, 3).astype(ml_dtypes.bfloat16)
    graph = trace(lambda x: batch_norm_training(x), x)
    y, mean, variance = interpret(graph, [x])
    assert (y.dtype, mean.dtype, variance.dtype) == (x.dtype, np.float32, np.float32)
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(0), rtol=1e-5)
    np.testing.assert_allclose(variance, x.astype(np.float64).var(0), rtol=1e-5)


def test_gradients_flow_through_every_result_of_training() -> None:
    x, scale, bias = draw(4, 3, 2), draw(3, seed=1), draw(3, seed=2)

    def ours(x: Any, s: Any, b: Any) -> Any:
        y, mean, variance = batch_norm_training(x, s, b)
        return reduce.sum(y * y * y) + reduce.sum(mean * mean) + reduce.sum(variance * variance)

    leaves = [torch.tensor(array, requires_grad=True) for array in (x, scale, bias)]
    y = F.batch_norm(leaves[0], None, None, leaves[1], leaves[2], True)
    mean, variance = leaves[0].mean((0, 2)), leaves[0].var((0, 2), correction=0)
    loss = (y**3).sum() + (mean**2).sum() + (variance**2).sum()
    theirs = torch.autograd.grad(loss, leaves)
    operands = [x, scale, bias]
    for got, want in zip(interpret(grad(trace(ours, *operands)), operands), theirs, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-9)


def test_running_statistics_are_declared_as_state() -> None:
    """The recipe in the docstring gives torch's running statistics."""
    graph = Graph("step")
    x = graph.add_input("x", "f64[5, 3]")
    states = [graph.add_input(name, "f64[3]") for name in ("mean", "variance")]
    y, mean, variance = batch_norm_training(x)
    momentum, count = 0.1, 5
    new_mean = states[0] * (1 - momentum) + mean * momentum
    new_variance = states[1] * (1 - momentum) + variance * (momentum * count / (count - 1))
    graph.set_outputs([y, new_mean, new_variance])
    graph.updates = {1: 1, 2: 2}
    operands = [draw(5, 3), draw(3, seed=1), np.abs(draw(3, seed=2))]
    results = interpret(graph, operands)
    tensors = [torch.tensor(array) for array in operands]
    theirs = F.batch_norm(*tensors, training=True, momentum=momentum)
    for got, want in zip(results, (theirs, *tensors[1:]), strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-9)


# Refusals.


def test_what_does_not_fit_is_refused() -> None:
    refuses("a real float operand", Softmax(0), "i32[4]")
    refuses("a real float operand", LogSoftmax(0), "c64[4]")
    refuses("out of range", Softmax(1), "f32[4]")
    refuses("out of range", LayerNorm(0), "f32[]")
    refuses("the scale does not fit", LayerNorm(1), "f32[2, 4]", "f32[2, 4]")
    refuses("scale differ", LayerNorm(1), "f32[2, 4]", "f32[3]")
    refuses("bias differ", LayerNorm(1), "f32[2, 4]", "f32[4]", "f32[3]")
    refuses("a real float operand", LayerNorm(1), "f32[2, 4]", "i32[4]")
    refuses("epsilon is negative", LayerNorm(1, -1.0), "f32[2, 4]")
    refuses("a real float operand", RmsNorm(1), "i32[2, 4]")
    refuses("too few dimensions", GroupNorm(2), "f32[4]")
    refuses("do not divide into groups", GroupNorm(3), "f32[2, 4]")
    refuses("groups must be positive", GroupNorm(0), "f32[2, 4]")
    refuses("too few dimensions", InstanceNorm(), "f32[2, 4]")
    refuses("too few dimensions", BatchNormTraining(), "f32[4]", "f32[4]", "f32[4]")
    refuses("variance differ", BatchNorm(), "f32[2, 4]", *["f32[4]"] * 3, "f32[3]")
