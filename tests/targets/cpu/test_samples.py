"""Every op's samples on the processor, held against the interpreter; see ``samples.py``.

The usual run compiles the samples as their ops give them, with every pass and with none. The slow
ones take every dtype that an op supports, with fusion and without: ``python -m
tests.targets.cpu.test_samples`` prints the counts.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from monograph.compiler import Options
from monograph.ir.op import Sample
from monograph.ops import elementwise, math, reduce
from tests.ops.harness import samples_by_op
from tests.targets.cpu.samples import Outcome, cases, check

SAMPLES = samples_by_op()
AT_ONCE = 60
"""Samples of several ops that share a graph in the usual run."""


def _batches() -> list[list[tuple[str, Sample]]]:
    """The samples of all ops, cut into pieces of about the same size."""
    everything = [pair for pairs in SAMPLES.values() for pair in pairs]
    return [everything[k : k + AT_ONCE] for k in range(0, len(everything), AT_ONCE)]


BATCHES = _batches()


def _options(level: str = "O0", *, fusion: bool = True) -> Options:
    return Options(level=level, fusion=fusion, cache=False)


def _assert_right(outcomes: Iterable[Outcome]) -> None:
    wrong = [f"{outcome.name}: {outcome.problem}" for outcome in outcomes if outcome.problem]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("level", ["O0", "O2"])
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"{batch[0][0]}..{batch[-1][0]}")
def test_samples_are_right(batch: Sequence[tuple[str, Sample]], level: str) -> None:
    _assert_right(check(cases(batch, every_dtype=False), _options(level)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_every_dtype_are_right(name: str) -> None:
    _assert_right(check(cases(SAMPLES[name]), _options()))


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_every_dtype_are_right_without_fusion(name: str) -> None:
    _assert_right(check(cases(SAMPLES[name]), _options(fusion=False)))


def test_a_wrong_answer_is_told_from_a_rounded_one() -> None:
    """The comparison itself: one unit off is too much for a sum of two, not for an exponential."""
    x = np.linspace(0.5, 4.0, 7, dtype=np.float32)
    for function, is_exact in ((elementwise.Add(), True), (math.Exp(), False)):
        operands = (x, x) if is_exact else (x,)
        (case,) = cases([("op", Sample(function, operands))], every_dtype=False)
        assert case.expected is not None
        off = [np.nextafter(array, np.float32(np.inf)) for array in case.expected]
        from tests.targets.cpu.samples import verdict

        assert bool(verdict(case, off[0], case.expected[0], lambda: None)) is is_exact
        far = [array + np.float32(0.01) for array in case.expected]
        assert verdict(case, far[0], case.expected[0], lambda: None)


def test_a_sum_may_be_added_in_another_order_but_not_lose_a_term() -> None:
    x = np.linspace(0.1, 3.0, 1000, dtype=np.float32)
    (case,) = cases([("op", Sample(reduce.sum, (x,)))], every_dtype=False)
    from tests.targets.cpu.samples import verdict

    backwards = np.float32(0.0)
    for number in x[::-1]:
        backwards += number
    assert case.expected is not None
    expected = case.expected[0]
    exact = np.asarray(x.astype(np.float64).sum())
    assert not verdict(case, np.asarray(backwards), expected, lambda: exact)
    assert verdict(case, np.asarray(x[1:].sum()), expected, lambda: exact)


def main(arguments: Sequence[str]) -> int:
    """Run everything, or the ops that are named, and count."""
    counts: Counter[str] = Counter()
    interpreted: Counter[str] = Counter()
    wanted = [name for name in SAMPLES if not arguments or name in arguments]
    for number, name in enumerate(wanted, 1):
        print(f"\r{number}/{len(wanted)} {name:<40}", end="", file=sys.stderr)
        chosen = cases(SAMPLES[name])
        for fusion in (True, False):
            for outcome in check(chosen, _options(fusion=fusion)):
                counts["runs"] += 1
                if outcome.problem:
                    counts["wrong"] += 1
                    print(f"{outcome.name}: {outcome.problem}")
                if outcome.interpreted:
                    counts["with interpreted nodes"] += 1
                    interpreted.update(outcome.interpreted)
    print(file=sys.stderr)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    print("interpreted:", ", ".join(f"{op} {count}" for op, count in interpreted.most_common()))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
