"""Transposed convolutions of stride one mean the same when they are said as convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.interpret import interpret
from monograph.passes.conv_transpose_to_conv import flip_weights

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 6, 5), (3, 4, 3, 2), {}),
    "padded": ((2, 3, 6, 5), (3, 4, 3, 3), {"padding": 1}),
    "dilated": ((1, 3, 9), (3, 4, 3), {"dilation": 2, "padding": 1}),
    "grouped": ((1, 4, 6, 6), (4, 3, 3, 3), {"groups": 2, "padding": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_convolution_gives_the_same(name: str) -> None:
    image, kernel, options = CASES[name]
    generator = np.random.default_rng(0)
    inputs = [generator.normal(size=shape).astype(np.float32) for shape in (image, kernel)]
    bias = generator.normal(size=kernel[1] * options.get("groups", 1)).astype(np.float32)
    graph = monograph.trace(
        lambda x, w: F.conv_transpose(x, w, bias, **options),
        *(f"f32{list(each.shape)}" for each in inputs),
    )
    turned = monograph.optimize(graph, passes="conv_transpose_to_conv")
    names = [node.op.name for node in turned.nodes]
    assert "conv" in names and "conv_transpose" not in names
    for got, want in zip(interpret(turned, inputs), interpret(graph, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_more_padding_than_a_window_reaches_is_left_alone() -> None:
    graph = monograph.trace(
        lambda x, w: F.conv_transpose(x, w, padding=3), "f32[1, 2, 9]", "f32[2, 2, 3]"
    )
    assert str(monograph.optimize(graph, passes="conv_transpose_to_conv")) == str(graph)


def test_a_single_window_takes_no_step() -> None:
    graph = monograph.trace(F.conv_transpose, "f32[1, 2, 1]", "f32[2, 2, 4]")
    turned = monograph.optimize(graph, passes="conv_transpose_to_conv")
    assert "stride = [4]" in str(turned)
    inputs = [np.ones((1, 2, 1), np.float32), np.arange(16, dtype=np.float32).reshape(2, 2, 4)]
    np.testing.assert_array_equal(interpret(turned, inputs)[0], interpret(graph, inputs)[0])


def test_infinite_elements_stay_in_their_windows_and_weights_in_theirs() -> None:
    x, w = np.ones((1, 1, 6), np.float32), np.ones((1, 1, 3), np.float32)
    graph = monograph.trace(F.conv_transpose, "f32[1, 1, 6]", "f32[1, 1, 3]")
    compiled = monograph.compile(graph)
    poisoned = x.copy()
    poisoned[..., 2] = np.nan
    np.testing.assert_array_equal(compiled(poisoned, w), interpret(graph, [poisoned, w]))
    # Zeros around x are multiplied by the weights, so there NaN may come of one that is NaN.
    w[..., 0] = np.nan
    (got,), (want,) = compiled(x, w), interpret(graph, [x, w])
    assert np.isnan(got[np.isnan(want)]).all()
    assert flip_weights.changes_specials
