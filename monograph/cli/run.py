"""``monograph run``: a model on inputs from files or made up, its outputs shown, kept, compared."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from monograph.cli import common
from monograph.deadline import time_limit
from monograph.errors import InputError
from monograph.ir.types import Array

if TYPE_CHECKING:
    from monograph.inspect.reference import Reference


class Other(StrEnum):
    """What an answer can be compared with."""

    interpreter = "interpreter"
    onnxruntime = "onnxruntime"
    torch = "torch"


def run(
    model: common.ModelName,
    inputs: common.Inputs = None,
    sizes: common.Sizes = None,
    seed: common.Seed = 0,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A .npz file, or a folder for a .npy file each."),
    ] = None,
    compare: Annotated[
        Other | None, typer.Option("--compare", help="Hold the outputs against another's.")
    ] = None,
    level: common.Level = "O2",
    target: common.TargetName = None,
    threads: common.Threads = None,
    timeout: common.Timeout = None,
    strict: common.Strict = False,
    cache: common.Cache = None,
    winograd_tolerance: common.WinogradTolerance = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
) -> None:
    """Compile a model (or load a .mono file) and run it once.

    Inputs that nobody mentions are random: floats from a normal distribution, integers 0 or 1.

    - monograph run model.onnx --input x=photo.npy --output results.npz
    - monograph run bert.onnx --input input_ids=random:0:30522 --compare onnxruntime
    - monograph run model.mono --size batch=8
    - monograph run unknown.onnx --timeout 10
    """
    from monograph.compiler import Options
    from monograph.inspect.inputs import make_inputs, parse_sizes, split_inputs
    from monograph.inspect.models import executable_of, find_model
    from monograph.inspect.peers import peer
    from monograph.inspect.reference import Reference

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
    with common.showing_progress("compiling"):
        found = find_model(model, types)
        executable = executable_of(found.compiled(options))
    arrays = make_inputs(executable.graph, ways, parse_sizes(sizes or ()), seed)
    with nullcontext() if timeout is None else time_limit(timeout):
        results = executable.run(arrays)
    names = _unique([name for name, _ in executable.outputs])
    _show(names, results)
    if output is not None:
        _keep(output, names, results)
    if compare is None:
        return
    with common.showing_progress(f"running {compare.value}"):
        others = peer(compare.value, found, executable, arrays, threads)()
        reference = Reference(executable.graph, arrays)
    if not _compare(compare.value, names, results, others, reference):
        raise typer.Exit(1)


def _unique(names: Sequence[str]) -> list[str]:
    """Names, numbered where there are equal ones."""
    return [name if names.count(name) == 1 else f"{name}_{k}" for k, name in enumerate(names)]


def _show(names: Sequence[str], results: Sequence[Any]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("output", "dtype", "shape"):
        table.add_column(heading, overflow="fold")
    for heading in ("least", "mean", "largest"):
        table.add_column(heading, justify="right")
    for name, result in zip(names, results, strict=True):
        array = np.asarray(result)
        shape = "×".join(map(str, array.shape)) or "scalar"
        table.add_row(name, array.dtype.name, shape, *_statistics(array))
    Console(highlight=False).print(table)


def _statistics(array: Array) -> tuple[str, str, str]:
    if not array.size or array.dtype.kind in "cOSU":
        return "-", "-", "-"
    wide = array.astype(np.float64)
    return f"{wide.min():.6g}", f"{wide.mean():.6g}", f"{wide.max():.6g}"


def _keep(output: Path, names: Sequence[str], results: Sequence[Any]) -> None:
    """Write the outputs; NumPy's own format, and nothing in it that could be run."""
    try:
        if output.suffix == ".npz":
            np.savez(output, **dict(zip(names, results, strict=True)))
            return
        if output.suffix:
            raise InputError(f"{str(output)!r} is neither a .npz file nor a folder")
        output.mkdir(parents=True, exist_ok=True)
        for name, result in zip(names, results, strict=True):
            np.save(output / f"{name.replace('/', '_')}.npy", result, allow_pickle=False)
    except OSError as problem:
        raise InputError(f"{output} cannot be written: {problem.strerror}") from problem


def _compare(
    other: str,
    names: Sequence[str],
    results: Sequence[Any],
    others: Sequence[Any],
    reference: Reference,
) -> bool:
    """Print the word for each output; whether none is wrong."""
    if len(others) != len(results):
        raise InputError(f"{other} has {len(others)} outputs", expected=str(len(results)))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in ("output", f"beside {other}", "difference", "our error", "its error"):
        table.add_column(heading, overflow="fold")
    words = []
    for k, name in enumerate(names):
        verdict = reference.judge(k, results[k], others[k])
        errors = [_figure(verdict.difference), _figure(verdict.error), _figure(verdict.other_error)]
        table.add_row(name, verdict.word, *errors)
        words.append(verdict.word)
    console = Console(highlight=False)
    console.print()
    console.print(table)
    if reference.answers is not None:
        console.print("errors are against the same graph in double precision")
    return "wrong" not in words


def _figure(error: float | None) -> str:
    return "-" if error is None else f"{error:.1e}"
