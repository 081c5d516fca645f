"""A model compiled under watch, and what a call of it takes."""

from __future__ import annotations

from collections.abc import Mapping

from monograph.compiler import Options
from monograph.inspect.models import Model, executable_of
from monograph.passes.instruments import watching
from monograph.progress import announce
from monograph.report.data import Recorded, ReportData, record, recorded_with, report_data
from monograph.report.history import History
from monograph.report.measured import Measured, measure


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
    found = Measured("it was not asked for")
    if measures:
        found = measure(recorded.executable, sizes)
    announce("listings")
    return report_data(
        recorded, name=name, sizes=sizes, quotes_sources=quotes_sources, measured=found
    )
