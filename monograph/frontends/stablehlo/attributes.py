"""Converts MLIR's types and attributes to Monograph's types and NumPy arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from monograph.errors import UnsupportedError
from monograph.ir.types import DTYPES, DType, TensorType

DTYPE_NAMES = {
    "i1": "bool",
    "f8E4M3FN": "f8e4m3fn",
    "f8E5M2": "f8e5m2",
    "complex<f32>": "c64",
    "complex<f64>": "c128",
    **{f"i{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"ui{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{name: name for name in ("f64", "f32", "f16", "bf16")},
}
"""MLIR's spelling of each dtype."""


def dtype_from(spelling: str) -> DType:
    """A dtype of MLIR's."""
    if spelling not in DTYPE_NAMES:
        raise UnsupportedError(f"there is no dtype {spelling} here")
    return DTYPES[DTYPE_NAMES[spelling]]


def read_tensor_type(type_: Any) -> tuple[DType, tuple[int | None, ...]]:
    """The dtype and the sizes of a tensor's type; None for one that is free."""
    try:
        ranked = ir.RankedTensorType(type_)
    except ValueError:
        raise UnsupportedError(f"{type_} is not a tensor of known rank") from None
    sizes = [
        None if ranked.is_dynamic_dim(axis) else ranked.get_dim_size(axis)
        for axis in range(ranked.rank)
    ]
    return dtype_from(str(ranked.element_type)), tuple(sizes)


def type_from(type_: Any) -> TensorType:
    """The type of a tensor whose sizes are known."""
    dtype, sizes = read_tensor_type(type_)
    known = tuple(size for size in sizes if size is not None)
    if len(known) < len(sizes):
        raise UnsupportedError(
            f"{type_} has a size that is not known, where it must be",
            hint="export the program for known sizes, or compile the JAX function itself",
        )
    return TensorType(dtype, known)


def constant_array(operation: Any) -> Any:
    """The contents of a constant; one element where that fills all of it.

    A short file can ask for a tensor of any size: nothing of that size is made here.
    """
    type_ = type_from(operation.results[0].type)
    if type_.dtype.is_complex:  # Python has no class for their attributes
        return _from_text(str(operation), type_)
    return _contents(operation.attributes["value"], type_)


def dense_array(attribute: Any) -> Any:
    """The contents of a dense attribute, in its shape."""
    type_ = type_from(ir.DenseElementsAttr(attribute).type)
    contents = _contents(attribute, type_)
    return np.broadcast_to(contents, type_.static_shape()).astype(type_.dtype.numpy)


def _contents(attribute: Any, type_: TensorType) -> Any:
    dense = ir.DenseElementsAttr(attribute)
    if dense.is_splat:
        return np.array(dense.get_splat_value().value).astype(type_.dtype.numpy)
    array = np.array(dense)
    if array.dtype == object:  # NumPy knows no bf16, f8 or i4
        return _from_text(str(attribute), type_)
    return array.reshape(type_.static_shape()).astype(type_.dtype.numpy)


_PAIR = re.compile(r"\(\s*([^,()]+?)\s*,\s*([^,()]+?)\s*\)")
_WORD = re.compile(r"[^\s,\[\]]+")


def _from_text(text: str, type_: TensorType) -> Any:
    """The contents as MLIR prints them: one number, a list, or the bytes in hexadecimal digits."""
    dtype = type_.dtype
    body = text.partition("dense<")[2].rpartition("> :")[0].strip()
    if body.startswith('"0x'):
        found = np.frombuffer(bytes.fromhex(body.strip('"')[2:]), dtype.numpy)
    elif dtype.is_complex:
        part = np.dtype(np.float32 if dtype.name == "c64" else np.float64)
        pairs = [[_number(word, part) for word in pair] for pair in _PAIR.findall(body)]
        found = np.array([complex(*pair) for pair in pairs], dtype.numpy)
    else:
        found = np.array([_number(word, dtype.numpy) for word in _WORD.findall(body)], dtype.numpy)
    return found.reshape(()) if found.size == 1 else found.reshape(type_.static_shape())


def _number(word: str, dtype: Any) -> Any:
    """A number, or the bits of one that decimals do not say (NaN, an infinity)."""
    if not word.startswith("0x"):
        return int(word) if word.lstrip("-").isdigit() else float(word)
    return np.array(int(word, 16), f"u{dtype.itemsize}").view(dtype)[()]
