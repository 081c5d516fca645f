"""JAX's own programs, one primitive each, held against JAX.

    python -m tests.frontends.jax.harnesses [-k name] [--workers 2] [--sample N --seed 0]
                                            [--target cpu] [--seconds 200]

``jax._src.internal_test_util.test_harnesses`` lists some 7,500 calls of primitives in 132 groups,
of every dtype, with edge cases. Each is traced, imported, run (interpreted, or compiled with
``--target cpu``) and compared with what JAX computes for the same arguments. A table by group tells
how many agree; what does not is printed with its reason. Those that JAX itself cannot run on a CPU,
and dtypes that we do not have, are counted apart. Each worker is a process of its own: one that
dies, or takes too long, is one program that fails.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import random
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from typing import Any

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from jax._src.internal_test_util import test_harnesses

import monograph
from monograph.errors import UnsupportedError
from monograph.ir.types import dtype_of
from tests.frontends.jax.harness_compare import compare

SECONDS = 120
"""The longest that one program may take."""


@dataclass
class Outcome:
    """What became of one program: agrees, differs, unsupported, fails, or not counted."""

    group: str
    name: str
    kind: str
    reason: str = ""
    seconds: float = 0.0


def harnesses() -> list[Any]:
    """Every program, in JAX's order."""
    return list(test_harnesses.all_harnesses)


def sample(count: int, seed: int) -> list[int]:
    """Some of the programs, spread over all groups: at least one of each where there is room."""
    groups: dict[str, list[int]] = {}
    generator = random.Random(seed)
    for number, each in enumerate(harnesses()):
        groups.setdefault(each.group_name, []).append(number)
    rest = {group: numbers for group, numbers in groups.items()}
    chosen: list[int] = []
    while len(chosen) < count and any(rest.values()):
        for group in sorted(rest):
            numbers = rest[group]
            if numbers and len(chosen) < count:
                chosen.append(numbers.pop(generator.randrange(len(numbers))))
    return sorted(chosen)


def run_one(number: int, target: str) -> Outcome:
    """Import, run and compare one program."""
    harness = harnesses()[number]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            kind, reason = _outcome(harness, target)
        except UnsupportedError as error:
            kind, reason = "unsupported", _line(error)
        except Exception as error:  # whatever goes wrong is what the table tells
            kind, reason = "fails", f"{type(error).__name__}: {_line(error)}"
    spent = time.process_time() - start
    return Outcome(harness.group_name, harness.fullname, kind, reason, spent)


def _outcome(harness: Any, target: str) -> tuple[str, str]:
    if not harness.filter("cpu"):
        return "not in JAX", "JAX does not run it on a CPU"
    arguments = harness.dyn_args_maker(np.random.RandomState(0))
    try:
        closed = jax.make_jaxpr(harness.dyn_fun)(*arguments)
        expected = jax.tree_util.tree_leaves(jax.jit(harness.dyn_fun)(*arguments))
    except Exception as error:
        return "not in JAX", f"{type(error).__name__}: {_line(error)}"
    unknown = _unknown_dtype(closed)
    if unknown:
        return "no dtype", unknown
    leaves = [np.asarray(jax.random.key_data(x) if _is_key(x) else x) for x in _leaves(arguments)]
    expected = [np.asarray(jax.random.key_data(x) if _is_key(x) else x) for x in expected]
    graph = monograph.from_jax(harness.dyn_fun, *arguments)
    leaves = [np.asarray(x, v.dtype.numpy) for x, v in zip(leaves, graph.inputs, strict=True)]
    if target == "interpreter":
        found = monograph.interpret(graph, leaves)
    else:
        executable = monograph.compile(graph, cache=False, strict=True, threads=1)
        found = executable(*leaves)
    problem = compare(harness, leaves, found, expected)
    return ("differs", problem) if problem else ("agrees", "")


def _leaves(tree: Any) -> list[Any]:
    return list(jax.tree_util.tree_leaves(tree))


def _is_key(x: Any) -> bool:
    return jax.dtypes.issubdtype(getattr(x, "dtype", np.int32), jax.dtypes.prng_key)


def _unknown_dtype(closed: Any) -> str:
    for aval in (*closed.in_avals, *closed.out_avals):
        if _is_key(aval):
            continue
        try:
            dtype_of(np.dtype(aval.dtype))
        except monograph.MonographError:
            return str(aval.dtype)
    return ""


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:160]


