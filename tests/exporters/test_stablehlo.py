"""StableHLO modules: whole models, sizes that are fixed, randomness, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import monograph
from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.exporters.hlo import to_hlo
from monograph.exporters.stablehlo import to_stablehlo
from monograph.frontends.stablehlo import from_stablehlo
from tests.exporters.claims import assert_close, run_hlo, run_stablehlo


def block(x: Any, w: Any) -> Any:
    hidden = F.gelu(F.layer_norm(x, axis=-1) @ w, "tanh")
    return F.softmax(hidden, -1), F.sum(F.silu(hidden), 0)


def arrays_of(*shapes: tuple[int, ...]) -> list[Any]:
    return [
        np.random.default_rng(seed).normal(size=shape).astype("f4")
        for seed, shape in enumerate(shapes)
    ]


def test_a_model_goes_out_and_comes_back() -> None:
    graph = monograph.trace(block, "f32[5, 4]", "f32[4, 3]")
    arrays = arrays_of((5, 4), (4, 3))
    expected = monograph.interpret(graph, arrays)
    text = to_stablehlo(graph)
    for found in (run_stablehlo(text, arrays), monograph.interpret(from_stablehlo(text), arrays)):
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b)


def test_hlo_text_is_parsed_and_run() -> None:
    graph = monograph.trace(block, "f32[5, 4]", "f32[4, 3]")
    arrays = arrays_of((5, 4), (4, 3))
    for a, b in zip(
        run_hlo(to_hlo(graph), arrays), monograph.interpret(graph, arrays), strict=True
    ):
        assert_close(a, b)


def test_symbolic_sizes_can_be_fixed_and_must_be_for_hlo() -> None:
    graph = monograph.trace(block, "f32[batch, 4]", "f32[4, 3]")
    arrays = arrays_of((7, 4), (4, 3))
    fixed = to_stablehlo(graph, {"batch": 7})
    assert "?" not in fixed
    with pytest.raises(UnsupportedError, match="batch is free") as caught:
        to_hlo(graph)
    assert "--size batch=8" in str(caught.value) and "sizes={'batch': 8}" in str(caught.value)
    expected = monograph.interpret(graph, arrays)
    for found in (run_stablehlo(fixed, arrays), run_hlo(to_hlo(graph, {"batch": 7}), arrays)):
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b)


def test_random_numbers_are_the_same_bits() -> None:
    graph = monograph.trace(lambda key: F.random_bits(key, (64,), "u32"), "u32[2]")
    key = np.array([7, 9], np.uint32)
    (found,) = run_stablehlo(to_stablehlo(graph), [key])
    np.testing.assert_array_equal(found, monograph.interpret(graph, [key])[0])


def test_an_op_that_is_not_written_is_named_with_its_place() -> None:
    def model(x: Any) -> Any:
        return F.lgamma(F.determinant(x))

    graph = monograph.trace(model, "f32[4, 4]")
    with pytest.raises(UnsupportedError, match="determinant") as caught:
        to_stablehlo(graph)
    (problem,) = caught.value.problems
    assert problem.op == "determinant" and "test_stablehlo.py" in problem.where
