"""Calls with torch tensors: the program is given their memory, and its outputs become tensors.

A tensor that is not of the expected dtype, shape and strides, dense and in the processor's memory,
is left to those who convert (and who say what is wrong with it), and so is a conjugate view. What
is left over is checked in as few steps as possible: a small program takes less time than looking at
its inputs does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from monograph.frontends.torch.types import array_to_torch, dtype_to_torch
from monograph.ir.types import Array, DType, bf16
from monograph.runtime.arguments import Arguments, Expected
from monograph.runtime.cpu.native import Native
from monograph.runtime.cpu.quick_calls import row_major
from monograph.runtime.cpu.tensor_layout import dtype_number, tensor_layout
from monograph.targets.cpu.entry_point.python_call import TensorLayout

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_DENSE = torch.strided
_NUMBERS = "biuf"
"""Kinds of NumPy dtype that torch has too, complex numbers excepted."""
_COMPLEX = "c"
_NOWHERE = np.zeros(16, np.uint64)
"""Stands in for the memory of an empty tensor, which has none: a check that an index is in range
reads an element before it fails."""


class TensorCalls:
    """One program, called with tensors."""

    def __init__(self, native: Native, arguments: Arguments) -> None:
        self._run = native.run
        self._find_sizes = arguments.find_sizes
        dtypes = [value.tensor.dtype for value in arguments.graph.inputs]
        self._is_left_out = not all(map(_is_taken, dtypes))
        self._may_be_conjugate = any(dtype.is_complex for dtype in dtypes)
        self._expected = [
            (
                dtype_to_torch(dtype) if _is_taken(dtype) else None,
                each.shape,
                each.strides and tuple(stride // each.dtype.itemsize for stride in each.strides),
            )
            for dtype, each in zip(dtypes, arguments.expected, strict=True)
        ]
        self._results = [_converter(slot.dtype) for _, slot in native.outputs]

    def __call__(self, tensors: Sequence[Any]) -> list[Any] | None:
        """The outputs as tensors; None if an input cannot be passed as it is."""
        expected = self._expected
        if len(tensors) != len(expected) or self._is_left_out:
            return None
        addresses: list[int] = []
        for tensor in tensors:
            dtype, shape, strides = expected[len(addresses)]
            if type(tensor) not in _PLAIN or tensor.dtype is not dtype:
                return None
            if not tensor.is_cpu or tensor.layout is not _DENSE or tensor.is_neg():
                return None
            if tensor.is_nested:
                return None
            if shape is not None and tensor.shape != shape:
                return None
            if not tensor.is_contiguous() if strides is None else tensor.stride() != strides:
                return None
            if self._may_be_conjugate and tensor.is_conj():
                return None
            addresses.append(tensor.data_ptr() or _NOWHERE.ctypes.data)
        sizes = self._find_sizes(tensors)
        if sizes is None:
            return None
        results: list[Any] = self._run(addresses, sizes)
        for k, as_tensor in enumerate(self._results):
            results[k] = as_tensor(results[k])
        return results


_FUNCTIONS = (
    "aoti_torch_empty_strided",
    "_Z16THPVariable_WrapON2at10TensorBaseE",
    "aoti_torch_delete_tensor_object",
)
"""What makes a tensor, makes an object of Python of it, and frees what that was made from.

The first and the last are of torch's stable C interface. The second is ``THPVariable_Wrap``, which
every extension for Python calls; C++ has no plainer name for it.
"""


class TensorKind:
    """Built-in functions of torch tensors (see :mod:`monograph.runtime.cpu.quick_calls`)."""

    name = "call_tensors"
    classes: tuple[type, ...] = _PLAIN
    largest: int = 1 << 16
    """torch aligns its memory; what is larger is safer in the pool, which keeps its pages."""

    def __init__(self, layout: TensorLayout, functions: tuple[int, ...]) -> None:
        self.layout: TensorLayout | None = layout
        self.functions = functions
        self._layout = layout

    def dtype(self, dtype: DType) -> int | None:
        """The number of a dtype of torch's; complex numbers may be conjugate and are not taken."""
        return dtype_number(dtype_to_torch(dtype), self._layout) if _is_plain(dtype) else None

    def stride(self, expected: Expected) -> int:
        """Tensors count in elements."""
        return expected.dtype.itemsize

    def output(self, shape: tuple[int, ...], dtype: DType, held: list[object]) -> tuple[int, ...]:
        """Sizes and strides in memory, as torch's C interface takes them."""
        sizes = np.array([shape, row_major(shape, 1)], np.int64).reshape(2, -1)
        held.append(sizes)
        number = dtype_number(dtype_to_torch(dtype), self._layout)
        return number, len(shape), sizes[0].ctypes.data, sizes[1].ctypes.data

    def converter(self, dtype: DType) -> Callable[[Array], Any] | None:
        """A tensor on the memory of an array."""
        return _converter(dtype)


@cache
def tensor_kind() -> TensorKind | None:
    """How built-in functions take tensors; None if torch is not as we know it."""
    layout = tensor_layout()
    library = ctypes.CDLL(torch._C.__file__)
    if layout is None or not all(hasattr(library, name) for name in _FUNCTIONS):
        return None
    found = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS)
    return TensorKind(layout, tuple(each or 0 for each in found))


def _is_plain(dtype: DType) -> bool:
    return dtype is bf16 or dtype.numpy.kind in _NUMBERS


def _is_taken(dtype: DType) -> bool:
    return _is_plain(dtype) or dtype.numpy.kind == _COMPLEX


def _converter(dtype: DType) -> Callable[[Array], Any]:
    """What makes a tensor of an output, on the same memory."""
    if dtype.numpy.kind in _NUMBERS or dtype.numpy.kind == _COMPLEX:
        return torch.from_numpy
    return _from_bf16 if dtype is bf16 else array_to_torch


def _from_bf16(array: Array) -> Any:
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
