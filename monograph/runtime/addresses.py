"""The address of an array's first element.

NumPy's own ways of saying so (``array.ctypes.data``, ``__array_interface__``) build objects first
and cost more than a small kernel. In CPython every array is a C structure whose first field after
the object's header is that pointer; it is part of NumPy's binary interface, so reading it there is
as safe as any extension module. Where a trial at import time disagrees, the slow way is used.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

import numpy as np

from monograph.ir.types import Array

_HEADER = object.__basicsize__
_word = ctypes.c_int64.from_address


def _from_structure(array: Array) -> int:
    return _word(id(array) + _HEADER).value


def _from_interface(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _choose() -> Callable[[Array], int]:
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return _from_interface
    trials: list[Array] = [np.arange(7), np.ones((3, 4), np.float32)[1:, ::2], np.empty(0)]
    agree = all(_from_structure(array) == _from_interface(array) for array in trials)
    return _from_structure if agree else _from_interface


address_of = _choose()
"""The address of an array's first element."""
