"""Calls with torch tensors: the program is given their memory, and its outputs become tensors.

A tensor that is not of the expected dtype, shape and strides, dense and in the processor's memory,
is left to those who convert (and who say what is wrong with it), and so are complex numbers, which
may be conjugate views. What is left over is checked in as few steps as possible: a small program
takes less time than looking at its inputs does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from monograph.frontends.torch.types import array_to_torch, dtype_to_torch
from monograph.ir.types import Array, DType, bf16
from monograph.runtime.arguments import Arguments
from monograph.runtime.executable import Native

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_DENSE = torch.strided
_NUMBERS = "biuf"
"""Kinds of NumPy dtype that torch has too, complex numbers excepted."""


class TensorCalls:
    """One program, called with tensors."""

    def __init__(self, native: Native, arguments: Arguments) -> None:
        self._run = native.run
        self._known_sizes = arguments.known_sizes
        dtypes = [value.tensor.dtype for value in arguments.graph.inputs]
        self._is_left_out = not all(map(_is_plain, dtypes))
        self._expected = [
            (
                dtype_to_torch(dtype) if _is_plain(dtype) else None,
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
            if shape is not None and tensor.shape != shape:
                return None
            if not tensor.is_contiguous() if strides is None else tensor.stride() != strides:
                return None
            addresses.append(tensor.data_ptr())
        sizes = self._known_sizes(tensors)
        if sizes is None:
            return None
        results: list[Any] = self._run(addresses, sizes)
        for k, as_tensor in enumerate(self._results):
            results[k] = as_tensor(results[k])
        return results


def _is_plain(dtype: DType) -> bool:
    return dtype is bf16 or dtype.numpy.kind in _NUMBERS


def _converter(dtype: DType) -> Callable[[Array], Any]:
    """What makes a tensor of an output, on the same memory."""
    if dtype.numpy.kind in _NUMBERS:
        return torch.from_numpy
    return _from_bf16 if dtype is bf16 else array_to_torch


def _from_bf16(array: Array) -> Any:
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
