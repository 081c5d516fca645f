"""``monograph convert``: a model into another format, compared before it is written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from monograph.cli import common, completion
from monograph.cli.exit_codes import FINDING


def convert(
    model: common.ModelName,
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            autocompletion=completion.formats,
            help="fx, torchscript, onnx, stablehlo, hlo, relay, dot, svg or monograph; "
            "the suffix of OUT decides if not.",
        ),
    ] = None,
    types: common.Types = None,
    sizes: common.Sizes = None,
    plugins: common.Plugins = None,
    seed: common.Seed = 0,
) -> None:
    """Write a model in another format: .py (FX), .pt (TorchScript), .onnx, .mlir, .hlo, …

    It is read from .onnx, .ir, .mlir, .pt2 or file.py:name. What was written runs in its own
    runtime on sampled inputs, and must give the model's answers: exit code 3 and no file if not.
    Where every sample is refused the file is written, unchecked, and the exit code is 3, too.
    --size fixes a symbolic dimension, which HLO needs.

    - monograph convert model.onnx model.mlir
    - monograph convert model.onnx model.hlo --size batch=8
    - monograph convert net.py:model model.onnx --input 'f32[batch, 64]'
    - monograph convert model.onnx model.py
    """
    from monograph.inspect.conversion import convert as convert_model
    from monograph.inspect.conversion import format_for, write_files
    from monograph.inspect.inputs import parse_sizes
    from monograph.inspect.subject import load_subject

    format_ = format_for(output, to)
    common.check_file(output)
    with common.showing_progress("converting"):
        subject = load_subject(model, types or ())
        made = convert_model(subject, format_, parse_sizes(sizes or ()), seed)
    print(made)
    if made.is_wrong:
        print(f"{output} is not written", file=sys.stderr)
        raise typer.Exit(FINDING)
    for path in write_files(output, made.files):
        print(f"wrote {path}{', unchecked' if made.is_unchecked else ''}", file=sys.stderr)
    if made.is_unchecked:
        raise typer.Exit(FINDING)
