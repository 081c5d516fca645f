"""Tunable choices: where a measurement may overrule the cost model, and how each is edited.

A cost model chooses how every kernel is computed: a ``Schedule``, a ``Tiling``, an
``AttentionTile``. Each such choice is a *site*, named by a digest of what is computed there. A
``Tuning`` maps sites to *edits*, plain numbers such as ``{"width": 16, "grain": 4}``, and a program
that is built with the same tuning is the same program. A ``Recorder`` also remembers every site
that it is asked about, with all that is needed to launch that one kernel alone: that is what a
tuner measures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from monograph.dataclass import dataclass
from monograph.program.code import Slot
from monograph.targets.cpu.attention.tiles import AttentionTile
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.products.tiles import Tiling

if TYPE_CHECKING:
    from monograph.targets.cpu.assemble.program_builder import ProgramBuilder

Choice: TypeAlias = Schedule | Tiling | AttentionTile
Chosen = TypeVar("Chosen", Schedule, Tiling, AttentionTile)
Edits: TypeAlias = Mapping[str, int]
Launcher: TypeAlias = Callable[["ProgramBuilder", Choice, Sequence[int], Sequence[int]], None]
"""Launches a kernel in a program, as a choice says, on slots that it reads and writes."""


@dataclass(frozen=True, eq=False)
class Site:
    """A kernel whose choice can be changed, and how to launch it alone.

    ``constant`` says which of its inputs are weights. ``launches`` is how often a call runs it.
    """

    digest: str
    name: str
    choice: Choice
    inputs: tuple[Slot, ...]
    constant: tuple[bool, ...]
    outputs: tuple[Slot, ...]
    launch: Launcher
    launches: int = 1


@dataclass(frozen=True)
class Tuning:
    """Edits of choices, by the digest of their site; ``edit`` applies them."""

    edits: Mapping[str, Edits] = field(default_factory=dict)
    edit: Callable[[Choice, Edits], Choice] | None = None

    def __call__(self, digest: str, choice: Chosen) -> Chosen:
        """The choice of a site, changed if there are edits for it."""
        edits = self.edits.get(digest)
        if not edits or self.edit is None:
            return choice
        changed = self.edit(choice, edits)
        assert isinstance(changed, type(choice)), "edits keep the kind of a choice"
        return changed

    @property
    def digest(self) -> str:
        """Names all edits; empty if there are none."""
        if not self.edits:
            return ""
        plain = {site: dict(edits) for site, edits in self.edits.items()}
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    def note(self, digest: str, site: Callable[[], Site] | None = None) -> None:
        """Hear that a site is launched, for the first time if it says what it is."""


@dataclass(frozen=True)
class Recorder(Tuning):
    """A tuning that remembers the sites of the program that is built with it."""

    sites: dict[str, Site] = field(default_factory=dict)

    def note(self, digest: str, site: Callable[[], Site] | None = None) -> None:
        """Remember a site, or count one more launch of it."""
        known = self.sites.get(digest)
        if known is not None:
            self.sites[digest] = replace(known, launches=known.launches + 1)
        elif site is not None:
            self.sites[digest] = site()
