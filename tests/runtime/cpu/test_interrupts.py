"""Calls that are broken off: by a time limit, by Ctrl-C, and by what Python raises inside them."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import EvaluationError, InputError, TimeLimitError
from monograph.ir.graph import Value
from monograph.program.code import ForLoop, Interpret, ParallelFor, WhileLoop, walk_steps
from monograph.runtime.compiled import Executable
from monograph.runtime.cpu import interrupts
from monograph.runtime.cpu.native import Frame
from monograph.targets.cpu.entry_point.interrupts import MAX_TURNS_BETWEEN_CHECKS
from tests.ops.opaque import opaque

LIMIT = 0.05
"""Seconds: short, and long enough for a loop to begin."""
ENDLESS = 2**62


def _while(n: Value) -> Any:
    return F.while_loop(lambda k: F.less(k, n), lambda k: k + 1, 0)


def _nested(n: Value) -> Any:
    """Three turns of an inner loop for each of the outer one."""

    def inner(k: Value) -> Value:
        turn = (lambda c: F.less(c[0], 3)), (lambda c: (c[0] + 1, c[1] + 1))
        result: Value = F.while_loop(*turn, (0, k))[1]
        return result

    return F.while_loop(lambda k: F.less(k, n), inner, 0)


def _branches(n: Value) -> Any:
    """A loop in a branch."""
    return F.cond(F.less(0, n), _while, lambda n: n, n)


def _interpreted(n: Value) -> Any:
    """A loop with a node that has no native code in it."""

    def body(k: Value) -> Value:
        return opaque(k) + 1

    return F.while_loop(lambda k: F.less(k, n), body, 0)


def _sizes(n: Value) -> Any:
    """A loop behind a size that only a call decides."""
    found = F.nonzero(F.reshape(n, (1,)))
    return _while(n + F.sum(found))


@dataclass(frozen=True)
class Case:
    """A program that counts to what it is given."""

    function: Callable[[Value], Any]
    step: type | None


CASES = {
    "while": Case(_while, WhileLoop),
    "nested": Case(_nested, WhileLoop),
    "branch": Case(_branches, WhileLoop),
    "interpreted": Case(_interpreted, Interpret),
    "staged": Case(_sizes, None),
}


def _counter(name: str) -> Any:
    case = CASES[name]
    made = monograph.compile(case.function, "i64[]")
    code = made.executable.code
    assert (code is None) == (case.step is None)
    if case.step is not None and code is not None:
        assert any(isinstance(each, case.step) for each in walk_steps(code.steps))
    return made


@pytest.mark.parametrize("name", CASES)
def test_a_call_ends_when_its_time_is_up_and_the_next_is_right(name: str) -> None:
    counter = _counter(name)
    assert counter(np.array(6)) == 6
    for _ in range(2):
        with pytest.raises(TimeLimitError, match="longer than its time limit"):
            counter(np.array(ENDLESS), timeout=LIMIT)
        assert counter(np.array(9)) == 9
        assert counter(np.array(9), timeout=60) == 9


def test_a_limit_around_calls_holds_for_all_of_them() -> None:
    counter = _counter("while")
    with monograph.time_limit(LIMIT), pytest.raises(TimeLimitError):
        while True:
            counter(np.array(1000))
    assert counter(np.array(1000)) == 1000


def test_the_environment_sets_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_TIMEOUT", str(LIMIT))
    counter = _counter("while")
    with pytest.raises(TimeLimitError):
        counter(np.array(ENDLESS))
    assert counter(np.array(6)) == 6


def test_parts_of_a_call_share_the_limit_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    staged = _counter("staged")
    assert staged(np.array(3)) == 3  # its parts are compiled
    monkeypatch.setenv("MONOGRAPH_TIMEOUT", str(LIMIT))
    with pytest.raises(TimeLimitError):
        staged(np.array(ENDLESS))


def test_a_scan_without_end_has_one() -> None:
    made = monograph.compile(
        lambda x: F.scan(lambda c, _: (c * 0.5, ()), x, length=ENDLESS)[0], "f32[4]"
    )
    assert any(isinstance(each, ForLoop) for each in walk_steps(made.executable.code.steps))
    with pytest.raises(TimeLimitError):
        made(np.ones(4, np.float32), timeout=LIMIT)


def _shared(function: Callable[[Value], Any], type_: str, threads: int) -> Any:
    """A program whose steps threads share."""
    made = monograph.compile(function, type_, threads=threads)
    assert any(isinstance(each, ParallelFor) for each in walk_steps(made.executable.code.steps))
    return made


@pytest.mark.parametrize("threads", [1, 3])
def test_steps_that_threads_share_end_and_are_shared_again(threads: int) -> None:
    """Results without elements, so that only time limits how many there can be."""

    def nothing(x: Value) -> Any:
        return F.scan(lambda _, __: ((), x * 2.0), (), length=2**40)[1]

    endless = _shared(nothing, "f32[0]", threads)
    rows = _shared(
        lambda xs: F.scan(lambda _, x: ((), F.exp(x) + x), (), xs)[1], "f32[4096, 16]", threads
    )
    for k in range(3):
        with pytest.raises(TimeLimitError):
            endless(np.ones(0, np.float32), timeout=LIMIT)
        xs = np.full((4096, 16), k, np.float32)
        np.testing.assert_allclose(rows(xs), np.exp(xs) + xs, rtol=1e-5)


@pytest.mark.parametrize("name", ["while", "nested", "interpreted"])
@pytest.mark.parametrize(
    "turns",
    [
        0,
        1,
        2,
        3,
        MAX_TURNS_BETWEEN_CHECKS - 1,
        MAX_TURNS_BETWEEN_CHECKS,
        MAX_TURNS_BETWEEN_CHECKS + 1,
        777,
    ],
)
def test_looking_changes_no_result(name: str, turns: int) -> None:
    made = _counter(name)
    expected = monograph.interpret(made.executable.graph, [np.array(turns)])[0]
    assert made(np.array(turns)) == expected
    assert made(np.array(turns), timeout=60) == expected


def test_a_call_in_another_thread_ends_by_its_limit() -> None:
    counter = _counter("while")
    found: list[BaseException | None] = []

    def call() -> None:
        try:
            counter(np.array(ENDLESS), timeout=LIMIT)
            found.append(None)
        except TimeLimitError as error:
            found.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert len(found) == 3 and None not in found
    assert counter(np.array(4)) == 4


def test_other_threads_run_while_a_loop_does() -> None:
    counter = _counter("while")
    turns = [0]
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            turns[0] += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    try:
        with pytest.raises(TimeLimitError):
            counter(np.array(ENDLESS), timeout=0.3)
    finally:
        stop.set()
        other.join()
    assert turns[0] > 3


def test_sizes_that_a_call_decides_change_nothing() -> None:
    """Each of the sizes that came again has a function of its own, which a limit goes around."""

    def halve(x: Value, n: Value) -> Any:
        return F.while_loop(lambda c: F.less(c[0], n), lambda c: (c[0] + 1, c[1] * 0.5), (0, x))[1]

    made = monograph.compile(halve, "f32[batch, 4]", "i64[]")
    x = np.ones((3, 4), np.float32)
    for _ in range(3):
        assert (made(x, np.array(2)) == 0.25).all()
        with pytest.raises(TimeLimitError):
            made(x, np.array(ENDLESS), timeout=LIMIT)


def test_calls_that_are_broken_off_leave_no_frames_behind() -> None:
    counter = _counter("while")
    for _ in range(20):
        with pytest.raises(TimeLimitError):
            counter(np.array(ENDLESS), timeout=0.001)
    gc.collect()
    native = counter.executable.native
    frames = [
        each
        for each in interrupts.receivers.values()
        if isinstance(each, Frame) and each.native() is native
    ]
    assert len(frames) <= 1


def test_what_a_node_raises_in_the_interpreter_is_raised_by_the_call() -> None:
    def chosen(x: Value, k: Value) -> Value:
        return F.take(F.cumprod(F.cast(x, "c64"), 0), k, axis=0)

    made = monograph.compile(chosen, "f32[3]", "i64[2]")
    with pytest.raises(EvaluationError):
        made(np.ones(3, np.float32), np.array([0, 7]))
    assert made(np.ones(3, np.float32), np.array([0, 2])).tolist() == [1, 1]


def test_a_program_of_kernels_alone_runs_to_its_end() -> None:
    """Nothing looks at the time there: it is not broken off, and its answer is right."""
    made = monograph.compile(lambda x: F.sum(x * 2.0), "f32[64]")
    with monograph.time_limit(1e-9):
        assert made(np.ones(64, np.float32)) == 128


# Who gets an argument called ``timeout`` ----------------------------------------------------------


def test_a_function_of_a_timeout_gets_it() -> None:
    made = monograph.compile(lambda x, timeout: x * timeout, "f32[]", "f32[]")
    assert made(np.float32(3), timeout=np.float32(2)) == 6


def test_a_graph_with_an_input_called_timeout_gets_it() -> None:
    graph = monograph.parse(
        "graph @g(%timeout: f32[]) -> (f32[]) { %y = negate(%timeout) : f32[] return %y }"
    )
    assert monograph.compile(graph)(timeout=np.float32(2))[0] == -2


@pytest.mark.parametrize("seconds", [0, -1, "soon"])
def test_what_is_no_time_is_refused(seconds: object) -> None:
    with pytest.raises(InputError, match="not a number of seconds"):
        _counter("while")(np.array(2), timeout=seconds)


def test_no_timeout_is_none() -> None:
    assert _counter("while")(np.array(2), timeout=None) == 2


def test_a_saved_program_can_be_broken_off_too(tmp_path: Path) -> None:
    _counter("while").save(tmp_path / "count.mono")
    counter = monograph.load(tmp_path / "count.mono")
    assert counter(np.array(12)) == 12
    with pytest.raises(TimeLimitError):
        counter(np.array(ENDLESS), timeout=LIMIT)
    assert counter(np.array(12)) == 12


# Models of others ---------------------------------------------------------------------------------


def _onnx_loop(*, constant: bool) -> Any:
    """A Loop of 2**62 turns that halve x, which may itself be a constant."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    def scalar(name: str, kind: int) -> Any:
        return helper.make_tensor_value_info(name, kind, [])

    def fixed(name: str, value: Any) -> Any:
        data = numpy_helper.from_array(np.asarray(value), name)
        return helper.make_node("Constant", [], [name], value=data)

    boolean, number, real = (getattr(onnx.TensorProto, name) for name in ("BOOL", "INT64", "FLOAT"))
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            fixed("half", np.float32(0.5)),
            helper.make_node("Mul", ["carried", "half"], ["next"]),
        ],
        "body",
        [scalar("turn", number), scalar("going", boolean), scalar("carried", real)],
        [scalar("goes_on", boolean), scalar("next", real)],
    )
    nodes = [fixed("turns", np.int64(ENDLESS)), fixed("begin", np.array(True))]
    nodes += [fixed("x", np.float32(1))] if constant else []
    nodes += [helper.make_node("Loop", ["turns", "begin", "x"], ["y"], body=body)]
    inputs = [] if constant else [scalar("x", real)]
    graph = helper.make_graph(nodes, "endless", inputs, [scalar("y", real)])
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("constant", [False, True])
def test_an_onnx_loop_of_2_to_the_62_turns(constant: bool) -> None:
    """It compiles, since no pass runs a loop, and ends when its time is up."""
    made = monograph.compile(_onnx_loop(constant=constant))
    assert isinstance(made, Executable)
    with pytest.raises(TimeLimitError):
        made(*([] if constant else [np.float32(1)]), timeout=LIMIT)


