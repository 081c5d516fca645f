"""Everything that a report shows of one compiled model, as plain JSON and texts.

``ReportData.facts`` is what the page reads when it opens; listings are apart from it, each packed
by itself, since a page that shows a graph need not unpack megabytes of assembly.
"""

from __future__ import annotations

import dataclasses
import os
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import monograph
from monograph.dataclass import dataclass
from monograph.errors import EvaluationError, InputError
from monograph.inspect.doctor import describe_installation
from monograph.inspect.explain import Explanation, explain_executable
from monograph.passes.instruments import watching
from monograph.report.code import Listing, listings_of
from monograph.report.findings import Finding, finding_facts, profile_in
from monograph.report.history import History, Run, count_stages, stages_of
from monograph.report.measured import Measured
from monograph.report.program_facts import (
    arena_facts,
    group_facts,
    kernel_facts,
    kernel_names,
    memory_facts,
    sizes_of,
    step_facts,
)
from monograph.report.sources import list_loaded_files, source_facts
from monograph.runtime.bundle import Json
from monograph.runtime.compiled import Executable
from monograph.targets.base import Target
from monograph.targets.names import resolve_target

UNMEASURED = Measured("it was not measured")


@dataclass
class ReportData:
    """The facts, and the listings by stage."""

    facts: dict[str, Json]
    listings: list[Listing] = field(default_factory=list)


@dataclass(frozen=True)
class Recorded:
    """A compiled model, and the history of its graph."""

    executable: Executable
    history: History
    run: Run
    missing: str = ""
    """Why some of the history is not known."""
    target: Target | None = None
    """What it was compiled for, if the graphs of the history are to be counted."""


def executable_behind(model: Any) -> Executable:
    """The executable of what was compiled or loaded."""
    found = model if isinstance(model, Executable) else getattr(model, "executable", None)
    if isinstance(found, Executable):
        return found
    raise InputError(
        "this is not a compiled model",
        expected="what monograph.compile or monograph.load returned",
        found=type(model).__name__,
    )


def record(executable: Executable) -> Recorded:
    """Compile a graph once more, watched; or say why that cannot be done.

    What runs stays as it is: the passes and kernels of the same options are looked at.
    """
    history = History()
    again = executable.again
    missing = "it was loaded from a file, which holds no graph"
    if executable.stage is not None:
        missing = "calls complete this program: the passes of its parts are not shown"
    elif again is not None:
        try:
            with watching(history):
                lowered, program = again()
            report = dataclasses.replace(executable.report)
            shown = Executable(
                executable.graph, executable.native, report, lowered=lowered, program=program
            )
            shown.target, shown.foreign = executable.target, executable.foreign
            return Recorded(shown, history, history.finish(lowered), target=_target_of(executable))
        except EvaluationError:
            history = History()
            missing = (
                "the program has released its weights, which some passes read: compile with "
                "keep_weights=True, or use `monograph report`"
            )
    known = executable.lowered if executable.is_explicable else executable.graph
    run = history.finish(known, given=executable.graph)
    return Recorded(executable, history, run, missing)


def _target_of(executable: Executable) -> Target | None:
    """What an executable was compiled for; None if that is no target that has a name."""
    name = "cpu" if executable.target is None else executable.target.name
    try:
        return resolve_target(name)
    except InputError:  # somebody's own, which was handed over as an object
        return None


def record_with(executable: Executable, history: History, target: Target | None = None) -> Recorded:
    """A model that was compiled while ``history`` watched."""
    if executable.stage is not None:
        return Recorded(
            executable,
            history,
            history.finish(executable.lowered),
            "calls complete this program: the passes of its parts are not shown",
        )
    return Recorded(executable, history, history.finish(executable.lowered), target=target)


def report_data(
    recorded: Recorded,
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
    quotes_sources: bool = True,
    measured: Measured = UNMEASURED,
    findings: Sequence[Finding] = (),
) -> ReportData:
    """What there is to show. ``quotes_sources`` puts in the lines of the user's program."""
    executable, history = recorded.executable, recorded.history
    explained = measured.explained(explain_executable(executable, name=name, sizes=sizes))
    bindings = sizes_of(executable, sizes or {})
    kernels = kernel_facts(explained)
    listings, reason = listings_of(executable, kernel_names(kernels))
    if recorded.target is not None:
        count_stages(recorded.run, recorded.target, explained.sizes)
    tables = history.tables()
    facts: dict[str, Json] = {
        "version": monograph.__version__,
        "model": explained.model,
        "machine": explained.machine,
        "threads": explained.threads,
        "installed": dict(describe_installation()),
        "sizes": dict(explained.sizes),
        "missing": recorded.missing,
        "measured": measured.facts(kernel_names(kernels)),
        **tables,
        "files": _files(history, quotes_sources),
        "stages": stages_of(recorded.run),
        "groups": group_facts(executable, history),
        "kernels": kernels,
        "steps": step_facts(executable, bindings),
        "arena": arena_facts(executable, bindings),
        "memory": memory_facts(explained),
        "summary": _summary(explained),
        "listings": [each.stage for each in listings],
        "no_listings": reason,
        **dict(finding_facts(each) for each in findings if each is not profile_in(findings)),
    }
    return ReportData(facts, listings)


def _files(history: History, quotes_sources: bool) -> Json:
    places = [(each.file, each.line) for each in history.locations]
    files = list(history.files.numbers)
    found = source_facts(files, places, list_loaded_files() if quotes_sources else set())
    assert isinstance(found, list)
    for each in found:
        assert isinstance(each, dict)
        each["path"] = readable_path(str(each["path"]))
    return found


def readable_path(path: str) -> str:
    """A path without what is this machine's own: relative to here, or to the packages' folder."""
    for base in (
        os.getcwd(),
        *(sysconfig.get_path(key) for key in ("purelib", "platlib", "stdlib")),
    ):
        if path.startswith(base + os.sep):
            return path[len(base) + 1 :]
    return path


def _summary(explained: Explanation) -> dict[str, Json]:
    """Figures for the head of the page."""
    return {
        "nodes_given": explained.nodes_given,
        "nodes_optimised": explained.nodes_optimised,
        "nodes_lowered": explained.nodes_lowered,
        "groups": explained.groups,
        "launches": explained.launches,
        "kernels": len(explained.kernels),
        "bytes_apart": explained.bytes_apart,
        "bytes_moved": explained.bytes_moved,
        "fallbacks": dict(explained.fallbacks),
        "libraries": dict(explained.library_calls),
        "stages": {stage: round(seconds * 1e3, 2) for stage, seconds in explained.stages.items()},
        "cache": explained.cache,
        "specialised": explained.specialised,
        "conversions": len(explained.conversions),
        "served_by": explained.served_by,
    }
