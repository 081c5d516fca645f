"""Schedules that the explorer lets a person edit: the knobs of each kernel and their values.

A value that was never offered is refused: what reaches the compiler is one of a few known numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from monograph.errors import InputError
from monograph.runtime.bundle import Json
from monograph.targets.base import Target, Tuning
from monograph.targets.cpu.knobs import edit, knobs
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.target import CpuTarget
from monograph.targets.cpu.tuning import Recorder

MOST_SITES = 2000
_DIGEST = re.compile(r"[0-9a-f]{8,128}")


def read_tuning(given: Any) -> Mapping[str, Mapping[str, int]]:
    """Edits of schedules from JSON of a stranger: numbers, by knob, by site."""
    if not isinstance(given, dict) or len(given) > MOST_SITES:
        raise InputError("this is no tuning", expected="numbers, by knob, by site")
    for site, edits in given.items():
        if _DIGEST.fullmatch(site) is None or not isinstance(edits, dict):
            raise InputError("this is no tuning", found=repr(site)[:80])
        if not all(type(value) is int for value in edits.values()):
            raise InputError("a knob is turned to a whole number", found=repr(edits)[:80])
    return given


class Schedules:
    """The sites of the programs that were compiled, and what each may be changed to."""

    def __init__(self) -> None:
        self._offered: dict[tuple[str, str], set[int]] = {}
        self._machine: Machine | None = None

    def recorder(self, edits: Mapping[str, Mapping[str, int]], target: Target) -> Recorder | None:
        """What applies edits, and remembers the sites; None for a target without schedules."""
        if not isinstance(target, CpuTarget):
            if edits:
                raise InputError(f"schedules of {target} cannot be edited", expected="cpu")
            return None
        self._machine = target.machine
        for site, changes in edits.items():
            for knob, value in changes.items():
                offered = self._offered.get((site, knob), set())
                if value not in offered:
                    shown = ", ".join(map(str, sorted(offered)))
                    raise InputError(
                        f"{knob} cannot be turned to {value} there",
                        expected=shown or "a knob of a kernel of this program",
                    )
        return Recorder(edits, edit)

    def facts(self, recorder: Tuning | None) -> list[Json]:
        """Each site of a program: its kernel, its choice, and the values that are offered."""
        if not isinstance(recorder, Recorder) or self._machine is None:
            return []
        found: list[Json] = []
        for digest, site in list(recorder.sites.items())[:MOST_SITES]:
            turns = dict(knobs(site.choice, self._machine))
            made = dict(recorder.edits.get(digest, {}))
            for knob, values in turns.items():
                self._offered.setdefault((digest, knob), set()).update(values)
            offered: dict[str, Json] = {
                knob: [int(value) for value in sorted({*values, *_at(made, knob)})]
                for knob, values in turns.items()
                if values or knob in made
            }
            changed: dict[str, Json] = {knob: value for knob, value in made.items()}
            found.append(
                {
                    "digest": digest,
                    "name": site.name,
                    "choice": str(site.choice),
                    "launches": site.launches,
                    "knobs": offered,
                    "edits": changed,
                }
            )
        return found


def _at(edits: Mapping[str, int], knob: str) -> tuple[int, ...]:
    return (edits[knob],) if knob in edits else ()