def test_torch_loops_end_and_leave_the_state_of_a_module_as_it_was() -> None:
    torch = pytest.importorskip("torch")
    from torch._higher_order_ops.while_loop import while_loop

    class Count(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, n: Any) -> Any:
            self.calls += 1

            def goes_on(k: Any, n: Any) -> Any:
                return k < n

            def body(k: Any, n: Any) -> Any:
                return k + 1, n.clone()

            return while_loop(goes_on, body, (torch.zeros_like(n), n))[0]

    module = Count().eval()
    made = monograph.compile(module, torch.tensor(4))
    assert made(torch.tensor(5)).item() == 5
    states = [buffer for name, buffer in made._call.state.items() if name == "calls"]
    assert [int(each) for each in states] == [1]
    with pytest.raises(TimeLimitError):
        made(torch.tensor(ENDLESS), timeout=LIMIT)
    assert [int(each) for each in states] == [1]
    assert made(torch.tensor(6)).item() == 6


def test_a_torch_module_with_a_timeout_gets_it() -> None:
    torch = pytest.importorskip("torch")

    class Scale(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, timeout: Any) -> Any:
            return x * timeout

    x = torch.ones(3)
    made = monograph.compile(Scale().eval(), x, torch.tensor(2.0))
    assert made(x, timeout=torch.tensor(3.0)).tolist() == [3, 3, 3]


