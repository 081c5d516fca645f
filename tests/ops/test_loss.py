"""What is special about losses: ignored targets, weights, smoothing, stability, wrong targets."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from monograph.errors import EvaluationError
from monograph.ops.loss import CrossEntropy, Mse, cross_entropy, mse
from tests.ops.against_torch import agree, draw
from tests.ops.running import assert_same, gradients, refuses, run, run_decomposed

REDUCTIONS = ["none", "mean", "sum"]


@pytest.mark.parametrize(
    ("reduction", "smoothing", "weighted", "symbolic"),
    list(product(REDUCTIONS, [0.0, 0.1, 1.0], [False, True], [False, True])),
)
def test_cross_entropy_agrees_with_torch(
    reduction: str, smoothing: float, weighted: bool, symbolic: bool
) -> None:
    logits = draw(4, 5, 3)
    targets = np.random.default_rng(1).integers(0, 5, (4, 3))
    targets[1, 2] = targets[3, 0] = 2
    weight = np.abs(draw(5, seed=2)) if weighted else None
    ours = {"reduction": reduction, "ignore_index": 2, "label_smoothing": smoothing}
    agree(
        lambda x, t: cross_entropy(x, t, weight, **ours),
        lambda x, t: F.cross_entropy(
            x, t, None if weight is None else torch.tensor(weight), **ours
        ),
        *(logits, targets),
        types=["f64[n, c, d]", "i64[n, d]"] if symbolic and not weighted else None,
    )


def test_one_example_has_no_batch() -> None:
    agree(cross_entropy, F.cross_entropy, draw(5), np.array(3))


def test_large_logits_do_not_overflow() -> None:
    logits = np.array([[1e4, -1e4], [-1e4, 1e4]], np.float32)
    got = run(lambda x, t: cross_entropy(x, t, reduction="none"), logits, np.array([0, 0]))
    np.testing.assert_array_equal(got, [0, 2e4])


def test_the_mean_of_ignored_targets_is_nan_and_their_sum_zero() -> None:
    logits, targets = draw(3, 4), np.full(3, -100)
    for got in (
        run(cross_entropy, logits, targets),
        run_decomposed(CrossEntropy(), logits, targets),
    ):
        assert np.isnan(got)
    assert run(lambda x, t: cross_entropy(x, t, reduction="sum"), logits, targets) == 0


def test_an_ignored_target_passes_no_gradient() -> None:
    got, *_ = gradients(cross_entropy, draw(2, 4), np.array([0, -100]))
    assert_same(got[1], np.zeros(4))
    assert (got[0] != 0).all()


@pytest.mark.parametrize("target", [4, -1, -99, 2**40])
def test_a_target_that_is_no_class_is_named(target: int) -> None:
    with pytest.raises(EvaluationError, match=f"there is no class {target}"):
        run(cross_entropy, draw(2, 4), np.array([0, target]))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_targets_of_any_integer_dtype(dtype: type) -> None:
    logits, targets = draw(3, 4), np.array([0, 3, 1], dtype)
    want = F.cross_entropy(torch.tensor(logits), torch.tensor([0, 3, 1])).numpy()
    for got in (
        run(cross_entropy, logits, targets),
        run_decomposed(CrossEntropy(), logits, targets),
    ):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_losses_of_narrow_floats_are_rounded_once(dtype: type) -> None:
    logits, targets = (draw(64, 10) * 4).astype(dtype), np.arange(64) % 10
    exact = run(cross_entropy, logits.astype(np.float64), targets)
    step = float(ml_dtypes.finfo(dtype).eps)
    for got in (
        run(cross_entropy, logits, targets),
        run_decomposed(CrossEntropy(), logits, targets),
    ):
        assert got.dtype == dtype
        np.testing.assert_allclose(float(got), exact, rtol=0.51 * step + 1e-6)
    squares = run(mse, logits, np.zeros_like(logits))
    np.testing.assert_allclose(float(squares), (logits.astype(np.float64) ** 2).mean(), rtol=step)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_mse_agrees_with_torch(reduction: str) -> None:
    agree(
        lambda a, b: mse(a, b, reduction),
        lambda a, b: F.mse_loss(a, b, reduction=reduction),
        *(draw(3, 4), draw(3, 4, seed=1)),
        types=["f64[a, b]", "f64[a, b]"],
    )


def test_the_mean_of_no_squares_is_nan() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert np.isnan(run(mse, empty, empty))
    assert run(lambda a, b: mse(a, b, "sum"), empty, empty) == 0


def test_what_does_not_fit_is_refused() -> None:
    refuses("the logits do not fit", CrossEntropy(), "i32[2, 3]", "i64[2]")
    refuses("the logits do not fit", CrossEntropy(), "f32[]", "i64[]")
    refuses("an integer operand", CrossEntropy(), "f32[2, 3]", "f32[2]")
    refuses("the targets have the wrong rank", CrossEntropy(), "f32[2, 3]", "i64[2, 3]")
    refuses("targets differ", CrossEntropy(), "f32[2, 3]", "i64[3]")
    refuses("not a vector", CrossEntropy(), "f32[2, 3]", "i64[2]", "f32[3, 1]")
    refuses("weight differ", CrossEntropy(), "f32[2, 3]", "i64[2]", "f32[2]")
    refuses("different dtypes", CrossEntropy(), "f32[2, 3]", "i64[2]", "f64[3]")
    refuses("no such reduction", CrossEntropy("avg"), "f32[2, 3]", "i64[2]")
    refuses("no share", CrossEntropy("mean", -100, 1.5), "f32[2, 3]", "i64[2]")
    refuses("real float operands", Mse(), "i32[2]", "i32[2]")
    refuses("do not broadcast", Mse(), "f32[2]", "f32[3]")
    refuses("no such reduction", Mse("avg"), "f32[2]", "f32[2]")
