"""The report of a compilation: seconds per stage, passes, kernels, interpreted nodes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.program.records import require_type
from monograph.runtime.bundle import Json
from monograph.runtime.edits import read_edits
from monograph.runtime.kernel_summary import KernelNote, read_notes, write_notes

if TYPE_CHECKING:
    from monograph.passes.manager import Report
    from monograph.runtime.compiled import Executable
    from monograph.runtime.tuning_report import TuningReport


@dataclass
class CompileReport:
    """What happened: seconds a stage, the passes, and what runs in the interpreter."""

    passes: Report | None = None
    """None if nothing was compiled, but found in the cache or loaded."""
    seconds: dict[str, float] = field(default_factory=dict)
    nodes_before: int = 0
    nodes_after: int = 0
    fallbacks: tuple[str, ...] = ()
    """Nodes that run in the interpreter, as text."""
    specialised: str | None = None
    """Why calls complete the program (``specialize.staged``): the rest is known after them."""
    variants: int = 0
    """How many parts calls have compiled so far."""
    reasons: tuple[str, ...] = ()
    """Why nodes of such a program run in the interpreter."""
    tuning: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Choices of schedules that measurements overruled, by site (``targets.cpu.tuning``)."""
    search: TuningReport | None = None
    """What a search found, if this compilation made one."""
    kernels: tuple[KernelNote, ...] = ()
    """What there is to say of each kernel, the compiler's own objects aside."""
    cache: str = "off"
    """``hit`` if the program came from the disk cache, ``miss`` if it went there, or ``off``."""
    subject: weakref.ref[Executable] | None = field(default=None, repr=False, compare=False)
    """The program that this is the report of."""

    def __call__(self, path: str | os.PathLike[str], *, findings: Sequence[Any] = ()) -> Path:
        """Write a page about the program: graph at every pass, kernels, code, memory.

        ``compiled.report("r.html")`` is one HTML file that needs nothing else. ``findings`` are
        what ``validate``, ``bisect``, ``ablate`` and ``compare`` returned, to be shown, too;
        ``compiled.profile(x)`` gives the kernels their times.
        """
        executable = None if self.subject is None else self.subject()
        if executable is None:
            raise InputError(
                "the program that this report is about no longer exists",
                hint='keep it: compiled = monograph.compile(…), then compiled.report("r.html")',
            )
        from monograph.report.write import write_report

        return write_report(executable, path, findings=findings)


def write_report(report: CompileReport) -> dict[str, Json]:
    """What of a report holds for a stored program as well."""
    return {
        "nodes_before": report.nodes_before,
        "nodes_after": report.nodes_after,
        "fallbacks": list(report.fallbacks),
        "specialised": report.specialised,
        "tuning": {site: dict(edits) for site, edits in report.tuning.items()},
        "kernels": write_notes(report.kernels),
    }


def read_report(value: Json) -> CompileReport:
    """What ``write_report`` wrote."""
    given = require_type(value, dict)
    specialised = given.get("specialised")
    return CompileReport(
        nodes_before=require_type(given.get("nodes_before"), int),
        nodes_after=require_type(given.get("nodes_after"), int),
        fallbacks=tuple(
            require_type(each, str) for each in require_type(given.get("fallbacks"), list)
        ),
        specialised=None if specialised is None else require_type(specialised, str),
        tuning={
            require_type(site, str): read_edits(edits)
            for site, edits in require_type(given.get("tuning"), dict).items()
        },
        kernels=read_notes(given.get("kernels", [])),
    )
