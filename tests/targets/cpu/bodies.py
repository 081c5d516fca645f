"""Small native bodies for the pool's tests, and how to run them."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from monograph.runtime.cpu.thread_pool import Pool

BODIES = """
declare i32 @usleep(i32)
declare i64 @pthread_self()

; Add one to the counter of every index.
define void @count(ptr %counters, i64 %begin, i64 %end) {
enter:
  br label %next
next:
  %index = phi i64 [ %begin, %enter ], [ %following, %next ]
  %place = getelementptr i64, ptr %counters, i64 %index
  %before = atomicrmw add ptr %place, i64 1 monotonic
  %following = add i64 %index, 1
  %more = icmp slt i64 %following, %end
  br i1 %more, label %next, label %done
done:
  ret void
}

; Write each chunk's end at its begin.
define void @mark(ptr %ends, i64 %begin, i64 %end) {
  %place = getelementptr i64, ptr %ends, i64 %begin
  store i64 %end, ptr %place
  ret void
}

; Write, slowly, which thread ran a chunk.
define void @identify(ptr %threads, i64 %begin, i64 %end) {
  %place = getelementptr i64, ptr %threads, i64 %begin
  %thread = call i64 @pthread_self()
  store i64 %thread, ptr %place
  %ignored = call i32 @usleep(i32 1000)
  ret void
}

; The first chunk waits until the second has been run, which only another thread can do; after
; five seconds or so it gives up, and leaves -1.
define void @meet(ptr %arrived, i64 %begin, i64 %end) {
enter:
  %first = icmp eq i64 %begin, 0
  br i1 %first, label %look, label %arrive
arrive:
  %second = icmp eq i64 %begin, 1
  %value = select i1 %second, i64 1, i64 0
  %before = atomicrmw or ptr %arrived, i64 %value release
  ret void
look:
  %turn = phi i64 [ 0, %enter ], [ %next_turn, %wait ]
  %there = load atomic i64, ptr %arrived acquire, align 8
  %met = icmp ne i64 %there, 0
  br i1 %met, label %done, label %doubt
doubt:
  %late = icmp sgt i64 %turn, 500000
  br i1 %late, label %give_up, label %wait
wait:
  %patient = icmp sgt i64 %turn, 20
  %pause = select i1 %patient, i32 10, i32 0
  %ignored = call i32 @usleep(i32 %pause)
  %next_turn = add i64 %turn, 1
  br label %look
give_up:
  store i64 -1, ptr %arrived
  br label %done
done:
  ret void
}

define void @nothing(ptr %context, i64 %begin, i64 %end) {
  ret void
}

; Count inside count: { parallel_for, inner total, grain, threads, counters }, one row an index.
define void @nest(ptr %context, i64 %begin, i64 %end) {
enter:
  %parallel_for = load ptr, ptr %context
  %total_place = getelementptr i64, ptr %context, i64 1
  %total = load i64, ptr %total_place
  %grain_place = getelementptr i64, ptr %context, i64 2
  %grain = load i64, ptr %grain_place
  %threads_place = getelementptr i64, ptr %context, i64 3
  %threads = load i64, ptr %threads_place
  %counters_place = getelementptr i64, ptr %context, i64 4
  %counters = load ptr, ptr %counters_place
  br label %next
next:
  %index = phi i64 [ %begin, %enter ], [ %following, %next ]
  %offset = mul i64 %index, %total
  %row = getelementptr i64, ptr %counters, i64 %offset
  %status = call i32 %parallel_for(ptr @count, ptr %row, i64 %total, i64 %grain, i64 %threads)
  %following = add i64 %index, 1
  %more = icmp slt i64 %following, %end
  br i1 %more, label %next, label %done
done:
  ret void
}

; Many regions without Python between them.
define void @repeat(ptr %parallel_for, ptr %body, ptr %context,
                    i64 %total, i64 %grain, i64 %threads, i64 %times) {
enter:
  br label %next
next:
  %turn = phi i64 [ 0, %enter ], [ %following, %next ]
  %status = call i32 %parallel_for(
      ptr %body, ptr %context, i64 %total, i64 %grain, i64 %threads)
  %following = add i64 %turn, 1
  %more = icmp slt i64 %following, %times
  br i1 %more, label %next, label %done
done:
  ret void
}
"""

_WORD = ctypes.c_int64
_ADDRESS = ctypes.c_void_p
_PARALLEL_FOR = ctypes.CFUNCTYPE(ctypes.c_int32, _ADDRESS, _ADDRESS, _WORD, _WORD, _WORD)
_REPEAT = ctypes.CFUNCTYPE(None, _ADDRESS, _ADDRESS, _ADDRESS, _WORD, _WORD, _WORD, _WORD)

Words = NDArray[np.int64]


def _load() -> dict[str, int]:
    """Compile the bodies, for good: a child of a fork can use them without asking LLVM."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(BODIES)
    names = [function.name for function in module.functions if not function.is_declaration]
    target = llvm.Target.from_triple(llvm.get_process_triple())
    engine = llvm.create_mcjit_compiler(module, target.create_target_machine(jit=True))
    engine.finalize_object()
    addresses = {name: int(engine.get_function_address(name)) for name in names}
    engine.detach()
    return addresses


ADDRESSES = _load()
"""Where the native code of each body is."""


def run(pool: Pool, body: str, context: Words, total: int, grain: int, threads: int) -> int:
    """One region; what ``monograph_parallel_for`` returns."""
    function = _PARALLEL_FOR(pool.parallel_for_address)
    return int(function(ADDRESSES[body], context.ctypes.data, total, grain, threads))


def repeat(
    pool: Pool, body: str, context: Words, total: int, grain: int, threads: int, times: int
) -> None:
    """The same region many times over."""
    function = _REPEAT(ADDRESSES["repeat"])
    data = context.ctypes.data
    function(pool.parallel_for_address, ADDRESSES[body], data, total, grain, threads, times)


def counted(pool: Pool, total: int, grain: int, threads: int) -> Words:
    """How often each index was run, with two more that must not be."""
    counters = np.zeros(total + 2, np.int64)
    assert run(pool, "count", counters[1:], total, grain, threads) == 0
    return counters


def covers_once(pool: Pool, total: int, grain: int, threads: int) -> bool:
    """Whether a region runs every index from 0 to ``total`` once, and no other."""
    counters = counted(pool, total, grain, threads)
    return bool((counters[1:-1] == 1).all() and counters[0] == 0 and counters[-1] == 0)
