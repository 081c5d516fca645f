"""Calls of a compiled graph: memory that is reused, memory that is shared, and where it may run."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError, MonographError
from monograph.ir.dims import Symbol
from monograph.ir.types import TensorType, f32
from monograph.runtime.compiled import Executable
from tests.runtime.together import on_threads

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def compiled(function: Callable[..., Any], *types: Any, **options: Any) -> Executable:
    return compile_graph(monograph.trace(function, *types), Options(cache=False, **options))


@pytest.fixture(scope="module")
def add_one() -> Executable:
    return compiled(lambda x: x + 1.0, "f32[3, 4]")


@pytest.fixture(scope="module")
def two_steps() -> Executable:
    """A program with something in its arena, for any number of rows."""
    return compiled(lambda x: F.sum(F.flip(F.softmax(x, -1), 0) * x, axis=0), "f32[n, 64]")


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


# Outputs.


def test_an_output_that_is_let_go_is_used_again(add_one: Executable) -> None:
    first = address(add_one(X)[0])
    assert {address(add_one(X)[0]) for _ in range(8)} == {first}


def test_outputs_that_are_held_lie_apart(add_one: Executable) -> None:
    held = [add_one(X * k)[0] for k in range(16)]
    assert len({address(output) for output in held}) == 16
    for k, output in enumerate(held):
        np.testing.assert_array_equal(output, X * k + 1)


def test_a_view_of_an_output_keeps_it(add_one: Executable) -> None:
    view = add_one(X)[0][1:, ::2]
    gc.collect()
    for k in range(8):
        add_one(X * -k)
    np.testing.assert_array_equal(view, (X + 1)[1:, ::2])


def test_an_output_outlives_its_executable() -> None:
    run = compiled(lambda x: x + 1.0, "f32[3, 4]")
    output = run(X)[0]
    del run
    gc.collect()
    np.testing.assert_array_equal(output, X + 1)


def test_an_output_may_be_the_next_input(add_one: Executable) -> None:
    x = X
    for _ in range(10):
        (x,) = add_one(x)
    np.testing.assert_array_equal(x, X + 10)


def test_outputs_can_be_written(add_one: Executable) -> None:
    (output,) = add_one(X)
    assert output.flags.writeable and output.flags.c_contiguous
    output[...] = 0
    np.testing.assert_array_equal(add_one(X)[0], X + 1)


def test_large_outputs_are_aligned() -> None:
    compiled = monograph.compile(lambda x: x + 1, np.zeros((128, 64), np.float32))
    held = [compiled(np.full((128, 64), k, np.float32)) for k in range(4)]
    assert all(address(output) % 64 == 0 for output in held)


def test_inputs_stay_as_they_are(two_steps: Executable) -> None:
    x = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)
    before = x.copy()
    two_steps(x)
    np.testing.assert_array_equal(x, before)


def test_one_array_may_be_given_for_two_inputs() -> None:
    run = compiled(lambda x, y: x * y + F.flip(x, 0), "f32[3, 4]", "f32[3, 4]")
    np.testing.assert_array_equal(run(X, X)[0], X * X + X[::-1])


# Frames.


def test_calls_one_after_the_other_use_one_frame(two_steps: Executable) -> None:
    x = np.ones((7, 64), np.float32)
    native = two_steps.native
    assert native is not None
    for _ in range(5):
        two_steps(x)
    assert len(native.calls_at[(7,)].free) == 1


def test_calls_at_once_have_frames_of_their_own(two_steps: Executable) -> None:
    native = two_steps.native
    assert native is not None
    inputs = [
        np.random.default_rng(k).normal(size=(100 + k % 3, 64)).astype(np.float32) for k in range(8)
    ]
    expected = [two_steps(x)[0].copy() for x in inputs]
    start = threading.Barrier(8)
    wrong: list[int] = []

    def work(number: int) -> None:
        start.wait()
        for _ in range(40):
            if not np.array_equal(two_steps(inputs[number])[0], expected[number]):
                wrong.append(number)

    on_threads(work, range(8))
    assert wrong == []
    assert all(1 <= len(frames) <= 8 for frames in native.frames.values())


# Symbolic sizes.


@pytest.mark.parametrize("rows", [1, 2, 33, 200])
def test_one_program_serves_every_size(two_steps: Executable, rows: int) -> None:
    x = np.random.default_rng(rows).normal(size=(rows, 64)).astype(np.float32)
    powers = np.exp(x - x.max(1, keepdims=True))
    expected = ((powers / powers.sum(1, keepdims=True))[::-1] * x).sum(0)
    np.testing.assert_allclose(two_steps(x)[0], expected, rtol=1e-4, atol=1e-5)


def test_sizes_that_must_be_equal_are_compared() -> None:
    run = compiled(lambda x, y: x + y, "f32[n]", "f32[n]")
    np.testing.assert_array_equal(run(X[0], X[0])[0], 2 * X[0])
    with pytest.raises(InputError, match="%y"):
        run(X[0], X[0, :3])


def test_sizes_outside_the_declared_range_are_refused() -> None:
    run = compiled(lambda x: x + 1.0, TensorType(f32, (Symbol("n", 2, 8),)))
    np.testing.assert_array_equal(run(np.ones(8, np.float32))[0], np.full(8, 2))
    for size in (1, 9):
        with pytest.raises(InputError, match="n is outside its declared range"):
            run(np.ones(size, np.float32))


def test_a_size_may_be_declared_to_be_zero() -> None:
    run = compiled(lambda x: F.sum(F.exp(x), axis=0), TensorType(f32, (Symbol("n", 0), 4)))
    np.testing.assert_array_equal(run(np.ones((0, 4), np.float32))[0], np.zeros(4))


# Wrong inputs.


@pytest.mark.parametrize(
    "given",
    [
        None,
        X.astype(np.float64),
        X.astype(np.complex64),
        X[None],
        X[:, :3],
        "text",
        ["text"],
        [[1.0, [2.0]]],
    ],
    ids=["none", "f64", "complex", "rank", "shape", "text", "texts", "ragged"],
)
def test_an_input_that_does_not_fit_is_an_error_that_names_it(given: Any) -> None:
    run = compiled(lambda x, y: x + y, "f32[3, 4]", "f32[3, 4]")
    with pytest.raises(MonographError) as caught:
        run(X, given)
    assert "%y" in str(caught.value)
    np.testing.assert_array_equal(run(X, X)[0], X + X)


def test_names_that_are_missing_or_unknown_are_told() -> None:
    run = compiled(lambda x, y: x + y, "f32[3, 4]", "f32[3, 4]")
    with pytest.raises(MonographError, match="y"):
        run(x=X)
    with pytest.raises(MonographError, match="z"):
        run(x=X, y=X, z=X)


# Other people's arrays.


def test_arrays_that_speak_dlpack_go_in_and_out_without_a_copy(add_one: Executable) -> None:
    given = np.from_dlpack(X.copy())
    (output,) = add_one(given)
    np.testing.assert_array_equal(output, X + 1)
    shared = np.from_dlpack(output)
    assert address(shared) == address(output)
    del output
    gc.collect()
    for k in range(4):
        add_one(X * -k)
    np.testing.assert_array_equal(shared, X + 1)


def test_torch_tensors_go_in_and_come_out(add_one: Executable) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(X.copy())
    (output,) = add_one(tensor)
    assert isinstance(output, torch.Tensor)
    np.testing.assert_array_equal(output.numpy(), X + 1)
    for k in range(4):
        add_one(X * -k)
    np.testing.assert_array_equal(output.numpy(), X + 1)


def test_torch_tensors_that_are_strided_are_read_as_they_are_seen(add_one: Executable) -> None:
    torch = pytest.importorskip("torch")
    wide = torch.arange(96, dtype=torch.float32).reshape(8, 12)
    for tensor in (wide[:6:2, :8:2], wide.T[:3, :4], wide[:1, :4].expand(3, 4)):
        np.testing.assert_array_equal(add_one(tensor)[0].numpy(), tensor.numpy() + 1)


def test_arrays_of_the_other_byte_order_are_read() -> None:
    columns = np.asfortranarray(X)
    double = monograph.compile(lambda x: x * 2.0, columns)
    for given in (X, columns):
        other = given.astype(given.dtype.newbyteorder())
        np.testing.assert_array_equal(double(other), 2 * X)


def test_arrays_that_begin_at_any_byte_are_read(add_one: Executable) -> None:
    raw = np.zeros(X.nbytes + 64, np.uint8)
    for shift in (0, 4, 20, 1):
        odd = raw[shift : shift + X.nbytes].view(np.float32).reshape(3, 4)
        odd[...] = X
        np.testing.assert_array_equal(add_one(odd)[0], X + 1)


# Memory.


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_deleting_an_executable_gives_its_memory_back() -> None:
    graph = monograph.trace(lambda x: F.flip(x, 0) + 1.0, "f32[1024, 1024]")
    x = np.ones((1024, 1024), np.float32)

    def cycle() -> None:
        compile_graph(graph, Options(cache=False, level="O0")).run([x])

    for _ in range(10):
        cycle()
    gc.collect()
    before = resident()
    for _ in range(90):
        cycle()
    gc.collect()
    assert resident() - before < 40 << 20  # the outputs alone would be 360 MiB


def test_steady_calls_allocate_nothing(two_steps: Executable) -> None:
    x = np.ones((200, 64), np.float32)
    for _ in range(20):
        two_steps(x)
    before = resident()
    for _ in range(500):
        two_steps(x)
    assert resident() - before < 1 << 20


# Threads and processes.

PROGRAM = """
import hashlib, numpy as np, monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph

