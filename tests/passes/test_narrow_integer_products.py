"""Quantized products on bytes: the same integers as before, whatever the zero points are."""

from __future__ import annotations

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.types import Array
from monograph.passes.narrow_integer_products import NarrowIntegerProducts


def draw(shape: tuple[int, ...], dtype: str) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(len(shape)).integers(
        limits.min, limits.max + 1, shape, dtype=dtype
    )


def convolution(weight: Array, moved: int, signed: bool, padding: int, groups: int) -> Graph:
    """conv(x - z, w - moved) as quantized models say it."""

    def model(x: Value, z: Value) -> Value:
        image = F.cast(x, "i32") - F.cast(z, "i32")
        return F.conv(image, F.cast(weight, "i32") - moved, padding=padding, groups=groups)

    kind = "i8" if signed else "u8"
    channels = weight.shape[1] * groups
    return trace(model, f"{kind}[2, {channels}, 6, 7]", f"{kind}[]")


CASES = {
    "unsigned": ("int8", 0, False, 1, 1),
    "signed": ("int8", 0, True, 1, 1),
    "weights of nine bits": ("uint8", 127, False, 1, 1),
    "weights moved into bytes": ("uint8", 128, False, 0, 1),
    "depthwise": ("int8", 0, False, 1, 24),
    "depthwise signed": ("int8", 0, True, 1, 24),
    "groups": ("int8", 0, False, 1, 3),
}


@pytest.mark.parametrize("name", CASES)
def test_a_convolution_of_bytes_has_the_same_sums(name: str) -> None:
    kind, moved, signed, padding, groups = CASES[name]
    weight = draw((24, 24 // groups, 3, 3), kind)
    graph = convolution(weight, moved, signed, padding, groups)
    dtype = np.int8 if signed else np.uint8
    inputs = [draw((2, 24, 6, 7), np.dtype(dtype).name), np.asarray(99, dtype)]
    expected = interpret(graph, inputs)
    compiled = monograph.compile(graph)
    assert np.array_equal(compiled(*inputs)[0], expected[0])
    assert NarrowIntegerProducts().run(graph).changed
    assert any(node.op.name == "integer_conv" for node in graph.nodes)
    assert np.array_equal(interpret(graph, inputs)[0], expected[0])


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("kind, moved", [("int8", 0), ("uint8", 127)])
def test_channels_that_fill_no_word_are_multiplied_too(
    channels: int, kind: str, moved: int
) -> None:
    weight = draw((9, channels, 3, 3), kind)

    def model(x: Value) -> Value:
        image = F.cast(F.quantize(x, 0.25, 99, "u8"), "i32") - 99
        return F.conv(image, F.cast(weight, "i32") - moved, stride=2, padding=1)

    graph = trace(model, f"f32[2, {channels}, 9, 37]")
    image = np.random.default_rng(0).normal(size=(2, channels, 9, 37)).astype("f4") * 16
    (expected,) = interpret(graph, [image])
    assert np.array_equal(monograph.compile(graph)(image)[0], expected)
    assert NarrowIntegerProducts().run(graph).changed
    assert np.array_equal(interpret(graph, [image])[0], expected)


@pytest.mark.parametrize("depth", [32, 30])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_a_product_of_bytes_has_the_same_sums(kind: str, depth: int) -> None:
    weight = draw((depth, 40), kind)

    def model(x: Value, z: Value) -> Value:
        return (F.cast(x, "i32") - F.cast(z, "i32")) @ (F.cast(weight, "i32") - 3)

    graph = trace(model, f"u8[17, {depth}]", "u8[]")
    inputs = [draw((17, depth), "uint8"), np.asarray(200, np.uint8)]
    (expected,) = interpret(graph, inputs)
    assert np.array_equal(monograph.compile(graph)(*inputs)[0], expected)


def test_the_largest_sums_do_not_saturate() -> None:
    weight = np.full((16, 64, 3, 3), -128, np.int8)

    def model(x: Value) -> Value:
        return F.conv(F.cast(x, "i32"), F.cast(weight, "i32"))

    image = np.full((1, 64, 5, 5), 255, np.uint8)
    (found,) = monograph.compile(trace(model, "u8[1, 64, 5, 5]"))(image)
    assert np.all(found == -128 * 255 * 64 * 9)
