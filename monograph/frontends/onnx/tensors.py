"""``TensorProto`` and ``SparseTensorProto`` as data and back: every dtype, every way to store it.

Sizes are worked out and held against what is stored before anything is allocated, so that a tensor
of 4 TB in a file of 20 bytes is an error and nothing more.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import SparseTensorProto, TensorProto

from monograph.errors import InputError
from monograph.frontends.onnx.blobs import Blob, BlobData
from monograph.frontends.onnx.external import Files, count_packed_bytes
from monograph.frontends.onnx.order import shorten
from monograph.frontends.onnx.types import (
    CODE_BY_DTYPE,
    HIGHEST_RANK,
    LARGEST_DIM,
    dtype_of_code,
    too_many_dimensions,
)
from monograph.ir.data import ArrayData, Data, pack, unpack
from monograph.ir.types import Array, DType, bool_, c64, c128, f32, f64, i64, string, u32, u64

LARGEST_SPARSE = 2**31  # bytes of a sparse tensor once it is dense

_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_FIELD_BY_DTYPE = {
    f32: "float_data", c64: "float_data", f64: "double_data", c128: "double_data",
    i64: "int64_data", u32: "uint64_data", u64: "uint64_data", string: "string_data",
}  # fmt: skip


def data_of(tensor: TensorProto, files: Files | None = None, blob: Blob | None = None) -> Data:
    """The contents of a tensor; those in other files are mapped, not read.

    ``blob`` is its raw data if that has been taken out of the protobuf.
    """
    name = tensor.name
    where = f"tensor {shorten(name)!r}"
    dtype = dtype_of_code(tensor.data_type, where)
    shape = _shape(tensor.dims, where)
    if tensor.HasField("segment"):
        raise InputError(f"{where} is stored in segments, which nothing supports")
    stored = [field for field in _FIELDS if len(getattr(tensor, field))]
    raw = blob is not None or tensor.HasField("raw_data")
    external = tensor.data_location == TensorProto.EXTERNAL
    if external + raw + len(stored) > 1:
        ways = stored + ["raw_data"] * raw + ["external data"] * external
        raise InputError(
            f"{where} is given twice", expected="one place for its data", found=" and ".join(ways)
        )
    if external:
        return _external(tensor, files, dtype, shape)
    if raw:
        if blob is None:
            return _from_bytes(tensor.raw_data, dtype, shape, where)
        _check_raw(blob.size, dtype, shape, where)
        return BlobData(blob, dtype, shape)
    field = _FIELD_BY_DTYPE.get(dtype, "int32_data")
    if stored and stored != [field]:
        raise InputError(
            f"{where} keeps {dtype} in the wrong place", expected=field, found=stored[0]
        )
    return _from_field(getattr(tensor, field), dtype, shape, where)


def _shape(dims: object, where: str) -> tuple[int, ...]:
    if len(dims) > HIGHEST_RANK:  # type: ignore[arg-type]  # a repeated field
        raise too_many_dimensions(where, len(dims))  # type: ignore[arg-type]
    shape = tuple(int(dim) for dim in dims)  # type: ignore[attr-defined]
    if any(dim < 0 for dim in shape) or math.prod(shape) > LARGEST_DIM:
        raise InputError(
            f"{where} has a shape that cannot be", expected="sizes of 0 or more", found=str(shape)
        )
    return shape


def _external(
    tensor: TensorProto, files: Files | None, dtype: DType, shape: tuple[int, ...]
) -> Data:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if dtype is string or "location" not in entries:
        raise InputError(
            f"the external data of tensor {tensor.name!r} cannot be",
            expected="a location, and a dtype of a fixed width",
            found=f"{dtype} with {', '.join(entries) or 'no entries'}",
        )
    offset = _number(entries.get("offset", "0"), "offset", tensor.name)
    length = entries.get("length")
    size = None if length is None else _number(length, "length", tensor.name)
    files = files or Files(None)
    return files.read(entries["location"], offset, size, dtype, shape, tensor.name)


def _number(text: str, what: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InputError(
            f"the external data of tensor {name!r} has a wrong {what}",
            expected="a number of bytes",
            found=repr(text[:40]),
        )
    return int(text)


def _wrong_length(where: str, expected: str, found: str) -> InputError:
    return InputError(f"{where} has the wrong length", expected=expected, found=found)


def _check_raw(size: int, dtype: DType, shape: tuple[int, ...], where: str) -> None:
    if dtype is string:
        raise InputError(f"{where} keeps strings in raw_data", expected="string_data")
    needed = count_packed_bytes(math.prod(shape), dtype)
    if size != needed:
        raise _wrong_length(where, f"{needed} bytes for {dtype}{list(shape)}", f"{size} bytes")


def _from_bytes(raw: bytes, dtype: DType, shape: tuple[int, ...], where: str) -> Data:
    _check_raw(len(raw), dtype, shape, where)
    if dtype.is_packed:
        return ArrayData(unpack(np.frombuffer(raw, np.uint8), dtype, shape), dtype)
    if dtype is bool_:
        return ArrayData((np.frombuffer(raw, np.uint8) != 0).reshape(shape))
    return ArrayData(np.frombuffer(raw, dtype.numpy).reshape(shape), dtype)


def _from_field(items: object, dtype: DType, shape: tuple[int, ...], where: str) -> Data:
    size = math.prod(shape)
    count = len(items)  # type: ignore[arg-type]  # a repeated field
    needed = size * 2 if dtype.is_complex else size
    needed = count_packed_bytes(size, dtype) if dtype.is_packed else needed
    if count != needed:
        raise _wrong_length(where, f"{needed} items for {dtype}{list(shape)}", f"{count} items")
    if dtype is string:
        return ArrayData(_strings(items, where).reshape(shape), string)
    if dtype.is_complex:
        parts = np.array(items, f32.numpy if dtype is c64 else f64.numpy)
        return ArrayData(parts.view(dtype.numpy).reshape(shape), dtype)
    if _FIELD_BY_DTYPE.get(dtype) is not None:
        return ArrayData(np.array(items, dtype.numpy).reshape(shape), dtype)
    return ArrayData(_from_int32(np.array(items, np.int32), dtype, shape), dtype)


def _from_int32(items: Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Elements that are kept one in each 32-bit integer: as numbers, or floats as their bits."""
    if dtype.is_packed:
        return unpack(items.astype(np.uint8), dtype, shape)
    if dtype is bool_:
        return np.not_equal(items, 0).reshape(shape)
    if dtype.is_float:
        return items.astype(f"u{dtype.numpy.itemsize}").view(dtype.numpy).reshape(shape)
    return items.astype(dtype.numpy).reshape(shape)


