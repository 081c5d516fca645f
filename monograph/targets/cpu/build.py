"""From a graph to a program for the processor: group, lower, schedule, emit, link.

    graph ─▶ groups ─▶ kernels ─▶ loop nests ─▶ LLVM ─▶ one object with one entry point

Equal kernels are emitted once: a model with twelve equal layers has one layer's kernels. Those that
only turn out to be equal as text are compiled once (``parts``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field

from monograph.dataclass import dataclass
from monograph.fusion.group import Fusion
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Value
from monograph.kernel.layout import Layout
from monograph.progress import announce
from monograph.targets.cpu.entry import entry_text
from monograph.targets.cpu.launches import BuiltKernel, Conversion, Launches
from monograph.targets.cpu.machine import Compiled, Machine, compile_text
from monograph.targets.cpu.parts import Parts
from monograph.targets.cpu.steps import StepBuilder
from monograph.targets.cpu.tuning import Tuning
from monograph.targets.program import Code, Count, Repeat, Spread, Step, flattened

ATTRIBUTES = """
attributes #0 = { nounwind alignstack=64 "no-trapping-math"="true" }
attributes #1 = { nounwind }
!0 = distinct !{!0, !2}
!1 = !{i32 1}
!2 = !{!"llvm.loop.unroll.disable"}
!3 = !{!"branch_weights", i32 1, i32 1000}
"""


@dataclass(frozen=True)
class Program(Code):
    """The code, and how it came to be: what reports, listings and people ask for."""

    machine: Machine
    compiled: Compiled
    fusions: tuple[Fusion, ...]
    kernels: tuple[BuiltKernel, ...]
    text: str
    seconds: dict[str, float] = field(default_factory=dict)
    slot_of: Mapping[Value, int] = field(default_factory=dict)
    """Where each value of the graph (and of the regions in it) that has memory lies."""
    ends: tuple[int, ...] = ()
    """For each group of the whole graph, in order, the number of steps when it is done."""
    conversions: tuple[Conversion, ...] = ()
    """The copies from one layout to another that are left."""


def build(
    graph: Graph,
    machine: Machine,
    *,
    strides: Mapping[Value, tuple[int, ...]] | None = None,
    fusion: bool = True,
    listings: bool = False,
    tolerance: float | None = None,
    tuning: Tuning | None = None,
) -> Program:
    """Compile a graph whose composites are lowered.

    ``tolerance`` is the error, over the largest result, that a faster convolution may have;
    ``tuning`` overrules choices of schedules.
    """
    with Parts(machine, ATTRIBUTES) as parts:
        return _build(graph, machine, parts, strides, fusion, listings, tolerance, tuning)


def _build(
    graph: Graph,
    machine: Machine,
    parts: Parts,
    strides: Mapping[Value, tuple[int, ...]] | None,
    fusion: bool,
    listings: bool,
    tolerance: float | None,
    tuning: Tuning | None,
) -> Program:
    seconds: dict[str, float] = {}
    started = time.perf_counter()
    given = {value: Layout(each) for value, each in (strides or {}).items()}
    steps = StepBuilder(machine, given, fusion, tolerance, tuning)
    if not listings:
        steps.parts = parts
    steps.main(graph)
    seconds["fusion"] = steps.fusion_seconds
    seconds["kernels"] = time.perf_counter() - started - steps.fusion_seconds
    started = time.perf_counter()
    sizes = tuple(graph.symbols().values())
    module, failures = module_of(steps, sizes)
    text = module.text
    seconds["text"] = time.perf_counter() - started
    started = time.perf_counter()
    announce("llvm")
    if listings:  # to be read as one, whatever it takes
        compiled = compile_text(text, machine, listings=True)
    else:
        loops = Repeat | Count | Spread
        has_loops = any(isinstance(step, loops) for step in flattened(tuple(steps.steps)))
        compiled = parts.compiled(
            module.declarations, module.kernels, module.entry, has_loops=has_loops
        )
    seconds["llvm"] = time.perf_counter() - started
    return Program(
        compiled.object,
        tuple(steps.slots),
        sizes,
        tuple(steps.steps),
        failures,
        tuple(steps.weights),
        tuple(steps.fallbacks),
        machine,
        compiled,
        tuple(steps.fusions),
        tuple(steps.kernels.values()),
        text,
        seconds,
        dict(steps.slot_of),
        tuple(steps.ends),
        tuple(steps.conversions),
    )


@dataclass(frozen=True)
class Module:
    """The text of a program: what it calls, its kernels, and its entry points."""

    declarations: str
    kernels: Mapping[str, str]
    """By name."""
    entry: str

    @property
    def text(self) -> str:
        """All of it."""
        bodies = "\n".join(self.kernels.values())
        return f"{self.declarations}\n\n{bodies}\n{self.entry}\n{ATTRIBUTES}"


def module_of(launches: Launches, sizes: tuple[Symbol, ...]) -> tuple[Module, Mapping[int, Step]]:
    """All kernels and the entry points, and the step that each result code stands for."""
    built = [(each.name, each.text) for each in launches.kernels.values()]
    parts = launches.parts
    codes = {} if parts is None else {name: parts.code(name, text) for name, text in built}
    entry, declarations, failures = entry_text(
        launches.slots, sizes, launches.steps, launches.prepare, codes
    )
    kernels = {}
    for name, text in built:
        code = codes.get(name, name)
        kernels[code] = text.replace(name, code)
    declared = "\n".join(sorted(launches.declarations | declarations))
    return Module(declared, kernels, entry), failures
