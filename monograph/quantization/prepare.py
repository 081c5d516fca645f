"""The float graph that is profiled and quantized: the model's, simplified the same way each time.

Batch norms are folded into the layers before them, composites recognized and constants folded, so
that what is observed is what will run. The result is the same for the same model, in every process:
names of values tie a profile to it, and so does a digest.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from monograph.api import from_onnx, from_torch
from monograph.errors import InputError
from monograph.ir.contents import reread
from monograph.ir.graph import Graph
from monograph.ops.quant import Dequantize, Quantize
from monograph.passes.canonicalize import Canonicalize
from monograph.passes.cse import CommonSubexpressionElimination
from monograph.passes.dce import DeadCodeElimination
from monograph.passes.fold_constants import FoldConstants
from monograph.passes.fold_conv_bn import FoldConvBatchNorm
from monograph.passes.manager import FixedPoint, Pipeline, run_pipeline
from monograph.passes.recognize import Recognize
from monograph.passes.simplify import Simplify

PIPELINE: Pipeline = (
    DeadCodeElimination(),
    FixedPoint(
        (
            Recognize(),
            FoldConvBatchNorm(),
            Canonicalize(),
            FoldConstants(),
            Simplify(),
            CommonSubexpressionElimination(),
            DeadCodeElimination(),
        )
    ),
)


def graph_of_model(model: Any, examples: tuple[Any, ...] = ()) -> Graph:
    """The graph of a ``Graph``, an ONNX model, or a torch model and its example inputs."""
    if isinstance(model, Graph):
        return model
    onnx, torch = sys.modules.get("onnx"), sys.modules.get("torch")
    is_proto = onnx is not None and isinstance(model, onnx.ModelProto)
    if is_proto or isinstance(model, str | Path | bytes):
        return from_onnx(model)
    if torch is not None and isinstance(model, torch.nn.Module | torch.export.ExportedProgram):
        if isinstance(model, torch.nn.Module) and not examples:
            raise InputError(
                "a torch module is read with examples of its inputs",
                expected="examples=(x, …)",
                hint="monograph.quantize(module, profile, examples=(x,))",
            )
        return from_torch(model, *examples)
    raise InputError(
        "this is not a model that can be quantized",
        expected="a Graph, an ONNX model, or a torch module with examples=(…)",
        found=type(model).__name__,
    )


def prepare(model: Any, examples: tuple[Any, ...] = ()) -> Graph:
    """A simplified copy of the model's graph, in float."""
    source = graph_of_model(model, examples)
    quantized = [node for node in source.walk() if isinstance(node.op, Quantize | Dequantize)]
    if quantized:
        raise InputError(
            "this model is quantized already",
            found=f"{len(quantized)} quantize and dequantize nodes",
            hint="quantize the float model that it was made from",
        )
    graph = reread(source).clone()
    run_pipeline(graph, PIPELINE)
    return graph


def digest_of(graph: Graph) -> str:
    """What identifies a prepared graph, weights and all."""
    return hashlib.blake2b(str(graph).encode(), digest_size=16).hexdigest()
