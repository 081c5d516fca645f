"""Interrupting calls: by Ctrl-C, a time limit, or an exception in a callback.

The native half is :mod:`monograph.targets.cpu.entry_point.interrupts`. A program with loops, or
with nodes that the interpreter runs, is entered through it; any other is one call of native code,
which ends by itself and is not looked after.

Signals are handled where Python handles them, in the main thread; a call from another one is ended
by its time limit alone. What a call was about to return is dropped with it. Its inputs are as they
were: what a call updates is written when it is done.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import cache
from typing import Protocol

import llvmlite.binding as llvm
import numpy as np

from monograph.deadline import call_limit, out_of_time, remaining
from monograph.ir.types import Array
from monograph.program.code import BROKEN_OFF
from monograph.runtime.cpu.shared_code import compile_quickly, load_for_good, load_or_compile
from monograph.targets.cpu.entry_point.interrupts import (
    BEGIN,
    CALL_BACK,
    DISPATCH,
    ENTER,
    LIMIT,
    LOOK,
    NO_LIMIT,
    PYTHON_FUNCTIONS,
    WATCH_WORDS,
    interrupts_module,
)

Entry = Callable[[int, int, int], int]
"""An entry point: the addresses of table and status, and the number of threads."""

_ENTER = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)
_DISPATCH = ctypes.PYFUNCTYPE(None, ctypes.py_object)
_NANOSECONDS = 1_000_000_000


class Receiver(Protocol):
    """Who is called back by a program, known by the address of its table."""

    watch: Array
    """What loops look at; see :func:`new_watch`."""

    def called(self, number: int) -> None:
        """What native code wants done: a node that has no native code, for one."""


receivers: weakref.WeakValueDictionary[int, Receiver] = weakref.WeakValueDictionary()
"""By the address of the table."""


def new_watch() -> Array:
    """What a call's loops look at: no limit, until there is one."""
    watch = np.zeros(WATCH_WORDS, np.int64)
    watch[LIMIT] = NO_LIMIT
    return watch


def call_back_address() -> int:
    """The function that programs call with their table and a number."""
    return _functions()[CALL_BACK]


def make_known() -> None:
    """Let programs that are linked from now on find the functions by name."""
    for name in (BEGIN, LOOK):
        llvm.add_symbol(name, _functions()[name])


def entry_point(address: int) -> Entry:
    """A program's entry point as a function that can be broken off by an exception."""
    enter = _ENTER(_functions()[ENTER])

    def call(table: int, status: int, threads: int) -> int:
        with call_limit():
            left = remaining()
            words = receivers[table].watch
            words[LIMIT] = NO_LIMIT if left is None else _nanoseconds(left)
            code = int(enter(address, table, status, threads))
        if code == BROKEN_OFF:  # by a signal: then its exception has come out of the line above
            raise out_of_time()
        return code

    return call


def _nanoseconds(seconds: float) -> int:
    return min(NO_LIMIT, int(min(seconds, 1e9) * _NANOSECONDS))


def _dispatch(table: int, number: int) -> None:
    receivers[table].called(number)


@cache
def _functions() -> dict[str, int]:
    """The addresses of the native functions, compiled once a machine and linked once a process."""
    for name in PYTHON_FUNCTIONS:
        function = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p)
        llvm.add_symbol(name, function.value or 0)
    text = interrupts_module(llvm.get_process_triple())
    compiled = load_or_compile("interrupts", text, compile_quickly)
    functions = load_for_good(compiled, (BEGIN, LOOK, ENTER, CALL_BACK, DISPATCH))
    _DISPATCH(functions[DISPATCH])(_dispatch)
    return functions
