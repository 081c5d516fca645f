"""The native half of breaking calls off: looks, their pace, and the code for other systems."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.types import Array
from monograph.runtime.cpu import interrupts
from monograph.targets.cpu.build import build
from monograph.targets.cpu.entry_point.interrupts import (
    BEGIN,
    LAST,
    LEFT,
    LIMIT,
    LOOK,
    MAX_TURNS_BETWEEN_CHECKS,
    OWNER,
    PACE_WORDS,
    SLOW_NANOSECONDS,
    STOPPED,
    STRIDE,
    TIME_IS_UP,
    interrupts_module,
)
from monograph.targets.cpu.machine import machine_named


def _begin(watch: Array) -> None:
    address = interrupts._functions()[BEGIN]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(watch.ctypes.data)


def _look(watch: Array, pace: Array) -> bool:
    address = interrupts._functions()[LOOK]
    look = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(address)
    return bool(look(watch.ctypes.data, pace.ctypes.data))


def _pace() -> Array:
    pace = np.zeros(PACE_WORDS, np.int64)
    pace[[LEFT, STRIDE]] = 1
    return pace


@pytest.mark.parametrize(
    "triple",
    ["x86_64-unknown-linux-gnu", "arm64-apple-darwin23.1.0", "x86_64-pc-windows-msvc"],
)
def test_there_is_code_for_other_systems(triple: str) -> None:
    llvm.parse_assembly(interrupts_module(triple)).verify()


def test_quick_turns_are_looked_at_less_and_less_often() -> None:
    watch, pace = interrupts.new_watch(), _pace()
    _begin(watch)
    for _ in range(10_000):  # a look takes far less than a millisecond, but for a few
        assert not _look(watch, pace)
        if pace[STRIDE] == MAX_TURNS_BETWEEN_CHECKS:
            break
    assert pace[STRIDE] == pace[LEFT] == MAX_TURNS_BETWEEN_CHECKS


def test_slow_turns_are_looked_at_one_by_one() -> None:
    watch, pace = interrupts.new_watch(), _pace()
    _begin(watch)
    pace[STRIDE] = MAX_TURNS_BETWEEN_CHECKS
    for _ in range(8):
        assert not _look(watch, pace)
        pace[LAST] -= 2 * SLOW_NANOSECONDS  # as if it had taken that long until the next one
    assert pace[STRIDE] == pace[LEFT] == 1


def test_a_look_finds_that_the_time_is_up() -> None:
    watch, pace = interrupts.new_watch(), _pace()
    watch[LIMIT] = 1
    _begin(watch)
    while not _look(watch, pace):  # until the clock ticks
        pass
    assert watch[STOPPED] == TIME_IS_UP


def test_all_looks_find_what_one_has_found_and_the_next_call_forgets_it() -> None:
    watch, pace = interrupts.new_watch(), _pace()
    _begin(watch)
    assert not _look(watch, pace)
    watch[STOPPED] = TIME_IS_UP
    watch[OWNER] = 0  # whichever thread it is
    assert _look(watch, _pace())
    _begin(watch)
    assert not _look(watch, pace)


def test_a_program_without_loops_looks_at_nothing() -> None:
    machine = machine_named("x86-64")
    plain = monograph.trace(lambda x: F.exp(x) + 1.0, "f32[64]")
    loop = monograph.trace(
        lambda x: F.while_loop(lambda k: F.less(k, 3.0), lambda k: k + 1.0, x), "f32[]"
    )
    assert LOOK not in build(plain, machine, listings=True).compiled.assembly
    assert LOOK in build(loop, machine, listings=True).compiled.assembly
