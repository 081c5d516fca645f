"""Fences: right programs run between them as ever, and none that leaves its memory goes unseen.

Overruns are planted: a program that was compiled for some elements is given memory for fewer.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.config import FENCES, VECTOR_BYTES
from monograph.ir.interpret import interpret
from monograph.ir.types import Array
from monograph.program.code import Code, Launch, ParallelFor, SlotKind
from monograph.runtime.cpu.fences import Area, FencedCall, FenceError, Memory, Side
from monograph.runtime.cpu.native import Native
from tests.runtime.programs import CASES, Case, floats, let_interpret

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there is no mprotect")
both = pytest.mark.parametrize("side", FENCES)
ROOT = Path(__file__).resolve().parents[3]
X = floats(33)


# Memory -------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("nbytes", [0, 1, 12, mmap.PAGESIZE, mmap.PAGESIZE + 20, 3 << 14])
def test_an_area_lies_at_its_fence(side: Side, nbytes: int) -> None:
    memory = Memory([Area((0,), nbytes, 4)], side)
    at = memory.address(0) if side == "begin" else memory.address(0) + -(-nbytes // 4) * 4
    assert at % mmap.PAGESIZE == 0
    assert memory.array(0, np.dtype(np.uint8), (nbytes,)).shape == (nbytes,)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", ml_dtypes.bfloat16], ids=str)
def test_what_nobody_wrote_is_no_number(dtype: Any) -> None:
    memory = Memory([Area((0,), 64, 16)], "end")
    kind = np.dtype(dtype)
    array = memory.array(0, kind, (64 // kind.itemsize,))
    assert np.isnan(array).all()


@pytest.mark.parametrize("dtype", ["i2", "i4", "i8", "u2", "u4", "u8"])
def test_what_nobody_wrote_is_no_index(dtype: str) -> None:
    kind = np.dtype(dtype)
    array = Memory([Area((0,), 64, 8)], "begin").array(0, kind, (64 // kind.itemsize,))
    assert (array >= 32767).all()


@both
@pytest.mark.parametrize("copies", [1, 3])
def test_a_byte_beside_an_area_is_found(side: Side, copies: int) -> None:
    areas = [Area((0,), 100, 4), Area((1,), 200, 64)]
    memory = Memory(areas, side, copies)
    assert memory.damage() is None
    for number, area in enumerate(areas):
        for copy in range(copies):
            start = memory.address(number) + copy * memory.distance
            inside = [0, area.nbytes - 1]
            outside = [area.nbytes] if side == "begin" else [-1]
            for offset in (*inside, *outside):
                byte = ctypes.c_uint8.from_address(start + offset)
                before, byte.value = byte.value, 1
                assert memory.damage() == ((area, offset) if offset in outside else None)
                byte.value = before


# Right programs -----------------------------------------------------------------------------------


@pytest.fixture(params=FENCES)
def fenced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Side:
    side: Side = request.param
    monkeypatch.setenv("MONOGRAPH_FENCES", side)
    return side


NATIVE = {name: case for name, case in CASES.items() if name != "strings"}


@pytest.mark.parametrize("case", NATIVE.values(), ids=NATIVE)
def test_programs_run_as_without_fences(
    case: Case, fenced: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_interpret(monkeypatch)
    between = compile_graph(case.graph(), Options(cache=False))
    monkeypatch.delenv("MONOGRAPH_FENCES")
    usual = compile_graph(case.graph(), Options(cache=False))
    assert between.native is not None and between.native.fences is not None
    assert usual.native is not None and usual.native.fences is None
    for inputs in (*case.inputs, *case.inputs):
        for got, expected in zip(between.run(inputs), usual.run(inputs), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("way", ["call", "run", "named", "one of a kind"])
def test_every_way_to_call_has_fences(
    way: str, fenced: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = monograph.compile(lambda x: x * 2, X, cache=False)
    executable = compiled.executable
    calls: dict[str, Callable[[], Any]] = {
        "call": lambda: executable(X),
        "run": lambda: executable.run([X]),
        "named": lambda: executable(x=X),
        "one of a kind": lambda: compiled(X),
    }
    seen: list[object] = []
    own = Native._run_fenced
    monkeypatch.setattr(Native, "_run_fenced", lambda *given: seen.append(given) or own(*given))
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(calls[way]()).reshape(-1), X * 2)
    assert len(seen) == 3


def test_tensors_have_fences(fenced: Side) -> None:
    torch = pytest.importorskip("torch")
    compiled = monograph.compile(lambda x: x * 2, torch.ones(9, 5).T, cache=False)
    for _ in range(3):
        (result,) = compiled(torch.full((9, 5), 3.0).T).unique()
        assert float(result) == 6.0


def test_a_search_for_schedules_measures_without_fences(fenced: Side) -> None:
    """What a kernel writes is among its inputs there, which a fenced program may not write to."""
    weight, x = floats(8, 8), floats(5, 8)
    graph = monograph.trace(lambda x: F.softmax(F.matmul(x, weight), -1), "f32[5, 8]")
    options = Options(cache=False, level="O3", budget=0.0, threads=1)
    (got,), (want,) = compile_graph(graph, options).run([x]), interpret(graph, [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_runs_side_by_side_have_fences_each(fenced: Side) -> None:
    def chain(x: Any, y: Any) -> Any:
        def step(matrix: Any) -> Any:
            for _ in range(3):
                matrix = F.matmul(matrix, y) * 0.1
            return matrix

        return F.scan(lambda carry, matrix: (carry, step(matrix)), (), x)[1]

    graph = monograph.trace(chain, "f32[5, 24, 24]", "f32[24, 24]")
    executable = compile_graph(graph, Options(cache=False, threads=2))
    assert executable.code is not None
    assert any(isinstance(step, ParallelFor) for step in executable.code.steps)
    inputs = [floats(5, 24, 24), floats(24, 24)]
    (expected,) = interpret(graph, inputs)
    np.testing.assert_allclose(executable.run(inputs)[0], expected, rtol=1e-4, atol=1e-5)


def test_only_what_is_computed_in_place_shares_memory(fenced: Side) -> None:
    def program(x: Any, y: Any) -> Any:
        rows = F.exp(F.cumsum(x, 0)) + 1.0
        return F.matmul(F.sqrt(F.cumsum(rows, 1)), y)

    graph = monograph.trace(program, "f32[40, 40]", "f32[40, 40]")
    native = compile_graph(graph, Options(cache=False, fusion=False)).native
    assert native is not None and native.fences is not None
    slots, plan = [each.slot for each in native.requests], native.plan_for(())
    words = FencedCall(native.fences, {}, (slots, plan), {}).words
    givers = [giver for giver in plan.taken_over if giver is not None]
    assert givers
    assert len({words[slot] for slot in slots}) == len(slots) - len(givers)
    for slot, giver in zip(slots, plan.taken_over, strict=True):
        assert giver is None or words[slot] == words[slots[giver]]
    inputs = [floats(40, 40), floats(40, 40)]
    np.testing.assert_allclose(native(inputs)[0], interpret(graph, inputs)[0], rtol=1e-4, atol=1e-3)


def test_a_loaded_program_has_fences(fenced: Side, tmp_path: Path) -> None:
    case = CASES["packed"]
    executable = compile_graph(case.graph(), Options(cache=False))
    executable.save(tmp_path / "packed.mono")
    loaded = monograph.load(tmp_path / "packed.mono")
    assert loaded.native is not None and loaded.native.fences is not None  # type: ignore[union-attr]
    np.testing.assert_array_equal(
        loaded.run(case.inputs[0])[0],  # type: ignore[union-attr]
        executable.run(case.inputs[0])[0],
    )


COLUMN = """
    import os, sys
    import numpy as np
    import monograph
    from monograph import functional as F
    from monograph.compiler import Options, compile_graph
    from monograph.ir.interpret import interpret

    def program(x, column):
        return F.attention(x, x, x) * column

    inputs = [np.ones((1, 1, 33, 33), "f2"), np.arange(33).astype("f2").reshape(33, 1)]
    for width in sys.argv[1:]:
        os.environ["MONOGRAPH_VECTOR_BYTES"] = width
        graph = monograph.trace(program, "f16[1, 1, 33, 33]", "f16[33, 1]")
        native = compile_graph(graph, Options(cache=False, threads=1))
        np.testing.assert_array_equal(native.run(inputs)[0], interpret(graph, inputs)[0])
        print(width)
