"""Tunable choices: where a measurement may overrule the cost model, and how each is edited.

A cost model chooses how every kernel is computed: a ``Schedule``, a ``Tiling``, an
``AttentionTile``. Each such choice is a *site*, named by a digest of what is computed there. A
``Tuning`` maps sites to *edits*, plain numbers such as ``{"width": 16, "grain": 4}``, and a program
that is built with the same tuning is the same program. A ``Recorder`` also remembers every site
that it is asked about, with all that is needed to launch that one kernel alone: that is what a
tuner measures. What a tuning edits are plans (``plans.plan``), and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from monograph.dataclass import dataclass
from monograph.program.code import Slot
from monograph.targets.cpu.attention.tiles import AttentionTile
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.products.tiles import Tiling

if TYPE_CHECKING:
    from monograph.fusion.group import Group
    from monograph.targets.cpu.assemble.program_builder import ProgramBuilder

Choice: TypeAlias = Schedule | Tiling | AttentionTile
Chosen = TypeVar("Chosen", Schedule, Tiling, AttentionTile)
Edits: TypeAlias = Mapping[str, int]


class Tunable(Protocol):
    """A plan of one kernel whose choice measurements may edit."""

    @property
    def digest(self) -> str:
        """Names what is computed: the site."""

    @property
    def group(self) -> Group:
        """The nodes that the kernel computes."""

    @property
    def choice(self) -> Choice:
        """How it is computed."""

    def with_choice(self, choice: Choice) -> Tunable:
        """The plan with another choice."""

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Add it to a program, on slots that it reads and writes."""


@dataclass(frozen=True, eq=False)
class Site:
    """A plan whose choice can be changed, and the slots that it reads and writes.

    ``constant`` says which of its inputs are weights. ``launches`` is how often a call runs it.
    """

    digest: str
    name: str
    plan: Tunable
    inputs: tuple[Slot, ...]
    constant: tuple[bool, ...]
    outputs: tuple[Slot, ...]
    launches: int = 1

    @property
    def choice(self) -> Choice:
        """How its kernel is computed, unless measurements prefer another way."""
        return self.plan.choice


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
