"""``monograph bench``: a compiled model timed beside other ways to run it, by turns."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from monograph.cli import common
from monograph.inspect.measure import Timing, alternate, busy_note
from monograph.ir.types import Array
from monograph.progress import announce

OURS = "monograph"


class Other(StrEnum):
    """What a compiled model can be timed against."""

    numpy = "numpy"
    interpreter = "interpreter"
    onnxruntime = "onnxruntime"
    torch = "torch"
    inductor = "inductor"


def bench(
    model: common.ModelName,
    inputs: common.Inputs = None,
    against: Annotated[
        list[Other] | None,
        typer.Option("--against", help="Another way to run it; may be given several times."),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns for each.")] = 15,
    sizes: common.Sizes = None,
    seed: common.Seed = 0,
    level: common.Level = "O2",
    threads: common.Threads = None,
    strict: common.Strict = False,
    cache: common.Cache = None,
    winograd_tolerance: common.WinogradTolerance = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="For a program to read, not a person.")
    ] = False,
) -> None:
    """Time a compiled model beside other ways to run it.

    They take turns in one process on the same inputs, so that a busy machine slows all of them
    alike: trust the ratio more than the milliseconds. Errors are against double precision.

    - monograph bench model.onnx --against onnxruntime --against numpy
    - monograph bench net.py:model --input 'f32[8, 64]' --against torch --against inductor
    """
    from monograph.compiler import Options
    from monograph.inspect.inputs import make_inputs, parse_sizes, split_inputs
    from monograph.inspect.models import executable_of, find_model
    from monograph.inspect.peers import peer
    from monograph.inspect.precise import double_precision

    ways, types = split_inputs(inputs or ())
    options = Options(
        common.level_name(level),
        threads,
        strict,
        cache=cache,
        winograd_tolerance=winograd_tolerance,
        keep_weights=True,  # the graph is run in double precision, too
        passes=common.pipeline_of(passes),
    )
    with common.showing_progress("measuring"):
        found = find_model(model, types)
        executable = executable_of(found.compiled(options))
        arrays = make_inputs(executable.graph, ways, parse_sizes(sizes or ()), seed)
        contenders: dict[str, Callable[[], list[Array]]] = {OURS: lambda: executable.run(arrays)}
        for other in dict.fromkeys(against or ()):
            announce(f"preparing {other.value}")
            contenders[other.value] = peer(other.value, found, executable, arrays, threads)
        answers = {name: call() for name, call in contenders.items()}
        timings = alternate(contenders, rounds)
        announce("double precision")
        reference = None if found.is_compiled else double_precision(executable.graph, arrays)
        busy = busy_note()
    errors = {name: _error(answer, reference) for name, answer in answers.items()}
    if as_json:
        print(json.dumps(_as_json(timings, errors), indent=2))
    else:
        _show(timings, errors)
    if busy is not None:
        print(busy, file=sys.stderr)


def _error(answer: list[Array], reference: list[Array] | None) -> float | None:
    """The largest error of the outputs."""
    from monograph.inspect.precise import relative_error

    if reference is None or len(answer) != len(reference):
        return None
    pairs = zip(answer, reference, strict=True)
    return max((relative_error(np.asarray(a), np.asarray(b)) for a, b in pairs), default=0.0)


def _as_json(
    timings: dict[str, Timing], errors: dict[str, float | None]
) -> dict[str, dict[str, float | None]]:
    return {
        name: {"median": timing.median, "best": timing.best, "error": errors[name]}
        for name, timing in timings.items()
    }


def _show(timings: dict[str, Timing], errors: dict[str, float | None]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in ("median ms", "best ms", "times ours", "error"):
        table.add_column(heading, justify="right")
    ours = timings[OURS].median
    for name, timing in timings.items():
        error = errors[name]
        table.add_row(
            name,
            f"{timing.median * 1e3:.4g}",
            f"{timing.best * 1e3:.4g}",
            f"{timing.median / ours:.2f}",
            "-" if error is None else f"{error:.1e}",
        )
    Console(highlight=False).print(table)
