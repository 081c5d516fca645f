"""Reads PyTorch programs: modules, functions, exported programs, FX graphs.

    graph = from_torch(model, example_input)

The program is read at the level at which ``torch.export`` gives it, where a linear layer is still
one op; it is not decomposed further than our own ops need. See ``registry`` for how an op is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from monograph.errors import InputError, TypeRuleError
from monograph.frontends.torch import capture
from monograph.frontends.torch.check import find_unsupported
from monograph.frontends.torch.custom_ops import Opaque
from monograph.frontends.torch.frame import NeedsFunctionalization
from monograph.frontends.torch.functionalize import functionalize_program, unwrap_subclasses
from monograph.frontends.torch.notices import warn_of_training
from monograph.frontends.torch.program import (
    ImportedModel,
    Input,
    InputKind,
    Output,
    import_graph_module,
    import_program,
)
from monograph.frontends.torch.size_one import export_any_size, has_hints
from monograph.frontends.torch.typed_examples import example_tensors, has_types
from monograph.ir.graph import Graph

__all__ = [
    "ImportedModel",
    "Input",
    "InputKind",
    "Output",
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

    ``dynamic_shapes`` is what ``torch.export`` takes; its dimensions become symbols. An example may
    be a type, ``"f32[batch, 8]"``, whose names are free sizes. The module is read in eval mode, its
    parameters as weights that share torch's memory. With ``training`` it is read in training mode,
    and its parameters are inputs, so that the graph can be differentiated.
    """
    if has_types(example_inputs) and dynamic_shapes is None:
        example_inputs, dynamic_shapes = example_tensors(example_inputs)
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
    opaque: Opaque = False,
) -> ImportedModel:
    """Like ``from_torch``, with the structure of inputs and outputs beside the graph.

    ``opaque`` lets ops that have no converter become calls of torch instead of an error; a function
    says of which nodes of ours the caller has no use, so that their calls stay torch's as well.
    """
    if isinstance(target, torch.export.ExportedProgram):
        _refuse_inputs(example_inputs)
        program = target
    elif isinstance(target, torch.fx.GraphModule) and capture.is_aten(target):
        typed = capture.with_types(target, example_inputs)
        return import_graph_module(typed, opaque=opaque)
    else:
        if isinstance(target, torch.nn.Module) and not training:
            warn_of_training(target)
        export = partial(capture.export, target, strict=strict, training=training)
        if has_hints(dynamic_shapes):
            examples = (example_inputs, dict(kwargs or {}))
            program, ranges = export_any_size(target, examples, dynamic_shapes, export)
            if ranges:
                return _import_any_size(program, dynamic_shapes, ranges, training, opaque)
        else:
            program = export(example_inputs, kwargs, dynamic_shapes)
    names = capture.symbol_names(program, dynamic_shapes)
    return _import(program, names, training, opaque)


def _import_any_size(
    program: Any, dynamic_shapes: Any, ranges: Mapping[Any, Any], training: bool, opaque: Opaque
) -> ImportedModel:
    """Import a program with wider ranges of its sizes, or with its own where that cannot be."""
    names = capture.symbol_names(program, dynamic_shapes)
    try:
        return _import(program, names, training, opaque, ranges)
    except TypeRuleError:  # an op that has no one meaning for all of these sizes
        return _import(program, names, training, opaque)


def _import(
    program: Any,
    names: Mapping[str, str],
    training: bool,
    opaque: Opaque,
    ranges: Mapping[Any, Any] | None = None,
) -> ImportedModel:
    read = partial(import_program, training=training, names=names, opaque=opaque, ranges=ranges)
    program = unwrap_subclasses(program)
    try:
        return read(program)
    except NeedsFunctionalization:
        return read(functionalize_program(program))


def _refuse_inputs(example_inputs: tuple[Any, ...]) -> None:
    if example_inputs:
        raise InputError(
            "an ExportedProgram brings its own inputs", found=f"{len(example_inputs)} more"
        )
