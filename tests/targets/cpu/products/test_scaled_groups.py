"""Weights of few bits whose scales hold for groups of k: sums of groups are scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.graph import Graph, Value
from monograph.quantization.scheme import Scheme
from monograph.targets.cpu.build import build
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.target import LOWER_COMPOSITES

COLUMNS, STEPS, GROUP = 70, 96, 32


def draw(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def families(graph: Graph, chip: str = "x86-64") -> set[str]:
    copy = graph.clone()
    LOWER_COMPOSITES.run(copy)
    return {each.plan.family for each in build(copy, machine_named(chip)).planned}


def network(rows: str = "3") -> Graph:
    """A norm before a layer, a bias and a relu after it: what a product computes as it goes."""
    first, second, bias = draw(COLUMNS, STEPS), draw(5, COLUMNS, seed=2), draw(COLUMNS, seed=3)

    def model(x: Value) -> Value:
        graph = x.graph
        normed = F.rms_norm(x, graph.add_weight("gain", draw(STEPS, seed=4)))
        hidden = F.relu(F.linear(normed, graph.add_weight("w", first)) + bias)
        return F.linear(hidden, graph.add_weight("v", second))

    return monograph.trace(model, f"f32[{rows}, {STEPS}]")


def interpreted(graph: Graph, x: Any) -> Any:
    (found,) = monograph.interpret(graph, [x])
    return found


@pytest.mark.parametrize(
    ("bits", "symmetric", "group"),
    [
        *((3, True, GROUP), (3, False, 8), (4, False, None)),
        *((4, True, GROUP), (8, False, GROUP), (8, True, 8)),
    ],
)
def test_results_are_those_of_the_weights_as_floats(
    bits: int, symmetric: bool, group: int | None
) -> None:
    scheme = Scheme(None, weight_bits=bits, group=group, symmetric_weights=symmetric)
    quantized = monograph.quantize(network(), None, scheme)
    x = draw(3, STEPS, seed=5)
    (found,) = monograph.compile(quantized, cache=False, strict=True)(x)
    np.testing.assert_allclose(found, interpreted(quantized, x), rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("rows", [1, 7])
def test_a_free_number_of_rows(rows: int) -> None:
    quantized = monograph.quantize(network("rows"), None, "w4")
    x = draw(rows, STEPS, seed=5)
    (found,) = monograph.compile(quantized, cache=False, strict=True)(x)
    np.testing.assert_allclose(found, interpreted(quantized, x), rtol=2e-5, atol=2e-4)


def affine(signed: bool) -> Graph:
    """Weights as blocks of GGUF hold them: a scale and a shift of each group."""
    random = np.random.default_rng(0)
    numbers = random.integers(-8, 8, (COLUMNS, STEPS)) + (0 if signed else 8)
    scale, shift = draw(COLUMNS, STEPS // GROUP, 1), draw(COLUMNS, STEPS // GROUP, 1, seed=2)

    def model(x: Value) -> Value:
        stored = F.cast(numbers.astype("i4"), "i4" if signed else "u4")
        groups = F.reshape(F.cast(stored, "f32"), (COLUMNS, STEPS // GROUP, GROUP))
        return F.linear(x, F.reshape(groups * scale + shift, (COLUMNS, STEPS)))

    return monograph.trace(model, f"f32[3, {STEPS}]")


@pytest.mark.parametrize("signed", [True, False])
def test_a_shift_is_multiplied_by_the_sum_of_the_activations(signed: bool) -> None:
    graph = affine(signed)
    x = draw(3, STEPS, seed=5)
    (found,) = monograph.compile(graph, cache=False, strict=True)(x)
    np.testing.assert_allclose(found, interpreted(graph, x), rtol=2e-5, atol=2e-4)
    assert "scaled groups" in families(graph)


@pytest.mark.parametrize("chip", ["x86-64-v4", "aarch64"])
def test_few_rows_scale_sums_of_groups_on_every_processor(chip: str) -> None:
    assert "scaled groups" in families(monograph.quantize(network(), None, "w4"), chip)


def test_many_rows_share_weights_that_are_unpacked_once() -> None:
    assert "scaled groups" not in families(monograph.quantize(network("64"), None, "w4"))


def test_three_bits_take_as_much_memory_as_four() -> None:
    def words(scheme: str) -> int:
        quantized = monograph.quantize(network(), None, scheme)
        LOWER_COMPOSITES.run(quantized)
        slots = build(quantized, machine_named("x86-64")).slots
        return sum(int(each.shape[0]) for each in slots if each.name == "words")

    assert words("w3") == words("w4") > 0
