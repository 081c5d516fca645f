"""The ends of vector loops: which way is taken, and that nothing beyond them is touched."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import monograph
from monograph.ir.dims import Dim, Symbol, dim_min
from monograph.ir.types import f32, i8
from monograph.kernel import expr as e
from monograph.kernel.expr import Buffer, Load
from monograph.runtime.cpu.native import Native
from monograph.targets.cpu.llvm.tails import Tail, TailKind, rest_of_extent, tail_of
from monograph.targets.cpu.nests.loop_nest import Loop, LoopKind, Write

X, Y = Buffer("x", f32, (1000,)), Buffer("y", f32, (1000,))
AT, N = Symbol("i", 0, None), Symbol("n", 0, None)
READ = e.load(X, (e.index(AT),))
assert isinstance(READ, Load)


def tail(
    extent: Dim, buffer: Buffer = Y, inside: bool = False, aliased: bool = False, head: bool = False
) -> Tail:
    write = Write(buffer, e.index(AT), READ)
    body: Any = (Loop(Symbol("j", 0, None), 0, 3, (write,)),) if inside else (write,)
    loop = Loop(AT, 0, extent, body, LoopKind.VECTOR, 8)
    return tail_of(loop, [READ], aliased=aliased, head=head)


def test_whole_vectors_leave_nothing_over() -> None:
    assert tail(64) == Tail(TailKind.NONE)


def test_a_known_rest_of_a_loop_of_loops_is_shorter_vectors() -> None:
    assert tail(15, inside=True) == Tail(TailKind.SHORTER, (4, 2, 1))


def test_the_last_elements_are_computed_again_where_that_changes_nothing() -> None:
    assert tail(15) == Tail(TailKind.OVERLAP)
    assert tail(N) == Tail(TailKind.OVERLAP, or_masked=True)


@pytest.mark.parametrize(
    "found", [tail(15, aliased=True), tail(15, X), tail(15, head=True), tail(3)]
)
def test_else_they_are_masked(found: Tail) -> None:
    assert found == Tail(TailKind.MASKED)


def test_the_rest_of_tiles_is_that_of_the_whole() -> None:
    assert rest_of_extent(21, 8) == 5
    assert rest_of_extent(dim_min(8, 21 - 8 * Symbol("t", 0, None)), 8) == 5
    assert rest_of_extent(N, 8) == 0


SIZES = (1, 3, 5, 9, 17, 33, 65)
DTYPES = ("bfloat16", "float16", "int8", "int16", "int64", "float32")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("to", ["", "int8"])
def test_rows_of_any_length_are_written_whole_and_not_beyond(
    size: int, dtype: str, to: str
) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    result = np.dtype(to) if to else kind
    generator = np.random.default_rng(size)
    x, y = (generator.integers(-50, 50, shape).astype(kind) for shape in ((6, size), (size,)))
    short = {"int8": i8}

    def function(x: Any, y: Any) -> Any:
        z = x + y
        return monograph.functional.cast(z, short[to]) if to else z

    compiled = monograph.compile(function, x, y, threads=1)
    native = compiled.executable.native
    assert isinstance(native, Native)
    memory = np.full(x.size * result.itemsize + 128, 0xA5, np.uint8)
    slots = native.take_frame(())
    for slot, number in native.inputs:
        slots.words[slot] = (x, y)[number].ctypes.data
    ((slot, nbytes, _, _),) = native.call_plan(()).outputs
    slots.words[slot] = memory.ctypes.data + 64
    assert native.entry(slots.address, slots.status_address, 1) == 0
    np.testing.assert_array_equal(
        memory[64:-64].view(result).reshape(x.shape), (x + y).astype(result)
    )
    assert nbytes == memory.size - 128
    assert (memory[:64] == 0xA5).all() and (memory[-64:] == 0xA5).all()
