"""A target: one kind of processor behind one interface.

The compiler (``monograph.compiler``) knows no processor. It asks a ``Target`` for the passes that
lower a graph to what the target computes, for what its kernels can compute, and then for a program
in two steps: ``assemble`` decides how each group of nodes is computed and where its values lie,
and ``emit`` makes code of that. A target is one folder, and ``targets.names`` finds it by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from monograph.dataclass import dataclass
from monograph.program.code import Code

if TYPE_CHECKING:
    from monograph.fusion.group import Fusion, Group
    from monograph.fusion.limits import FusionLimits
    from monograph.fusion.regions import Fusions
    from monograph.ir.dims import Dim
    from monograph.ir.graph import Graph, Node, Value
    from monograph.kernel.kernel import Kernel
    from monograph.passes.manager import Pipeline
    from monograph.targets.plan import PlannedKernel


class Tuning(Protocol):
    """Choices of a target that measurements overrule, by the digest of where they are made."""

    @property
    def edits(self) -> Mapping[str, Mapping[str, int]]:
        """Plain numbers by site: ``{"4f0c…": {"width": 16}}``."""

    @property
    def digest(self) -> str:
        """Names all edits; empty if there are none."""


@dataclass(frozen=True)
class NoTuning:
    """The tuning of a target that has no choices to edit as a whole."""

    @property
    def edits(self) -> Mapping[str, Mapping[str, int]]:
        """None."""
        return {}

    @property
    def digest(self) -> str:
        """Empty."""
        return ""


class EmittedKernel(Protocol):
    """A kernel of a program, as reports and people see it."""

    @property
    def name(self) -> str:
        """Its name in the code."""

    @property
    def group(self) -> Group:
        """The nodes that it computes, and why these."""

    @property
    def kernel(self) -> Kernel | None:
        """What it computes; None if its op states the loops itself."""

    @property
    def text(self) -> str:
        """Its source."""

    @property
    def summary(self) -> str:
        """How it is computed, in a line."""


@dataclass(frozen=True)
class TargetRecord:
    """What a stored program says of the target that it was compiled for."""

    name: str
    triple: str
    cpu: str
    features: str
    """LLVM's list; those with a plus are what the code needs."""

    def __str__(self) -> str:
        return f"{self.name} ({self.triple}, {self.cpu})"


@dataclass(frozen=True)
class Conversion:
    """A value that is copied into another layout: what for, and the bytes of one copy."""

    value: str
    purpose: str
    nbytes: Dim


@dataclass(frozen=True)
class Program(Code):
    """The code, and how it came to be: what reports, listings and people ask for."""

    fusions: tuple[Fusion, ...]
    kernels: tuple[EmittedKernel, ...]
    text: str
    """The source of all of it."""
    seconds: dict[str, float]
    """How long each stage took."""
    slot_of: Mapping[Value, int]
    """Where each value of the graph (and of the regions in it) that has memory lies."""
    ends: tuple[int, ...]
    """For each group of the whole graph, in order, the number of steps when it is done."""
    conversions: tuple[Conversion, ...]
    """The copies from one layout to another that are left."""
    planned: tuple[PlannedKernel, ...] = field(default=(), kw_only=True)
    """How each kernel is computed that no equal one was before, and why."""


@dataclass(frozen=True)
class BuildOptions:
    """What is asked of a program beside its graph."""

    strides: Mapping[Value, tuple[int, ...]] = field(default_factory=dict)
    """Inputs that are not row-major: how many elements apart neighbours are."""
    listings: bool = False
    """Whether to keep what people read: optimised code and assembly."""
    tolerance: float | None = None
    """The error, over the largest result, that a faster convolution may have."""
    tuning: Tuning | None = None
    """Choices that are overruled."""
    replaced: bool = False
    """Whether variants take over where calls are many: compiling may stop a little earlier."""


class Assembled(ABC):
    """A program before code generation: slots, steps, and a plan for each kernel."""

    @property
    @abstractmethod
    def kernels(self) -> tuple[Kernel, ...]:
        """What its kernels compute, but those whose ops state the loops themselves."""

    @property
    def planned(self) -> Sequence[PlannedKernel]:
        """How each kernel is computed, and why; none of a target that has one way alone."""
        return ()

    @property
    def summaries(self) -> Mapping[str, str]:
        """How each kernel is computed, in a line, by its name."""
        return {}

    @abstractmethod
    def listing(self) -> str:
        """What there is to see of it beside its plans: slots, steps, loops."""

    @abstractmethod
    def close(self) -> None:
        """Give up work that was begun for it, if it does not become a program."""


class Target(ABC):
    """A kind of processor to compile for."""

    name: str
    """As people write it: ``cpu``, ``cpu:aarch64``, ``gpu:sm_90``."""

    can_measure: ClassVar[bool] = False
    """Whether it has choices that are measured while a program is compiled."""

    source_suffix: ClassVar[str] = "txt"
    """How files with its source code end."""

    @property
    @abstractmethod
    def description(self) -> str:
        """All that code for it depends on, as text: part of the key of cached programs."""

    @property
    @abstractmethod
    def record(self) -> TargetRecord:
        """What is stored of it beside a program."""

    @abstractmethod
    def lowering(self, *, fusion: bool = True) -> Pipeline:
        """The passes between the optimised graph and fusion."""

    def join_for_libraries(self, graph: Graph) -> int:
        """Make one node of lowered nodes that a library of the target computes together; how often.

        Most targets have no such library.
        """
        return 0

    @abstractmethod
    def computes(self, node: Node) -> bool:
        """Whether a kernel can compute a node, alone or with others."""

    @property
    def fusion_limits(self) -> FusionLimits:
        """From which sizes on nodes share a kernel, and up to which."""
        from monograph.fusion.limits import FusionLimits  # which loading a program does without

        return FusionLimits()

    @abstractmethod
    def assemble(self, graph: Graph, fusions: Fusions, options: BuildOptions) -> Assembled:
        """Decide how each group is computed, and in what steps and memory."""

    @abstractmethod
    def emit(self, assembled: Any) -> Program:
        """Code for what was assembled."""

    def tuning(self, edits: Mapping[str, Mapping[str, int]]) -> Tuning:
        """Choices that are overruled, out of the numbers that are stored of them."""
        return NoTuning()

    def recorder(self) -> Tuning | None:
        """A tuning without edits that remembers what could be edited; None if nothing can be."""
        return None

    def __str__(self) -> str:
        return self.name
