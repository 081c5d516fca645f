"""The model's declared inputs and outputs (``NodeArg``) and metadata."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto

from monograph.dataclass import dataclass
from monograph.frontends.onnx.types import CODE_BY_DTYPE, DTYPE_BY_CODE
from monograph.ir.types import Array, dtype_of


def element_name(code: int) -> str:
    """ONNX Runtime's word for a dtype: ``float`` for ``TensorProto.FLOAT``."""
    return str(TensorProto.DataType.Name(code)).lower()


def array_type(array: Array) -> str:
    """The type of an array, as ONNX Runtime prints it: ``tensor(float)``."""
    return f"tensor({element_name(element_code(array))})"


def element_code(array: Array) -> int:
    """The number of ``TensorProto.DataType`` that an array's dtype has."""
    is_text = array.dtype.kind in "OUS"
    return CODE_BY_DTYPE[dtype_of("string" if is_text else array.dtype)]


@dataclass(frozen=True)
class NodeArg:
    """An input or output: its name, its type as text, and its sizes, names or None for each."""

    name: str
    type: str
    shape: list[int | str | None]
    dtype: np.dtype[Any] | None = None
    """What NumPy has for the elements; None if it is no tensor."""
    has_shape: bool = True

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


@dataclass(frozen=True)
class ModelMetadata:
    """Who made a model, and what for."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def node_arg(value: ValueInfoProto) -> NodeArg:
    """An input or output as a model declares it."""
    type_ = value.type
    if not type_.HasField("tensor_type"):
        return NodeArg(value.name, _type_text(type_), _shape(type_), has_shape=False)
    tensor = type_.tensor_type
    dtype = DTYPE_BY_CODE.get(tensor.elem_type)
    return NodeArg(
        value.name,
        _type_text(type_),
        _shape(type_),
        None if dtype is None else dtype.numpy,
        tensor.HasField("shape"),
    )


NO_VERSION = 2**63 - 1
"""What stands for the version of a model that has none."""


def metadata(model: ModelProto) -> ModelMetadata:
    """What a model says of itself."""
    return ModelMetadata(
        model.producer_name,
        model.graph.name,
        model.domain,
        model.doc_string,
        model.graph.doc_string,
        model.model_version if model.HasField("model_version") else NO_VERSION,
        {each.key: each.value for each in model.metadata_props},
    )


def _type_text(proto: TypeProto) -> str:
    kind = proto.WhichOneof("value")
    if kind == "sequence_type":
        return f"seq({_type_text(proto.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_type_text(proto.optional_type.elem_type)})"
    if kind == "map_type":
        key = element_name(proto.map_type.key_type)
        value = _type_text(proto.map_type.value_type)
        return f"map({key},{value})"
    if kind == "sparse_tensor_type":
        return f"sparse_tensor({element_name(proto.sparse_tensor_type.elem_type)})"
    return f"tensor({element_name(proto.tensor_type.elem_type)})"


def _shape(proto: TypeProto) -> list[int | str | None]:
    kind = proto.WhichOneof("value")
    if kind == "optional_type":
        return _shape(proto.optional_type.elem_type)
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return []
    return [_size(dim) for dim in getattr(proto, kind).shape.dim]


def _size(dim: Any) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return str(dim.dim_param) or None
