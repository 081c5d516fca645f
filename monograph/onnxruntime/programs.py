"""The model of a session as programs: one for its inputs, more where defaults are overridden.

What is to be changed of the model is changed in its ``ModelProto``, before it is imported: see
``model_edits``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
from onnx import ModelProto, ValueInfoProto

from monograph.compiler import Options, compile_graph
from monograph.frontends.onnx.importer import import_model
from monograph.frontends.onnx.model import LoadedModel, load_model
from monograph.onnxruntime.exceptions import InvalidArgument
from monograph.onnxruntime.model_edits import (
    dims_of,
    fix_sizes,
    forget_defaults,
    round_resized_lengths,
    separate_sizes,
    set_sizes,
    with_contents,
)
from monograph.onnxruntime.model_facts import NodeArg, node_arg
from monograph.onnxruntime.options import (
    EXTERNAL_FILE,
    EXTERNAL_SIZE,
    LEVELS,
    WEIGHTS_FOLDER,
    SessionOptions,
)
from monograph.runtime.compiled import Executable
from monograph.specialize.recent import Recent

OLDEST_OVERRIDABLE = 4
"""The IR version from which on an initializer that is an input, too, is a default."""

MOST_EXACT = 32
"""How many programs for given sizes are kept; the one that was called longest ago goes first."""


class Programs:
    """A model's programs; ``main`` takes the inputs that have no default."""

    def __init__(self, source: str | bytes, options: SessionOptions) -> None:
        self._source = source
        self._options = options
        self._lock = threading.Lock()
        self._others: dict[tuple[bool, tuple[str, ...]], Executable] = {}
        self._exact: Recent[Hashable, Executable] = Recent(MOST_EXACT)
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

    def for_inputs(self, inputs: Sequence[NodeArg], *, separate: bool = False) -> Executable:
        """The program that takes these, some of which have defaults.

        With ``separate``, sizes of one name may differ between inputs.
        """
        names = tuple(each.name for each in inputs)
        with self._lock:
            found = self._others.get((separate, names))
            if found is None:
                model = self._load()
                forget_defaults(model, set(names))
                if separate:
                    separate_sizes(model.proto)
                found = self._others[separate, names] = self._compile(model)
        return found

    def for_sizes(self, inputs: Sequence[NodeArg], arrays: Sequence[Any]) -> Executable:
        """The program for the sizes of these arrays alone.

        Two sizes whose names differ may each be the one that stretches to the other, in one call
        or another: a program for all sizes knows one of them for the result's.
        """
        names = tuple(each.name for each in inputs)
        key = (names, tuple(np.shape(each) for each in arrays))
        with self._lock:
            found = self._exact.get(key)
            if found is None:
                model = self._load()
                forget_defaults(model, set(names))
                set_sizes(model.proto, dict(zip(*key, strict=True)))
                found = self._compile(model)
                self._exact.put(key, found)
        return found

    def _load(self) -> LoadedModel:
        options, folder = self._options, None
        if isinstance(self._source, bytes):
            folder = options.entries.get(WEIGHTS_FOLDER, os.curdir)
        model = load_model(self._source, folder)
        fix_sizes(model.proto, options.sizes_by_name, options.sizes_by_denotation)
        round_resized_lengths(model.proto)
        return with_contents(model, options.initializers, options.files)

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
    return has_shape and all(dim.WhichOneof("value") for dim in dims_of(type_))
