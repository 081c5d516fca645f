"""Assembles the ONNX model: inputs, outputs, weights, functions and metadata; and writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import onnx
from onnx import ModelProto, ValueInfoProto, helper

from monograph import __version__
from monograph.errors import InputError, Problem, UnsupportedError
from monograph.exporters.onnx import external
from monograph.exporters.onnx.complex_numbers import without_complex
from monograph.exporters.onnx.emitter import Emitter
from monograph.exporters.onnx.protos import first_opset, value_info
from monograph.exporters.onnx.scope import DOMAIN, Term, dtype_in, other_domains
from monograph.exporters.onnx.writer import ModelWriter, NotWrittenError
from monograph.ir.graph import Graph, Value
from monograph.ir.types import UnrankedType, ValueType

OLDEST_IR = 10
"""The first version of the file format in which nodes and functions have metadata."""

UPDATES = "monograph.updates"
DONATED = "monograph.donated"
SYMBOLS = "monograph.symbols"
COMPLEX = "monograph.complex"
"""Keys of the model's metadata, each with JSON: which output (by name) replaces which input, which
inputs may be overwritten, the least and greatest size of each symbol, and which inputs and outputs
are complex numbers in pairs."""


def export(
    graph: Graph,
    path: Path | None,
    opset: int,
    external_data: bool | None,
    special_values: bool,
) -> ModelProto:
    """See ``to_onnx``."""
    rewritten = without_complex(graph)
    real = rewritten.graph
    writer = ModelWriter(real, opset, special_values)
    for node in rewritten.refused:
        writer.refuse(node, "ONNX has no complex numbers, and this is not made of real ones")
    for value in real.inputs:
        _check_dtype(value, opset)
    inputs = writer.bind_inputs()
    with suppress(NotWrittenError):  # told below, with every other problem
        writer.write_nodes(real, writer.main)
    problems = writer.problems()
    if problems:
        raise _make_unsupported_error(problems)
    outputs = _outputs(real, writer)
    separate = external.wants_own_file(writer.weights, path, external_data)
    model = _model(real, writer, inputs, outputs)
    _add_metadata(model, real, rewritten.pairs)
    external.add_weights(model, writer.weights, path if separate else None)
    if path is not None:
        onnx.save_model(model, path)
    return model


def _check_dtype(value: Value, opset: int) -> None:
    dtype = dtype_in(value.type)
    if first_opset(dtype) > opset:
        raise InputError(
            f"to_onnx: input %{value.name} has a dtype that opset {opset} has not",
            expected=f"opset {first_opset(dtype)} or later",
            found=str(value.type),
        )


def _make_unsupported_error(problems: Sequence[Problem]) -> UnsupportedError:
    count = sum(problem.count for problem in problems)
    nodes = "one node" if count == 1 else f"{count} nodes"
    return UnsupportedError(f"to_onnx: {nodes} cannot be written", problems)


def _outputs(graph: Graph, writer: ModelWriter) -> list[ValueInfoProto]:
    """The graph's outputs, under the values' names; what the model has already is copied."""
    made = {name for node in writer.main.nodes for name in node.output}
    writer.main.source = None
    infos = []
    for value in graph.outputs:
        name = writer.main.term(value).name
        if name not in made or name != value.name:
            name = _copy(value, name, writer)
        made.discard(name)
        infos.append(value_info(name, value.type))
    return infos


def _copy(value: Value, source: str, writer: ModelWriter) -> str:
    """Another name for a value: its own if that is free."""
    scope = writer.main
    term = scope.term(value)
    used = {name for node in scope.nodes for name in node.output}
    used.update(value.name for value in value.graph.inputs)
    used.update(name for name, _ in writer.weights)
    used.update(proto.name for proto in scope.initializers)
    since = len(scope.nodes)
    scope.hint = value.name
    copied = Emitter(scope, writer.opset).emit("Identity", Term(source, term.dtype))
    if value.name not in used:
        scope.rename(copied.name, value.name, since)
        return value.name
    return copied.name


def _model(
    graph: Graph, writer: ModelWriter, inputs: Sequence[str], outputs: Sequence[ValueInfoProto]
) -> ModelProto:
    """The model without its weights."""
    scope = writer.main
    made = {name for node in scope.nodes for name in node.output}
    made.difference_update(info.name for info in outputs)
    inner = [
        value_info(term.name, value.type)
        for value, term in scope.terms.items()
        if term.name in made and term.name == value.name and _has_rank(value.type)
    ]
    declared = [
        value_info(name, value.type) for name, value in zip(inputs, graph.inputs, strict=True)
    ]
    proto = helper.make_graph(
        scope.nodes, graph.name, declared, list(outputs), scope.initializers, value_info=inner
    )
    functions = writer.functions.protos
    written = [*scope.nodes, *(node for function in functions for node in function.node)]
    others = [*([DOMAIN] if functions else []), *other_domains(written)]
    imports = [helper.make_opsetid("", writer.opset)]
    imports += [helper.make_opsetid(domain, 1) for domain in others]
    return helper.make_model(
        proto,
        functions=functions,
        opset_imports=imports,
        ir_version=max(OLDEST_IR, helper.find_min_ir_version_for(imports[:1])),
        producer_name="monograph",
        producer_version=__version__,
    )


def _has_rank(type_: ValueType) -> bool:
    """Whether a type can be declared: ONNX's checker wants tensors to have a shape."""
    return not isinstance(type_, UnrankedType)


def _add_metadata(model: ModelProto, graph: Graph, pairs: Sequence[str]) -> None:
    inputs = [info.name for info in model.graph.input]
    outputs = [info.name for info in model.graph.output]
    updates = {outputs[k]: inputs[j] for k, j in graph.updates.items()}
    donated = [inputs[position] for position in sorted(graph.donated)]
    ranges = {name: [s.lower, s.upper] for name, s in graph.symbols().items()}
    for key, content in (
        (UPDATES, updates),
        (DONATED, donated),
        (SYMBOLS, ranges),
        (COMPLEX, list(pairs)),
    ):
        if content:
            model.metadata_props.add(key=key, value=json.dumps(content))
