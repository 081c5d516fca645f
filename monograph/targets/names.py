"""Targets by name: the one place where ``"cpu"``, ``"cpu:aarch64"`` or ``"gpu:sm_90"`` is read.

A name is a kind, and for other chips than this machine's a colon and the chip. Only here is it
asked what machine this is: whoever compiles, stores or loads is given a ``Target``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from monograph.config import Config
from monograph.errors import InputError
from monograph.targets.base import Target, TargetRecord


def _cpu(chip: str) -> Target:
    from monograph.targets.cpu.machine import machine_named
    from monograph.targets.cpu.target import CpuTarget

    return CpuTarget(f"cpu:{chip}" if chip else "cpu", machine_named(chip or "host"))


def host_record() -> TargetRecord:
    """What a program says of its target that is compiled for the machine that this is."""
    from monograph.targets.cpu.machine import host

    machine = host()
    return TargetRecord("cpu", machine.triple, machine.cpu, machine.features)


KINDS: dict[str, Callable[[str], Target]] = {"cpu": _cpu}
"""For each kind of target, what makes one for a chip, which is empty if none is named."""

ALIASES: Mapping[str, str] = {"host": "cpu"}
"""Other names that people know."""


def resolve_target(name: str | None = None) -> Target:
    """The target of that name; of ``MONOGRAPH_TARGET`` if there is no name, and else this machine.

    Two colons in a name, a kind that is not known, or a chip that it does not know are errors that
    list what there is.
    """
    wanted = Config.from_environment().target if name is None else name
    if not isinstance(wanted, str):
        raise InputError("a target is named by text", expected='"cpu"', found=repr(wanted))
    kind, colon, chip = ALIASES.get(wanted, wanted).partition(":")
    if kind not in KINDS or (colon and not chip):
        raise InputError(
            f"{wanted!r} is not a target",
            expected=", ".join(KINDS) + ', or one of these with a chip: "cpu:aarch64"',
            found=repr(wanted),
        )
    return KINDS[kind](chip)
