"""MLIR's types, and the contents of its attributes, as ours."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
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


def declared(type_: Any) -> tuple[DType, tuple[int | None, ...]]:
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
    dtype, sizes = declared(type_)
    known = tuple(size for size in sizes if size is not None)
    if len(known) < len(sizes):
        raise UnsupportedError(
            f"{type_} has a size that is not known, where it must be",
            hint="export the program for known sizes, or compile the JAX function itself",
        )
    return TensorType(dtype, known)


def dense_array(attribute: Any) -> Any:
    """The contents of a dense attribute."""
    dense = ir.DenseElementsAttr(attribute)
    type_ = type_from(dense.type)
    try:
        array = np.array(dense)
    except (TypeError, ValueError, RuntimeError):
        array = np.array(list(dense))
    if type_.dtype.name == "bf16" and array.dtype == np.uint16:
        array = array.view(ml_dtypes.bfloat16)
    return _spread(array, type_)


def _spread(array: Any, type_: TensorType) -> Any:
    """Contents, or the one element that fills all of them, as an array of a type."""
    shape = type_.static_shape()
    whole = np.broadcast_to(array.reshape(()), shape) if array.size == 1 else array.reshape(shape)
    return whole.astype(type_.dtype.numpy)


_PAIR = re.compile(r"\(\s*([^,()]+?)\s*,\s*([^,()]+?)\s*\)")


def complex_array(text: str, type_: TensorType) -> Any:
    """The contents of a dense attribute of complex numbers, which MLIR hands out as text alone."""
    body = text.partition("dense<")[2].rpartition("> :")[0].strip()
    if body.startswith('"0x'):
        array = np.frombuffer(bytes.fromhex(body.strip('"')[2:]), type_.dtype.numpy)
    else:
        bits = np.uint32 if type_.dtype.name == "c64" else np.uint64

        def number(word: str) -> float:
            if not word.startswith("0x"):
                return float(word)
            part = np.float32 if bits is np.uint32 else np.float64
            return float(np.array(int(word, 16), bits).view(part))

        pairs = [complex(number(a), number(b)) for a, b in _PAIR.findall(body)]
        array = np.array(pairs, type_.dtype.numpy)
    return _spread(array, type_)
