"""``python -m tests.fuzz``: draw programs, judge them, shrink what is found, print a table."""

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads of this process are lost in a fork
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # else torch.compile starts a GPU in every child

from monograph.config import processor_count
from tests.fuzz.check import Case, Choices, draw_case
from tests.fuzz.report import Finding, as_python, bucket, refusals, rough_bucket, table
from tests.fuzz.routes import ROUTES
from tests.fuzz.shrink import shrink
from tests.fuzz.values import DTYPES
from tests.fuzz.workers import PATIENCE, Outcome, prepare, run_case, run_seeds


def main() -> int:
    """Run the fuzzer; 1 if it found something."""
    options = _arguments()
    first = options.seed or [secrets.randbelow(1_000_000) * 1000]
    listed = first if len(first) > 1 else range(first[0], first[0] + options.programs)
    print(f"seed {first[0]}, {len(listed)} programs", flush=True)
    choices = Choices(
        options.route, options.dtype, _several(options.vector_bytes), _several(options.fences)
    )
    prepare()
    started = time.monotonic()
    outcomes: list[Outcome] = []
    deadline = started + 60 * options.minutes
    seeds = itertools.takewhile(lambda _: time.monotonic() < deadline, listed)
    draw = partial(draw_case, choices=choices)
    for outcome in run_seeds(seeds, draw, options.jobs, options.timeout, options.patience):
        outcomes.append(outcome)
        verdict = outcome.verdict
        if options.verbose or verdict.is_finding:
            text = f"seed {outcome.seed}: {verdict.status} {verdict.message}"
            print(f"{text} ({outcome.seconds:.1f} s)", flush=True)
        if verdict.is_finding:  # as it is: shrinking comes last, and a run may be cut off before
            _write(Finding(outcome.case, verdict, [outcome.seed]), options.findings)
    findings = _findings([each for each in outcomes if each.verdict.is_finding], options)
    for finding in findings:
        print(f"\n{_text(finding)}")
        _write(finding, options.findings)
    print(f"\n{table(outcomes)}\n")
    for status in ("refused", "torch", "invalid"):
        if any(each.verdict.status == status for each in outcomes):
            print(f"{status}:\n{refusals(outcomes, status)}\n")
    minutes = (time.monotonic() - started) / 60
    print(f"processor time of a program: {_percentiles([each.seconds for each in outcomes])}")
    print(f"seed {first[0]}: {len(outcomes)} programs in {minutes:.1f} minutes, ", end="")
    print(f"{len(findings)} findings")
    return 1 if findings else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument(
        "--seed", type=_numbers, help="of the first program, or of each: 7 or 12,57,98"
    )
    parser.add_argument("--minutes", type=float, default=600, help="start no program after so many")
    parser.add_argument("--route", choices=ROUTES)
    parser.add_argument("--dtype", choices=DTYPES, help="of most inputs")
    parser.add_argument("--vector-bytes", default="own,16,32,64", help="to draw from")
    parser.add_argument("--fences", default="none,none,begin,end", help="to draw from")
    parser.add_argument("--jobs", type=int, default=processor_count(), help="children at a time")
    parser.add_argument(
        "--timeout", type=float, default=40, help="seconds of processor time for each program"
    )
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="times that, by the clock, for each"
    )
    parser.add_argument(
        "--shrink", type=int, default=120, help="attempts for each finding; 0: none"
    )
    parser.add_argument("--shrink-minutes", type=float, default=20, help="for all of them")
    parser.add_argument(
        "--findings", type=Path, help="a file to append findings to: at once, and small"
    )
    parser.add_argument("--verbose", action="store_true", help="a line for each program")
    return parser.parse_args()


def _several(text: str) -> tuple[str, ...]:
    """``own,16`` as what to draw from; the machine's own and none are the empty setting."""
    return tuple("" if part in ("own", "none") else part for part in text.split(","))


def _percentiles(seconds: list[float]) -> str:
    """How long programs take: half of them, nine in ten, and the slowest."""
    ranked = sorted(seconds) or [0.0]
    last = len(ranked) - 1
    half, most = ranked[last // 2], ranked[last * 9 // 10]
    mean = sum(ranked) / len(ranked)
    return (
        f"{mean:.1f} s; half of them {half:.1f} s, nine in ten {most:.1f} s, all {ranked[-1]:.1f} s"
    )


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _findings(outcomes: Sequence[Outcome], options: argparse.Namespace) -> list[Finding]:
    """Findings made small and put together by kind, the most frequent first.

    Of those that already look alike, two are made small; the others are counted with the first.
    """
    deadline = time.monotonic() + 60 * options.shrink_minutes
    alike: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        alike.setdefault(rough_bucket(outcome.case, outcome.verdict), []).append(outcome)
    found: dict[str, Finding] = {}
    for group in alike.values():
        for outcome in group[:2]:
            finding = _shrunk(outcome, options, deadline)
            known = found.setdefault(bucket(finding.case, finding.verdict), finding)
            if known is not finding:
                known.seeds.extend(finding.seeds)
            elif outcome is group[0]:
                finding.seeds.extend(each.seed for each in group[2:])
    return sorted(found.values(), key=lambda each: -len(each.seeds))


def _shrunk(outcome: Outcome, options: argparse.Namespace, deadline: float) -> Finding:
    status, case = outcome.verdict.status, outcome.case
    if not options.shrink or status == "timeout":
        return Finding(case, outcome.verdict, [outcome.seed])

    def fails(candidate: Case) -> bool:
        if time.monotonic() > deadline:
            return False
        return run_case(candidate, options.timeout, options.patience).verdict.status == status

    case = shrink(case, fails, options.shrink)
    verdict = run_case(case, options.timeout, options.patience).verdict
    # What depends on what lay in memory need not show again.
    return Finding(case, verdict if verdict.is_finding else outcome.verdict, [outcome.seed])


def _text(finding: Finding) -> str:
    text = as_python(finding.case, finding.verdict, finding.seeds)
    return f"# {len(finding.seeds)} programs\n{text}"


def _write(finding: Finding, path: Path | None) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(f"\n```python\n{_text(finding)}\n```\n")


if __name__ == "__main__":
    sys.exit(main())
