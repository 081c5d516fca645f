"""The report of a model that a command names: compiled under watch, and called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from monograph.compiler import Options
from monograph.inspect.ablate import Ablation, ablate
from monograph.inspect.compare import Comparison, compare, names_in
from monograph.inspect.inputs import make_inputs
from monograph.inspect.models import Model, executable_of
from monograph.passes.instruments import watching
from monograph.progress import announce
from monograph.report.data import Recorded, record, record_with, report_data
from monograph.report.findings import Finding, profile_in
from monograph.report.history import History
from monograph.report.measured import Measured, measure, read_profile
from monograph.report.page import page_html

COMPARISON_SECONDS = 60.0
"""After which no round of a comparison begins."""
ABLATION_SECONDS = 120.0
"""After which no part is left out any more."""


def compile_recorded(model: Model, options: Options) -> Recorded:
    """Compile a model and keep the history of its graph; a ``.mono`` file has none."""
    if model.is_compiled:
        return record(executable_of(model.compiled(options)))
    history = History()
    with watching(history):
        compiled = model.compiled(options)
    return record_with(executable_of(compiled), history, options.resolved_target)


def write_page(
    path: Path,
    model: Model,
    options: Options,
    *,
    sizes: Mapping[str, int],
    measures: bool = True,
    quotes_sources: bool = True,
    findings: Sequence[Finding] = (),
) -> None:
    """Compile a model, call it if times are wanted, and write its report with what was found."""
    announce("compiling")
    # Flops, listings and history look at constants; what is in the cache has no history.
    watched = replace(options, cache=False, listings=True, keep_weights=True)
    recorded = compile_recorded(model, watched)
    measured = Measured("it was not asked for")
    profile = profile_in(findings)
    if profile is not None:
        measured = read_profile(profile)
    elif measures:
        measured = measure(recorded.executable, sizes)
    announce("listings")
    data = report_data(
        recorded,
        name=model.name,
        sizes=sizes,
        quotes_sources=quotes_sources,
        measured=measured,
        findings=findings,
    )
    path.write_text(page_html(data), encoding="utf-8")


def comparison_of(
    model: Model, options: Options, others: str, *, sizes: Mapping[str, int]
) -> Comparison:
    """A model beside others, whose names are separated by commas, on random inputs."""
    fresh = replace(options, cache=False, keep_weights=True)
    return compare(
        model,
        lambda: executable_of(model.compiled(fresh)),
        lambda executable: make_inputs(executable.graph, {}, sizes),
        names_in(others),
        threads=options.threads,
        budget=COMPARISON_SECONDS,
    )


def ablation_of(model: Model, options: Options, *, sizes: Mapping[str, int]) -> Ablation:
    """What each part of the compiler buys for a model, on random inputs."""
    kept = replace(options, keep_weights=True)
    graph = executable_of(model.compiled(kept)).graph
    arrays = make_inputs(graph, {}, sizes)
    return ablate(graph, kept, arrays, name=model.name, budget=ABLATION_SECONDS)
