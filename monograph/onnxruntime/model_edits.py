"""Changes to a model before it is imported: what options ask for, and how ONNX Runtime reads it.

Options give sizes to symbolic dimensions and other contents to initializers. Where ONNX Runtime
means something else by a node than ONNX's text does, the node is made to say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import onnx.numpy_helper
from onnx import ModelProto, TensorProto, TypeProto

from monograph.frontends.onnx.converters.resize import CORNERS, CORNERS_OF_WHOLE_SIZES
from monograph.frontends.onnx.model import LoadedModel
from monograph.frontends.onnx.order import walk_nodes
from monograph.ir.types import Array
from monograph.onnxruntime.exceptions import InvalidArgument


def fix_sizes(model: ModelProto, by_name: dict[str, int], by_denotation: dict[str, int]) -> None:
    """Give dimensions their sizes, wherever the model declares a type."""
    if not by_name and not by_denotation:
        return
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in dims_of(value.type):
            if dim.dim_param in by_name:
                dim.dim_value = by_name[dim.dim_param]
            elif dim.denotation in by_denotation and not dim.HasField("dim_value"):
                dim.dim_value = by_denotation[dim.denotation]


def dims_of(type_: TypeProto) -> list[Any]:
    """The sizes that a tensor's type declares; none of another type."""
    return list(type_.tensor_type.shape.dim) if type_.HasField("tensor_type") else []


def with_contents(
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


def forget_defaults(model: LoadedModel, names: set[str]) -> None:
    """Make inputs of initializers: under another name, nothing uses them."""
    for tensor in model.proto.graph.initializer:
        if tensor.name in names:
            tensor.name = f"{tensor.name} (default)"


def separate_sizes(model: ModelProto) -> None:
    """Give each input sizes of its own names: ONNX Runtime compares no sizes by their names."""
    for value in model.graph.input:
        for axis, dim in enumerate(dims_of(value.type)):
            if dim.dim_param:
                dim.dim_param = f"{value.name}.{axis}"


def set_sizes(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Give the dimensions of inputs, by name, these sizes."""
    for value in model.graph.input:
        shape = shapes.get(value.name, ())
        for dim, size in zip(dims_of(value.type), shape, strict=False):
            dim.dim_value = size


def round_resized_lengths(model: ModelProto) -> None:
    """Put the last corners of resized images on their last elements.

    To ONNX a length times a scale may be broken, and a corner lies at the end of that. ONNX Runtime
    takes the length that the result has, as PyTorch does.
    """
    bodies = [model.graph.node, *(function.node for function in model.functions)]
    for node in (node for body in bodies for node in walk_nodes(body)):
        for attribute in node.attribute:
            if node.op_type == "Resize" and attribute.s == CORNERS.encode():
                attribute.s = CORNERS_OF_WHOLE_SIZES.encode()
