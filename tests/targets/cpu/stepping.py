"""Functions as steps and kernels, for a processor that need not be here; networks as kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import monograph
from monograph.compiler import Options, compile_graph
from monograph.fusion.regions import fuse_regions
from monograph.ir.interpret import interpret
from monograph.passes.lower_composites import LowerComposites
from monograph.passes.manager import run_pipeline
from monograph.passes.pipeline import pipeline_for
from monograph.targets.cpu.assemble.program_builder import BuiltKernel
from monograph.targets.cpu.assemble.steps import StepBuilder, computes
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.target import FORMULAS


def steps_of(function: Callable[..., Any], *types: Any, fusion: bool = True) -> StepBuilder:
    """The slots, kernels and steps of a function, for a chip with vectors of 32 bytes."""
    graph = monograph.trace(function, *types)
    LowerComposites(keep=FORMULAS, keep_lowerable=True).run(graph)
    run_pipeline(graph, pipeline_for("O1"))
    machine = machine_named("x86-64")
    fusions = fuse_regions(graph, computes, machine.costs.fusion, enabled=fusion)
    builder = StepBuilder(machine, {}, fusions)
    builder.main(graph)
    return builder


def kernel_of(function: Callable[..., Any], *types: Any) -> BuiltKernel:
    """The kernel of a function that is one."""
    (kernel,) = steps_of(function, *types).kernels.values()
    return kernel


def draw(*shape: int) -> np.ndarray[Any, Any]:
    """The same numbers for the same shape."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def kernels_of_network(net: Any, x: tuple[int, ...], *sizes: str) -> list[BuiltKernel]:
    """Compare a network of one input with the interpreter, and give its kernels."""
    graph = monograph.trace(net, f"f32[{', '.join(sizes or map(str, x))}]")
    executable = compile_graph(graph, Options(cache=False))
    (got,), (want,) = executable.run([draw(*x)]), interpret(graph, [draw(*x)])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    assert executable.program is not None
    return list(executable.program.kernels)
