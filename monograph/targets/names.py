"""Targets by name: the one place where ``"cpu"``, ``"cpu:aarch64"`` or ``"gpu:sm_90"`` is read.

A name is a kind, and for other chips than this machine's a colon and the chip. Only here is it
asked what machine this is: whoever compiles, stores or loads is given a ``Target``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from monograph.config import Config
from monograph.entry_points import entry_points, load_entry_point
from monograph.errors import InputError
from monograph.targets.base import Target, TargetRecord


def _cpu(chip: str) -> Target:
    from monograph.targets.cpu.machine import machine_named
    from monograph.targets.cpu.target import CpuTarget

    return CpuTarget(f"cpu:{chip}" if chip else "cpu", machine_named(chip or "host"))


def _gpu(chip: str) -> Target:
    from monograph.targets.gpu.chip import chip_named
    from monograph.targets.gpu.measurements import read_measurements
    from monograph.targets.gpu.target import GpuTarget

    if not chip:
        from monograph.targets.gpu.driver import driver

        chip = driver().device(0).architecture
    kind, times = chip_named(chip), Config.from_environment().gpu_times
    if times is not None:
        kind = replace(kind, measured=read_measurements(_text_of(times)))
    return GpuTarget(f"gpu:{chip}", kind)


def _text_of(path: str) -> str:
    """A file that a setting names, as text."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(
            f"the file of MONOGRAPH_GPU_TIMES cannot be read: {problem}", found=repr(path)
        ) from None


def host_record() -> TargetRecord:
    """What a program says of its target that is compiled for the machine that this is."""
    from monograph.targets.cpu.machine import host

    machine = host()
    return TargetRecord("cpu", machine.triple, machine.cpu, machine.features)


KINDS: dict[str, Callable[[str], Target]] = {"cpu": _cpu, "gpu": _gpu}
"""For each kind of target, what makes one for a chip, which is empty if none is named."""

SUMMARIES: Mapping[str, str] = {
    "cpu": "native code through LLVM, in process",
    "gpu": "Triton source for the GPU of this machine",
}
"""What the kinds of target are."""

ALIASES: Mapping[str, str] = {"host": "cpu"}
"""Other names that people know."""


def resolve_target(name: str | None = None) -> Target:
    """The target of that name; of ``MONOGRAPH_TARGET`` if there is no name, and else this machine.

    A kind that is not Monograph's own is looked for among the entry points of other packages, in
    the group ``monograph.targets``: something to call with the chip. Two colons in a name, a kind
    that is not known, or a chip that it does not know are errors that list what there is.
    """
    wanted = (Config.from_environment().target or "cpu") if name is None else name
    if not isinstance(wanted, str):
        raise InputError("a target is named by text", expected='"cpu"', found=repr(wanted))
    kind, colon, chip = ALIASES.get(wanted, wanted).partition(":")
    make = KINDS.get(kind) or load_entry_point("monograph.targets", kind)
    if make is None or (colon and not chip):
        raise InputError(
            f"{wanted!r} is not a target",
            expected=", ".join(_kinds()) + ', or one of these with a chip: "cpu:aarch64"',
            found=repr(wanted),
        )
    made = make(chip)
    if not isinstance(made, Target):
        raise InputError(
            f"the entry point {kind!r} makes no target",
            expected="a monograph.targets.base.Target",
            found=type(made).__name__,
        )
    return made


def _kinds() -> list[str]:
    return [*KINDS, *entry_points("monograph.targets")]


def target_names() -> dict[str, str]:
    """Every name of a target, and what it is; what other packages have is not loaded for it."""
    from monograph.targets.cpu.machine import OTHERS
    from monograph.targets.gpu.chip import CHIPS

    chips = {f"cpu:{chip}": f"code for {triple}" for chip, (triple, *_) in OTHERS.items()}
    chips |= {f"gpu:{name}": f"code for {chip.triple}" for name, chip in CHIPS.items()}
    brought = {
        kind: f"from {point.value}" for kind, point in entry_points("monograph.targets").items()
    }
    return {**SUMMARIES, **chips, **brought}
