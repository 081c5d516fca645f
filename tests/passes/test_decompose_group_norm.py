"""Group norms of what convolutions make are sums by channel, and mean the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret

TYPES = ("f64[2, 3, 6, 5]", "f64[8, 3, 3, 3]", "f64[8]", "f64[8]")
PROGRAMS: dict[str, Callable[..., Any]] = {
    "scale and bias": lambda x, w, s, b: F.group_norm(F.conv(x, w), 4, s, b),
    "scale alone": lambda x, w, s, b: F.group_norm(F.conv(x, w), 2, s),
    "no parameters": lambda x, w, s, b: F.group_norm(F.conv(x, w, b), 8),
    "one group": lambda x, w, s, b: F.group_norm(F.conv(x, w), 1, s, b, 0.1),
    "after a residual": lambda x, w, s, b: F.group_norm(
        F.relu(s[:, None, None] + F.conv(x, w)), 2, s, b
    ),
    "after a pool": lambda x, w, s, b: F.group_norm(F.max_pool(F.conv(x, w), 2), 2, s, b),
}


def by_channel(function: Callable[..., Any], *types: str) -> tuple[Graph, Graph]:
    """A program before and after the pass."""
    graph = monograph.trace(function, *(types or TYPES))
    return graph, monograph.optimize(graph, passes="decompose_group_norm")


@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_by_channel_give_the_same(name: str) -> None:
    graph, after = by_channel(PROGRAMS[name])
    assert "group_norm" not in [node.op.name for node in after.nodes]
    generator = np.random.default_rng(0)
    inputs = [generator.normal(size=value.tensor.static_shape()) for value in graph.inputs]
    want, got = interpret(graph, inputs)[0], interpret(after, inputs)[0]
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)


def test_statistics_of_narrow_floats_are_wide() -> None:
    types = ("f16[1, 2, 40, 40]", "f16[4, 2, 1, 1]")
    graph, after = by_channel(lambda x, w: F.group_norm(F.conv(x, w), 2), *types)
    generator = np.random.default_rng(0)
    inputs = [generator.normal(100, 1, (1, 2, 40, 40)), generator.normal(size=(4, 2, 1, 1))]
    narrow = [each.astype(np.float16) for each in inputs]
    want, got = interpret(graph, narrow)[0], interpret(after, narrow)[0]
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=4e-3, atol=4e-3)


def test_sizes_may_be_unknown() -> None:
    types = ("f32[n, 3, h, w]", "f32[8, 3, 3, 3]")
    graph, after = by_channel(lambda x, w: F.group_norm(F.conv(x, w), 4), *types)
    generator = np.random.default_rng(0)
    inputs = [
        generator.normal(size=shape).astype(np.float32) for shape in ((3, 3, 7, 9), (8, 3, 3, 3))
    ]
    want, got = interpret(graph, inputs)[0], interpret(after, inputs)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_compiled_the_activation_is_part_of_the_norm() -> None:
    types = ("f32[1, 8, 9, 9]", "f32[16, 8, 3, 3]", "f32[16]", "f32[16]")
    compiled = monograph.compile(
        lambda x, w, s, b: F.relu(F.group_norm(F.conv(x, w), 8, s, b)), *types
    )
    names = [line for line in str(monograph.explain(compiled)).splitlines() if line[:1] == "k"]
    assert any("multiply_relu" in name for name in names), names
    generator = np.random.default_rng(0)
    graph = monograph.trace(lambda x, w, s, b: F.relu(F.group_norm(F.conv(x, w), 8, s, b)), *types)
    inputs = [
        generator.normal(3, 1, value.tensor.static_shape()).astype(np.float32)
        for value in graph.inputs
    ]
    np.testing.assert_allclose(compiled(*inputs), interpret(graph, inputs)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x, w: F.group_norm(x + w, 2), ("f32[2, 4, 5, 5]", "f32[2, 4, 5, 5]")),
        (lambda x, w: F.group_norm(x @ w, 2), ("f32[3, 4]", "f32[4, 8]")),
        (
            lambda x, w: F.group_norm(F.reshape(F.conv(x, w), (2, 8, -1)), 2),
            ("f32[2, 3, 5, 5]", "f32[8, 3, 1, 1]"),
        ),
    ],
    ids=["no convolution", "no pixels", "no longer an image"],
)
def test_others_are_left_alone(function: Callable[..., Any], types: tuple[str, ...]) -> None:
    graph, after = by_channel(function, *types)
    assert str(after) == str(graph)
