"""``monograph quantize``: make small integers of a model's weights and activations."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from monograph.cli import common
from monograph.errors import InputError

if TYPE_CHECKING:
    from monograph.ir.graph import Graph
    from monograph.quantization.profile import Profile

OUTPUTS = ".onnx, .mono or .ir"


def quantize(
    model: common.ModelName,
    types: common.Types = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Samples to profile: a .npz file, an array for each input."),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", help="A profile to use; with --data, where to write it."),
    ] = None,
    scheme: Annotated[
        str, typer.Option("--scheme", "-s", help="int8, int8-mse, w8, w4, w3, f8, int16, …")
    ] = "int8",
    skip: Annotated[
        list[str] | None, typer.Option("--skip", help="A layer that stays in float. Repeat it.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Samples in a batch, if that is free.")
    ] = None,
    per_channel: Annotated[
        bool, typer.Option("--per-channel", help="Profile every channel, too.")
    ] = False,
    target: common.TargetName = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The report for a program to read, not a person.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help=f"What to write: {OUTPUTS}.")
    ] = None,
) -> None:
    """Quantize a model: profile its activations on samples, and store them in eight bits.

    - monograph quantize model.onnx --data samples.npz -o q.onnx
    - monograph quantize model.onnx --data samples.npz --profile p.json --scheme int8-mse -o q.mono
    - monograph quantize model.onnx --profile p.json --skip conv_3 -o q.mono
    - monograph quantize model.onnx --scheme w4 -o q.mono
    """
    from monograph.quantization.interface import quantize as convert
    from monograph.quantization.scheme import scheme_of

    chosen = scheme_of(scheme)
    if skip:
        chosen = replace(chosen, skip=tuple(skip))
    if output is not None and output.suffix not in (".onnx", ".mono", ".ir"):
        raise InputError(f"{str(output)!r} is no kind of model", expected=OUTPUTS)
    with common.showing_progress("quantizing"):
        graph = _graph(model, types or [])
        found = None if chosen.weight_only else _profile(graph, data, profile, batch, per_channel)
        made, report = convert.with_report(graph, found, chosen)
        if output is not None:
            _write(made, output, target)
    print(report.dumps() if as_json else report)
    if output is not None:
        print(f"wrote {output}", file=sys.stderr)


def _graph(model: str, types: list[str]) -> Graph:
    from monograph.api import from_onnx, from_torch
    from monograph.frontends.trace import trace
    from monograph.inspect.models import find_model
    from monograph.ir.graph import Graph

    found = find_model(model, types)
    if found.is_compiled:
        raise InputError(f"{model} is compiled already", hint="quantize the model it was made from")
    if isinstance(found.subject, Graph):
        return found.subject
    if found.path.suffix != ".py":
        return from_onnx(found.path)
    if found.is_torch:
        return from_torch(found.subject, *found.examples, dynamic_shapes=found.dynamic_shapes)
    return trace(found.subject, *found.examples)


def _profile(
    graph: Graph, data: Path | None, path: Path | None, batch: int | None, per_channel: bool
) -> Profile:
    from monograph.quantization.interface import quantize as convert
    from monograph.quantization.profile import Profile
    from monograph.quantization.samples import read_batches

    if data is None and path is None:
        raise InputError(
            "quantizing activations needs samples of them",
            expected="--data samples.npz, or --profile of a run before",
            hint="--scheme w8 and w4 quantize weights alone, and need neither",
        )
    if data is None:
        assert path is not None
        return Profile.load(path)
    batches = read_batches(data, graph, batch)
    taken = convert.profile(graph, batches, per_channel=per_channel, progress=False)
    if path is not None:
        taken.save(path)
    return taken


def _write(graph: Graph, output: Path, target: str | None) -> None:
    from monograph.api import compile
    from monograph.ir.text.files import save_graph
    from monograph.quantization.export import quantized_to_onnx

    if output.suffix == ".onnx":
        quantized_to_onnx(graph, output)
    elif output.suffix == ".mono":
        compile(graph, target=target).save(output)
    else:
        save_graph(graph, output)
