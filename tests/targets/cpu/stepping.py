"""Functions as steps and kernels for a processor that need not be here; nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import monograph
from monograph.passes.lower_composites import LowerComposites
from monograph.passes.manager import run_pipeline
from monograph.passes.pipeline import pipeline_for
from monograph.runtime.compile import composites_with_loops
from monograph.targets.cpu.launches import BuiltKernel
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.steps import StepBuilder


def steps_of(function: Callable[..., Any], *types: Any, fusion: bool = True) -> StepBuilder:
    """The slots, kernels and steps of a function, for a chip with vectors of 32 bytes."""
    graph = monograph.trace(function, *types)
    LowerComposites(keep=composites_with_loops()).run(graph)
    run_pipeline(graph, pipeline_for("O1"))
    builder = StepBuilder(machine_named("x86-64"), {}, fusion)
    builder.main(graph)
    return builder


def kernel_of(function: Callable[..., Any], *types: Any) -> BuiltKernel:
    """The kernel of a function that is one."""
    (kernel,) = steps_of(function, *types).kernels.values()
    return kernel