def _strings(items: object, where: str) -> Array:
    result: Array = np.empty(len(items), np.object_)  # type: ignore[arg-type]  # a repeated field
    try:
        result[:] = [item.decode() for item in items]  # type: ignore[attr-defined]
    except UnicodeDecodeError as error:
        raise InputError(f"{where} holds a string that is not UTF-8", found=str(error)) from None
    return result


def data_of_sparse(tensor: SparseTensorProto, files: Files | None = None) -> Data:
    """A sparse tensor, made dense."""
    where = f"sparse tensor {tensor.values.name!r}"
    shape = _shape(tensor.dims, where)
    values, indices = data_of(tensor.values, files), data_of(tensor.indices, files)
    if math.prod(shape) * max(values.dtype.bits, 8) // 8 > LARGEST_SPARSE:
        raise InputError(
            f"{where} is too large once it is dense",
            expected=f"at most {LARGEST_SPARSE} bytes",
            found=f"{values.dtype}{list(shape)}",
        )
    if len(values.shape) != 1 or indices.dtype is not i64 or indices.shape not in (
        values.shape, (*values.shape, len(shape)),
    ):  # fmt: skip
        raise InputError(
            f"{where} is malformed",
            expected="a vector of values, and an i64 index or index vector for each",
            found=f"values {values.type}, indices {indices.type}",
        )
    places = indices.array()
    sizes = shape if places.ndim == 2 else (math.prod(shape),)
    inside = (places >= 0) & (places < np.array(sizes, np.int64))
    if not bool(inside.all()):
        raise InputError(f"{where} has an index outside its shape", expected=str(shape))
    dense = np.zeros(shape, values.dtype.numpy)
    if places.ndim == 1:
        dense.reshape(-1)[places] = values.array()
    else:
        dense[tuple(places.T)] = values.array()
    return ArrayData(dense, values.dtype)


def tensor_of(data: Data, name: str = "") -> TensorProto:
    """Contents as a ``TensorProto`` that holds them itself."""
    tensor = TensorProto(name=name, data_type=CODE_BY_DTYPE[data.dtype], dims=data.shape)
    array = data.array()
    if data.dtype is string:
        tensor.string_data.extend(str(item).encode() for item in array.reshape(-1))
    elif data.dtype.is_packed:
        tensor.raw_data = pack(array, data.dtype.bits).tobytes()
    else:
        tensor.raw_data = np.ascontiguousarray(array).tobytes()
    return tensor
