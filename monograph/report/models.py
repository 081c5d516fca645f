"""A model compiled under watch, and what a call of it takes."""

from __future__ import annotations

import time
from collections.abc import Mapping

from monograph.compiler import Options
from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.inspect.inputs import make_inputs
from monograph.inspect.measure import alternate, busy_note
from monograph.inspect.models import Model, executable_of
from monograph.passes.instruments import watching
from monograph.progress import announce
from monograph.report.data import Recorded, ReportData, record, recorded_with, report_data
from monograph.report.history import History
from monograph.runtime.compiled import Executable

MEASURED_ROUNDS = 15
MAX_MEASURED_SECONDS = 5.0


@dataclass(frozen=True)
class CallTime:
    """What a call takes on random inputs, in milliseconds, and how that was found out."""

    milliseconds: float | None
    note: str


def compile_recorded(model: Model, options: Options) -> Recorded:
    """Compile a model and keep the history of its graph; a ``.mono`` file has none."""
    if model.is_compiled:
        return record(executable_of(model.compiled(options)))
    history = History()
    with watching(history):
        compiled = model.compiled(options)
    return recorded_with(executable_of(compiled), history)


def data_of(
    recorded: Recorded,
    *,
    name: str,
    sizes: Mapping[str, int],
    measures: bool,
    quotes_sources: bool,
) -> ReportData:
    """What a report shows of a model, measured if that is wanted."""
    found = CallTime(None, "it was not asked for")
    if measures:
        announce("measuring")
        found = time_calls(recorded.executable, sizes)
    announce("listings")
    return report_data(
        recorded,
        name=name,
        sizes=sizes,
        quotes_sources=quotes_sources,
        milliseconds=found.milliseconds,
        note=found.note,
    )


def time_calls(executable: Executable, sizes: Mapping[str, int]) -> CallTime:
    """The median of some calls on random inputs; or why there is none."""
    try:
        inputs = make_inputs(executable.graph, {}, sizes)
        executable.run(inputs)
        until = time.perf_counter() + MAX_MEASURED_SECONDS
        rounds = alternate({"call": lambda: executable.run(inputs)}, MEASURED_ROUNDS, until=until)
    except MonographError as error:
        return CallTime(None, f"random inputs do not suit it: {error}")
    turns = len(rounds["call"].turns)
    busy = busy_note()
    note = f"the median of {turns} turns on random inputs" + ("" if busy is None else f"; {busy}")
    return CallTime(rounds["call"].median * 1e3, note)
