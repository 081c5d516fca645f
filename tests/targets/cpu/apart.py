"""Samples in a process of their own: for processors of any width, with fences around memory.

Code that leaves its memory ends the process (``monograph.runtime.cpu.fences``). So samples run in a
child, some at a time, which says what it begins with. If it dies, what it had begun is run again
sample by sample, so that the one that dies is named, and another child goes on with the rest.

``python -m tests.targets.cpu.apart`` runs every sample in every dtype in every setting and counts;
names of ops, ``--share 1/20`` (the first twentieth) and ``--setting end-64-32`` choose some of it,
and ``--jobs 8`` runs so many children at a time.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from monograph.compiler import Options
from monograph.config import FENCES, VECTOR_BYTES, VECTOR_REGISTERS
from tests.ops.harness import samples_by_op
from tests.targets.cpu.samples import AT_ONCE, Case, case_of, check, in_dtypes

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = samples_by_op()
SECONDS_A_CHUNK = 120
"""After which a child is taken to hang."""
DEADLY = "TEST_DEADLY_SAMPLE"
"""Names a sample that ends the process, for the test of what happens then."""


class Setting(NamedTuple):
    """Where fences stand, and the vectors that the processor is said to have."""

    side: str
    vector_bytes: int
    registers: int

    @property
    def environment(self) -> dict[str, str]:
        return {
            "MONOGRAPH_FENCES": self.side,
            "MONOGRAPH_VECTOR_BYTES": str(self.vector_bytes),
            "MONOGRAPH_VECTOR_REGISTERS": str(self.registers),
        }

    def __str__(self) -> str:
        return f"{self.side}-{self.vector_bytes}-{self.registers}"


SETTINGS = tuple(
    Setting(side, vector_bytes, registers)
    for vector_bytes in VECTOR_BYTES
    for registers in VECTOR_REGISTERS
    for side in FENCES
)


class Chosen(NamedTuple):
    """A sample of an op, by number, in a dtype."""

    op: str
    number: int
    dtype: str

    def __str__(self) -> str:
        return f"{SAMPLES[self.op][self.number][0]}@{self.dtype}"

    def case(self) -> Case | None:
        """What is to be run; None if the op does not take the dtype."""
        _, sample = SAMPLES[self.op][self.number]
        (variant,) = (each for dtype, each in in_dtypes(sample) if dtype == self.dtype)
        return case_of(str(self), variant)


@dataclass(frozen=True)
class Chunk:
    """Samples that are compiled together, in one setting."""

    setting: Setting
    chosen: tuple[Chosen, ...]


@dataclass(frozen=True)
class Finding:
    """A sample that is not right, and why."""

    setting: Setting
    name: str
    problem: str

    def __str__(self) -> str:
        return f"{self.setting} {self.name}: {self.problem}"


def every_sample(ops: Sequence[str] = ()) -> list[Chosen]:
    """All samples, or those of some ops, in all dtypes."""
    return [
        Chosen(op, number, dtype)
        for op, samples in SAMPLES.items()
        if not ops or op in ops
        for number, (_, sample) in enumerate(samples)
        for dtype, _ in in_dtypes(sample)
    ]


def chunked(chosen: Sequence[Chosen], settings: Sequence[Setting]) -> list[Chunk]:
    """Samples in pieces, each piece in the next one of the settings."""
    pieces = [tuple(chosen[k : k + AT_ONCE]) for k in range(0, len(chosen), AT_ONCE)]
    return [Chunk(settings[k % len(settings)], piece) for k, piece in enumerate(pieces)]


# The parent -----------------------------------------------------------------------------------


def run_apart(chunks: Sequence[Chunk]) -> list[Finding]:
    """Run samples in children; what was not right, deaths included."""
    findings: list[Finding] = []
    todo = list(chunks)
    while todo:
        found, finished, death = _run_child(todo)
        findings += found
        if finished == len(todo):
            return findings
        findings += _investigated(todo[finished], death)
        todo = todo[finished + 1 :]
    return findings


def _investigated(chunk: Chunk, death: str) -> list[Finding]:
    """The samples of a chunk that a child died of, or the chunk if it was none of them alone."""
    if len(chunk.chosen) == 1:
        return [Finding(chunk.setting, str(chunk.chosen[0]), death)]
    alone = run_apart([replace(chunk, chosen=(each,)) for each in chunk.chosen])
    if alone:
        return alone
    names = f"{chunk.chosen[0]} to {chunk.chosen[-1]}, together"
    return [Finding(chunk.setting, names, death)]


def _run_child(chunks: Sequence[Chunk]) -> tuple[list[Finding], int, str]:
    """What a child found, how many chunks it finished, and what it died of."""
    command = [sys.executable, "-m", "tests.targets.cpu.apart", "--child"]
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = child.communicate(
            json.dumps([asdict(chunk) for chunk in chunks]), timeout=SECONDS_A_CHUNK * len(chunks)
        )
        death = _death(child.returncode, errors)
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate()
        death = "did not end"
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("[")]
    findings = [
        Finding(chunk.setting, name, problem)
        for chunk, problems in zip(chunks, lines, strict=False)
        for name, problem in problems
    ]
    return findings, len(lines), death


def _death(code: int, errors: str) -> str:
    last = errors.strip().splitlines()[-1:] or [""]
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with {code}: {last[0]}"


# The child ------------------------------------------------------------------------------------


def _child() -> None:
    """Run the chunks that are described on standard input; a line for each when it is done."""
    faulthandler.enable()
    deadly = os.environ.get(DEADLY)
    for chunk in json.load(sys.stdin):
        os.environ.update(Setting(*chunk["setting"]).environment)
        found = (Chosen(*each).case() for each in chunk["chosen"])
        chosen = [case for case in found if case is not None]
        if deadly in [case.name for case in chosen]:
            os.kill(os.getpid(), signal.SIGSEGV)
        outcomes = check(chosen, Options(level="O0", cache=False))
        print(json.dumps([(each.name, each.problem) for each in outcomes if each.problem]))
        sys.stdout.flush()


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--setting", action="append", choices=[str(each) for each in SETTINGS])
    parser.add_argument("--share", default="1/1", help="k/n: every n-th sample, from the k-th on")
    parser.add_argument("--jobs", type=int, default=1, help="children at a time")
    return parser.parse_args()


def share_of(chosen: Sequence[Chosen], text: str) -> Sequence[Chosen]:
    """``k/n``: every n-th sample, from the k-th on."""
    first, step = map(int, text.split("/"))
    return chosen[first - 1 :: step]


def _runs(arguments: Any) -> Iterator[tuple[Setting, list[Finding]]]:
    """What was not right in each setting; parts of settings are run side by side."""
    chosen = share_of(every_sample(arguments.ops), arguments.share)
    jobs = arguments.jobs
    with ThreadPoolExecutor(jobs) as pool:
        begun = {
            setting: [pool.submit(run_apart, part) for part in _dealt(chosen, setting, jobs)]
            for setting in SETTINGS
            if not arguments.setting or str(setting) in arguments.setting
        }
        for setting, parts in begun.items():
            yield setting, [finding for part in parts for finding in part.result()]


def _dealt(chosen: Sequence[Chosen], setting: Setting, jobs: int) -> list[list[Chunk]]:
    """The chunks of a setting, dealt out to so many children at most."""
    chunks = chunked(chosen, [setting])
    return [part for part in (chunks[k::jobs] for k in range(jobs)) if part]


def main() -> int:
    """Run what the command line asks for, and count."""
    arguments = _arguments()
    if arguments.child:
        _child()
        return 0
    counts: Counter[str] = Counter()
    for setting, findings in _runs(arguments):
        print(f"{setting}: {len(findings)} not right", flush=True)
        for finding in findings:
            counts["not right"] += 1
            print(f"  {finding}", flush=True)
    return 1 if counts["not right"] else 0


if __name__ == "__main__":
    sys.exit(main())
