"""``monograph quantize``: make small integers of a model's weights and activations."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monograph.cli import common, completion
from monograph.dataclass import dataclass
from monograph.errors import InputError

if TYPE_CHECKING:
    from monograph.ir.graph import Graph
    from monograph.quantization.profile import Profile
    from monograph.quantization.scheme import Scheme

OUTPUTS = ".onnx, .mono or .ir"
SCHEME_HELP = (
    "int8, int8-symmetric, int8-per-tensor, int8-percentile, int8-entropy, int8-mse, int16, f8; "
    "of weights alone w8, w4, w3; with products of integers w8a8, w4a8."
)


def quantize(
    model: common.ModelName,
    types: common.Types = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Samples to profile: a .npz file, an array for each input, or a .npy file.",
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", help="A profile to use; with --data, where to write it."),
    ] = None,
    scheme: Annotated[
        str, typer.Option("--scheme", "-s", autocompletion=completion.schemes, help=SCHEME_HELP)
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
    equalize: Annotated[
        bool, typer.Option("--equalize", help="Move ranges between layers that follow each other.")
    ] = False,
    smoothing: Annotated[
        float | None,
        typer.Option(
            "--smoothing", min=0.0, max=1.0, help="Move ranges from activations to weights: 0.5."
        ),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error", help="Leave sensitive layers in float until the error is within this."
        ),
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Also measure every layer quantized alone.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option("--report", help="With --sensitivity, a page to write: report.html."),
    ] = None,
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
    - monograph quantize model.onnx --data samples.npz --sensitivity --max-error 0.01 -o q.mono
    - monograph quantize model.onnx --data samples.npz --sensitivity --report report.html
    """
    from monograph.quantization.interface import quantize as convert
    from monograph.quantization.samples import read_batches
    from monograph.quantization.scheme import scheme_of

    chosen = scheme_of(scheme)
    if skip:
        chosen = replace(chosen, skip=tuple(skip))
    _check_output(output)
    _check_page(page, sensitivity)
    options = Profiling(batch, per_channel, equalize, smoothing)
    measures = sensitivity or max_error is not None
    if data is None and (measures or equalize or smoothing is not None):
        raise InputError(
            "samples are needed to equalize, to smooth and to measure errors",
            expected="--data samples.npz",
        )
    table = None
    with common.showing_progress("quantizing"):
        graph = _graph(model, types or [])
        batches = None if data is None else read_batches(data, graph, batch)
        found = _profile(graph, batches, profile, chosen, options)
        if sensitivity:
            table = convert.sensitivity(graph, found, batches or (), chosen)
        if max_error is None:
            made, report = convert.with_report(graph, found, chosen)
        else:
            made, report = convert.mixed(graph, found, batches or (), chosen, max_error=max_error)
        if output is not None:
            _write(made, output, target)
    if page is not None and table is not None:
        page.write_text(table.to_html(report), encoding="utf-8")
    if as_json:
        measured = {} if table is None else {"sensitivity": table.to_json()}
        print(json.dumps({**report.to_json(), **measured}, indent=2))
    else:
        print(report if table is None else f"{report}\n\n{table}")
    for path in (page, output):
        if path is not None:
            print(f"wrote {path}", file=sys.stderr)


@dataclass(frozen=True)
class Profiling:
    """How a profile is taken."""

    batch: int | None
    per_channel: bool
    equalize: bool
    smoothing: float | None


def _check_output(output: Path | None) -> None:
    """Refuse what could not be written after everything else is done."""
    if output is None:
        return
    if output.suffix not in (".onnx", ".mono", ".ir"):
        raise InputError(f"{str(output)!r} is no kind of model", expected=OUTPUTS)
    if not output.parent.is_dir():
        raise InputError(f"there is no folder {str(output.parent)!r} to write to")


def _check_page(page: Path | None, sensitivity: bool) -> None:
    """Refuse a page of what is not measured, or that could not be written."""
    if page is None:
        return
    if not sensitivity:
        raise InputError(
            "the report is of each layer quantized alone", expected="--sensitivity beside --report"
        )
    if page.suffix != ".html":
        raise InputError(f"{str(page)!r} is no page", expected="a name that ends in .html")
    if not page.parent.is_dir():
        raise InputError(f"there is no folder {str(page.parent)!r} to write to")


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
    graph: Graph,
    batches: Sequence[Any] | None,
    path: Path | None,
    scheme: Scheme,
    options: Profiling,
) -> Profile | None:
    """The profile of the samples, or that of a file; None where a scheme needs none."""
    from monograph.quantization.interface import quantize as convert
    from monograph.quantization.profile import Profile

    changes = options.equalize or options.smoothing is not None
    if scheme.weight_only and path is None and not changes:
        return None
    if batches is not None:
        taken = convert.profile(
            graph,
            batches,
            per_channel=options.per_channel,
            equalize=options.equalize,
            smoothing=options.smoothing,
            progress=False,
        )
        if path is not None:
            taken.save(path)
        return taken
    if path is not None:
        return Profile.load(path)
    raise InputError(
        "quantizing activations needs samples of them",
        expected="--data samples.npz, or --profile of a run before",
        hint="--scheme w8 and w4 quantize weights alone, and need neither",
    )


def _write(graph: Graph, output: Path, target: str | None) -> None:
    from monograph.api import compile
    from monograph.ir.text.files import save_graph
    from monograph.quantization.export import export_quantized

    if output.suffix == ".onnx":
        export_quantized(graph, output)
    elif output.suffix == ".mono":
        compile(graph, target=target).save(output)
    else:
        save_graph(graph, output)
