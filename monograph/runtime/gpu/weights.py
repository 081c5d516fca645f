"""Where a program's weights lie on a GPU: a torch module's own memory, or a copy.

A weight that lies on the GPU as kernels read it is not copied: torch copies it when somebody writes
to it (``frontends.torch.device_data``). Weights joined, turned or reshaped are made on the GPU of
those that lie there; all others are computed on the host and copied to the GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph.ir.data import Data
from monograph.ir.lazy_data import LazyData
from monograph.ir.types import Array
from monograph.ops.joining import Concat
from monograph.ops.shape import Reshape, Transpose
from monograph.runtime.gpu.memory import POINTER_ALIGNMENT, Block, Memory, TorchMemory
from monograph.runtime.weight_ownership import Held, own

Strides = tuple[int, ...] | None
"""How a weight's elements lie, if not row by row."""


def place_weight(memory: Memory, data: Data, strides: Strides) -> Block:
    """A weight's elements on a GPU, as they lie by these strides."""
    if isinstance(memory, TorchMemory):
        tensor = _tensor_of(own(data) if _source(data).device_tensor is not None else data, memory)
        if tensor is not None:
            is_shared = _source(data).device_tensor is not None
            return _place_tensor(memory, tensor, strides, may_share=is_shared)
    return memory.upload(_in_memory_order(data.array(), strides))


def _place_tensor(memory: TorchMemory, tensor: Any, strides: Strides, *, may_share: bool) -> Block:
    laid = tensor if strides is None else tensor.permute(*_memory_order(strides))
    address = memory.address_of(laid)
    if not (may_share and laid.is_contiguous() and address % POINTER_ALIGNMENT == 0):
        laid = laid.clone(memory_format=memory.torch.contiguous_format)
        address = memory.address_of(laid)
    return Block(address, laid.nbytes, laid)


def _tensor_of(data: Data, memory: TorchMemory) -> Any | None:
    """Contents as a tensor on this GPU, if they lie there, or are moved from what does."""
    source = _source(data)
    if not isinstance(source, LazyData):
        tensor = source.device_tensor
        return tensor if tensor is not None and tensor.device == memory.place else None
    found = [_tensor_of(each, memory) for each in source.sources]
    parts = [each for each in found if each is not None]
    if len(parts) < len(found):
        return None
    match source.op:
        case Concat(axis):
            return memory.torch.cat(parts, axis)
        case Transpose(permutation):
            return parts[0].permute(*permutation)
        case Reshape():
            return parts[0].reshape(source.shape)
    return None


def _source(data: Data) -> Data:
    """What is held, or the contents themselves."""
    return _source(data.source) if isinstance(data, Held) else data


def _in_memory_order(array: Array, strides: Strides) -> Array:
    """An array whose elements follow one another as they lie by these strides."""
    return array if strides is None else array.transpose(_memory_order(strides))


def in_rows(array: Array, strides: Strides) -> Array:
    """Elements that follow one another as they lie by these strides, as an array in rows."""
    if strides is None:
        return array
    order = _memory_order(strides)
    turned = array.reshape([array.shape[axis] for axis in order])
    return np.ascontiguousarray(turned.transpose(np.argsort(order)))


def _memory_order(strides: tuple[int, ...]) -> list[int]:
    """The axes, the one of the widest steps first."""
    order: list[int] = np.argsort([-stride for stride in strides], kind="stable").tolist()
    return order
