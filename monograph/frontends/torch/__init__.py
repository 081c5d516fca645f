"""Reads PyTorch programs: modules, functions, exported programs, FX graphs.

    graph = from_torch(model, example_input)

The program is read at the level at which ``torch.export`` gives it, where a linear layer is still
one op; it is not decomposed further than our own ops need. See ``registry`` for how an op is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from monograph.errors import InputError
from monograph.frontends.torch import capture
from monograph.frontends.torch.check import find_unsupported
from monograph.frontends.torch.frame import NeedsFunctionalization
from monograph.frontends.torch.functionalize import functionalized_program
from monograph.frontends.torch.program import (
    ImportedModel,
    Input,
    InputKind,
    import_graph_module,
    import_program,
)
from monograph.ir.graph import Graph

__all__ = [
    "ImportedModel",
    "Input",
    "InputKind",
    "find_unsupported",
    "from_torch",
    "import_torch",
]


def from_torch(
    target: Any,
    *example_inputs: Any,
    dynamic_shapes: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    strict: bool = False,
    training: bool = False,
) -> Graph:
    """The graph of a module, function, ExportedProgram or FX GraphModule.

    ``dynamic_shapes`` is what ``torch.export`` takes; its dimensions become symbols. The module is
    read in eval mode, its parameters as weights that share torch's memory. With ``training`` it is
    read in training mode, and its parameters are inputs, so that the graph can be differentiated.
    """
    return import_torch(
        target,
        *example_inputs,
        dynamic_shapes=dynamic_shapes,
        kwargs=kwargs,
        strict=strict,
        training=training,
    ).graph


def import_torch(
    target: Any,
    *example_inputs: Any,
    dynamic_shapes: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    strict: bool = False,
    training: bool = False,
    opaque: bool = False,
) -> ImportedModel:
    """Like ``from_torch``, with the structure of inputs and outputs beside the graph.

    ``opaque`` lets ops that have no converter become calls of torch instead of an error.
    """
    if isinstance(target, torch.export.ExportedProgram):
        _refuse_inputs(example_inputs)
        program = target
    elif isinstance(target, torch.fx.GraphModule) and capture.is_aten(target):
        typed = capture.with_types(target, example_inputs)
        return import_graph_module(typed, opaque=opaque)
    else:
        program = capture.export(
            target, example_inputs, kwargs, dynamic_shapes, strict=strict, training=training
        )
    names = capture.symbol_names(program, dynamic_shapes)
    try:
        return import_program(program, training=training, names=names, opaque=opaque)
    except NeedsFunctionalization:
        program = functionalized_program(program)
        return import_program(program, training=training, names=names, opaque=opaque)


def _refuse_inputs(example_inputs: tuple[Any, ...]) -> None:
    if example_inputs:
        raise InputError(
            "an ExportedProgram brings its own inputs", found=f"{len(example_inputs)} more"
        )
