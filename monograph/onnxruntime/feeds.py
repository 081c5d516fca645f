"""Checks the inputs of a run against the model's declarations, with ONNX Runtime's messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph.onnxruntime.exceptions import Fail, InvalidArgument
from monograph.onnxruntime.model_facts import NodeArg, array_type
from monograph.onnxruntime.values import as_text


def arrange(declared: NodeArg, item: Any) -> Any:
    """An input as the model takes it; an ``InvalidArgument`` if it is of another type or shape."""
    if not declared.type.startswith("tensor("):
        return item
    if item is None:
        raise Fail(f"Missing Input: {declared.name}")
    if isinstance(item, list | tuple):
        item = np.array(item, None if declared.type == "tensor(string)" else declared.dtype)
    elif hasattr(item, "__dlpack__") and not isinstance(item, np.ndarray | np.generic):
        item = np.from_dlpack(item)
    if not isinstance(item, np.ndarray | np.generic):
        raise RuntimeError(
            f"Unable to handle object of type {type(item)} for input '{declared.name}': an array, "
            "a list or an OrtValue is expected"
        )
    array = np.asarray(item)
    if array.dtype.kind in "USVO" and declared.type == "tensor(string)":
        array = as_text(array)
    found = array_type(array)
    if found != declared.type:
        raise InvalidArgument(
            f"Unexpected input data type. Actual: ({found}) , expected: ({declared.type})"
        )
    _check_shape(declared, array.shape)
    return array


def have_clashing_sizes(inputs: Sequence[NodeArg], items: Sequence[Any]) -> bool:
    """Whether sizes of one name differ between arrays, or within one."""
    sizes: dict[str, int] = {}
    for declared, item in zip(inputs, items, strict=True):
        for name, size in zip(declared.shape, np.shape(item), strict=False):
            if isinstance(name, str) and sizes.setdefault(name, size) != size:
                return True
    return False


def _check_shape(declared: NodeArg, shape: tuple[int, ...]) -> None:
    if not declared.has_shape:
        return
    advice = "Please fix either the inputs/outputs or the model."
    if len(shape) != len(declared.shape):
        raise InvalidArgument(
            f"Invalid rank for input: {declared.name} Got: {len(shape)} "
            f"Expected: {len(declared.shape)} {advice}"
        )
    wrong = [
        f" index: {index} Got: {size} Expected: {wanted}"
        for index, (size, wanted) in enumerate(zip(shape, declared.shape, strict=True))
        if isinstance(wanted, int) and wanted != size
    ]
    if wrong:
        lines = "\n".join(wrong)
        raise InvalidArgument(
            f"Got invalid dimensions for input: {declared.name} for the following indices\n"
            f"{lines}\n {advice}"
        )
