"""The GPU as a target: its lowering passes, what its kernels compute, and how code is made.

    groups ─▶ kernels ─▶ Triton source ─▶ cubin, in one object with what launches need

Nothing here needs a GPU: a program is compiled ahead for a chip, saved, and loaded where there is
one. What differs between chips is in ``Chip``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.fusion.regions import Fusions
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node
from monograph.kernel.kernel import Kernel
from monograph.kernel.lower import is_lowerable
from monograph.passes.fold_transpose_into_dot import FoldTransposeIntoDot
from monograph.passes.lower_composites import LowerComposites
from monograph.passes.manager import Pipeline
from monograph.passes.pipeline import O1
from monograph.passes.separate_conv_bias import SeparateConvBias
from monograph.program.text import program_text
from monograph.progress import announce
from monograph.targets import base
from monograph.targets.base import Assembled, BuildOptions, Target, TargetRecord
from monograph.targets.gpu.assemble import GpuKernel, StepBuilder
from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.choices import prefers_library
from monograph.targets.gpu.cubin import compile_kernels
from monograph.targets.gpu.linear_activations import join_linear_activations
from monograph.targets.gpu.modules import MachineCode, write_modules
from monograph.targets.gpu.source import TritonKernel
from monograph.targets.gpu.views import is_read_in_place
from monograph.targets.plan import PlannedKernel

FORMULAS = (
    *("acos", "acosh", "asin", "asinh", "atanh", "cosh", "log10", "log_sigmoid"),
    *("gelu", "reciprocal", "sigmoid", "silu", "sinh", "tan"),
)
"""Composites for which ``kernel.mathlib`` has a formula of their own."""

LOWERING: Pipeline = (
    LowerComposites(keep=("attention", *FORMULAS), keep_lowerable=True, keep_loops=False),
    FoldTransposeIntoDot(),
    SeparateConvBias(),
    *O1,
)
"""The passes between the optimised graph and fusion."""


@dataclass(frozen=True)
class Program(base.Program):
    """A program for a GPU."""

    kernels: tuple[GpuKernel, ...]
    chip: Chip


@dataclass
class GpuAssembled(Assembled):
    """Slots, steps, and the source of each kernel."""

    steps: StepBuilder
    sizes: tuple[Symbol, ...]
    seconds: dict[str, float]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """What its kernels compute, but for those of attention."""
        built = self.steps.kernels.values()
        return tuple(each.kernel for each in built if each.kernel is not None)

    @property
    def planned(self) -> Sequence[PlannedKernel]:
        """How each group is computed, by which configuration or library, and why."""
        return self.steps.planned

    @property
    def summaries(self) -> Mapping[str, str]:
        """Family, blocks and warps of each kernel."""
        return {each.name: each.summary for each in self.steps.kernels.values()}

    def listing(self) -> str:
        """The slots and steps, then how each kernel is computed."""
        kernels = [f"# {each.name}: {each.summary}" for each in self.steps.kernels.values()]
        return "\n".join([program_text(self.steps.slots, [], self.steps.steps), *kernels])

    def close(self) -> None:
        """Nothing is under way before code is emitted."""


class GpuTarget(Target):
    """A GPU that Triton compiles for."""

    source_suffix: ClassVar[str] = "py"
    can_measure: ClassVar[bool] = True

    def __init__(self, name: str, chip: Chip) -> None:
        self.name = name
        self.chip = chip

    @property
    def description(self) -> str:
        """The chip, and the compiler that makes code for it."""
        try:
            compiler = version("triton")
        except PackageNotFoundError:
            compiler = "none"
        measured = self.chip.measured
        table = f", choices {measured.digest}" if measured.sites else ""
        return f"{self.chip!r}, triton {compiler}{table}"

    @property
    def record(self) -> TargetRecord:
        """The chip; code for one needs just that one."""
        return TargetRecord(self.name, self.chip.triple, self.chip.name, "")

    def lowering(self, *, fusion: bool = True) -> Pipeline:
        """To ops whose elements have formulas, and those that libraries compute."""
        return LOWERING

    def join_for_libraries(self, graph: Graph) -> int:
        """Products with the biases and activations that cuBLASLt adds."""
        return join_linear_activations(graph, self.chip)

    def computes(self, node: Node) -> bool:
        """Whether a kernel of ours computes a node: not one that a library does better."""
        if not is_lowerable(node) or prefers_library(node, self.chip):
            return False
        return not is_read_in_place(node, self.chip)

    def assemble(self, graph: Graph, fusions: Fusions, options: BuildOptions) -> GpuAssembled:
        """A Triton kernel for every group that has one, and the steps that launch them."""
        started = time.perf_counter()
        steps = StepBuilder(fusions, self.chip)
        steps.main(graph)
        seconds = {"kernels": time.perf_counter() - started}
        return GpuAssembled(steps, tuple(graph.symbols().values()), seconds)

    def machine_codes(self, kernels: Sequence[TritonKernel]) -> list[MachineCode]:
        """Machine code for each kernel, several at a time."""
        return compile_kernels(kernels, self.chip)

    def emit(self, assembled: GpuAssembled) -> Program:
        """Triton source, then machine code for all kernels."""
        steps, started = assembled.steps, time.perf_counter()
        announce("triton")
        kernels = list(steps.kernels.values())
        names = [kernel.name for kernel in kernels]
        codes = self.machine_codes([kernel.triton for kernel in kernels])
        return Program(
            object=write_modules(dict(zip(names, codes, strict=True))),
            slots=tuple(steps.slots),
            sizes=assembled.sizes,
            steps=tuple(steps.steps),
            failures={},
            weights=tuple(steps.weights),
            fallbacks=tuple(steps.fallbacks),
            fusions=tuple(steps.visited),
            kernels=tuple(kernels),
            text="\n\n".join(f"# {each.name}\n{each.text}" for each in kernels),
            seconds={**assembled.seconds, "triton": time.perf_counter() - started},
            slot_of=dict(steps.slot_of),
            ends=tuple(steps.ends),
            conversions=(),
            chip=self.chip,
            planned=tuple(steps.planned),
        )
