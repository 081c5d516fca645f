"""Interfaces between a running program and what specializes it (``specialize``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from monograph.program.records import Json
    from monograph.runtime.compiled import Executable
    from monograph.runtime.device import LoadedProgram
    from monograph.runtime.storage import BundleParts

Sizes = tuple[int, ...]
Pattern = tuple[int | None, ...]
"""Sizes of which some are known, and None for those that calls bring."""


class VariantLimit(Protocol):
    """How many variants the parts of one program may keep together."""

    @property
    def most(self) -> int:
        """How many each of them may keep."""


class Variants(Protocol):
    """Programs for sizes that came back, beside the one for all sizes."""

    @property
    def version(self) -> int:
        """Changes whenever another program serves some sizes."""

    def find(self, sizes: Sizes) -> tuple[LoadedProgram, Sizes] | None:
        """A variant for these sizes, if one is there, and the sizes that it is still to be told."""

    def may_compile(self, sizes: Sizes) -> bool:
        """Whether more calls of these sizes may have a variant compiled that nobody asked for."""

    def leave_out(self) -> AbstractContextManager[None]:
        """Let the program for all sizes serve all calls, of which none counts."""

    def programs(self) -> Sequence[LoadedProgram]:
        """The programs of those that are there."""

    def ready(self, sizes: Pattern) -> Executable | None:
        """The variant for just these sizes, if it is there."""

    def states(self) -> Mapping[Pattern, Any]:
        """What there is, the least recently used first."""

    def served_by(self, sizes: Sizes) -> str:
        """Which program runs at these sizes, and why."""

    def wait(self, seconds: float) -> bool:
        """Whether nothing is left to compile, after so long at most."""

    def compile_now(self, sizes: Sizes) -> None:
        """Compile a variant before calls ask for it."""

    def write(self, parts: BundleParts) -> list[Json]:
        """Add those that are ready to the parts of a stored program."""


class Completion(Protocol):
    """What completes a program that hangs on more than the types of its inputs."""

    @property
    def settings(self) -> Mapping[str, Json]:
        """How parts are compiled, to be stored."""

    @property
    def parts(self) -> Sequence[Executable]:
        """The parts that are compiled by now."""

    def call(self, inputs: Sequence[Any] | dict[str, Any]) -> list[Any]:
        """The graph's outputs."""


class Alternative(Protocol):
    """Another program for inputs that the program does not serve: those with a size of zero."""

    def serves(self, inputs: Sequence[Any] | Mapping[str, Any]) -> bool:
        """Whether it runs these inputs."""

    def run(self, inputs: Sequence[Any] | dict[str, Any]) -> list[Any]:
        """The graph's outputs."""
