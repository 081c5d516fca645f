"""What the subcommands on models share: their options, and a bar for what takes long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from monograph.api import as_pipeline
from monograph.cli import completion
from monograph.inspect.output_files import check_writable
from monograph.passes.manager import Pipeline
from monograph.progress import listening

SECONDS_WITHOUT_PROGRESS = 2.0
"""Seconds after which a person wants to see that something happens."""

ModelName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="model.onnx, graph.ir, program.mono, or file.py:module_or_function."
    ),
]
Types: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", help="An example input of a Python model: 'f32[1, 4]'."),
]
Inputs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="name=file.npy, file.npz, name=random, name=random:LOW:HIGH, name=zeros, name=ones; "
        "or an example input of a Python model: 'f32[1, 4]'.",
    ),
]
Sizes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--size", help="The size of a symbolic dimension: batch=8."),
]
SizeRanges: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--size", help="Fix a symbolic dimension, batch=1, or bound it: height=32..640."),
]
Level: TypeAlias = Annotated[
    str,
    typer.Option("--level", "-O", help="O0 to O3.", autocompletion=completion.levels),
]
TargetName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--target",
        autocompletion=completion.targets,
        help="What to compile for: cpu, cpu:aarch64…; MONOGRAPH_TARGET decides if not, then "
        "this machine.",
    ),
]
Threads: TypeAlias = Annotated[
    int | None, typer.Option("--threads", min=1, help="The most threads that a call may use.")
]
Strict: TypeAlias = Annotated[
    bool, typer.Option("--strict", help="Refuse a model that needs the interpreter for a node.")
]
Cache: TypeAlias = Annotated[
    bool | None,
    typer.Option("--cache/--no-cache", help="Use the disk cache; MONOGRAPH_CACHE decides if not."),
]
WinogradTolerance: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--winograd-tolerance",
        min=0.0,
        help="The error, over the largest result, that a convolution may have to be faster.",
    ),
]
Timeout: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--timeout", help="The most seconds that a call may take; MONOGRAPH_TIMEOUT decides if not."
    ),
]


def _load_plugins(names: list[str] | None) -> list[str] | None:
    """Import them before anything else is read: a model may hold their ops."""
    if names:
        from monograph.inspect.plugins import load_plugin

        for name in names:
            load_plugin(name)
    return names


Plugins: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        is_eager=True,
        callback=_load_plugins,
        help="A Python file, or a module, with ops or passes of your own.",
    ),
]
Passes: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--passes",
        autocompletion=completion.passes,
        help="Passes to run instead of the level's: cse,dce.",
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="For a program to read, not a person.")
]
ReportFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE.html", help="Write a page about the model with it, too."
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", help="Of random inputs.")]


def check_file(path: Path | None) -> None:
    """That a file can be written there: said before minutes of work, not after them."""
    if path is not None:
        check_writable(path)


def pipeline_of(passes: str | None) -> Pipeline | None:
    """The passes that were named; None if none were, which leaves it to the level."""
    return None if passes is None else as_pipeline(passes)


def level_name(text: str) -> str:
    """``2`` and ``O2`` both name a level."""
    return text if text.startswith("O") else f"O{text}"


@contextmanager
def showing_progress(what: str) -> Iterator[None]:
    """Show what the work in this block announces, once it has taken a while, on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    progress = Progress(
        SpinnerColumn(),
        # A long stage is cut short: how far it is, and for how long already, stays in view.
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True)),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[parts]}"),
        TimeElapsedColumn(),
        console=console,
        expand=True,
        transient=True,
        redirect_stdout=False,
    )
    task = progress.add_task(what, total=None, parts="")

    def show(stage: str, done: int, total: int) -> None:
        parts = f"{done}/{total}" if total else ""
        progress.update(
            task,
            description=f"{what}: {stage}",
            completed=done,
            total=total or None,
            parts=parts,
        )

    later = threading.Timer(SECONDS_WITHOUT_PROGRESS, progress.start)
    later.start()
    try:
        with listening(show):
            yield
    finally:
        later.cancel()
        later.join()
        progress.stop()
