"""Summaries of kernels that outlive the compiler: what ``explain`` needs of each.

A stored program has no graph and no groups. What people ask of them (which nodes a kernel computes,
how, and why it ends where it does) is kept as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from monograph.dataclass import dataclass
from monograph.program.records import exactly, require_type
from monograph.runtime.bundle import Json

if TYPE_CHECKING:
    from monograph.targets.base import EmittedKernel


@dataclass(frozen=True)
class KernelNote:
    """A kernel, the group that it computes, and why the group is what it is."""

    name: str
    kind: str
    space: str
    how: str
    nodes: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


def notes_of(kernels: Sequence[EmittedKernel]) -> tuple[KernelNote, ...]:
    """What is to be known of these kernels."""
    return tuple(_note(built) for built in kernels)


def _note(built: EmittedKernel) -> KernelNote:
    group = built.group
    nodes = tuple(
        f"{node!r} (again)" if node in group.copies else repr(node) for node in group.nodes
    )
    return KernelNote(
        name=built.name,
        kind=group.kind.value,
        space="×".join(map(str, group.space)) or "a scalar",
        how=built.summary,
        nodes=nodes,
        together=tuple(dict.fromkeys(group.joined)),
        apart=tuple(dict.fromkeys(group.apart)),
    )


def write_notes(notes: Sequence[KernelNote]) -> list[Json]:
    """The notes as JSON; what several kernels of one group have in common is said once."""
    found: list[Json] = []
    said: dict[tuple[tuple[str, ...], ...], int] = {}
    for number, note in enumerate(notes):
        reasons = (note.nodes, note.together, note.apart)
        names: list[Json] = [note.name, note.kind, note.space, note.how]
        first = said.setdefault(reasons, number)
        shared: Json = [list(each) for each in reasons] if first == number else first
        found.append([*names, shared])
    return found


def read_notes(value: Json) -> tuple[KernelNote, ...]:
    """What ``write_notes`` wrote."""
    found: list[KernelNote] = []
    for each in require_type(value, list):
        *names, shared = exactly(each, 5)
        name, kind, space, how = (require_type(part, str) for part in names)
        if isinstance(shared, int) and 0 <= shared < len(found):
            found.append(replace(found[shared], name=name, kind=kind, space=space, how=how))
            continue
        nodes, together, apart = (
            tuple(require_type(text, str) for text in require_type(part, list))
            for part in exactly(shared, 3)
        )
        found.append(KernelNote(name, kind, space, how, nodes, together, apart))
    return tuple(found)
