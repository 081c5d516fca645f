"""Weights of a few bits beside float activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import InputError
from monograph.quantization import weights
from monograph.quantization.scheme import Scheme
from monograph.quantization.weights import store_groups
from tests.quantization.models import batches, draw, encoder, images, perceptron, relative_error

BOUNDS = {"w8": 0.03, "w4": 0.2, "w3": 0.4, "w8a8": 0.04, "w4a8": 0.2}


@pytest.mark.parametrize("scheme", BOUNDS)
@pytest.mark.parametrize("model", [perceptron, encoder])
def test_packed_weights_are_near_and_native(model: Any, scheme: str) -> None:
    graph = model()
    quantized, report = monograph.quantize.with_report(graph, None, scheme)
    monograph.verify(quantized)
    (x,) = batches(graph, 1)
    (expected,), (meant,) = monograph.interpret(graph, [x]), monograph.interpret(quantized, [x])
    assert 0 < relative_error(meant, expected) < BOUNDS[scheme]
    compiled = monograph.compile(quantized, strict=True)
    (got,) = compiled(x)
    # An activation that is 1 ulp away may be rounded to the next of 127 steps.
    assert relative_error(got, meant) < (1e-2 if scheme.endswith("a8") else 1e-5)
    assert len(report.quantized) == len(report.layers)
    assert "base64" not in str(quantized), "what weights need is printed by name, too"


@pytest.mark.parametrize(("inputs", "blocked"), [(64, 1), (16, 1), (40, 0), (30, 0), (5, 0)])
def test_activations_are_rounded_where_words_hold_whole_groups(inputs: int, blocked: int) -> None:
    graph = monograph.trace(
        lambda x: F.linear(x, x.graph.add_weight("w", draw(6, inputs))), f"f32[3, {inputs}]"
    )
    quantized = monograph.quantize(graph, None, "w4a8")
    assert [node.op.name for node in quantized.nodes].count("blocked_linear") == blocked
    (x,) = batches(graph, 1)
    (expected,) = monograph.interpret(graph, [x])
    assert relative_error(monograph.compile(quantized, strict=True)(x)[0], expected) < 0.2


@pytest.mark.parametrize("bits", [8, 4, 3])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("inputs", [64, 40, 21])
@pytest.mark.parametrize("group", [None, 16])
def test_every_layout_means_its_rounded_weights(
    bits: int, symmetric: bool, inputs: int, group: int | None
) -> None:
    array = draw(6, inputs)
    graph = monograph.trace(
        lambda x: F.linear(x, x.graph.add_weight("w", array)), f"f32[3, {inputs}]"
    )
    scheme = Scheme(None, weight_bits=bits, group=group, symmetric_weights=symmetric)
    quantized = monograph.quantize(graph, None, scheme)
    first = np.eye(inputs, dtype=np.float32)[:3]
    columns = monograph.interpret(quantized, [first])[0].T
    stored = store_groups(array, bits, group, symmetric)
    points = 0.0 if stored.zero_point is None else stored.zero_point.astype(np.float64)
    scale, point = np.broadcast_arrays(stored.scale, points)
    if group is not None:
        scale, point = scale[:, 0], point[:, 0]
    numbers = stored.stored[:, :3].astype(np.float64)
    expected = (numbers - point[:, None]) * scale[:, None]
    np.testing.assert_allclose(columns, expected, rtol=1e-6, atol=1e-7)


def test_matrix_products_become_linear_layers() -> None:
    array = draw(32, 6)
    graph = monograph.trace(lambda x: F.matmul(x, x.graph.add_weight("w", array)), "f32[3, 32]")
    quantized = monograph.quantize(graph, None, "w8")
    assert {"linear", "dequantize"} <= {node.op.name for node in quantized.nodes}
    x = draw(3, 32, seed=1)
    assert relative_error(monograph.interpret(quantized, [x])[0], x @ array) < 0.01


def test_weights_are_smoothed_as_their_profile_was() -> None:
    graph = encoder()
    taken = monograph.quantize.profile(graph, batches(graph, 2), smoothing=0.5)
    (x,) = batches(graph, 1)
    (expected,) = monograph.interpret(graph, [x])
    plain = monograph.interpret(monograph.quantize(graph, None, "w8"), [x])[0]
    smoothed = monograph.interpret(monograph.quantize(graph, taken, "w8"), [x])[0]
    assert relative_error(smoothed, expected) < BOUNDS["w8"]
    assert not np.array_equal(plain, smoothed)
    with pytest.raises(InputError, match="another model"):
        monograph.quantize(perceptron(), taken, "w8")


def test_memory_is_that_of_the_bits() -> None:
    array = draw(64, 256)
    graph = monograph.trace(lambda x: F.linear(x, x.graph.add_weight("w", array)), "f32[1, 256]")
    for bits, most in ((8, 1.1), (4, 0.7), (3, 0.6)):
        scheme = Scheme(None, weight_bits=bits, group=32 if bits < 8 else None)
        quantized = monograph.quantize(graph, None, scheme)
        held = sum(
            (node.op.data.size * node.op.data.dtype.bits + 7) // 8
            for node in quantized.nodes
            if node.op.name in ("weight", "constant")
        )
        assert held < array.size * most


def test_convolutions_keep_their_weights() -> None:
    graph = images()
    _, report = monograph.quantize.with_report(graph, None, "w4")
    assert [layer.reason for layer in report.layers[:2]] == ["not a linear layer"] * 2
    with pytest.raises(InputError, match="no layer is called"):
        monograph.quantize(graph, None, Scheme(None, skip=("x",)))


def test_shrunken_ranges_lose_less() -> None:
    array = draw(8, 64)
    array[:, 0] *= 8
    stored = store_groups(array, 4, None, True)
    real = stored.stored.astype(np.float64) * stored.scale[:, None]
    plain = np.abs(array).max(1, keepdims=True) / 7
    whole = np.clip(np.round(array / plain), -8, 7) * plain
    assert ((real - array) ** 2).sum() <= ((whole - array) ** 2).sum()


def test_zeros_have_a_scale() -> None:
    stored = store_groups(np.zeros((2, 8), np.float32), 4, 4, False)
    assert (stored.scale == 1).all() and not stored.stored.astype(int).any()


@pytest.mark.parametrize("symmetric", [False, True])
def test_large_layers_are_rounded_by_a_program_to_the_same_numbers(
    symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = draw(24, 40)
    interpreted = store_groups(array, 8, 16, symmetric)
    monkeypatch.setattr(weights, "MIN_COMPILED_NUMBERS", 0)
    monkeypatch.setattr(weights, "COMPILED_NUMBERS", 200)  # four rows at a time
    compiled = store_groups(array, 8, 16, symmetric)
    np.testing.assert_array_equal(compiled.stored, interpreted.stored)
    np.testing.assert_array_equal(compiled.scale, interpreted.scale)


@pytest.mark.parametrize("scheme", ["w8", "w4", "w3", "w4a8"])
def test_layers_that_share_a_weight_share_what_is_stored_of_it(scheme: str) -> None:
    def model(x: Any) -> Any:
        shared = x.graph.add_weight("w", draw(32, 32, scale=0.2))
        return F.linear(F.relu(F.linear(F.linear(x, shared), shared)), shared)

    graph = monograph.trace(model, "f32[3, 32]")
    quantized, report = monograph.quantize.with_report(graph, None, scheme)
    assert len(report.quantized) == 3
    weights_left = [node for node in quantized.nodes if node.op.name == "weight"]
    alone = monograph.trace(
        lambda x: F.linear(x, x.graph.add_weight("w", draw(32, 32))), "f32[3, 32]"
    )
    once = [
        node for node in monograph.quantize(alone, None, scheme).nodes if node.op.name == "weight"
    ]
    assert len(weights_left) == len(once)
    (x,) = batches(graph, 1)
    (expected,) = monograph.interpret(graph, [x])
    assert relative_error(monograph.compile(quantized, strict=True)(x)[0], expected) < 0.4


def test_layers_without_weights_to_store_are_empty() -> None:
    for shape in ((0, 8), (8, 0)):
        stored = store_groups(np.zeros(shape, np.float32), 4, 4, False)
        assert stored.stored.shape == shape
