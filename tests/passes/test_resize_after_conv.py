"""A 1×1 convolution of an enlarged image is carried out before it is enlarged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.interpret import interpret
from monograph.ops.resize import Resize
from monograph.passes.resize_after_conv import ResizeAfterConv

TYPES = ("f64[2, 6, 3, 4]", "f64[2, 5, 2, 2]", "f64[2, 4, 6, 8]", "f64[4, 15, 1, 1]", "f64[4]")


def larger(x: Any, mode: Any = "linear") -> Any:
    return Resize((2, 3), (6, 8), mode=mode)(x)


def moved(function: Callable[..., Any], *types: str) -> int:
    """How many images are enlarged later, which must change the result by no more than rounding."""
    graph = monograph.trace(function, *(types or TYPES))
    generator = np.random.default_rng(0)
    inputs = [
        generator.normal(size=value.tensor.static_shape()).astype(value.dtype.numpy)
        for value in graph.inputs
    ]
    expected = interpret(graph, inputs)[0]
    outcome = ResizeAfterConv().run(graph)
    np.testing.assert_allclose(interpret(graph, inputs)[0], expected, rtol=1e-12, atol=1e-12)
    assert not ResizeAfterConv().run(graph).changed
    return outcome.counters["moved"]


def test_images_of_several_sizes_are_enlarged_later() -> None:
    def joined(a: Any, b: Any, x: Any, weight: Any, bias: Any) -> Any:
        parts = [larger(a), x, larger(b, "nearest")]
        return F.conv(F.concat(parts, 1), weight, bias)

    assert moved(joined) == 2


@pytest.mark.parametrize("has_bias", [True, False])
def test_where_all_are_enlarged_the_bias_is_added_last(has_bias: bool) -> None:
    def joined(a: Any, b: Any, x: Any, weight: Any, bias: Any) -> Any:
        image = F.concat([larger(a, "cubic"), larger(b)], 1)
        return F.conv(image, weight[:, :11], bias if has_bias else None)

    assert moved(joined) == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b, x, w, bias: F.conv(larger(a), w[:, :6], bias, stride=2),
        lambda a, b, x, w, bias: F.conv(larger(a), w[:, :6], bias, padding=1),
        lambda a, b, x, w, bias: F.conv(larger(a), w[:, :3], groups=2),
        lambda a, b, x, w, bias: F.conv(F.expand(w[:, :6], (4, 6, 3, 4)), w[:, :6]),
        lambda a, b, x, w, bias: F.conv(Resize((2, 3), (2, 2))(a), w[:, :6]),
        lambda a, b, x, w, bias: F.conv(Resize((1, 2), (15, 3))(a), w),
        lambda a, b, x, w, bias: F.conv(F.concat([larger(a), larger(a)], 2), w[:, :6]),
    ],
    ids=["stride", "padding", "groups", "no resize", "smaller", "channels", "below each other"],
)
def test_what_does_not_commute_or_gains_nothing_stays(function: Callable[..., Any]) -> None:
    assert moved(function) == 0


def test_what_others_read_too_stays() -> None:
    def shared(a: Any, weight: Any) -> Any:
        image = larger(a)
        return F.conv(image, weight), image

    assert moved(shared, "f32[2, 6, 3, 4]", "f32[4, 6, 1, 1]") == 0


def test_numbers_of_few_bits_are_not_rounded_once_more() -> None:
    types = ("f16[1, 4, 2, 2]", "f16[2, 4, 1, 1]")
    graph = monograph.trace(lambda a, w: F.conv(larger(a), w), *types)
    assert not ResizeAfterConv().run(graph).changed


def test_a_compiled_head_is_as_exact_as_before() -> None:
    generator = np.random.default_rng(1)
    weight = generator.normal(size=(8, 24, 1, 1)).astype(np.float32)

    def head(a: Any, x: Any) -> Any:
        return F.relu(F.conv(F.concat([larger(a), x], 1), x.graph.add_weight("w", weight)))

    a, x = (generator.normal(size=s).astype(np.float32) for s in ((1, 16, 3, 4), (1, 8, 6, 8)))
    compiled = monograph.compile(head, a, x, cache=False)
    assert "concat" not in [node.op.name for node in compiled.executable.lowered.nodes]
    wide = np.concatenate(
        [interpret(monograph.trace(larger, "f64[1, 16, 3, 4]"), [a.astype(float)])[0], x], 1
    )
    exact = np.maximum(np.einsum("oc,bchw->bohw", weight[:, :, 0, 0].astype(float), wide), 0)
    np.testing.assert_allclose(compiled(a, x), exact, rtol=1e-5, atol=1e-5)
