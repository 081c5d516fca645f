"""The native pool, on both of the ways in which its workers can sleep."""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Iterator

import llvmlite.binding as llvm
import numpy as np
import pytest

from monograph.runtime.cpu.thread_pool import Pool, compile_pool, load_pool
from monograph.targets.cpu.threads.pool import (
    CONFIGURE,
    INVALID,
    MOST_STRETCHES,
    Platform,
    platform_of,
    pool_module,
)
from tests.targets.cpu.bodies import covers_once, repeat, run

HOST = llvm.get_process_triple()

needs_threads = pytest.mark.skipif(
    not platform_of(HOST).threads, reason="no threads on this platform"
)


@pytest.fixture(scope="module", params=["futex", "condition"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    platform = platform_of(HOST)
    if request.param == "condition":
        platform = dataclasses.replace(platform, futex=None)
    elif platform.futex is None:
        pytest.skip("no futex on this platform")
    made = load_pool(compile_pool(pool_module(HOST, platform)))
    made.configure(4)
    yield made
    assert made.stop()


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("grain", [1, 2, 7, 64, 1000, 2**40])
def test_every_index_runs_once(pool: Pool, grain: int, threads: int) -> None:
    for total in (0, 1, 2, 3, 63, 64, 65, 128, 997, 20_000):
        assert covers_once(pool, total, grain, threads), f"{total} indices"


def test_sleeping_workers_lose_no_index(pool: Pool) -> None:
    for total in (2, 100, 30_000):
        time.sleep(0.003)
        assert covers_once(pool, total, 1, 4)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("total, grain", [(10, 3), (1000, 7), (100_000, 1), (99_999, 64)])
def test_chunks_begin_at_multiples_of_the_grain(
    pool: Pool, total: int, grain: int, threads: int
) -> None:
    ends = np.zeros(total, np.int64)
    run(pool, "mark", ends, total, grain, threads)
    begins = np.flatnonzero(ends)
    assert not (begins % grain).any()
    assert ends[begins].tolist() == [*begins[1:].tolist(), total]


def test_a_fine_grain_is_taken_many_at_a_time(pool: Pool) -> None:
    ends = np.zeros(1_000_000, np.int64)
    run(pool, "mark", ends, len(ends), 1, 2)
    assert np.count_nonzero(ends) <= 2 * 64 + 1


@needs_threads
@pytest.mark.parametrize("threads", [2, 3])
def test_as_many_threads_as_allowed_take_part(pool: Pool, threads: int) -> None:
    seen = np.zeros(120, np.int64)
    run(pool, "identify", seen, len(seen), 1, threads)
    assert len(set(seen.tolist())) == threads


def test_more_threads_than_stretches_run_every_index_once(pool: Pool) -> None:
    pool.configure(MOST_STRETCHES + 4)
    try:
        for total in (2, MOST_STRETCHES + 1, 997):
            assert covers_once(pool, total, 1, MOST_STRETCHES + 4), f"{total} indices"
    finally:
        pool.configure(4)


@needs_threads
def test_a_thread_takes_neighbours_before_it_takes_what_others_left(pool: Pool) -> None:
    seen = np.zeros(40, np.int64)
    run(pool, "identify", seen, len(seen), 1, 2)
    assert np.count_nonzero(np.diff(seen)) <= len(seen) // 2 + 1


@needs_threads
def test_no_wake_up_is_lost(pool: Pool) -> None:
    """Workers that sleep at once: every region finds them asleep, or about to be."""
    configure = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(pool.addresses[CONFIGURE])
    configure(2, 0)
    try:
        for _ in range(300):
            arrived = np.zeros(1, np.int64)
            run(pool, "meet", arrived, 2, 1, 2)
            assert arrived[0] == 1
    finally:
        pool.configure(4)


def test_a_region_on_one_thread_is_one_call_of_the_body(pool: Pool) -> None:
    ends = np.zeros(100, np.int64)
    run(pool, "mark", ends, 100, 1, 1)
    assert np.flatnonzero(ends).tolist() == [0]
    assert ends[0] == 100


def test_no_index_is_no_call(pool: Pool) -> None:
    ends = np.zeros(1, np.int64)
    for total in (0, -1, -(2**63)):
        assert run(pool, "mark", ends, total, 1, 2) == 0
    assert not ends.any()


@pytest.mark.parametrize("grain, threads", [(0, 2), (-1, 2), (1, 0), (1, -5)])
def test_a_grain_or_threads_below_one_are_refused(pool: Pool, grain: int, threads: int) -> None:
    ends = np.zeros(4, np.int64)
    assert run(pool, "mark", ends, 4, grain, threads) == INVALID
    assert not ends.any()


def test_the_largest_totals_do_not_overflow(pool: Pool) -> None:
    for total in (2**62, 2**63 - 1):
        for grain in (1, 2**61, 2**62 - 1):
            assert run(pool, "nothing", np.zeros(1, np.int64), total, grain, 4) == 0


def test_a_region_inside_a_region_runs_every_index_once(pool: Pool) -> None:
    counters = np.zeros((40, 500), np.int64)
    context = np.array([pool.parallel_for_address, 500, 8, 4, counters.ctypes.data], np.int64)
    assert run(pool, "nest", context, 40, 1, 4) == 0
    assert (counters == 1).all()


def test_many_regions_in_a_row(pool: Pool) -> None:
    counters = np.zeros(50, np.int64)
    repeat(pool, "count", counters, 50, 3, 4, 20_000)
    assert (counters == 20_000).all()


def test_stopping_and_starting_again(pool: Pool) -> None:
    for threads in (4, 1, 3, 2):
        assert pool.stop()
        assert pool.start(threads) == threads
        assert covers_once(pool, 1000, 1, 4)


TRIPLES = {
    "x86_64-unknown-linux-gnu": "pause",
    "aarch64-unknown-linux-gnu": "yield",
    "riscv64-unknown-linux-gnu": "amoadd.d",
    "arm64-apple-macosx": "yield",
    "armv7-unknown-linux-gnueabihf": "blx",
    "x86_64-pc-windows-msvc": "callq",
    "wasm32-unknown-unknown": "call_indirect",
}
"""An instruction that each must have."""


@pytest.mark.parametrize("triple", TRIPLES)
def test_the_pool_is_legal_for_every_platform(triple: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(pool_module(triple))
    module.verify()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip("this LLVM has no such target")
    features = "+m,+a" if triple.startswith("riscv") else ""
    machine = target.create_target_machine(features=features)
    assert machine.emit_object(module)
    assert TRIPLES[triple] in machine.emit_assembly(module).split()


def test_a_region_is_a_call_where_there_are_no_threads() -> None:
    serial = load_pool(compile_pool(pool_module(HOST, Platform(threads=False))))
    assert covers_once(serial, 100, 1, 4)
    assert covers_once(serial, 0, 1, 4)
    assert serial.start(4) == 1
    assert serial.stop()


def test_one_pool_knows_nothing_of_another(pool: Pool) -> None:
    other = load_pool(compile_pool(pool_module(HOST)))
    other.configure(2)
    counters = np.zeros((40, 500), np.int64)
    context = np.array([other.parallel_for_address, 500, 8, 2, counters.ctypes.data], np.int64)
    assert run(pool, "nest", context, 40, 1, 4) == 0
    assert (counters == 1).all()
    assert other.stop()
