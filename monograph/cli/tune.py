"""``monograph tune``: search for better schedules on this machine, and remember them."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from monograph.cli import common
from monograph.runtime.options import DEFAULT_SECONDS
from monograph.runtime.tuning_report import TuningReport


def tune(
    model: common.ModelName,
    types: common.Types = None,
    budget: Annotated[
        float,
        typer.Option("--budget", "-b", min=0.1, help="Seconds to search, compiling included."),
    ] = 3 * DEFAULT_SECONDS,
    level: common.Level = "O3",
    target: common.TargetName = None,
    threads: common.Threads = None,
    strict: common.Strict = False,
    plugins: common.Plugins = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="For a program to read, not a person.")
    ] = False,
) -> None:
    """Measure other ways to compute each kernel of a model, and keep those that are faster.

    What is found stays in the disk cache, by kernel and machine: compiling the model at this level
    with a budget (at O3 always) gives the tuned program at once. A tuned program is never slower
    than the one that is chosen without measuring: both are timed by turns at the end, and the
    default stays unless the other is clearly faster. Tuning again goes on where the time ran out.

    - monograph tune model.onnx --budget 120
    - monograph tune net.py:model --input 'f32[8, 64]' --level O2
    """
    from monograph.compiler import Options
    from monograph.errors import InputError
    from monograph.inspect.measure import busy_note
    from monograph.inspect.models import executable_of, find_model

    options = Options(
        common.level_name(level), threads, strict, budget=budget, again=True, target=target
    )
    with common.showing_progress("tuning"):
        found = find_model(model, types or ())
        if found.is_compiled:
            raise InputError(
                "a compiled program cannot be tuned", hint="tune the model that it was made from"
            )
        executable = executable_of(found.compiled(options))
        busy = busy_note()
    report = executable.report.search or TuningReport()
    if as_json:
        print(json.dumps(_as_json(report), indent=2))
    else:
        _show(report)
    if busy is not None:
        print(busy, file=sys.stderr)


def _as_json(report: TuningReport) -> dict[str, object]:
    return {
        "seconds": report.seconds,
        "kept": report.kept,
        "gain": report.gain,
        "skipped": report.skipped,
        "kernels": [
            {
                "name": each.name,
                "launches": each.launches,
                "before": each.before,
                "after": each.after,
                "tried": each.tried,
                "remembered": each.remembered,
                "edits": dict(each.edits),
            }
            for each in report.findings
        ],
    }


def _show(report: TuningReport) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("kernel", overflow="fold")
    for heading in ("launches", "default ms", "tuned ms", "tried"):
        table.add_column(heading, justify="right")
    table.add_column("changed", overflow="fold")
    for each in report.findings:
        times = ("remembered", "") if each.remembered else (_ms(each.before), _ms(each.after))
        changed = ", ".join(f"{knob} {value}" for knob, value in each.edits.items()) or "nothing"
        table.add_row(each.name, str(each.launches), *times, str(each.tried), changed)
    console = Console(highlight=False)
    console.print(table)
    console.print(_verdict(report))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}"


def _verdict(report: TuningReport) -> str:
    spent = f"{report.seconds:.1f} s"
    left = f"; no time was left for {report.skipped} kernels" if report.skipped else ""
    if report.kept:
        return (
            f"The tuned program is {report.gain:.2f} times as fast as the default ({spent}{left})."
        )
    if report.edits:
        return (
            "Single kernels gained, but the whole program did not clearly: the default stays "
            f"({report.gain:.2f} times as fast): {spent}{left}."
        )
    return f"Nothing beats the default: {spent}{left}."
