"""Convolutions of every kind against the interpreter, and the loops of those channel by channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.fusion.fuse import fuse
from monograph.ir.interpret import interpret
from monograph.kernel.flatten import flatten
from monograph.kernel.layout import MemoryLayout, channels_last, make_layout
from monograph.kernel.lower import lower_group
from monograph.targets.cpu.convolutions.depthwise import Depthwise, as_depthwise
from monograph.targets.cpu.convolutions.depthwise_loops import (
    as_plane,
    choose_tile,
    depthwise_nest,
    pack_weight,
)
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.nests.loop_nest import LoopNest
from monograph.targets.cpu.nests.verify import verify_nest

MACHINE = machine_named("x86-64")


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def check(x: tuple[int, ...], weight: tuple[int, ...], symbolic: bool = False, **how: Any) -> str:
    """Compare a convolution with an epilogue, and give the names of its kernels."""
    w, bias = draw(*weight), draw(weight[0])

    def net(x: Any) -> Any:
        return F.relu(F.conv(x, w, bias, **how))

    sizes = ["n", str(x[1]), "h", "w"] if symbolic else [str(size) for size in x]
    graph = monograph.trace(net, f"f32[{', '.join(sizes)}]")
    executable = compile_graph(graph, Options(cache=False))
    (got,), (want,) = executable.run([draw(*x)]), interpret(graph, [draw(*x)])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.prod(weight[1:]))
    assert executable.program is not None
    return " ".join(built.name for built in executable.program.kernels)


@pytest.mark.parametrize(
    ("x", "kernel", "how"),
    [
        ((1, 16, 7, 7), (3, 3), {"padding": 1}),
        ((2, 20, 13, 9), (3, 3), {"padding": 1, "stride": 2}),
        ((1, 96, 6, 11), (5, 5), {"padding": 2}),
        ((1, 40, 9, 14), (7, 7), {"padding": 3}),
        ((1, 8, 10, 3), (3, 3), {"padding": ((0, 1), (2, 0))}),
        ((1, 8, 12, 12), (3, 3), {"padding": 2, "dilation": 2}),
        ((2, 7, 5, 5), (2, 1), {}),
        ((1, 12, 23), (4,), {"padding": 1}),
        ((1, 9, 4, 5, 6), (3, 3, 3), {"padding": 1}),
    ],
    ids=lambda case: str(case),
)
def test_channels_by_themselves(x: tuple[int, ...], kernel: Any, how: Any) -> None:
    names = check(x, (x[1], 1, *kernel), groups=x[1], **how)
    assert "pack_taps" in names


@pytest.mark.parametrize("size", [(1, 1, 2), (2, 5, 3), (1, 9, 17)])
def test_channels_by_themselves_of_any_size(size: tuple[int, int, int]) -> None:
    batch, height, width = size
    names = check((batch, 24, height, width), (24, 1, 3, 3), True, groups=24, padding=1)
    assert "pack_taps" in names


@pytest.mark.parametrize(
    ("x", "weight", "how"),
    [
        ((1, 3, 15, 17), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
        ((2, 16, 9, 9), (24, 16, 3, 3), {"padding": 1, "stride": 2}),
        ((1, 32, 7, 7), (40, 32, 1, 1), {}),
        ((1, 32, 8, 8), (33, 32, 1, 1), {"stride": 2}),
        ((1, 16, 9, 8), (16, 16, 3, 3), {"padding": 2, "dilation": 2}),
        ((1, 16, 8, 8), (32, 4, 3, 3), {"padding": 1, "groups": 4}),
        ((1, 6, 8, 8), (12, 1, 3, 3), {"padding": 1, "groups": 6}),
        ((1, 16, 8, 8), (3, 16, 3, 3), {"padding": 1}),
        ((1, 1, 12, 12), (8, 1, 5, 5), {"padding": 2}),
        ((1, 1, 2, 2), (1, 1, 2, 2), {"padding": 3}),
        ((2, 1, 9, 11), (1, 1, 3, 3), {"padding": 1}),
        ((2, 16, 21), (24, 16, 3), {"padding": 1}),
        ((1, 8, 5, 6, 7), (16, 8, 3, 3, 3), {"padding": 1}),
    ],
    ids=lambda case: str(case),
)
def test_channels_together(x: tuple[int, ...], weight: tuple[int, ...], how: Any) -> None:
    check(x, weight, **how)


def test_a_residual_and_an_activation_are_part_of_the_kernel() -> None:
    w = draw(16, 1, 3, 3)

    def net(x: Any) -> Any:
        y = F.exp(F.conv(x, draw(16, 16, 1, 1) / 16))
        return F.conv(F.relu(F.conv(y, w, padding=1, groups=16) + y), draw(4, 16, 1, 1))

    graph = monograph.trace(net, "f32[1, 16, 6, 6]")
    executable = compile_graph(graph, Options(cache=False))
    x = draw(1, 16, 6, 6)
    (got,), (want,) = executable.run([x]), interpret(graph, [x])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    assert executable.program is not None
    assert len(executable.program.fusions[0].groups) == 3


def depthwise(*shape: int, stride: int = 1, size: int = 3) -> Depthwise:
    """A convolution of each channel, whose values lie with channels last."""
    return convolution(shape, stride, size, channels_last(4))[0]


def row_major(*shape: int, stride: int = 1, size: int = 3) -> tuple[Depthwise, MemoryLayout]:
    """The same of values that are row-major, and the layout of the image."""
    return convolution(shape, stride, size, (0, 1, 2, 3))


def convolution(
    shape: tuple[int, ...], stride: int, size: int, order: tuple[int, ...]
) -> tuple[Depthwise, MemoryLayout]:
    pad = size // 2
    graph = monograph.trace(
        lambda x, w: F.conv(x, w, stride=stride, padding=pad, groups=shape[1]),
        f"f32[{', '.join(map(str, shape))}]",
        f"f32[{shape[1]}, 1, {size}, {size}]",
    )
    (group,) = fuse(graph).groups
    x, (out,) = graph.inputs[0], graph.outputs
    layouts = {x: make_layout(x.shape, order, (0, 0, pad, pad)), out: make_layout(out.shape, order)}
    place = group.places[out]
    assert place is not None
    kernel, _ = lower_group("conv", group.nodes, group.space, {out: place}, layouts)
    found = as_depthwise(flatten(kernel))
    assert found is not None
    return found, layouts[x]


@pytest.mark.parametrize(
    "case",
    [(1, 8, 4, 14), (2, 11, 3, 9), (1, 70, 3, 7), (1, 8, 3, 1), (1, 4, 2, 3)],
    ids=str,
)
@pytest.mark.parametrize("stride", [1, 2])
def test_every_access_is_inside(case: tuple[int, ...], stride: int) -> None:
    found = depthwise(*case, stride=stride)
    (weight,) = pack_weight(found).outputs
    assert verify_nest(depthwise_nest(found, weight, MACHINE)) > 0


@pytest.mark.parametrize(
    ("shape", "stride", "size"),
    [((1, 3, 9, 14), 1, 3), ((2, 5, 6, 11), 2, 3), ((1, 2, 8, 9), 1, 7), ((1, 2, 8, 8), 1, 5)],
    ids=str,
)
def test_every_access_to_a_plane_is_inside(shape: tuple[int, ...], stride: int, size: int) -> None:
    found, layout = row_major(*shape, stride=stride, size=size)
    plane = as_plane(found, shape, layout, MACHINE)
    assert plane is not None
    (weight,) = pack_weight(found).outputs
    assert verify_nest(depthwise_nest(found, weight, MACHINE, plane)) > 0


def test_a_row_major_image_is_not_converted() -> None:
    names = check((1, 12, 10, 14), (12, 1, 3, 3), groups=12, padding=1)
    assert "convert" not in names and "pack_taps" in names
    names = check((1, 16, 8, 8), (24, 16, 1, 1))
    assert "convert" not in names


def test_an_image_that_is_read_again_is_read_where_it_lies() -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((3, 1, 3, 3)).astype(np.float32)
    x = random.standard_normal((2, 3, 10, 12)).astype(np.float32)

    def model(x: Any) -> Any:
        return x + F.relu(F.conv(x, weight, padding=((1, 1), (1, 1)), groups=3))

    graph = monograph.trace(model, "f32[2, 3, 10, 12]")
    (expected,) = monograph.interpret(graph, [x])
    (found,) = monograph.compile(graph, cache=False)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_few_columns_are_left_over() -> None:
    assert choose_tile(depthwise(1, 8, 4, 14), MACHINE) == 7
    assert choose_tile(depthwise(1, 8, 4, 3), MACHINE) == 3
    assert 112 % choose_tile(depthwise(1, 8, 4, 112), MACHINE) == 0


def test_neighbours_read_what_they_share_once() -> None:
    found = depthwise(1, 8, 4, 14)
    (weight,) = pack_weight(found).outputs
    nest = depthwise_nest(found, weight, MACHINE)
    text = str(nest)
    columns = choose_tile(found, MACHINE)
    read = {part.split("]")[0] for part in text.split("b0[")[1:] if ":" not in part.split("]")[0]}
    assert len(read) == columns + 2


def test_the_next_row_of_a_block_of_channels_is_asked_for() -> None:
    def asked(found: Depthwise) -> bool:
        (weight,) = pack_weight(found).outputs
        return "prefetch" in str(depthwise_nest(found, weight, MACHINE))

    assert asked(depthwise(1, 96, 6, 14))
    assert not asked(depthwise(1, 8, 6, 14)), "all channels of a few columns are near already"
    assert not asked(depthwise(1, 96, 8, 14, stride=2)), "the next row shares too little"


def test_blocks_of_channels_are_visited_in_bands_of_rows() -> None:
    def nest(rows: int, size: int = 3) -> LoopNest:
        found = depthwise(1, 64, rows, 7, size=size)
        (weight,) = pack_weight(found).outputs
        return depthwise_nest(found, weight, MACHINE)

    def blocks(rows: int, size: int = 3) -> str:
        lines = str(nest(rows, size)).splitlines()
        return next(x.strip() for x in lines if "vector i1" in x)

    assert blocks(56) == blocks(28) == "vector i1 from 32*(_p//14%2) < 32 by 8:"
    assert blocks(12) == "vector i1 from 32*(_p//12) < 32 by 8:", "too few rows for two bands"
    assert blocks(31) == "vector i1 from 32*(_p//31) < 32 by 8:", "no two bands are alike"
    assert blocks(28, size=7) == "vector i1 from 32*(_p//28) < 32 by 8:", "bands share too much"
    assert verify_nest(nest(28)) > 0
    check((1, 64, 28, 7), (64, 1, 3, 3), groups=64, padding=1)


def test_two_threads_have_equal_shares() -> None:
    found = depthwise(1, 64, 56, 7)
    (weight,) = pack_weight(found).outputs
    nest = depthwise_nest(found, weight, MACHINE)
    assert nest.extent == 112 and nest.grain == 56
    small = depthwise_nest(depthwise(1, 64, 14, 7), weight, MACHINE)
    assert isinstance(small.extent, int) and small.grain > small.extent, "it is no work for two"


@pytest.mark.parametrize("columns", [5, 7, 11])
@pytest.mark.parametrize("stride", [1, 2])
def test_short_rows_fill_their_vectors(columns: int, stride: int) -> None:
    side = columns * stride
    found, layout = row_major(1, 3, side, side, stride=stride)
    plane = as_plane(found, (1, 3, side, side), layout, MACHINE)
    (weight,) = pack_weight(found).outputs
    nest = depthwise_nest(found, weight, MACHINE, plane)
    assert verify_nest(nest) > 0
    lines = [x for x in str(nest).splitlines() if "vector i" in x and "edge" not in x]
    assert len(lines) >= 2, "one to copy a row, and one to convolve it"
    for line in lines:
        extent, _, width = line.partition("<")[2].rstrip(":").partition(" by ")
        assert int(extent) == int(width), line
    check((1, 3, side, side), (3, 1, 3, 3), groups=3, padding=1, stride=stride)


@pytest.mark.parametrize("kernel", [(3, 2), (3, 3)], ids=str)
def test_rows_of_all_images_may_follow_one_another_evenly(kernel: tuple[int, int]) -> None:
    """Four rows of windows, two apart, are as far as it is from one padded image to the next."""
    for shape in ((4, 1, 6, 1), (3, 1, 6, 6), (2, 2, 6, 6)):
        weight = (shape[1], 1, *kernel)
        check(shape, weight, padding=2, stride=2, groups=shape[1])
