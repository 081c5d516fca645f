"""The model of a session as programs: one for its inputs, more where defaults are overridden.

Options that change the model (sizes of symbolic dimensions, contents of initializers) are applied
to its ``ModelProto`` before it is imported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import onnx
import onnx.numpy_helper
import onnx.shape_inference
from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto

from monograph.compiler import Options, compile_graph
from monograph.frontends.onnx.importer import import_model
from monograph.frontends.onnx.model import LoadedModel, load_model
from monograph.ir.types import Array
from monograph.onnxruntime.exceptions import InvalidArgument
from monograph.onnxruntime.model_facts import NodeArg, node_arg
from monograph.onnxruntime.options import (
    EXTERNAL_FILE,
    EXTERNAL_SIZE,
    LEVELS,
    WEIGHTS_FOLDER,
    SessionOptions,
)
from monograph.runtime.compiled import Executable

OLDEST_OVERRIDABLE = 4
"""The IR version from which on an initializer that is an input, too, is a default."""


class Programs:
    """A model's programs; ``main`` takes the inputs that have no default."""

    def __init__(self, source: str | bytes, options: SessionOptions) -> None:
        self._source = source
        self._options = options
        self._lock = threading.Lock()
        self._others: dict[tuple[str, ...], Executable] = {}
        model = self._load()
        self.proto: ModelProto = model.proto
        stored = {tensor.name for tensor in self.proto.graph.initializer}
        stored |= {tensor.values.name for tensor in self.proto.graph.sparse_initializer}
        every = [(each.name in stored, node_arg(each)) for each in self.proto.graph.input]
        self.inputs = [each for is_stored, each in every if not is_stored]
        self.overridable: list[NodeArg] = []
        if self.proto.ir_version >= OLDEST_OVERRIDABLE:
            self.overridable = [each for is_stored, each in every if is_stored]
        self.outputs = [node_arg(each) for each in _outputs(self.proto)]
        self.main = self._compile(model)
        if options.optimized_model_filepath:
            self._write_optimized(model)

    def inputs_for(self, names: Iterable[str]) -> list[NodeArg]:
        """Those that are fed, in the model's order; an error for names that no input has."""
        given = set(names)
        known = [*self.inputs, *self.overridable]
        unknown = given - {each.name for each in known}
        if unknown:
            raise InvalidArgument(f"Invalid input name: {min(unknown)}")
        return [node_arg(each) for each in self.proto.graph.input if each.name in given]

    def for_inputs(self, inputs: Sequence[NodeArg]) -> Executable:
        """The program that takes these, some of which have defaults."""
        names = tuple(each.name for each in inputs)
        with self._lock:
            found = self._others.get(names)
            if found is None:
                model = self._load()
                _forget(model, set(names))
                found = self._others[names] = self._compile(model)
        return found

    def _load(self) -> LoadedModel:
        options, folder = self._options, None
        if isinstance(self._source, bytes):
            folder = options.entries.get(WEIGHTS_FOLDER, os.curdir)
        model = load_model(self._source, folder)
        _fix_sizes(model.proto, options.sizes_by_name, options.sizes_by_denotation)
        return _with_contents(model, options.initializers, options.files)

    def _compile(self, model: LoadedModel) -> Executable:
        return compile_graph(import_model(model), self._compile_options(), owned=True)

    def _compile_options(self) -> Options:
        level = LEVELS.get(self._options.graph_optimization_level, "O2")
        return Options(level, self._options.threads)

    def _write_optimized(self, model: LoadedModel) -> None:
        """The graph after the passes of the level, as an ONNX file."""
        from monograph.exporters.onnx import NEWEST_OPSET, OLDEST_OPSET, to_onnx
        from monograph.passes.manager import run_pipeline

        graph = import_model(self._load())
        run_pipeline(graph, self._compile_options().pipeline)
        opset = max(OLDEST_OPSET, min(NEWEST_OPSET, model.opsets[""]))
        written = to_onnx(graph, opset=opset)
        location = self._options.entries.get(EXTERNAL_FILE)
        onnx.save_model(
            written,
            self._options.optimized_model_filepath,
            save_as_external_data=location is not None,
            location=location,
            size_threshold=int(self._options.entries.get(EXTERNAL_SIZE, 1024)),
        )


def _fix_sizes(model: ModelProto, by_name: dict[str, int], by_denotation: dict[str, int]) -> None:
    """Give dimensions their sizes, wherever the model declares a type."""
    if not by_name and not by_denotation:
        return
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in _dims(value.type):
            if dim.dim_param in by_name:
                dim.dim_value = by_name[dim.dim_param]
            elif dim.denotation in by_denotation and not dim.HasField("dim_value"):
                dim.dim_value = by_denotation[dim.denotation]


def _dims(type_: TypeProto) -> list[Any]:
    return list(type_.tensor_type.shape.dim) if type_.HasField("tensor_type") else []


def _with_contents(
    model: LoadedModel, arrays: dict[str, Array], files: dict[str, bytes]
) -> LoadedModel:
    """The model with other contents for some initializers, and files that are given as bytes."""
    blobs = dict(model.blobs)
    left = set(arrays)
    for position, tensor in enumerate(model.proto.graph.initializer):
        if tensor.name in arrays:
            tensor.CopyFrom(onnx.numpy_helper.from_array(arrays[tensor.name], tensor.name))
            blobs.pop(position, None)
            left.discard(tensor.name)
        elif tensor.data_location == TensorProto.EXTERNAL:
            _read_from_memory(tensor, files)
    if left:
        raise InvalidArgument(f"the model has no initializer that is called {min(left)}")
    return replace(model, blobs=blobs)


def _read_from_memory(tensor: TensorProto, files: dict[str, bytes]) -> None:
    """Take a tensor's data from the bytes that were given for its file."""
    entries = {each.key: each.value for each in tensor.external_data}
    content = files.get(entries.get("location", ""))
    if content is None:
        return
    start = int(entries.get("offset", 0))
    count = int(entries.get("length", len(content) - start))
    if not 0 <= start <= start + count <= len(content):
        raise InvalidArgument(f"the data of {tensor.name} lies outside of the file in memory")
    tensor.raw_data = content[start : start + count]
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def _forget(model: LoadedModel, names: set[str]) -> None:
    """Make inputs of initializers: under another name, nothing uses them."""
    for tensor in model.proto.graph.initializer:
        if tensor.name in names:
            tensor.name = f"{tensor.name} (default)"


def _outputs(model: ModelProto) -> list[ValueInfoProto]:
    """The outputs with what ONNX's inference adds to the types that the model declares."""
    declared = list(model.graph.output)
    if all(map(_is_known, declared)):
        return declared
    return list(onnx.shape_inference.infer_shapes(model).graph.output)


def _is_known(value: ValueInfoProto) -> bool:
    """Whether every size of a tensor is declared, or has a name."""
    type_ = value.type
    if not type_.HasField("tensor_type"):
        return type_.WhichOneof("value") is not None
    has_shape = type_.tensor_type.HasField("shape")
    return has_shape and all(dim.WhichOneof("value") for dim in _dims(type_))
