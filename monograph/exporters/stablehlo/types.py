"""Types, numbers and arrays in MLIR's text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from monograph.ir.graph import Node
from monograph.ir.types import Array, DType, TensorType, bool_

DTYPES = {
    "bool": "i1",
    "c64": "complex<f32>",
    "c128": "complex<f64>",
    "f8e4m3fn": "f8E4M3FN",
    "f8e5m2": "f8E5M2",
    **{name: name for name in ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64")},
    **{f"u{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)},
}
MAX_LISTED_ELEMENTS = 8
"""Elements that are listed; longer arrays are written as their bytes."""


def refuse_types(node: Node) -> str | None:
    """Why a node's types have no place in StableHLO."""
    for value in (*node.operands, *node.results):
        if not isinstance(value.type, TensorType):
            return f"StableHLO has no {value.type}"
        if value.dtype.name not in DTYPES:
            return f"StableHLO has no {value.dtype}"
    return None


def type_text(type_: TensorType) -> str:
    """``tensor<2x?xf32>``: a size that is free is a question mark."""
    sizes = [str(dim) if isinstance(dim, int) else "?" for dim in type_.shape]
    return f"tensor<{'x'.join([*sizes, DTYPES[type_.dtype.name]])}>"


def integers(values: Iterable[Any]) -> str:
    """``array<i64: 1, 2>``."""
    listed = ", ".join(str(int(value)) for value in values)
    return f"array<i64: {listed}>" if listed else "array<i64>"


def dense(array: Array, type_: TensorType) -> str:
    """``dense<…> : tensor<…>`` of the array, one number standing for a whole tensor of it."""
    return f"dense<{_contents(array, type_)}> : {type_text(type_)}"


def _contents(array: Array, type_: TensorType) -> str:
    if type_.size == 0:
        return ""
    if array.size <= MAX_LISTED_ELEMENTS or type_.dtype is bool_:
        return _write_elements(array, type_.dtype)
    return f'"0x{np.ascontiguousarray(array).tobytes().hex().upper()}"'


def _write_elements(array: Array, dtype: DType) -> str:
    if array.ndim == 0:
        return _number(array[()], dtype)
    return "[" + ", ".join(_write_elements(each, dtype) for each in array) + "]"


def _number(element: Any, dtype: DType) -> str:
    if dtype is bool_:
        return "true" if element else "false"
    if dtype.is_complex:
        part = np.float32 if dtype.name == "c64" else np.float64
        return f"({_float(part(element.real))}, {_float(part(element.imag))})"
    return _float(element) if dtype.is_float else str(int(element))


def _float(element: Any) -> str:
    """A number's own bits, where decimals would not say them."""
    array = np.asarray(element)
    if np.isfinite(array.astype(np.float64)):
        return f"{float(array.astype(np.float64)):.17e}"
    bits = array.view(f"uint{8 * array.dtype.itemsize}")
    return f"0x{int(bits):0{2 * array.dtype.itemsize}X}"
