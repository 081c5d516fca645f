"""The processor as a target: its lowering passes, what its kernels compute, and how code is made.

Everything that depends on the chip is in its ``Machine``; another chip is another ``Machine``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from monograph.fusion.limits import FusionLimits
from monograph.fusion.regions import Fusions
from monograph.ir.graph import Graph, Node
from monograph.passes.conv_transpose_to_conv import ConvTransposeToConv
from monograph.passes.decompose_blocked_linear import DecomposeBlockedLinear
from monograph.passes.decompose_group_norm import DecomposeGroupNorm
from monograph.passes.fold_transpose_into_dot import FoldTransposeIntoDot
from monograph.passes.lower_composites import LowerComposites
from monograph.passes.manager import Pipeline
from monograph.passes.narrow_integer_products import NarrowIntegerProducts
from monograph.passes.pipeline import O1
from monograph.passes.split_complex_products import SplitComplexProducts
from monograph.passes.tile_batch import TileBatch
from monograph.targets.base import BuildOptions, Target, TargetRecord
from monograph.targets.cpu.assemble.steps import computes
from monograph.targets.cpu.attention.attend import DECOMPOSE_ATTENTION
from monograph.targets.cpu.build import CpuAssembled, Program, assemble, emit
from monograph.targets.cpu.knobs import edit
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.products.blocked import widest_blocked_weights
from monograph.targets.cpu.tuning import Edits, Recorder, Tuning

FORMULAS = (
    *("acos", "acosh", "asin", "asinh", "atanh", "cosh", "log10", "log_sigmoid"),
    *("reciprocal", "sigmoid", "silu", "sinh", "tan"),
)
"""Composites for which ``kernel.mathlib`` has a formula of their own."""

LOWER_COMPOSITES = LowerComposites(
    keep=("attention", "blocked_linear", *FORMULAS), keep_lowerable=True
)

LOWERING: Pipeline = (
    DECOMPOSE_ATTENTION,
    DecomposeGroupNorm(),
    LOWER_COMPOSITES,
    FoldTransposeIntoDot(),
    ConvTransposeToConv(),
    SplitComplexProducts(),
    NarrowIntegerProducts(),
    *O1,
)
"""The passes between the optimised graph and fusion."""


class CpuTarget(Target):
    """A processor that LLVM generates code for."""

    source_suffix: ClassVar[str] = "ll"

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine

    @property
    def description(self) -> str:
        """The chip: its instructions, vectors and caches."""
        return repr(self.machine)

    @property
    def record(self) -> TargetRecord:
        """The chip's name, and the features that code for it needs."""
        machine = self.machine
        return TargetRecord(self.name, machine.triple, machine.cpu, machine.features)

    def lowering(self, *, fusion: bool = True) -> Pipeline:
        """Lowering, then loops over the images of a batch that does not stay in cache."""
        passes = (DecomposeBlockedLinear(bits=widest_blocked_weights(self.machine)), *LOWERING)
        tiled = TileBatch(near=self.machine.l2, processors=self.machine.threads)
        return (*passes, tiled) if fusion else passes

    def computes(self, node: Node) -> bool:
        """Whether its elements have formulas, or it is an attention that streams."""
        return computes(node)

    @property
    def fusion_limits(self) -> FusionLimits:
        """Those of the processor's row in the table of costs."""
        return self.machine.costs.fusion

    def assemble(self, graph: Graph, fusions: Fusions, options: BuildOptions) -> CpuAssembled:
        """Loop nests for every group, with the steps that launch them."""
        return assemble(graph, self.machine, fusions, options)

    def emit(self, assembled: CpuAssembled) -> Program:
        """LLVM text, then one object with one entry point."""
        return emit(assembled)

    def tuning(self, edits: Mapping[str, Edits]) -> Tuning:
        """Edits of schedules, tilings and attention tiles."""
        return Tuning(edits, edit)

    def recorder(self) -> Recorder:
        """What remembers every choice of a program, for a search."""
        return Recorder()
