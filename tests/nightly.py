"""Every suite on every target, with random draws of its own, in one table: ``make nightly``.

    python -m tests.nightly [--seed N] [--suite ONNX,models] [--programs 10000] [--logs folder]

Suites run one after the other, each as the command that a person would type, so that a line of the
table can be run again by itself. What a suite prints is kept in a file of the logs' folder. Exits
with 1 if a suite does not.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from monograph.targets.gpu.driver import has_gpu
from tests.properties.draws import VARIABLE
from tests.targets.running import TARGETS

WIDTH = 80
NAME = 24
HOURS = 8.0
"""How long one suite may take."""
PYTEST = r"^=*\s?(\d+ (?:passed|failed).*?)\s?=*$"


@dataclass(frozen=True)
class Suite:
    """One command, and the lines of its output that count what it ran.

    ``{target}``, ``{seed}`` and ``{programs}`` are put into the command; one with a target runs on
    each. ``counts`` matches the lines, and its group is what the table shows of one.
    """

    name: str
    command: str
    counts: str
    needs_gpu: bool = False


SUITES = (
    Suite("tests", "pytest -q -n 2 -m 'not slow'", PYTEST),
    Suite("slow tests", "pytest -q -n 2 -m slow", PYTEST),
    Suite("programs", "tests.fuzz --seed {seed} --programs {programs}", r"^seed \d+: (\d+ .*)$"),
    Suite("op samples", "tests.targets.cpu.test_samples", r"^(\d+ runs.*)$"),
    Suite("widths and fences", "tests.targets.cpu.apart", r"^(.*: \d+ not right)$"),
    Suite("exporters", "tests.exporters.claims", r"^(.*: \d+ of \d+ ops claimed.*)$"),
    Suite("ONNX", "tests.frontends.onnx.conformance --target {target}", r"^(passed .*)$"),
    Suite(
        "OpInfo",
        "tests.frontends.torch.opinfo --workers 2 --target {target}",
        r"^(\d+ entries, .*)$",
    ),
    Suite(
        "OpInfo's wrong inputs",
        "tests.frontends.torch.opinfo --workers 2 --target {target} --errors",
        r"^(\d+ entries, .*)$",
    ),
    Suite(
        "JAX",
        "tests.frontends.jax.harnesses --workers 2 --target {target}",
        r"^(\d+ of \d+ agree .*)$",
    ),
    Suite(
        "models",
        "tests.models.run --workers 2 --via torch,onnx --train --target {target}",
        r"^(\w+: \d+ of \d+ right.*)$",
    ),
    Suite(
        "GPU kernels", "tests.targets.gpu.kernels --device cuda", r"^(all agree)$", needs_gpu=True
    ),
    Suite(
        "GPU op samples",
        "tests.targets.gpu.samples --device cuda --blocks --dtypes",
        r"^(\d+ samples, \d+ wrong)",
        needs_gpu=True,
    ),
    Suite("GPU models", "tests.targets.gpu.models", r"^(\d+ wrong)$", needs_gpu=True),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a suite: its exit status (None if the time was over) and its counts."""

    suite: Suite
    status: int | None
    counts: tuple[str, ...]
    seconds: float


def chosen(names: Sequence[str], seed: int, programs: int, *, gpu: bool) -> list[Suite]:
    """The suites of these names (all, if there are none), one for each target they run on."""
    unknown = sorted(set(names) - {suite.name for suite in SUITES})
    if unknown:
        known = ", ".join(suite.name for suite in SUITES)
        raise SystemExit(f"no such suite: {', '.join(unknown)}; there are {known}")
    found = []
    for suite in SUITES:
        if (names and suite.name not in names) or (suite.needs_gpu and not gpu):
            continue
        for target in TARGETS if "{target}" in suite.command else ("",):
            command = suite.command.format(target=target, seed=seed, programs=programs)
            found.append(replace(suite, name=f"{suite.name} {target}".strip(), command=command))
    return found


def run(suite: Suite, seed: int, folder: Path, seconds: float = 3600 * HOURS) -> Outcome:
    """Run a suite, its output into a file, and read its counts from there."""
    log = folder / f"{re.sub(r'[^a-z0-9]+', '-', suite.name.lower())}.log"
    command = [sys.executable, "-W", "ignore", "-m", *shlex.split(suite.command)]
    started = time.monotonic()
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, VARIABLE: str(seed)},
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its workers too
            process.wait()
            status = None
    text = log.read_text(errors="replace").replace("\r", "\n")
    counts = tuple(re.findall(suite.counts, text, re.MULTILINE))
    return Outcome(suite, status, counts, time.monotonic() - started)


def row(outcome: Outcome) -> str:
    """A suite in the table: its name, whether all is right, how long it took, and its counts."""
    word = {0: "right", None: "too long"}.get(outcome.status, f"exit {outcome.status}")
    minutes = f"{outcome.seconds / 60:.1f} min"
    first, *rest = outcome.counts or ("nothing counted",)
    room = WIDTH - NAME - 20
    lines = [f"{outcome.suite.name:<{NAME}}{word:<9}{minutes:>10} {first[:room]}"]
    return "\n".join(lines + [f"{'':<{NAME + 20}}{each[:room]}" for each in rest])


def is_right(outcome: Outcome) -> bool:
    """Whether a suite found nothing wrong, and ran anything at all."""
    return outcome.status == 0 and bool(outcome.counts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for and print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of the random draws; new if absent")
    parser.add_argument("--suite", default="", help="some suites by name, with commas between them")
    parser.add_argument("--programs", type=int, default=10_000, help="random programs to compile")
    parser.add_argument("--logs", type=Path, default=Path("nightly"), help="a folder for output")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) * 1000 if options.seed is None else options.seed
    names = [name.strip() for name in options.suite.split(",") if name.strip()]
    suites = chosen(names, seed, options.programs, gpu=has_gpu())
    options.logs.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}; output in {options.logs}/", flush=True)
    outcomes = []
    for suite in suites:
        outcomes.append(run(suite, seed, options.logs))
        print(row(outcomes[-1]), flush=True)
    failed = [each for each in outcomes if not is_right(each)]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} suites right, seed {seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
