"""The field offsets of a torch tensor object, found by inspecting some.

Unlike NumPy's, they are nobody's promise and move between versions of torch. So none is assumed:
each is searched for in a tensor whose sizes, strides and offset are like no other's, and the layout
that is found must then tell of tensors of many kinds what torch tells of them. Where it does not,
nobody reads them. The dispatch keys say in one number that a tensor is dense, in the processor's
memory and no stand-in for another one.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from monograph.runtime.cpu.array_layout import OBJECT_HEADER_BYTES, has_plain_objects
from monograph.targets.cpu.entry_point.python_call import MOST_AXES, TensorLayout

TENSOR_WORDS = 24
"""Words of a tensor that are searched: it has 26 in every version of torch so far."""
STORAGE_WORDS = 6
"""Words of a storage that are searched, for the address of its memory."""
SIZES, STRIDES, OFFSET = (3, 5, 7), (70, 11, 2), 13
"""A view whose numbers are not found elsewhere."""


@cache
def tensor_layout() -> TensorLayout | None:
    """The layout of tensors in this process; None if it cannot be made out."""
    if not has_plain_objects():
        return None
    layout = _search(torch.zeros(256).as_strided(SIZES, STRIDES, OFFSET))
    if layout is None or not all(_is_read(tensor, layout) for tensor in _trials()):
        return None
    return layout


def dtype_number(dtype: torch.dtype, layout: TensorLayout) -> int:
    """What stands in a tensor of a dtype."""
    sample = torch.empty(1, dtype=dtype)
    return ctypes.c_uint16.from_address(sample._cdata + layout.dtype).value


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


def _place(words: list[int], wanted: list[int]) -> int | None:
    """Where some numbers stand, one after the other."""
    for k in range(len(words) - len(wanted) + 1):
        if words[k : k + len(wanted)] == wanted:
            return k
    return None


def _search(sample: torch.Tensor) -> TensorLayout | None:
    header = OBJECT_HEADER_BYTES // 8
    words = _words(id(sample), torch.Tensor.__basicsize__ // 8)
    inside = _words(sample._cdata, TENSOR_WORDS)
    storage = sample.untyped_storage()
    keys = _keys(sample)
    with torch.inference_mode():
        inference = _keys(torch.zeros(1))
    tensor = _place(words[header:], [sample._cdata])
    axes = _place(inside, [len(SIZES), *SIZES])
    at = _place(inside, [storage._cdata])
    keys_at = _place(inside, [keys])
    data = _place(_words(storage._cdata, STORAGE_WORDS), [storage.data_ptr()])
    if tensor is None or axes is None or at is None or keys_at is None or data is None:
        return None
    offset = axes + 1 + 2 * MOST_AXES
    if inside[offset : offset + 2] != [OFFSET, sample.numel()]:
        return None
    return TensorLayout(
        tensor=OBJECT_HEADER_BYTES + 8 * tensor,
        storage=8 * at,
        axes=8 * axes,
        offset=8 * offset,
        dtype=8 * (offset + 2),
        keys_at=8 * keys_at,
        data=8 * data,
        keys=(keys, inference),
    )


def _keys(tensor: torch.Tensor) -> int:
    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _trials() -> list[torch.Tensor]:
    """Tensors of many kinds, all of which may be read."""
    wide = torch.zeros(4, 6, 2)
    with torch.inference_mode():
        inferred = torch.ones(3, 1)
    return [
        torch.zeros(()),
        torch.ones(17, dtype=torch.bfloat16),
        wide.transpose(0, 1),
        wide[1:, ::2],
        torch.zeros(2, 1, 3, 1, 2, dtype=torch.int64)[:, :, 1:],
        torch.ones(5, dtype=torch.bool),
        torch.nn.Parameter(torch.ones(2, 2)),
        inferred,
    ]


def _is_read(tensor: torch.Tensor, layout: TensorLayout) -> bool:
    """Whether the layout tells of a tensor what torch does."""
    if ctypes.c_uint64.from_address(id(tensor) + layout.tensor).value != tensor._cdata:
        return False
    found = read_tensor(tensor, layout)
    return found == {
        "keys": _keys(tensor),
        "dtype": dtype_number(tensor.dtype, layout),
        "sizes": list(tensor.shape),
        "strides": list(tensor.stride()),
        "data": tensor.data_ptr(),
    }


def read_tensor(tensor: torch.Tensor, layout: TensorLayout) -> dict[str, Any]:
    """What the layout tells of a tensor of at most ``MOST_AXES`` axes."""
    words = _words(tensor._cdata, TENSOR_WORDS)
    axes = layout.axes // 8
    count = words[axes]
    first = axes + 1
    storage = words[layout.storage // 8]
    start = ctypes.c_uint64.from_address(storage + layout.data).value
    return {
        "keys": words[layout.keys_at // 8],
        "dtype": words[layout.dtype // 8] & 0xFFFF,
        "sizes": words[first : first + count],
        "strides": words[first + MOST_AXES : first + MOST_AXES + count],
        "data": start + words[layout.offset // 8] * tensor.element_size(),
    }
