"""Grouped and transposed convolutions, and gradients by weights: products in tiles, and right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.build import apply
from monograph.ir.dims import Symbol, evaluate_dim, shape_product
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, f32
from monograph.ops.conv import ConvWeightGradient
from monograph.targets.cpu.build import Program
from monograph.targets.cpu.products.tiles import Tiling

Array = np.ndarray[Any, Any]


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def check(function: Any, *types: str, inputs: list[Array]) -> Program:
    """Compile, and compare with the interpreter."""
    return check_each(function, *types, calls=[inputs])


def check_each(function: Any, *types: str | TensorType, calls: list[list[Array]]) -> Program:
    """Compile once, and compare every call with the interpreter."""
    graph = monograph.trace(function, *types)
    executable = compile_graph(graph, Options(cache=False))
    for inputs in calls:
        (want,) = interpret(graph, inputs)
        (got,) = executable.run(inputs)
        atol = 1e-5 * float(np.abs(want).max())
        shapes = str([x.shape for x in inputs])
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=atol, err_msg=shapes)
    assert executable.program is not None
    return executable.program


def tiled(program: Program) -> int:
    """How many of a program's kernels are products in tiles."""
    return sum(isinstance(kernel.schedule, Tiling) for kernel in program.kernels)


GROUPED = {
    "eight a group": (32, 32, 4, {"padding": 1}),
    "four a group": (32, 32, 8, {"padding": 1}),
    "three to two": (12, 8, 4, {"padding": 1}),
    "strided": (16, 32, 2, {"stride": 2, "padding": 1}),
    "dilated": (16, 16, 2, {"padding": 2, "dilation": 2}),
    "without padding": (24, 36, 3, {}),
}


@pytest.mark.parametrize("name", GROUPED)
def test_groups_are_a_batch_of_products(name: str) -> None:
    channels, outputs, groups, options = GROUPED[name]
    weight, bias = draw(outputs, channels // groups, 3, 3), draw(outputs)

    def net(x: Any) -> Any:
        return F.relu(F.conv(x, weight, bias, groups=groups, **options))

    program = check(net, f"f32[2, {channels}, 13, 14]", inputs=[draw(2, channels, 13, 14)])
    assert tiled(program) == 1


TRANSPOSED: dict[str, tuple[tuple[int, ...], dict[str, Any], int]] = {
    "overlapping": ((16, 12, 4, 4), {"stride": 2, "padding": 1}, 4),
    "apart": ((16, 12, 2, 2), {"stride": 2}, 1),
    "odd": ((16, 12, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}, 4),
    "unequal": ((16, 12, 5, 3), {"stride": (3, 1), "padding": 1}, 3),
    "dilated": ((16, 12, 3, 3), {"stride": 2, "padding": 2, "dilation": 2}, 1),
    "grouped": ((16, 8, 4, 4), {"stride": 2, "padding": 1, "groups": 2}, 4),
    "to three": ((16, 3, 4, 4), {"stride": 2, "padding": 1}, 4),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_phases_of_a_transposed_convolution_are_products(name: str) -> None:
    shape, options, products = TRANSPOSED[name]
    weight = draw(*shape)
    bias = draw(shape[1] * options.get("groups", 1))

    def net(x: Any) -> Any:
        return F.tanh(F.conv_transpose(x, weight, bias, **options))

    program = check(net, "f32[2, 16, 9, 10]", inputs=[draw(2, 16, 9, 10)])
    assert tiled(program) >= products


@pytest.mark.parametrize("spatial", [(11,), (5, 6, 4)])
def test_transposed_convolutions_have_one_to_three_dimensions(spatial: tuple[int, ...]) -> None:
    weight = draw(8, 8, *(4 for _ in spatial))
    sizes = ", ".join(map(str, spatial))
    check(
        lambda x: F.conv_transpose(x, weight, stride=2, padding=1),
        f"f32[2, 8, {sizes}]",
        inputs=[draw(2, 8, *spatial)],
    )


@pytest.mark.parametrize(("stride", "dilation"), [(2, 2), (3, 2), (2, 1)])
def test_windows_of_any_size_take_no_more_memory_than_they_have_taps(
    stride: int, dilation: int
) -> None:
    n = Symbol("n", 2, 4096)

    def net(x: Any, weight: Any) -> Any:
        return F.conv_transpose(x, weight, stride=stride, dilation=dilation, padding=1)

    types = (TensorType(f32, (2, 3, 6, 5)), TensorType(f32, (3, 4, n, n)))
    inputs = [[draw(2, 3, 6, 5), draw(3, 4, taps, taps)] for taps in (2, 5)]
    program = check_each(net, *types, calls=inputs)
    sizes = [shape_product(slot.shape) for slot in program.slots]
    assert max(evaluate_dim(size, {n: 5}) for size in sizes) < 1 << 20


def test_one_program_serves_every_size() -> None:
    grouped, transposed = draw(16, 8, 3, 3), draw(16, 8, 4, 4)

    def net(x: Any) -> Any:
        y = F.relu(F.conv(x, grouped, padding=1, groups=2))
        return F.conv_transpose(y, transposed, stride=2, padding=1)

    calls = [[draw(1, 16, 4, 5)], [draw(3, 16, 9, 16)]]
    check_each(net, "f32[b, 16, h, w]", calls=calls)


def test_a_single_element_is_spread_by_one_product() -> None:
    weight = draw(24, 16, 4, 4)
    program = check(
        lambda x: F.conv_transpose(x, weight), "f32[5, 24, 1, 1]", inputs=[draw(5, 24, 1, 1)]
    )
    assert tiled(program) == 1


GRADIENTS = {
    "plain": (8, 16, 1, 1, 1),
    "strided": (8, 16, 2, 1, 1),
    "to few": (16, 3, 1, 1, 1),
    "grouped": (16, 16, 1, 1, 2),
    "depthwise": (16, 16, 1, 1, 16),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_by_weights_sum_over_pixels(name: str) -> None:
    channels, outputs, stride, pad, groups = GRADIENTS[name]
    op = ConvWeightGradient((3, 3), (stride,) * 2, ((pad, pad),) * 2, (1, 1), groups)
    image, grad = (4, channels, 12, 12), (4, outputs, 12 // stride, 12 // stride)
    program = check(
        lambda x, g: apply(op, x, g),
        f"f32{list(image)}",
        f"f32{list(grad)}",
        inputs=[draw(*image), draw(*grad)],
    )
    assert tiled(program) == (0 if name == "depthwise" else 1)
