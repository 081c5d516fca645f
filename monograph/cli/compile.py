"""``monograph compile``: native code for a model, saved, or shown at any stage of its making."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from monograph.cli import common
from monograph.errors import InputError

if TYPE_CHECKING:
    from monograph.runtime.compiled import CompiledModel, Executable


class Listing(StrEnum):
    """What a listing can show, in the order in which it is made."""

    ir = "ir"
    planned = "planned"
    groups = "groups"
    plan = "plan"
    kernels = "kernels"
    nests = "nests"
    llvm = "llvm"
    asm = "asm"
    code = "code"


def compile(
    model: common.ModelName,
    types: common.Types = None,
    sizes: common.SizeRanges = None,
    level: common.Level = "O2",
    target: common.TargetName = None,
    threads: common.Threads = None,
    strict: common.Strict = False,
    cache: common.Cache = None,
    winograd_tolerance: common.WinogradTolerance = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    variants: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            help="Sizes to compile a program of their own for: batch=1,height=320. Repeat it.",
        ),
    ] = None,
    emit: Annotated[
        Listing | None,
        typer.Option("--emit", help="Print the program as it is at one stage of its making."),
    ] = None,
    chip: Annotated[str | None, typer.Option("--chip", hidden=True)] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="A .mono file to load later, or a folder for every stage."
        ),
    ] = None,
) -> None:
    """Compile a model to native code.

    - monograph compile model.onnx -o model.mono
    - monograph compile model.onnx --size batch=1 --size height=32..640 -o model.mono
    - monograph compile model.onnx --variant batch=1 --variant batch=8 -o model.mono
    - monograph compile net.py:model --input 'f32[1, 64]' --emit kernels
    - monograph compile model.ir --emit asm --target cpu:aarch64
    - monograph compile model.ir -o stages/
    - monograph compile model.onnx --plugin my_passes.py -p cse,my_pass,dce
    """
    from monograph.compiler import Options
    from monograph.inspect.inputs import parse_size_ranges, parse_sizes
    from monograph.inspect.listings import listing
    from monograph.inspect.models import executable_of, find_model

    if chip is not None:
        print(f"--chip is now --target cpu:{chip}", file=sys.stderr)
        target = f"cpu:{chip}"
    # No variant replaces a program in a file: it is worth all that LLVM can do.
    kept = 0 if output is not None and output.suffix == ".mono" else None
    options = Options(
        common.level_name(level),
        threads,
        strict,
        listings=emit is Listing.asm,
        cache=cache,
        winograd_tolerance=winograd_tolerance,
        sizes=parse_size_ranges(sizes or ()),
        passes=common.pipeline_of(passes),
        target=target,
        variants=len(variants) if variants else kept,
    )
    wanted = [parse_sizes(each.split(",")) for each in variants or ()]
    with common.showing_progress("compiling"):
        found = find_model(model, types or ())
        if found.is_compiled and (emit is not None or output is not None):
            raise InputError(
                f"{model} is compiled already", hint="give the model that it was compiled from"
            )
        started = time.perf_counter()
        compiled = found.compiled(options)
        executable = executable_of(compiled)
        for each in wanted:
            executable.add_variant(each)
        shown = None if emit is None else listing(executable, emit.value)
        files = [] if output is None else _write(compiled, executable, output, wanted)
    seconds = time.perf_counter() - started
    if shown is not None:
        sys.stdout.write(shown)
    for file in files:
        print(f"wrote {file}", file=sys.stderr)
    if emit is None:
        print(_summary(model, executable, seconds))


def _write(
    compiled: CompiledModel,
    executable: Executable,
    output: Path,
    variants: Sequence[Mapping[str, int]],
) -> list[Path]:
    from monograph.inspect.listings import write_listings

    if output.suffix == ".mono":
        return [compiled.save(output, variants=bool(variants))]
    if output.suffix and not output.is_dir():
        raise InputError(
            f"{str(output)!r} is neither a .mono file nor a folder",
            hint="--emit prints a listing: send it to a file with >",
        )
    try:
        return write_listings(executable, output)
    except OSError as problem:
        raise InputError(f"{output} cannot be written: {problem.strerror}") from problem


def _summary(model: str, executable: Executable, seconds: float) -> str:
    """A line or two; the program itself is not asked for, which a cache spares us to make."""
    from monograph.program.code import Launch, walk_steps

    report, code = executable.report, executable.code
    cached = ", from the cache" if report.cache == "hit" else ""
    kernels = "its calls complete it"
    if code is not None:
        launched = [step.kernel for step in walk_steps(code.steps) if isinstance(step, Launch)]
        kernels = f"{_count(set(launched), 'kernel')}, {_count(launched, 'launch', 'es')}"
    lines = [f"{model}: {kernels} ({seconds:.2f} s{cached})"]
    if report.specialised is not None:
        lines.append(f"why: {report.specialised}; {report.variants} parts are compiled by now")
    if report.fallbacks:
        more = " …" if len(report.fallbacks) > 1 else ""
        nodes = _count(report.fallbacks, "node")
        lines.append(f"in the interpreter, {nodes}: {report.fallbacks[0]}{more}")
    return "\n".join(lines)


def _count(items: Collection[object], noun: str, plural: str = "s") -> str:
    return f"{len(items)} {noun}{'' if len(items) == 1 else plural}"
