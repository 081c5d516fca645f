"""The field offsets of a NumPy array object, found by inspecting some.

They are part of NumPy's binary interface: every extension module reads them there. A look at a few
arrays tells whether that holds here; where it does not, nobody reads them.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import numpy as np

from monograph.ir.types import Array
from monograph.targets.cpu.entry_point.python_call import ArrayLayout

OBJECT_HEADER_BYTES = object.__basicsize__
"""Bytes that every object of Python begins with."""


def has_plain_objects() -> bool:
    """Whether objects begin with a count and a class, and one thread runs Python at a time."""
    is_locked = "t" not in getattr(sys, "abiflags", "")  # how builds without the lock are named
    return sys.implementation.name == "cpython" and OBJECT_HEADER_BYTES == 16 and is_locked


@cache
def array_layout() -> ArrayLayout | None:
    """The layout of arrays in this process; None if it is not the one that we know."""
    known = ArrayLayout(
        data=OBJECT_HEADER_BYTES,
        axes=OBJECT_HEADER_BYTES + 8,
        sizes=OBJECT_HEADER_BYTES + 16,
        strides=OBJECT_HEADER_BYTES + 24,
        dtype=OBJECT_HEADER_BYTES + 40,
    )
    trials: list[Array] = [
        np.arange(7),
        np.ones((3, 4, 5), np.float32)[1:, ::2],
        np.zeros((), np.float16),
        np.ones((2, 3), np.int8).T,
    ]
    agree = has_plain_objects() and all(_is_read(array, known) for array in trials)
    return known if agree else None


def _is_read(array: Array, layout: ArrayLayout) -> bool:
    """Whether the fields of an array are there."""
    start = id(array)
    word = ctypes.c_int64.from_address
    if ctypes.c_int32.from_address(start + layout.axes).value != array.ndim:
        return False
    if word(start + layout.data).value != array.__array_interface__["data"][0]:
        return False
    if word(start + layout.dtype).value != id(array.dtype):
        return False
    many = ctypes.c_int64 * array.ndim
    sizes, strides = (word(start + place).value for place in (layout.sizes, layout.strides))
    if array.ndim == 0:
        return True
    return (
        tuple(many.from_address(sizes)) == array.shape
        and tuple(many.from_address(strides)) == array.strides
    )
