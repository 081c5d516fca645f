"""ONNX's own backend suite, every CPU test of it: ``python -m tests.frontends.onnx.conformance``.

The tests, their data and the comparison are those of ``onnx.backend.test``; nothing is excluded and
nothing declined. Prints how many passed out of all, and why the others did not; with
``--target cpu`` every model is compiled, and the tests of which any node ran in the interpreter are
counted too. Fails if any test does that is not among the ``KNOWN`` ones.
"""

from __future__ import annotations

import argparse
import atexit
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.targets.running import TARGETS

SECONDS = 120
"""How long one test may take."""

DRAWN = "random numbers are compared with those of NumPy's generator"
KNOWN = {
    **{
        f"test_bernoulli{variant}_cpu": DRAWN
        for variant in ("", "_double", "_double_expanded", "_expanded", "_seed", "_seed_expanded")
    },
    "test_loop16_seq_none_cpu": "the suite takes the length of a scalar to compare it",
    **{
        f"test_attention_4d_{variant}_fp16_expanded_cpu": (
            "the reference rounds softmax to f16 in each step; a few numbers are 2 ulp apart"
        )
        for variant in ("causal", "gqa_with_past_and_present")
    },
    **{
        f"test_dft_inverse{opset}_cpu": (
            "where 0 is right, NumPy's own rounding is expected: 1.9e-7, of which ours has none"
        )
        for opset in ("", "_opset19")
    },
}
"""The tests that cannot pass, or do by chance alone, with their reasons."""


class Outcome(NamedTuple):
    """What became of one test; ``reason`` is empty if it passed."""

    name: str
    reason: str
    detail: str
    seconds: float
    interpreted: tuple[str, ...] = ()
    """The ops that ran in the interpreter although the target is another."""


_TESTS: dict[str, Callable[[Any], None]] = {}


def load_tests() -> dict[str, Callable[[Any], None]]:
    """Every CPU test of the suite by name, as ONNX's own runner builds it."""
    if "ONNX_HOME" not in os.environ:  # where the suite keeps the data that it generates
        os.environ["ONNX_HOME"] = tempfile.mkdtemp(prefix="onnx-home-")
        atexit.register(shutil.rmtree, os.environ["ONNX_HOME"], ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.runner import Runner

        from tests.frontends.onnx.backend import MonographBackend

        runner = Runner(MonographBackend)
    return {
        name: item.func
        for items in runner._test_items.values()
        for name, item in items.items()
        if name.endswith("_cpu")
    }


def use_target(target: str) -> None:
    """Run models on this target from now on."""
    from tests.frontends.onnx.backend import RUNNER

    RUNNER.target = target


def run_test(name: str) -> Outcome:
    """Run one test; any exception at all is a failure."""
    from tests.frontends.onnx.backend import RUNNER

    start = time.perf_counter()
    reason = detail = ""
    RUNNER.interpreted.clear()
    signal.signal(signal.SIGALRM, _too_slow)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _TESTS[name](None)
    except BaseException as error:  # a SkipTest counts as a failure too
        reason, detail = describe(error), traceback.format_exc()
    finally:
        signal.alarm(0)
    seconds = time.perf_counter() - start
    return Outcome(name, reason, detail, seconds, tuple(sorted(set(RUNNER.interpreted))))


def run_tests(names: Sequence[str], jobs: int) -> Iterator[Outcome]:
    """Run tests, in several processes if there are many; the outcomes in the order of the names."""
    if jobs < 2 or len(names) < 20:
        yield from map(run_test, names)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(run_test, names, chunksize=8)


def _watched(outcomes: Iterator[Outcome], total: int) -> list[Outcome]:
    """All the outcomes; how far it is, and what fails, is told as they come."""
    seen: list[Outcome] = []
    for outcome in outcomes:
        seen.append(outcome)
        end = "\n" if outcome.reason else ""
        print(f"\r{len(seen)}/{total} {outcome.name:<60}", end=end, file=sys.stderr)
    print(file=sys.stderr)
    return seen


def _too_slow(number: int, frame: Any) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def describe(error: BaseException) -> str:
    """A failure in a few words, the same for failures of one kind."""
    from monograph.errors import MonographError, UnsupportedError

    if isinstance(error, UnsupportedError):
        return "unsupported op " + ", ".join(sorted(problem.op for problem in error.problems))
    if isinstance(error, MonographError):
        return f"{type(error).__name__}: {error.message}"[:150]
    if isinstance(error, AssertionError):
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        kind = next((line for line in lines if line.startswith(("Mismatched", "(shapes"))), "")
        return f"wrong result: {lines[0] if lines else ''} {kind}"[:150]
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:150]


def main() -> int:
    """Run the suite, or the part whose names match a pattern."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", dest="pattern", default="", help="only tests whose name matches")
    parser.add_argument("--out", type=Path, help="write the failures, with tracebacks, to a file")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("-x", dest="show", type=int, default=0, help="print so many tracebacks")
    parser.add_argument("--target", choices=TARGETS, default="interpreter")
    options = parser.parse_args()
    use_target(options.target)
    _TESTS.update(load_tests())
    names = sorted(name for name in _TESTS if re.search(options.pattern, name))
    outcomes = _watched(run_tests(names, options.jobs), len(names))
    failed = [outcome for outcome in outcomes if outcome.reason]
    if options.out is not None:
        options.out.write_text("".join(f"{each.name}\t{each.reason}\n" for each in failed))
        details = options.out.with_suffix(".log")
        details.write_text("\n".join(f"=== {each.name}\n{each.detail}" for each in failed))
    for outcome in failed[: options.show]:
        print(f"=== {outcome.name}\n{outcome.detail}")
    for reason, count in Counter(outcome.reason for outcome in failed).most_common(60):
        example = next(outcome.name for outcome in failed if outcome.reason == reason)
        print(f"{count:5}  {reason}   [{example}]")
    for outcome in sorted(outcomes, key=lambda each: -each.seconds)[:3]:
        if outcome.seconds > 10:
            print(f"slow: {outcome.name} {outcome.seconds:.1f} s")
    _print_interpreted(outcomes)
    unexpected = _print_failures(outcomes)
    print(f"passed {len(names) - len(failed)} / {len(names)}")
    return 1 if unexpected else 0


def _print_failures(outcomes: Sequence[Outcome]) -> list[str]:
    """Name every failure; those that are not known, which are returned, come last."""
    for outcome in outcomes:
        if outcome.name in KNOWN:
            verdict = "fails" if outcome.reason else "passes now"
            print(f"known: {outcome.name} {verdict} ({KNOWN[outcome.name]})")
    unexpected = [each for each in outcomes if each.reason and each.name not in KNOWN]
    for outcome in unexpected:
        print(f"FAILED: {outcome.name}: {outcome.reason}")
    return [outcome.name for outcome in unexpected]


def _print_interpreted(outcomes: Sequence[Outcome]) -> None:
    """How many tests ran a node in the interpreter though they were compiled, and of which ops."""
    touched = [outcome for outcome in outcomes if outcome.interpreted]
    if not touched:
        return
    counts = Counter(op for outcome in touched for op in outcome.interpreted)
    print(f"{len(touched)} tests ran some node in the interpreter:")
    print("  " + ", ".join(f"{op} {count}" for op, count in counts.most_common()))


if __name__ == "__main__":
    sys.exit(main())
