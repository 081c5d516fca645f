"""From groups to a program for the processor: lower, schedule, emit, link.

    groups ─▶ kernels ─▶ loop nests ─▶ LLVM ─▶ one object with one entry point

Equal kernels are emitted once: a model with twelve equal layers has one layer's kernels. Those that
only turn out to be equal as text are compiled once (``parts``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing

from monograph.dataclass import dataclass
from monograph.fusion.regions import Fusions, fuse_regions
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Value
from monograph.kernel.kernel import Kernel
from monograph.kernel.layout import MemoryLayout
from monograph.program.code import ForLoop, ParallelFor, Step, WhileLoop, walk_steps
from monograph.program.text import program_text
from monograph.progress import announce
from monograph.targets import base
from monograph.targets.base import Assembled, BuildOptions
from monograph.targets.cpu.assemble.program_builder import BuiltKernel, ProgramBuilder
from monograph.targets.cpu.assemble.steps import StepBuilder, computes
from monograph.targets.cpu.entry_point.entry import entry_text
from monograph.targets.cpu.machine import Compiled, Effort, Machine, compile_text
from monograph.targets.cpu.nests.text import nest_text
from monograph.targets.cpu.parts import PartsInProgress
from monograph.targets.cpu.tuning import Tuning
from monograph.targets.plan import PlannedKernel

ATTRIBUTES = """
attributes #0 = { nounwind alignstack=64 "no-trapping-math"="true" }
attributes #1 = { nounwind }
!0 = distinct !{!0, !2}
!1 = !{i32 1}
!2 = !{!"llvm.loop.unroll.disable"}
!3 = !{!"branch_weights", i32 1, i32 1000}
"""


@dataclass(frozen=True)
class Program(base.Program):
    """A program for a processor, with the loop nests of its kernels and what LLVM made of them."""

    kernels: tuple[BuiltKernel, ...]
    machine: Machine
    compiled: Compiled


@dataclass
class CpuAssembled(Assembled):
    """Slots, steps and loop nests; large kernels may already be on their way through LLVM."""

    steps: StepBuilder
    parts: PartsInProgress
    sizes: tuple[Symbol, ...]
    listings: bool
    seconds: dict[str, float]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """What its kernels compute, but those whose ops state the loops themselves."""
        built = self.steps.kernels.values()
        return tuple(each.kernel for each in built if each.kernel is not None)

    @property
    def planned(self) -> Sequence[PlannedKernel]:
        """How each kernel is computed that no equal one was before, and why."""
        return self.steps.planned

    @property
    def summaries(self) -> Mapping[str, str]:
        """The schedule or tiling of each kernel."""
        return {each.name: each.summary for each in self.steps.kernels.values()}

    def listing(self) -> str:
        """The slots and steps, then every kernel with its loops."""
        kernels = (
            f"# {each.name}: {each.summary}\n{nest_text(each.nest)}"
            for each in self.steps.kernels.values()
        )
        steps = program_text(self.steps.slots, self.steps.prepare, self.steps.steps)
        return "\n".join([steps, *kernels])

    def close(self) -> None:
        """Give up kernels that nobody waits for."""
        self.parts.close()


def assemble(
    graph: Graph, machine: Machine, fusions: Fusions, options: BuildOptions
) -> CpuAssembled:
    """Decide how each group of a lowered graph is computed, in what steps and memory."""
    started = time.perf_counter()
    given = {value: MemoryLayout(each) for value, each in options.strides.items()}
    effort = Effort.QUICK if options.replaced else Effort.FULL
    parts = PartsInProgress(machine, ATTRIBUTES, effort)
    tuning = options.tuning
    assert tuning is None or isinstance(tuning, Tuning), "made by this target"
    steps = StepBuilder(machine, given, fusions, options.tolerance, tuning)
    if not options.listings:
        steps.parts = parts
    try:
        steps.main(graph)
    except BaseException:
        parts.close()
        raise
    seconds = {"kernels": time.perf_counter() - started}
    sizes = tuple(graph.symbols().values())
    return CpuAssembled(steps, parts, sizes, options.listings, seconds)


def emit(assembled: CpuAssembled) -> Program:
    """One object with one entry point for what was assembled."""
    steps, parts, sizes = assembled.steps, assembled.parts, assembled.sizes
    seconds = dict(assembled.seconds)
    started = time.perf_counter()
    module, failures = module_of(steps, sizes)
    text = module.text
    seconds["text"] = time.perf_counter() - started
    started = time.perf_counter()
    announce("llvm")
    if assembled.listings:  # to be read as one, whatever it takes
        compiled = compile_text(text, steps.machine, listings=True)
    else:
        loops = WhileLoop | ForLoop | ParallelFor
        has_loops = any(isinstance(step, loops) for step in walk_steps(tuple(steps.steps)))
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
        tuple(steps.visited),
        tuple(steps.kernels.values()),
        text,
        seconds,
        dict(steps.slot_of),
        tuple(steps.ends),
        tuple(steps.conversions),
        steps.machine,
        compiled,
        codes=module.codes,
        planned=tuple(steps.planned),
    )


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
    """Group, assemble and emit a lowered graph for a machine, which need not be this one."""
    fusions = fuse_regions(graph, computes, machine.costs.fusion, enabled=fusion)
    options = BuildOptions(strides or {}, listings, tolerance, tuning)
    with closing(assemble(graph, machine, fusions, options)) as assembled:
        return emit(assembled)


@dataclass(frozen=True)
class Module:
    """The text of a program: what it calls, its kernels, and its entry points."""

    declarations: str
    kernels: Mapping[str, str]
    """By name."""
    entry: str
    codes: Mapping[str, str]
    """For a kernel that has the same text as an earlier one, that one's name."""

    @property
    def text(self) -> str:
        """All of it."""
        bodies = "\n".join(self.kernels.values())
        return f"{self.declarations}\n\n{bodies}\n{self.entry}\n{ATTRIBUTES}"


def module_of(
    builder: ProgramBuilder, sizes: tuple[Symbol, ...]
) -> tuple[Module, Mapping[int, Step]]:
    """All kernels and the entry points, and the step that each result code stands for."""
    built = [(each.name, each.text) for each in builder.kernels.values()]
    parts = builder.parts
    codes = {} if parts is None else {name: parts.code(name, text) for name, text in built}
    entry, declarations, failures = entry_text(
        builder.slots, sizes, builder.steps, builder.prepare, codes
    )
    kernels = {}
    for name, text in built:
        code = codes.get(name, name)
        kernels[code] = text.replace(name, code)
    declared = "\n".join(sorted(builder.declarations | declarations))
    shared = {name: code for name, code in codes.items() if name != code}
    return Module(declared, kernels, entry, shared), failures
