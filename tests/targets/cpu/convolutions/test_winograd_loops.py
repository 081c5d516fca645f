"""The loops of Winograd's method: inside their buffers, and no condition more than needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.fusion.fuse import fuse
from monograph.ir.dims import Symbol
from monograph.kernel import expr as e
from monograph.kernel.evaluate import evaluate_kernel
from monograph.kernel.layout import MemoryLayout, channels_last, make_layout
from monograph.kernel.lower import is_lowerable
from monograph.kernel.winograd_transform import F2, F2_STRIDED, F2X4, F4, Transform
from monograph.targets.cpu.convolutions.winograd import find
from monograph.targets.cpu.convolutions.winograd_loops import Winograd
from monograph.targets.cpu.convolutions.winograd_plan import (
    Convolution,
    WinogradPlan,
    tile_counts,
)
from monograph.targets.cpu.nests.loop_nest import If, Loop, LoopNest, Statement
from monograph.targets.cpu.nests.verify import ScheduleError, verify_nest

TRANSFORMS = {"F2": F2, "F2X4": F2X4, "F4": F4, "strided": F2_STRIDED}
EACH = pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())


def convolution(
    batch: int | str = 1,
    channels: int = 3,
    features: int = 5,
    size: Sequence[int | str] = (5, 6),
    padding: Any = 1,
    groups: int = 1,
    border: int = 0,
    stride: int = 1,
    dilation: Any = 1,
) -> Convolution:
    """The convolution of a channels-last image, with a bias and a rectifier after it."""
    shape = f"f32[{batch}, {channels}, {size[0]}, {size[1]}]"
    weight = f"f32[{features}, {channels // groups}, 3, 3]"
    graph = monograph.trace(
        lambda x, w, b: F.relu(
            F.conv(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups)
        ),
        *(shape, weight, f"f32[{features}]"),
    )
    (group,) = fuse(graph, {node: is_lowerable(node) for node in graph.nodes}).groups
    (conv,) = (node for node in group.nodes if node.op.name == "conv")
    x, result = graph.inputs[0], graph.outputs[0]
    layouts: dict[Any, MemoryLayout] = {
        x: make_layout(x.shape, channels_last(4), (0, 0, border, border)),
        result: make_layout(result.shape, channels_last(4)),
    }
    place = group.places[result]
    assert place is not None
    found = find(group, conv, {result: place}, layouts)
    assert found is not None
    return found.convolution


def nests(given: Convolution, transform: Transform, block: int = 6) -> list[LoopNest]:
    """The nests of both ways to run a convolution."""
    fused = Winograd(given, WinogradPlan(transform, block, 3, 8, 4))
    apart = Winograd(given, WinogradPlan(transform, block, 3, 8, 4, whole=True))
    return [fused.fused_nest(), apart.input_nest(1), apart.product_nest()]


def conditions(statements: Sequence[Statement]) -> int:
    """How many conditions there are in a nest."""
    inner = [s for s in statements if isinstance(s, If | Loop)]
    return sum(isinstance(s, If) for s in inner) + sum(conditions(s.body) for s in inner)


# Weights.


@EACH
def test_planes_of_weights_are_zero_beyond_the_last_channel(transform: Transform) -> None:
    kernels = Winograd(convolution(features=5), WinogradPlan(transform, 6, 3, 8, 4))
    weight = np.ones((5, 3, 3, 3), np.float32)
    (planes,) = evaluate_kernel(kernels.weight_kernel(), [weight.ravel()])
    panels = planes.reshape(transform.weight_planes, 3, 8)
    assert np.all(panels[..., 5:] == 0)
    assert np.all(panels[0, :, :5] == 1)  # the first plane is the first tap itself


# Loops.


@EACH
@pytest.mark.parametrize("size", [(1, 1), (5, 6), (4, 4), (3, 9)])
@pytest.mark.parametrize("padding", [1, 2, ((0, 2), (2, 1))], ids=["1", "2", "uneven"])
def test_nests_stay_inside_their_buffers(transform: Transform, size: Any, padding: Any) -> None:
    given = convolution(batch=2, size=size, padding=padding, stride=transform.stride)
    for nest in nests(given, transform):
        assert verify_nest(nest) > 0


@EACH
def test_nests_of_groups_and_symbolic_sizes_stay_inside_their_buffers(transform: Transform) -> None:
    given = convolution("n", 4, 6, ("h", "w"), groups=2, stride=transform.stride)
    sizes = {Symbol("n"): 2, Symbol("h"): 5, Symbol("w"): 3}
    for nest in nests(given, transform):
        assert verify_nest(nest, sizes) > 0


@pytest.mark.parametrize("transform", [F2, F2X4], ids=["F2", "F2X4"])
@pytest.mark.parametrize("dilation", [2, (3, 1), (4, 7)], ids=str)
def test_nests_of_windows_with_gaps_stay_inside(transform: Transform, dilation: Any) -> None:
    given = convolution(size=(9, 11), padding=3, dilation=dilation)
    for nest in nests(given, transform):
        assert verify_nest(nest) > 0


def test_windows_with_gaps_have_tiles_of_every_few_rows() -> None:
    given = convolution(size=(16, 16), padding=3, dilation=3)
    assert tile_counts(given, F2X4) == (3 * 3, 3 * 2)
    assert tile_counts(convolution(size=(16, 16)), F2X4) == (8, 4)


def test_the_condition_of_a_border_is_what_keeps_a_nest_inside() -> None:
    nest = nests(convolution(), F2)[1]

    def freed(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        always = e.apply("less", e.index(0), e.index(1), dtype=monograph.ir.types.bool_)
        return tuple(
            If(always, each.body)
            if isinstance(each, If)
            else Loop(each.symbol, each.start, each.extent, freed(each.body), each.kind, each.width)
            if isinstance(each, Loop)
            else each
            for each in statements
        )

    verify_nest(nest)
    free = LoopNest(**{**vars(nest), "body": freed(nest.body)})
    with pytest.raises(ScheduleError, match="outside its buffer"):
        verify_nest(free)


def test_zeros_in_memory_around_an_image_spare_the_conditions() -> None:
    bare = nests(convolution(size=(4, 6)), F2)[0]
    assert conditions(bare.body) == 2
    bordered = nests(convolution(size=(4, 6), border=1), F2)[0]
    assert conditions(bordered.body) == 0
    verify_nest(bordered)


def test_odd_sizes_guard_the_last_row_and_column() -> None:
    bordered = nests(convolution(size=(5, 7), border=1), F2)[0]
    assert conditions(bordered.body) == 2 + 3
    verify_nest(bordered)