# Ctrl-C -------------------------------------------------------------------------------------------

INTERRUPTED = (
    *(("while", way) for way in ("quick", "slow", "limited", "interpreter")),
    *((name, "quick") for name in ("nested", "interpreted", "staged")),
)
"""Programs, and ways to call them: the built-in function, Python's way to native code, ..."""

CHILD = """
import signal
import numpy as np
import monograph
from tests.runtime.cpu.test_interrupts import ENDLESS, INTERRUPTED, _counter

signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore it


def caller(name, way):
    counter = _counter(name)
    return {
        "quick": counter,
        "slow": lambda n: counter.executable.run([n])[0],
        "limited": lambda n: counter(n, timeout=600),
        "interpreter": lambda n: monograph.interpret(counter.executable.graph, [n])[0],
    }[way]


for name, way in INTERRUPTED:
    call = caller(name, way)
    assert call(np.array(6)) == 6
    assert call(np.array(6)) == 6
    for _ in range(2):
        try:
            print("running", name, way, flush=True)
            call(np.array(ENDLESS))
        except KeyboardInterrupt:
            print("interrupted", call(np.array(9)), flush=True)
"""


def _expect(child: subprocess.Popen[str], text: str) -> None:
    assert child.stdout is not None and child.stderr is not None
    line = child.stdout.readline()
    if line != text:
        child.kill()
        pytest.fail(f"{line!r}, not {text!r}: {child.stderr.read()}")


@pytest.mark.skipif(sys.platform == "win32", reason="no signals for child processes")
def test_ctrl_c_ends_a_call_and_the_next_is_right() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        for name, way in INTERRUPTED:
            for _ in range(2):
                _expect(child, f"running {name} {way}\n")
                time.sleep(0.2)
                child.send_signal(signal.SIGINT)
                _expect(child, "interrupted 9\n")
        _, errors = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (child.returncode, errors) == (0, "")