def run(numbers: Sequence[int], target: str, workers: int, seconds: float) -> Iterator[Outcome]:
    """The outcomes, as they come; programs that have not begun after ``seconds`` are left out."""
    end = time.monotonic() + seconds
    if workers == 1:
        yield from (run_one(number, target) for number in numbers if time.monotonic() < end)
        return
    waiting = list(numbers)
    random.Random(0).shuffle(waiting)  # whatever the time is enough for stands for all of them
    done: queue.Queue[Outcome | None] = queue.Queue()
    threads = [
        threading.Thread(target=_work, args=(waiting, target, end, done), daemon=True)
        for _ in range(workers)
    ]
    for thread in threads:
        thread.start()
    running = workers
    while running:
        outcome = done.get()
        if outcome is None:
            running -= 1
        else:
            yield outcome


def _work(waiting: list[int], target: str, end: float, done: queue.Queue[Outcome | None]) -> None:
    """Hand programs to a process, one at a time, and start another where it dies."""
    pool = _process()
    while waiting and time.monotonic() < end:
        try:
            number = waiting.pop()
        except IndexError:  # another thread took the last one
            break
        try:
            done.put(pool.submit(run_one, number, target).result(SECONDS))
        except (BrokenProcessPool, TimeoutError) as error:
            harness = harnesses()[number]
            reason = f"{type(error).__name__} of its process"
            done.put(Outcome(harness.group_name, harness.fullname, "fails", reason))
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool = _process()
    pool.shutdown(wait=False)
    done.put(None)


def _process() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, max_tasks_per_child=400)


def print_table(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """The groups and what became of their programs; how many agree, of how many."""
    groups: dict[str, Counter[str]] = {}
    for each in outcomes:
        groups.setdefault(each.group, Counter())[each.kind] += 1
    kinds = ("agrees", "differs", "unsupported", "fails", "no dtype", "not in JAX")
    print(f"{'group':<30}" + "".join(f"{kind:>12}" for kind in kinds))
    for group, counts in sorted(groups.items()):
        print(f"{group:<30}" + "".join(f"{counts[kind] or '':>12}" for kind in kinds))
    total: Counter[str] = Counter(each.kind for each in outcomes)
    print(f"{'all':<30}" + "".join(f"{total[kind]:>12}" for kind in kinds))
    counted = sum(total[kind] for kind in kinds[:4])
    return total["agrees"], counted


def print_reasons(outcomes: Sequence[Outcome]) -> None:
    """Why programs do not agree, the most frequent reasons first."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for each in outcomes:
        if each.kind in ("differs", "unsupported", "fails"):
            reasons.setdefault((each.group, each.kind, each.reason), []).append(each.name)
    for (group, kind, reason), names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):>5} {group}: {kind}: {reason}\n        {names[0]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table, and fail below the share that must agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-k", default="", help="only programs whose name contains this")
    parser.add_argument("--group", default="", help="only this group")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--sample", type=int, help="this many programs, spread over the groups")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--target", choices=("interpreter", "cpu"), default="interpreter")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no program after these")
    parser.add_argument("--out", help="write the outcomes to this file, as JSON")
    parser.add_argument("--at-least", type=float, default=0.95, help="the share that must agree")
    given = parser.parse_args(arguments)
    every = harnesses()
    numbers = list(range(len(every))) if given.sample is None else sample(given.sample, given.seed)
    numbers = [n for n in numbers if given.k in every[n].fullname]
    if given.group:
        numbers = [n for n in numbers if every[n].group_name == given.group]
    outcomes = []
    for outcome in run(numbers, given.target, given.workers, given.seconds):
        outcomes.append(outcome)
        if len(outcomes) % 500 == 0:
            print(f"{len(outcomes)} of {len(numbers)}", file=sys.stderr, flush=True)
    if len(outcomes) < len(numbers):
        print(f"{len(numbers) - len(outcomes)} of {len(numbers)} were not run: the time was over")
    print_reasons(outcomes)
    agree, counted = print_table(outcomes)
    share = agree / max(counted, 1)
    print(f"{agree} of {counted} agree with JAX ({share:.2%}), on {given.target}")
    if given.out:
        with open(given.out, "w") as file:
            json.dump([asdict(each) for each in outcomes], file, indent=1)
    return 0 if share >= given.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