def function(x, w):
    hidden = F.softmax(x @ w, -1)
    return hidden, F.sum(F.sin(x)), F.sum(x, axis=0), F.argmax(F.reshape(x, (-1,)), 0)

rng = np.random.default_rng(3)
x = rng.normal(size=(300, 257)).astype(np.float32)
w = rng.normal(size=(257, 65)).astype(np.float32)
run = compile_graph(monograph.trace(function, x, w), Options(cache=False))
digest = hashlib.sha256(b"".join(out.tobytes() for out in run(x, w)))
print(run.native.threads, digest.hexdigest())
"""


def run_alone(program: str, threads: str) -> str:
    environment = {**os.environ, "MONOGRAPH_THREADS": threads}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


def test_any_number_of_threads_gives_the_same_bits() -> None:
    results = [run_alone(PROGRAM, threads).split() for threads in ("1", "4")]
    assert [count for count, _ in results] == ["1", "4"]
    assert results[0][1] == results[1][1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_of_a_fork_can_call_what_its_parent_compiled() -> None:
    run = compiled(lambda x: F.softmax(x, -1), "f32[512, 512]", threads=2)
    x = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
    expected = run(x)[0].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside other threads
        child = os.fork()
    if child == 0:
        try:
            right = all(np.array_equal(run(x)[0], expected) for _ in range(3))
        except BaseException:
            os._exit(2)
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(run(x)[0], expected)


def test_a_function_may_be_called_by_the_names_of_its_arguments() -> None:
    def weighed(x: Any, pair: Any) -> Any:
        return x * pair["scale"] + pair["shift"]

    x, pair = np.ones(3, np.float32), {"scale": np.float32(2), "shift": np.float32(1)}
    compiled = monograph.compile(weighed, x, pair)
    np.testing.assert_array_equal(compiled(pair=pair, x=x), np.full(3, 3, np.float32))
    np.testing.assert_array_equal(compiled(x, pair=pair), np.full(3, 3, np.float32))
    with pytest.raises(InputError, match="unexpected argument 'other'") as caught:
        compiled(x, other=pair)
    assert caught.value.expected == "(x, pair)"
    assert caught.value.found == "called with (*, other=*)"


def test_a_copy_of_a_program_is_the_program(add_one: Executable) -> None:
    assert copy.copy(add_one) is add_one and copy.deepcopy([add_one])[0] is add_one


def test_a_program_is_saved_and_not_pickled(add_one: Executable) -> None:
    with pytest.raises(InputError, match="cannot be pickled"):
        pickle.dumps(add_one)


@pytest.mark.parametrize("threads", [0, -1, "2", 2.0, True, 100_000])
def test_what_is_no_number_of_threads_is_refused(threads: Any) -> None:
    with pytest.raises(InputError, match="not a number of threads"):
        Options(threads=threads)
    with pytest.raises(InputError, match="not a number of threads"):
        monograph.load("nowhere.mono", threads=threads)


@pytest.mark.parametrize("given", [None, "photo", {"x": 1}])
def test_what_is_no_array_is_told_by_its_class(add_one: Executable, given: Any) -> None:
    with pytest.raises(InputError, match="is no array") as caught:
        add_one(given)
    assert caught.value.found == type(given).__name__
