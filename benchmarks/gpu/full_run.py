"""One run on a GPU that is had for minutes only: what is right first, then times, the best first.

    python -m benchmarks.gpu.full_run --out FOLDER [--seconds 460] [--dry]

Each stage is some processes with a time limit, whose output goes to a file in the folder as it is
written, so that nothing is lost if the time is up; a process that fails takes no other with it.

1. At once, on all cores: models and op samples against float64, and the first calls of models, by
   ours and by Inductor, each with caches of its own that are empty; then by ours in a second
   process. All compete for the same cores and the same GPU: compare these numbers with each other.
2. Alone, one after the other: the times of rows beside torch, with Inductor's cache filled; what
   each kernel of one token takes; then Inductor's longest mode, as far as the time goes.

``--dry`` prints the commands.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = "Llama 1 B, one token"
MODELS = (
    TOKEN,
    "BERT-base, 8×512",
    "GPT-2, 8×512",
    "Llama 1 B, prefill 2048",
    "ResNet-50, 32",
    "ViT-B/16, 32",
)
PROGRAMS = (
    "chain of 5, 4096² f32",
    "attention, 4×16×2048×64 bf16",
    "MLP, 4096×4096×16384 bf16",
    "gated MLP, batch 1, bf16",
    "softmax, 8192² f32",
    "rms norm, 8192² bf16",
    "GELU, 8192² bf16",
    "add + layer norm, 16384×4096 bf16",
    "gated MLP, 4096×4096×11008 bf16",
    "conv + bn + relu, 32×64×56×56 bf16",
    "conv + bn + relu, 32×64×56×56 f32",
)
CHECKED = (
    ("llama decode", "llama"),
    ("gated mlp", "mlp", "bert"),
    ("gpt", "vit"),
    ("resnet",),
)
"""Models of ``tests.targets.gpu.models``, those of a tuple in one process."""
MODES = "default,reduce-overhead"
NO_OVERLAP = "without overlapped_launches"
MIN_SECONDS = 8.0
"""What a process must have left, or it is not started."""


@dataclass
class Job:
    """Processes that run one after the other, and the file that has what they print."""

    name: str
    commands: Sequence[Sequence[str]]
    log: str
    limit: float
    environment: Mapping[str, str] = field(default_factory=dict)
    done: int = 0
    started: float = 0.0
    process: subprocess.Popen[bytes] | None = None


class FullRun:
    """Runs jobs within the time that there is."""

    def __init__(self, out: Path, seconds: float, *, dry: bool) -> None:
        self.out = out
        self.begun = time.monotonic()
        self.seconds = seconds
        self.dry = dry
        out.mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (time.monotonic() - self.begun)

    def note(self, text: str) -> None:
        """Say what happens, with the time, here and in the folder."""
        line = f"[{self.seconds - self.left:6.1f} s] {text}"
        print(line, flush=True)
        with (self.out / "run.log").open("a") as log:
            log.write(line + "\n")

    def together(self, jobs: Sequence[Job], limit: float) -> None:
        """Run jobs at the same time, for so many seconds at most."""
        until = time.monotonic() + min(limit, self.left)
        waiting = list(jobs)
        while waiting:
            for job in list(waiting):
                if not self.advance(job, until):
                    waiting.remove(job)
            time.sleep(0.2)

    def advance(self, job: Job, until: float) -> bool:
        """Start a job's next process if it is time; whether there is more to wait for."""
        now = time.monotonic()
        if job.process is not None:
            code = job.process.poll()
            if code is None:
                if now < min(until, job.started + job.limit):
                    return True
                os.killpg(job.process.pid, signal.SIGKILL)  # with the compilers that it started
                code = job.process.wait()
                job.done = len(job.commands)  # what would follow has no time either
            self.note(f"{job.name}: {now - job.started:.1f} s, exit code {code}")
            job.process = None
        if job.done >= len(job.commands):
            return False
        if until - now < MIN_SECONDS:
            self.note(f"{job.name}: no time left for {len(job.commands) - job.done} processes")
            return False
        command = job.commands[job.done]
        job.done += 1
        if self.dry:
            self.note(f"{job.name}: {shlex.join(command)} > {job.log}")
            return True
        job.started = now
        with (self.out / job.log).open("ab") as log:
            job.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **job.environment},
            )
        return True

    def alone(self, job: Job) -> None:
        """Run one job and nothing beside it."""
        self.together([job], job.limit * len(job.commands))


def _python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def preparations(scratch: Path) -> list[Job]:
    """What runs at once: what is right, and first calls."""
    right = "right.log"
    samples = _python("tests.targets.gpu.check", "--every", "4", "--seconds", "90")
    jobs = [Job("samples", [samples], right, 125)]
    for names in CHECKED:
        checks = _python("tests.targets.gpu.models", *names)
        jobs.append(Job(f"right: {', '.join(names)}", [checks], right, 125))
    first = _python("benchmarks.gpu", *PROGRAMS, "--first", "--peers", "default")
    jobs.append(Job("programs, Inductor", [first], "first.log", 125))
    for number, row in enumerate(MODELS):
        ours = {
            "MONOGRAPH_CACHE_DIR": str(scratch / f"ours{number}"),
            "TRITON_CACHE_DIR": str(scratch / f"triton{number}"),
        }
        first = _python("benchmarks.gpu", row, "--first", "--peers")
        twice = [[*first, "ours"]] * 2
        jobs.append(Job(f"{row}, ours", twice, "first.log", 100, ours))
        jobs.append(Job(f"{row}, Inductor", [[*first, MODES]], "first.log", 125))
    return jobs


def measurements(out: Path) -> list[Job]:
    """What is timed, in this order."""
    choices = out / "choices.json"

    def timed(name: str, rows: Sequence[str], peers: str, limit: float) -> Job:
        files = ("--json", str(out / "rows.json"), "--measurements", str(choices))
        options = ("--seconds", "70", "--until", str(limit - 25))
        command = _python("benchmarks.gpu", *rows, "--peers", peers, *options, *files)
        return Job(name, [command], "rows.log", limit)

    steps = _python("benchmarks.gpu.steps", TOKEN)
    known = {"MONOGRAPH_GPU_TIMES": str(choices)}
    return [
        timed("token", [TOKEN], f"eager,{NO_OVERLAP},{MODES}", 110),
        timed("programs", PROGRAMS, f"eager,{MODES},copy", 130),
        Job("steps of a token", [steps], "steps.log", 60, known),
        timed("models", [*MODELS[1:], "GPT-2, 8×512, all scores"], f"eager,{MODES}", 240),
        timed("longest mode", PROGRAMS[:8], "max-autotune,copy", 100),
    ]


def main(arguments: Sequence[str]) -> int:
    """Run all stages; 0 also if some of it failed, which their files say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=460.0)
    parser.add_argument("--dry", action="store_true", help="print the commands and run none")
    chosen = parser.parse_args(arguments)
    run = FullRun(chosen.out, chosen.seconds, dry=chosen.dry)
    with tempfile.TemporaryDirectory() as folder:
        run.together(preparations(Path(folder)), 130)
        for job in measurements(chosen.out):
            run.alone(job)
    rows = chosen.out / "rows.log"
    if rows.exists():
        print(rows.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
