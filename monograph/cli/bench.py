"""``monograph bench``: a compiled model timed beside other ways to run it, by turns."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from monograph.cli import common

if TYPE_CHECKING:
    from monograph.inspect.compare import Contender


class Other(StrEnum):
    """What a compiled model can be timed against."""

    numpy = "numpy"
    interpreter = "interpreter"
    onnxruntime = "onnxruntime"
    torch = "torch"
    inductor = "inductor"
    openvino = "openvino"
    xla = "xla"
    iree = "iree"


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
    target: common.TargetName = None,
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
    from monograph.inspect.compare import compare
    from monograph.inspect.inputs import make_inputs, parse_sizes, split_inputs
    from monograph.inspect.jsonable import jsonable
    from monograph.inspect.measure import busy_note
    from monograph.inspect.models import executable_of, find_model

    ways, types = split_inputs(inputs or ())
    options = Options(
        common.level_name(level),
        threads,
        strict,
        cache=cache,
        winograd_tolerance=winograd_tolerance,
        keep_weights=True,  # the graph is run in double precision, too
        passes=common.pipeline_of(passes),
        target=target,
    )
    chosen = parse_sizes(sizes or ())
    with common.showing_progress("measuring"):
        found = find_model(model, types)
        contenders = compare(
            found,
            lambda: executable_of(found.compiled(options)),
            lambda executable: make_inputs(executable.graph, ways, chosen, seed),
            [other.value for other in against or ()],
            threads=threads,
            rounds=rounds,
            strict=True,
        ).contenders
        busy = busy_note()
    if as_json:
        figures = {
            each.name: {"median": each.median, "best": each.best, "error": each.error}
            for each in contenders
        }
        print(json.dumps(jsonable(figures), indent=2))
    else:
        _show(contenders)
    if busy is not None:
        print(busy, file=sys.stderr)


def _show(contenders: Sequence[Contender]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in ("median ms", "best ms", "times ours", "error"):
        table.add_column(heading, justify="right")
    for each in contenders:
        assert each.median is not None and each.best is not None and each.times_ours is not None
        table.add_row(
            each.name,
            f"{each.median * 1e3:.4g}",
            f"{each.best * 1e3:.4g}",
            f"{each.times_ours.median:.2f}",
            "-" if each.error is None else f"{each.error:.1e}",
        )
    Console(highlight=False).print(table)
