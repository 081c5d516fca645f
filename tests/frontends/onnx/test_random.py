"""Random ops: what must hold of numbers that no suite can know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph.errors import MonographError
from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import one_node

SHAPE = (64, 64)


def run(op: str, operands: list[Any], outputs: int = 1, **options: Any) -> list[Any]:
    model, feeds = one_node(op, operands, outputs, **options)
    return interpret(from_onnx(model), feeds)


def test_normal_numbers_have_their_mean_and_deviation() -> None:
    (found,) = run("RandomNormal", [], shape=SHAPE, mean=3.0, scale=2.0, seed=1.0)
    assert found.shape == SHAPE and found.dtype == np.float32
    assert abs(found.mean() - 3) < 0.2 and abs(found.std() - 2) < 0.1


def test_uniform_numbers_stay_within_their_bounds_and_take_a_dtype() -> None:
    (found,) = run("RandomUniformLike", [np.zeros(SHAPE, np.int32)], low=-1.0, high=3.0, dtype=11)
    assert found.dtype == np.float64 and found.min() >= -1 and found.max() <= 3
    assert abs(found.mean() - 1) < 0.1


def test_a_seed_decides_and_another_decides_otherwise() -> None:
    first, again, other = (
        run("RandomUniform", [], shape=SHAPE, seed=seed)[0] for seed in (1.0, 1.0, 2.0)
    )
    assert (first == again).all() and (first != other).any()


def test_bernoulli_follows_its_probabilities() -> None:
    chance = np.tile(np.array([0, 0.25, 1], np.float32), (4096, 1))
    (found,) = run("Bernoulli", [chance], onnx=15, dtype=6)
    assert found.dtype == np.int32
    assert not found[:, 0].any() and found[:, 2].all() and abs(found[:, 1].mean() - 0.25) < 0.05


def test_multinomial_draws_classes_by_their_log_probabilities() -> None:
    scores = np.log(np.array([[0.5, 0.25, 0.25, 1e-30]], np.float32))
    (found,) = run("Multinomial", [scores], sample_size=4096)
    share = np.bincount(found[0], minlength=4) / 4096
    assert found.dtype == np.int32
    np.testing.assert_allclose(share, [0.5, 0.25, 0.25, 0], atol=0.05)


@pytest.mark.parametrize("options", [{}, {"seed": 3}])
def test_dropout_scales_what_it_keeps(options: dict[str, int]) -> None:
    x = np.ones(SHAPE, np.float32)
    operands = [x, np.float32(0.25), np.array(True)]
    y, mask = run("Dropout", operands, 2, onnx=13, **options)
    assert mask.dtype == np.bool_ and abs(mask.mean() - 0.75) < 0.05
    np.testing.assert_allclose(y, mask / np.float32(0.75))


def test_dropout_without_training_keeps_all() -> None:
    x = np.ones((2, 3), np.float32)
    y, mask = run("Dropout", [x, np.float32(0.25), np.array(False)], 2, onnx=13)
    assert (y == x).all() and mask.all()


def test_dropout_of_everything_is_refused() -> None:
    with pytest.raises(MonographError, match="ratio"):
        run("Dropout", [np.ones(3, np.float32), np.float32(1), np.array(True)], onnx=13)
