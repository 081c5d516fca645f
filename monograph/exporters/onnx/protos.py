"""Our types and arrays as ONNX's messages."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
from onnx import TensorProto, TypeProto, ValueInfoProto

from monograph.ir.data import pack
from monograph.ir.dims import SymbolicDim
from monograph.ir.types import (
    DTYPES,
    Array,
    DType,
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
    string,
)

_NAMES = {
    "f32": "FLOAT", "f64": "DOUBLE", "f16": "FLOAT16", "bf16": "BFLOAT16",
    "f8e4m3fn": "FLOAT8E4M3FN", "f8e4m3fnuz": "FLOAT8E4M3FNUZ", "f8e5m2": "FLOAT8E5M2",
    "f8e5m2fnuz": "FLOAT8E5M2FNUZ", "f8e8m0fnu": "FLOAT8E8M0", "f4e2m1fn": "FLOAT4E2M1",
    "c64": "COMPLEX64", "c128": "COMPLEX128", "bool": "BOOL", "string": "STRING",
    "i64": "INT64", "i32": "INT32", "i16": "INT16", "i8": "INT8", "i4": "INT4", "i2": "INT2",
    "u64": "UINT64", "u32": "UINT32", "u16": "UINT16", "u8": "UINT8", "u4": "UINT4", "u2": "UINT2",
}  # fmt: skip

CODES: Mapping[DType, int] = {
    DTYPES[ours]: TensorProto.DataType.Value(theirs) for ours, theirs in _NAMES.items()
}
"""The number of each dtype in ``TensorProto.DataType``."""


_SINCE = {
    "f8e4m3fn": 19, "f8e4m3fnuz": 19, "f8e5m2": 19, "f8e5m2fnuz": 19, "i4": 21, "u4": 21,
    "f4e2m1fn": 23, "f8e8m0fnu": 24, "i2": 25, "u2": 25,
}  # fmt: skip


def first_opset(dtype: DType | None) -> int:
    """The opset in which ONNX got a dtype."""
    return 1 if dtype is None else _SINCE.get(dtype.name, 1)


def type_proto(type_: ValueType) -> TypeProto:
    """A type as ONNX writes it; a symbolic dimension is a ``dim_param``, its expression spelled."""
    proto = TypeProto()
    if isinstance(type_, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(type_proto(type_.element))
    elif isinstance(type_, OptionalType):
        proto.optional_type.elem_type.CopyFrom(type_proto(type_.element))
    else:
        proto.tensor_type.elem_type = CODES[type_.dtype]
        if not isinstance(type_, UnrankedType):
            _fill_shape(proto, type_)
    return proto


def _fill_shape(proto: TypeProto, type_: TensorType) -> None:
    shape = proto.tensor_type.shape
    shape.SetInParent()  # a scalar has a shape too, an empty one
    for dim in type_.shape:
        entry = shape.dim.add()
        if isinstance(dim, SymbolicDim):
            entry.dim_param = str(dim)
        else:
            entry.dim_value = dim


def value_info(name: str, type_: ValueType) -> ValueInfoProto:
    """A name with its type."""
    return ValueInfoProto(name=name, type=type_proto(type_))


def tensor_proto(array: Array, dtype: DType, name: str = "") -> TensorProto:
    """An array as a message that holds its elements."""
    proto = TensorProto(name=name, data_type=CODES[dtype], dims=array.shape)
    if dtype is string:
        proto.string_data.extend(str(item).encode() for item in array.reshape(-1))
    else:
        proto.raw_data = raw_elements(array, dtype).tobytes()
    return proto


def raw_elements(array: Array, dtype: DType) -> Array:
    """The elements as the bytes that ONNX stores: little-endian, types under eight bits packed.

    An array that lies in memory like that is not copied.
    """
    if dtype.is_packed:
        return pack(array, dtype.bits)
    contiguous = np.ascontiguousarray(array, dtype.numpy).reshape(-1)
    if sys.byteorder == "big":
        contiguous = contiguous.byteswap()
    return contiguous.view(np.uint8)
