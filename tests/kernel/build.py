"""Functions as kernels, without compiling anything: traced, grouped, lowered, flattened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import monograph
from monograph.fusion.fuse import fuse
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel
from monograph.kernel.layout import MemoryLayout
from monograph.kernel.lower import is_lowerable, lower_group
from monograph.passes.lower_composites import LowerComposites
from monograph.targets.cpu.target import FORMULAS


def kernel_of(
    function: Callable[..., Any], *types: str, strides: dict[int, tuple[int, ...]] | None = None
) -> Kernel:
    """The kernel of a function that is one group; ``strides`` are those of its inputs."""
    graph = monograph.trace(function, *types)
    LowerComposites(keep=FORMULAS, keep_lowerable=True).run(graph)
    (group,) = fuse(graph, {node: is_lowerable(node) for node in graph.nodes}).groups
    places = {}
    for value in group.outputs():
        place = group.places[value]
        assert place is not None
        places[value] = place
    given = {graph.inputs[k]: MemoryLayout(each) for k, each in (strides or {}).items()}
    kernel, _ = lower_group(group.name, group.nodes, group.space, places, given)
    return kernel


def flat(
    function: Callable[..., Any], *types: str, strides: dict[int, tuple[int, ...]] | None = None
) -> Kernel:
    """The same with flat buffers and merged axes."""
    return flatten(kernel_of(function, *types, strides=strides))


def axes(kernel: Kernel) -> list[str]:
    """The extents of a kernel's axes."""
    return [str(axis.extent) for axis in kernel.axes]
