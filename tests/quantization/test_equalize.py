"""Ranges that move between layers: the same results in float, smaller errors in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.quantization.equalize import equalize
from monograph.quantization.profile import Profile
from tests.quantization.models import draw, relative_error

SPREAD = np.float32(10.0) ** np.linspace(-1.5, 1.5, 16, dtype=np.float32)


def uneven_layers() -> Graph:
    """Two convolutions whose channels differ a thousandfold, to no effect on the result."""

    def model(x: Any) -> Any:
        column = SPREAD.reshape(-1, 1, 1, 1)
        first = x.graph.add_weight("a", draw(16, 3, 3, 3) * column)
        bias = x.graph.add_weight("b", draw(16, seed=1) * SPREAD)
        second = x.graph.add_weight("c", draw(8, 16, 3, 3, seed=2) / SPREAD.reshape(1, -1, 1, 1))
        return F.conv(F.relu(F.conv(x, first, bias, padding=1)), second, padding=1)

    return monograph.trace(model, "f32[2, 3, 8, 8]")


def uneven_activations() -> Graph:
    """A norm that makes a few channels large, before two linear layers."""

    def model(x: Any) -> Any:
        scale, shift = x.graph.add_weight("s", SPREAD), x.graph.add_weight("t", draw(16, seed=3))
        y = F.layer_norm(x, scale, shift)
        first = x.graph.add_weight("a", draw(32, 16, seed=4) / SPREAD)
        second = x.graph.add_weight("b", draw(32, 16, seed=5) / SPREAD)
        return F.linear(y, first) * F.sigmoid(F.linear(y, second))

    return monograph.trace(model, "f32[8, 16]")


def errors(graph: Graph, x: Any, scheme: str, **options: Any) -> tuple[float, float]:
    """Of quantizing as it is, and with equalization or smoothing before."""
    (expected,) = monograph.interpret(graph, [x])
    found = []
    for given in ({}, options):
        taken = Profile.from_json(monograph.quantize.profile(graph, [x], **given).to_json())
        (got,) = monograph.interpret(monograph.quantize(graph, taken, scheme), [x])
        found.append(relative_error(got, expected))
    return found[0], found[1]


def test_equalized_layers_lose_less() -> None:
    before, after = errors(uneven_layers(), draw(2, 3, 8, 8, seed=9), "int8", equalize=True)
    assert after < before / 3 and after < 0.02


def test_equalizing_keeps_results() -> None:
    graph = uneven_layers()
    changed = graph.clone()
    assert equalize(changed) == 1
    x = draw(2, 3, 8, 8, seed=9)
    (expected,), (got,) = monograph.interpret(graph, [x]), monograph.interpret(changed, [x])
    assert relative_error(got, expected) < 1e-5


def test_smoothed_activations_lose_less() -> None:
    before, after = errors(uneven_activations(), draw(8, 16, seed=9), "int8", smoothing=0.5)
    assert after < before / 3 and after < 0.03


def test_smoothing_is_checked() -> None:
    graph, x = uneven_activations(), draw(8, 16, seed=9)
    with pytest.raises(InputError, match="0 to 1"):
        monograph.quantize.profile(graph, [x], smoothing=2.0)
    taken = monograph.quantize.profile(graph, [x])
    wrong = Profile(taken.model, 1, taken.activations, False, {"nobody": np.ones(16)})
    with pytest.raises(InputError, match="does not fit"):
        monograph.quantize(graph, wrong)
