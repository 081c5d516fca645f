"""Calls are recorded by compiled code: the same results, and every launch once."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.graph import Value
from monograph.program.code import Launch, Step, walk_steps
from monograph.runtime.compiled import Executable
from monograph.runtime.cpu.native import Native
from monograph.runtime.cpu.recording import Lane, Recorder

X = np.linspace(-2, 2, 64 * 96, dtype=np.float32).reshape(64, 96)


def rows(x: Value) -> Value:
    """Two kernels: a row sum is not needed before all of a row is known."""
    return F.softmax(F.exp(x) @ F.transpose(x, (1, 0)), axis=-1)


def native_of(executable: Executable) -> Native:
    assert executable.native is not None
    return executable.native


@pytest.fixture
def executable() -> Executable:
    compiled = monograph.compile(rows, X, threads=2)
    return compiled.executable  # type: ignore[no-any-return, union-attr]


def launched(lanes: tuple[Lane, ...], native: Native) -> list[str]:
    """The kernels that were launched, in order."""
    steps = list(walk_steps(native.program.steps))
    records = sorted((each for lane in lanes for each in lane.steps), key=lambda each: each.began)
    found = [steps[record.number] for record in records]
    return [step.kernel for step in found if isinstance(step, Launch)]


def test_a_recorded_call_gives_the_same_bits_and_names_every_launch(executable: Executable) -> None:
    expected = executable(X)
    native = native_of(executable)
    recorder = Recorder(native)
    with recorder:
        found = executable(X)
    np.testing.assert_array_equal(found[0], expected[0])
    lanes = recorder.lanes()
    steps = [step for step in native.program.steps if isinstance(step, Launch)]
    assert launched(lanes, native) == [step.kernel for step in steps]
    ran = {record.code for lane in lanes for record in lane.kernels}
    assert ran == {native.program.codes.get(step.kernel, step.kernel) for step in steps}


def test_times_lie_within_the_call_and_pieces_within_their_launch(executable: Executable) -> None:
    executable(X)
    recorder = Recorder(native_of(executable))
    with recorder:
        began = time.perf_counter()
        executable(X)
        ended = time.perf_counter()
    lanes = recorder.lanes()
    launches = {step.generation: step for lane in lanes for step in lane.steps}
    for step in launches.values():
        assert began <= step.began <= step.ended <= ended
    for lane in lanes:
        for record in lane.kernels:
            launch = launches[record.generation]
            assert launch.began <= record.began <= record.ended <= launch.ended
            assert 0 < record.busy <= record.ended - record.began + 1e-9


def test_only_calls_within_it_are_recorded(executable: Executable) -> None:
    recorder = Recorder(native_of(executable))
    executable(X)
    with recorder:
        pass
    executable(X)
    assert recorder.lanes() == ()


def test_quick_calls_are_recorded_too(executable: Executable) -> None:
    """They enter by an address of their own, which has been read long before."""
    for _ in range(3):
        executable(X)
    recorder = Recorder(native_of(executable))
    with recorder:
        executable(X)
    assert sum(len(lane.steps) for lane in recorder.lanes()) > 0
    recorder.forget()
    executable(X)
    assert recorder.lanes() == ()


def test_what_has_no_room_is_counted(executable: Executable) -> None:
    executable(X)
    recorder = Recorder(native_of(executable), capacity=2)
    with recorder:
        executable(X)
    (caller, *_) = recorder.lanes()
    assert len(caller.steps) + len(caller.kernels) == 2
    assert caller.lost > 0


def doubled(x: Any) -> Any:
    return F.while_loop(lambda v: F.sum(v) < 100.0, lambda v: v * 2.0, x)


def spread(x: Any) -> Any:
    return F.scan(lambda c, v: (c, v - F.max(F.cumsum(v, 0), 0)), (), x)[1]


def beside(x: Any) -> Any:
    """Two loops that do not wait for each other, in sections."""
    made = [F.scan(lambda c, v: (F.tanh(c + v), c), x[0] * k, x)[1] for k in (1.0, 2.0)]
    return made[0], made[1]


LOOPS = [
    pytest.param(doubled, np.full((8,), 0.5, np.float32), id="while"),
    pytest.param(spread, np.ones((8, 30), np.float32), id="spread"),
    pytest.param(beside, np.ones((9, 16), np.float32), id="sections"),
]


@pytest.mark.parametrize(("function", "x"), LOOPS)
def test_every_turn_of_a_loop_is_recorded(function: Any, x: np.ndarray) -> None:
    """On whichever thread it runs; a loop's kernel is launched once a turn."""
    executable = monograph.compile(function, x, threads=2).executable  # type: ignore[union-attr]
    expected = executable.run([x])
    native = native_of(executable)
    with Recorder(native) as recorder:
        found = executable.run([x])
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    turns = {"doubled": 5, "spread": 8, "beside": 9}[function.__name__]
    counted = Counter(launched(recorder.lanes(), native))
    assert max(counted.values()) in (turns, turns + 1, 2 * turns)  # a while tests once more
    assert len(recorder.lanes()) <= 2


def test_an_observer_hears_of_steps_as_they_begin_and_end(executable: Executable) -> None:
    executable(X)
    native = native_of(executable)
    heard: list[tuple[Step, bool]] = []
    with Recorder(native, lambda step, ended: heard.append((step, ended))):
        executable(X)
    assert heard == [(step, ended) for step in native.program.steps for ended in (False, True)]


def test_a_loaded_program_can_be_recorded(executable: Executable, tmp_path: Path) -> None:
    """Its kernels are looked up by the names that are stored with it."""
    path = executable.save(tmp_path / "rows.mono")
    loaded = monograph.load(path)
    assert isinstance(loaded, Executable)
    recorder = Recorder(native_of(loaded))
    with recorder:
        found = loaded(X)
    np.testing.assert_array_equal(found[0], executable(X)[0])
    assert launched(recorder.lanes(), native_of(loaded))
