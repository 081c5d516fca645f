"""One pool a process: from many Python threads, over forks, at rest and at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from monograph.errors import InputError
from monograph.runtime.cpu.thread_pool import pool, symbols
from monograph.runtime.thread_count import thread_count, torch_threads
from monograph.targets.cpu.threads.pool import PARALLEL_FOR
from tests.targets.cpu.bodies import covers_once, repeat

ROOT = Path(__file__).resolve().parents[3]

PROLOGUE = """
import os, sys, threading, time
import numpy as np
from monograph.runtime.cpu.thread_pool import pool
from tests.targets.cpu.bodies import covers_once, repeat, run

def check():
    assert all(covers_once(pool(), total, 1, 4) for total in (0, 1, 2, 1000))
"""

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def run_python(program: str, threads: int = 4) -> str:
    """What a program that uses the pool prints, in a process of its own that must end well."""
    environment = {**os.environ, "MONOGRAPH_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.strip()


def test_the_environment_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_THREADS", "3")
    assert thread_count() == 3


def test_the_number_of_threads_limits_the_pool() -> None:
    assert run_python("check(); print(pool().start(100))", threads=3) == "3"


def test_more_threads_than_the_environment_says_may_be_asked_for() -> None:
    program = """
from monograph.config import processor_count
from monograph.runtime.cpu.thread_pool import symbols
symbols(processor_count() + 7)
print(pool().start(100) == processor_count())
"""
    assert run_python(program, threads=1) == "True"


class TestTorch:
    """Models from torch use as many threads as torch does, if nobody says otherwise."""

    PROGRAM = """
import torch, monograph
torch.set_num_threads({torch})
x = torch.ones(4)
compiled = monograph.compile(lambda x: x + 1, x, threads={threads})
print(compiled.executable.native.threads)
"""

    @pytest.mark.parametrize(
        ("threads", "environment", "used"),
        [
            (None, {}, 1),
            (None, {"OMP_NUM_THREADS": "7"}, 1),
            (None, {"MONOGRAPH_THREADS": "5"}, 5),
            (3, {"MONOGRAPH_THREADS": "5"}, 3),
        ],
    )
    def test_who_says_how_many(
        self, threads: int | None, environment: dict[str, str], used: int
    ) -> None:
        pytest.importorskip("torch")
        kept = {k: v for k, v in os.environ.items() if k != "MONOGRAPH_THREADS"}
        done = subprocess.run(
            [sys.executable, "-c", self.PROGRAM.format(torch=1, threads=threads)],
            cwd=ROOT,
            env=kept | environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert done.stdout.split() == [str(used)]

    def test_an_argument_comes_before_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        torch = pytest.importorskip("torch")
        monkeypatch.delenv("MONOGRAPH_THREADS", raising=False)
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            assert torch_threads(None) == 1
            assert torch_threads(2) == 2
        finally:
            torch.set_num_threads(before)


def test_a_wrong_setting_is_refused_every_time() -> None:
    program = """
from monograph.errors import InputError
for _ in range(2):
    try:
        pool()
    except InputError as error:
        print(error.found)
"""
    assert run_python(program, threads=0).split() == ["'0'", "'0'"]


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_a_wrong_number_of_threads_is_refused(threads: int) -> None:
    with pytest.raises(InputError, match="not a number of threads"):
        pool().start(threads)
    with pytest.raises(InputError, match="not a number of threads"):
        pool().configure(threads)


def test_every_thread_gets_the_same_pool() -> None:
    program = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as executor:
    print(len({id(each) for each in executor.map(lambda _: pool(), range(50))}))
"""
    assert run_python(program) == "1"


def test_programs_find_the_pool_by_name() -> None:
    symbols()
    assert llvm.address_of_symbol(PARALLEL_FOR) == pool().parallel_for_address


def test_many_python_threads_at_once() -> None:
    def work(seed: int) -> bool:
        sizes = np.random.default_rng(seed).integers(0, 3000, 200).tolist()
        return all(covers_once(pool(), size, 1 + size % 7, 4) for size in sizes)

    with ThreadPoolExecutor(8) as executor:
        assert all(executor.map(work, range(8)))


def test_stopping_while_others_run_is_harmless() -> None:
    def work(_: int) -> bool:
        return all(covers_once(pool(), 500, 1, 4) for _ in range(300))

    with ThreadPoolExecutor(3) as executor:
        results = executor.map(work, range(3))
        for _ in range(50):
            pool().stop()
            time.sleep(0.001)
        assert all(results)


def test_an_idle_pool_costs_no_processor_time() -> None:
    repeat(pool(), "nothing", np.zeros(1, np.int64), 8, 1, 4, 1000)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.01


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_parent_and_child_of_a_fork_both_have_workers() -> None:
    program = """
check()
for _ in range(10):
    child = os.fork()
    check()
    if child == 0:
        arrived = np.zeros(1, np.int64)
        run(pool(), "meet", arrived, 2, 1, 2)
        os._exit(0 if arrived[0] == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
check()
print("done")
"""
    assert run_python(program) == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_during_another_threads_region_leaves_a_sound_child() -> None:
    program = """
done = threading.Event()
def work():
    while not done.is_set():
        repeat(pool(), "count", np.zeros(100, np.int64), 100, 1, 4, 1000)
thread = threading.Thread(target=work)
check()
thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        check()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    check()
done.set()
thread.join()
print("done")
"""
    assert run_python(program) == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_that_forks_before_first_use() -> None:
    program = """
import multiprocessing
context = multiprocessing.get_context("fork")
process = context.Process(target=check)
process.start()
process.join()
assert process.exitcode == 0
check()
print("done")
"""
    assert run_python(program) == "done"


@pytest.mark.parametrize(
    "ending",
    [
        "check()",
        "check(); sys.exit(0)",
        "check(); os._exit(0)",
        "check(); time.sleep(0.01)",
        "pool()",
        "import atexit; atexit.register(check); check()",
        "pool(); import atexit; atexit.register(check); check()",
    ],
)
def test_a_process_ends_by_itself(ending: str) -> None:
    run_python(ending)


def test_a_process_ends_while_a_daemon_thread_is_in_a_region() -> None:
    program = """
def work():
    repeat(pool(), "count", np.zeros(100, np.int64), 100, 1, 4, 10**9)
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
check()
"""
    run_python(program)


@linux_only
@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two processors")
def test_workers_keep_off_the_callers_processor() -> None:
    program = """
before = set(os.listdir("/proc/self/task"))
pool().start(4)
workers = set(os.listdir("/proc/self/task")) - before
assert len(workers) == 3
for _ in range(20):
    time.sleep(0.005)
    run(pool(), "identify", np.zeros(8, np.int64), 8, 1, 4)
allowed = os.sched_getaffinity(0)
for worker in workers:
    missing = allowed - os.sched_getaffinity(int(worker))
    assert len(missing) == 1, missing
"""
    run_python(program)


@linux_only
def test_workers_take_no_signals_but_faults() -> None:
    program = """
before = set(os.listdir("/proc/self/task"))
pool().start(2)
(worker,) = set(os.listdir("/proc/self/task")) - before
run(pool(), "meet", np.zeros(1, np.int64), 2, 1, 2)
status = open(f"/proc/self/task/{worker}/status").read()
print(int(status.split("SigBlk:")[1].split()[0], 16))
"""
    blocked = int(run_python(program))
    interrupt, child_ended, fault = 2, 17, 11
    assert blocked >> (interrupt - 1) & 1
    assert blocked >> (child_ended - 1) & 1
    assert not blocked >> (fault - 1) & 1
