"""From a graph to an executable: optimise, lower, build, load.

What the processor's target cannot compute runs in the interpreter: node by node where the values
are tensors, the whole graph where they are not (strings, sequences, sizes that depend on data).
Either way the report names it, and ``strict`` makes it an error.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from monograph.errors import UnsupportedError
from monograph.ir.graph import Graph
from monograph.ir.interpret import bind_inputs, interpret
from monograph.ir.op import registry
from monograph.ir.types import Array, TensorType, string
from monograph.kernel.lower import is_scalar_function
from monograph.passes.lower_composites import LowerComposites
from monograph.passes.manager import Report, run_pipeline
from monograph.passes.pipeline import pipeline_for
from monograph.runtime.executable import Native
from monograph.targets.cpu.build import Program, build
from monograph.targets.cpu.machine import host


@dataclass(frozen=True)
class Options:
    """How to compile."""

    level: str = "O2"
    threads: int | None = None
    strict: bool = False
    fusion: bool = True
    listings: bool = False


@dataclass
class CompileReport:
    """What happened: seconds a stage, the passes, and what runs in the interpreter."""

    passes: Report
    seconds: dict[str, float] = field(default_factory=dict)
    nodes_before: int = 0
    nodes_after: int = 0
    fallbacks: tuple[str, ...] = ()
    """Nodes that run in the interpreter, as text; ``whole`` says why if it is all of them."""
    whole: str | None = None


class Executable:
    """A compiled graph. Call it with the graph's inputs, by position or by name."""

    def __init__(
        self, graph: Graph, lowered: Graph, native: Native | None, report: CompileReport
    ) -> None:
        self.graph = graph
        self.lowered = lowered
        self.native = native
        self.report = report
        self._expected = [
            (value.type.dtype.numpy, value.type.shape if value.type.is_static else None)
            if isinstance(value.type, TensorType)
            else None
            for value in lowered.inputs
        ]

    @property
    def program(self) -> Program | None:
        """The compiled program; None if the interpreter runs all of it."""
        return None if self.native is None else self.native.program

    def __call__(self, *inputs: Any, **named: Any) -> list[Array]:
        """The graph's outputs, in order."""
        return self.run({**named} if named and not inputs else inputs)

    def run(self, inputs: Sequence[Any] | dict[str, Any]) -> list[Array]:
        """The graph's outputs for inputs in order, or by name."""
        if self.native is None:
            return interpret(self.lowered, inputs)
        if isinstance(inputs, dict) or not self._fits(inputs):
            inputs = self._converted(inputs)
        return self.native(inputs)

    def _fits(self, inputs: Sequence[Any]) -> bool:
        """Whether the arrays can be passed as they are."""
        if len(inputs) != len(self._expected):
            return False
        for array, expected in zip(inputs, self._expected, strict=True):
            if expected is None or type(array).__name__ != "ndarray":
                return False
            dtype, shape = expected
            if array.dtype != dtype or not array.flags.c_contiguous:
                return False
            if shape is None or array.shape != shape:
                return False
        return True

    def _converted(self, inputs: Sequence[Any] | dict[str, Any]) -> list[Array]:
        """The inputs as contiguous arrays; what does not fit is an error that names it."""
        import numpy as np

        arrays, _ = bind_inputs(self.lowered, inputs)
        return [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays]


def compile_graph(graph: Graph, options: Options | None = None) -> Executable:
    """Compile a graph, which stays as it is."""
    chosen = options or Options()
    started = time.perf_counter()
    lowered = graph.clone()
    passes = run_pipeline(lowered, pipeline_for(chosen.level))
    report = CompileReport(passes, nodes_before=len(graph), nodes_after=len(lowered))
    report.seconds["passes"] = time.perf_counter() - started
    reason = _only_interpretable(lowered)
    if reason is not None:
        report.whole = reason
        report.fallbacks = tuple(repr(node) for node in lowered.nodes)
        _refuse_if_strict(chosen, report)
        return Executable(graph, lowered, None, report)
    started = time.perf_counter()
    LowerComposites(keep=composites_with_loops()).run(lowered)
    run_pipeline(lowered, pipeline_for("O1"))
    report.seconds["lowering"] = time.perf_counter() - started
    program = build(lowered, host(), fusion=chosen.fusion, listings=chosen.listings)
    report.seconds |= program.seconds
    report.fallbacks = tuple(repr(node) for node in program.fallbacks)
    _refuse_if_strict(chosen, report)
    started = time.perf_counter()
    native = Native(program, lowered, chosen.threads)
    report.seconds["loading"] = time.perf_counter() - started
    return Executable(graph, lowered, native, report)


def composites_with_loops() -> tuple[str, ...]:
    """Composites that say how one element is computed, and so need no decomposition."""
    return tuple(name for name, op in registry().items() if op.is_composite() and op.has_lowering())


def _only_interpretable(graph: Graph) -> str | None:
    """Why a graph has no native code at all."""
    for node in graph.walk():
        for value in (*node.operands, *node.results):
            if not isinstance(value.type, TensorType):
                return f"%{value.name} is a {value.type}, which only the interpreter holds"
            if value.dtype is string:
                return f"%{value.name} holds strings, which only the interpreter knows"
        if node.op.binds():
            return f"{node.op.name} decides the size of its result when it runs"
    return None


def _refuse_if_strict(options: Options, report: CompileReport) -> None:
    if not options.strict or not report.fallbacks:
        return
    shown = report.whole or "; ".join(report.fallbacks[:5])
    raise UnsupportedError(
        f"some of this model has no native code yet: {shown}",
        hint="strict=False runs these nodes in the interpreter",
    )
