"""Linux gives a process the registers of AMX's tiles when it asks for them."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

ARCH_PRCTL = 158
"""The number of the system call on x86-64."""
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18


@cache
def permit_tiles() -> bool:
    """Ask for the registers, once for all threads of the process; whether they may be used."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    asked = (ctypes.c_long(each) for each in (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA))
    return bool(call(*asked) == 0)