"""


def test_rows_that_a_tile_does_not_have_are_not_read(fenced: Side) -> None:
    """The last tile of rows is not full; what each row is multiplied with does not vary in it."""
    widths = [str(width) for width in VECTOR_BYTES]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(COLUMN), *widths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == widths, done.stderr


# Wrong programs -----------------------------------------------------------------------------------


def overrunning(kind: SlotKind, count: int = 32) -> tuple[Native, list[Array]]:
    """Twice 33 numbers, of which a slot has memory for 32, and the inputs."""
    graph = monograph.trace(lambda x: F.cumsum(x, 0) * 2.0, "f32[33]")
    executable = compile_graph(graph, Options(cache=False))
    assert executable.code is not None
    return Native(_shortened(executable.code, kind, count), graph), [X]


def _shortened(code: Code, kind: SlotKind, count: int) -> Code:
    slots = tuple(
        replace(slot, shape=(count,)) if slot.kind is kind else slot for slot in code.slots
    )
    return replace(code, slots=slots)


def test_a_canary_shows_what_was_written_past_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_FENCES", "begin")
    native, inputs = overrunning(SlotKind.OUTPUT)
    with pytest.raises(FenceError, match=r"outside of output %\w+ \(f32\[32\]\)") as caught:
        native(inputs)
    assert caught.value.found == "a damaged canary, 0 bytes past the end of its 128 bytes"
    kernels = {step.kernel for step in native.program.steps if isinstance(step, Launch)}
    assert any(kernel in str(caught.value.where) for kernel in kernels)


def test_what_was_read_past_the_end_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_FENCES", "begin")
    native, inputs = overrunning(SlotKind.INPUT)
    (result,) = native(inputs)
    assert np.isfinite(result[:32]).all() and np.isnan(result[32])


CHILD = """
    import sys
    from monograph.program.code import SlotKind
    from tests.runtime.cpu.test_fences import overrunning
    native, inputs = overrunning(SlotKind(sys.argv[1]), int(sys.argv[2]))
    print("begins", flush=True)
    native(inputs)
    print("ends")
"""


@pytest.mark.parametrize("kind", [SlotKind.INPUT, SlotKind.OUTPUT], ids=lambda kind: kind.value)
@pytest.mark.parametrize(("count", "is_dead"), [(32, True), (33, False)])
def test_a_page_stops_what_goes_past_the_end(kind: SlotKind, count: int, is_dead: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), kind.value, str(count)],
        cwd=ROOT,
        env=os.environ | {"MONOGRAPH_FENCES": "end"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == (["begins"] if is_dead else ["begins", "ends"]), done.stderr
    assert done.returncode == (-signal.SIGSEGV if is_dead else 0)
