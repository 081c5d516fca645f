"""Batch norms disappear into the layer before them, where that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.interpret import interpret
from monograph.passes.instruments import relative_error

GENERATOR = np.random.default_rng(0)


def weight(x: Any, name: str, *shape: int) -> Any:
    return x.graph.add_weight(name, GENERATOR.normal(size=shape).astype(np.float32))


def normalised(layer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The layer followed by a batch norm with constant parameters."""

    def program(x: Any) -> Any:
        y = layer(x)
        channels = y.shape[1]
        variance = np.abs(GENERATOR.normal(size=channels)).astype(np.float32) + 0.1
        scale, bias, mean = (weight(x, name, channels) for name in ("scale", "bias", "mean"))
        return F.batch_norm(y, scale, bias, mean, x.graph.add_weight("variance", variance))

    return program


LAYERS: dict[str, tuple[Callable[[Any], Any], str, tuple[int, ...]]] = {
    "conv": (lambda x: F.conv(x, weight(x, "w", 8, 3, 3, 3)), "f32[n, 3, 7, 6]", (2, 3, 7, 6)),
    "conv_bias": (
        lambda x: F.conv(x, weight(x, "w", 8, 3, 3), weight(x, "b", 8), stride=2, padding=1),
        "f32[2, 3, 9]",
        (2, 3, 9),
    ),
    "grouped": (
        lambda x: F.conv(x, weight(x, "w", 6, 2, 1, 1), groups=2),
        "f32[1, 4, 5, 5]",
        (1, 4, 5, 5),
    ),
    "conv_transpose": (
        lambda x: F.conv_transpose(x, weight(x, "w", 3, 5, 2, 2), stride=2),
        "f32[1, 3, 4, 4]",
        (1, 3, 4, 4),
    ),
    "linear": (lambda x: F.linear(x, weight(x, "w", 5, 4)), "f32[n, 4]", (3, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_batch_norm_is_gone_and_the_result_is_the_same(name: str) -> None:
    layer, spec, shape = LAYERS[name]
    graph = monograph.trace(normalised(layer), spec)
    result = monograph.optimize(graph, passes="fold_conv_bn,fold_constants,dce")
    kinds = [node.op.name for node in result.nodes if node.op.family.value == "compute"]
    assert len(kinds) == 1
    assert kinds[0] != "batch_norm"
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    assert relative_error(interpret(result, [x])[0], interpret(graph, [x])[0]) < 1e-6


def test_a_layer_with_other_users_stays() -> None:
    def program(x: Any) -> Any:
        y = F.conv(x, weight(x, "w", 4, 3, 3, 3))
        return normalised(lambda _: y)(x), y

    graph = monograph.trace(program, "f32[1, 3, 5, 5]")
    assert str(monograph.optimize(graph, passes="fold_conv_bn")) == str(graph)


def test_statistics_that_are_inputs_stay() -> None:
    def program(x: Any, s: Any, b: Any, m: Any, v: Any) -> Any:
        return F.batch_norm(F.conv(x, weight(x, "w", 4, 3, 3, 3)), s, b, m, v)

    graph = monograph.trace(program, "f32[1, 3, 5, 5]", *["f32[4]"] * 4)
    assert str(monograph.optimize(graph, passes="fold_conv_bn")) == str(graph)


def test_a_linear_layer_whose_channels_are_not_last_stays() -> None:
    graph = monograph.trace(normalised(lambda x: F.linear(x, weight(x, "w", 5, 4))), "f32[2, 3, 4]")
    assert str(monograph.optimize(graph, passes="fold_conv_bn")) == str(graph)
