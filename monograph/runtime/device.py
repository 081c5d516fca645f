"""Devices: what a compiled program is loaded on, and called on.

A ``Device`` takes code that was compiled for it and makes a ``LoadedProgram``: modules loaded,
weights prepared, ready to be called. What differs between devices (address tables and a native
entry point on a processor, modules and captured graphs on a GPU) is behind these two classes; the
compiler, the cache and artifacts know no more of a device than they say.

    Device.check(record)     may code for this target run here? an error says why not
    Device.load(code, …)     modules, memory and weights
    LoadedProgram(inputs)    a frame, the launches, the outputs
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from monograph.dataclass import dataclass
from monograph.entry_points import load_entry_point
from monograph.errors import InputError, MonographError
from monograph.ir.graph import Graph
from monograph.ir.types import Array
from monograph.program.code import Code
from monograph.runtime.sizes import Guard
from monograph.targets.base import TargetRecord

if TYPE_CHECKING:
    from monograph.runtime.specialization import Variants


@dataclass(frozen=True)
class Loading:
    """How a program is loaded, beside its code."""

    threads: int | None = None
    guards: tuple[Guard, ...] | None = None
    """The nodes whose type rules are asked about each new size; the graph's own if None."""
    prepared: Mapping[int, Array] | None = None
    """What was made of weights alone, by slot, if that was made before."""
    snapshot: bool = False
    """Whether somebody else may write to the weights, so that the program takes copies."""
    lets_go: bool = False
    """Whether weights belong to the program, which releases those that no call reads."""


def cannot(*_: Any) -> None:
    """What stands for the quick call of a program that has none: it takes no arguments."""


class LoadedProgram(ABC):
    """A program on a device, ready to be called."""

    program: Code
    guards: tuple[Guard, ...]
    static: bool
    """Whether no size is symbolic."""
    variants: Variants | None = None
    """Programs for sizes that came back; None where one program serves all sizes."""
    takes_variants: ClassVar[bool] = False
    """Whether it can have programs for sizes that come back."""

    @abstractmethod
    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for these inputs, in the graph's order."""

    def prepared(self) -> dict[int, Array]:
        """What is made of weights alone, by slot: made now, if it was not before."""
        return {}

    def share_prepared(self, equal: Mapping[int, Array]) -> None:
        """Read these of another program in place of equal ones, before the first call."""
        self.prepared().update(equal)

    def stored(self) -> tuple[Code, dict[int, Array] | None]:
        """The code as an artifact stores it, with what was prepared (or None: it is not stored)."""
        return self.program, None


class Device(ABC):
    """A kind of processor of this machine."""

    @abstractmethod
    def check(self, record: TargetRecord) -> None:
        """Raise an ``ArtifactError`` or ``InputError`` if code for this target cannot run here."""

    @abstractmethod
    def load(self, code: Code, graph: Graph, loading: Loading) -> LoadedProgram:
        """A program that is ready to be called."""

    def runs(self, record: TargetRecord) -> bool:
        """Whether code for this target can run here."""
        try:
            self.check(record)
        except MonographError:
            return False
        return True


def _cpu() -> Device:
    from monograph.runtime.cpu.device import CpuDevice

    return CpuDevice()


def _gpu() -> Device:
    from monograph.runtime.gpu.device import GpuDevice

    return GpuDevice()


DEVICES: dict[str, Callable[[], Device]] = {"cpu": _cpu, "gpu": _gpu}
"""For each kind of target, what makes the device that its code runs on."""


def device_for(name: str) -> Device:
    """The device that code for a target of this name is loaded on.

    That of a target from another package is an entry point in the group ``monograph.devices``.
    """
    kind = name.partition(":")[0]
    make = DEVICES.get(kind) or load_entry_point("monograph.devices", kind)
    if make is None:
        raise InputError(
            f"this machine has no device for {name}", expected=", ".join(DEVICES), found=repr(name)
        )
    made = make()
    if not isinstance(made, Device):
        raise InputError(
            f"the entry point {kind!r} makes no device",
            expected="a monograph.runtime.device.Device",
            found=type(made).__name__,
        )
    return made


def runs_here(record: TargetRecord) -> bool:
    """Whether this machine can run code for a target."""
    return device_for(record.name).runs(record)
