"""Process replay: does a refactoring leave the generated code as it was, byte for byte?

``python -m tests.replay`` compiles the op samples, models of the zoo and the benchmark workloads as
far as LLVM's text, for described machines (so that the answer is the same everywhere), and writes a
digest of each program to ``build/replay/<commit>.json``. LLVM itself is not run.

    python -m tests.replay --quick                      # a slice, under a minute
    python -m tests.replay --against HEAD~3             # both revisions, and what differs
    python -m tests.replay --against build/replay/1a2b3c4.json
    python -m tests.replay --only model/bert --keep /tmp/texts    # the texts, to diff

A revision is replayed in a temporary worktree by its own copy of this file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

from monograph.errors import MonographError
from monograph.ir.graph import Graph
from monograph.targets.cpu.machine import Compiled, Machine

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "build" / "replay"
CACHES = (32 << 10, 1 << 20, 16 << 20)
THREADS = 8
MACHINES = {
    "avx512": Machine(
        "x86_64-unknown-linux-gnu",
        "znver4",
        "+avx512f,+avx512vnni,+avx512bf16",
        64,
        32,
        *CACHES,
        THREADS,
    ),
    "avx2": Machine("x86_64-unknown-linux-gnu", "x86-64-v3", "", 32, 16, *CACHES, THREADS),
    "neon": Machine("aarch64-unknown-linux-gnu", "generic", "+neon", 16, 32, *CACHES, THREADS),
}
QUICK_MODELS = ("bert", "llama", "resnet", "mobilenet-v2", "t5", "whisper")
QUICK_WORKLOADS = ("convolution", "attention", "rows", "pointwise", "narrow")
LARGE_WORKLOADS = ("gpt2", "llama", "vit", "bert-512", "-8x", "resnet50-8", "mobilenetv2-8")
"""Large models that repeat what smaller ones show."""


@dataclass(frozen=True)
class Program:
    """Something to compile: ``name`` begins with its kind (``sample/``, ``model/``, ``bench/``)."""

    name: str
    machine: str
    make: Callable[[], Graph]

    @property
    def key(self) -> str:
        return f"{self.name}@{self.machine}"


# What is compiled -----------------------------------------------------------------------------


def _sample_programs(machines: Sequence[str], every_dtype: bool) -> Iterator[Program]:
    """The samples of every op, those that are traced alike as one graph with many results."""
    from tests.ops.harness import samples_by_op

    for op in samples_by_op():
        for machine in machines:
            yield Program(f"sample/{op}", machine, partial(_sample_graph, op, every_dtype))


def _sample_graph(op: str, every_dtype: bool) -> Graph:
    from monograph.program.native_support import only_interpretable
    from tests.ops.harness import sample_graph, samples_by_op
    from tests.targets.cpu.samples import Case, in_dtypes, together

    chosen = []
    for name, sample in samples_by_op()[op]:
        for dtype, variant in in_dtypes(sample) if every_dtype else [("own", sample)]:
            try:
                graph = sample_graph(variant)
            except MonographError:
                continue  # the op refuses the dtype
            if only_interpretable(graph) is None:
                chosen.append(Case(f"{name}@{dtype}", variant, graph, None, None))
    return together(chosen)


def _model_programs(machines: Sequence[str], names: Sequence[str] | None) -> Iterator[Program]:
    from tests.models.zoo import find

    for model in find():
        if (names is None and model.no_torch is None) or (names and model.name in names):
            for machine in machines:
                yield Program(f"model/{model.name}", machine, partial(_model_graph, model.name))


def _model_graph(name: str) -> Graph:
    from monograph.frontends.torch import import_torch
    from tests.models.zoo import find

    (model,) = (each for each in find() if each.name == name)
    return import_torch(model.build(), *model.example()).graph


def _workload_programs(machines: Sequence[str], quick: bool) -> Iterator[Program]:
    from benchmarks.workloads import select

    for each in select():
        known = each.telling and each.group in QUICK_WORKLOADS
        if known if quick else not any(part in each.name for part in LARGE_WORKLOADS):
            for machine in machines:
                yield Program(f"bench/{each.name}", machine, partial(_workload_graph, each.name))


def _workload_graph(name: str) -> Graph:
    from benchmarks.workloads import select
    from monograph.frontends.torch import import_torch

    (found,) = (each for each in select([name]) if each.name == name)
    case = found.build()
    return import_torch(case.module, *case.inputs).graph


def programs(quick: bool) -> list[Program]:
    """All that is replayed, or the slice of it that takes less than a minute."""
    if quick:
        return [
            *_sample_programs(["avx512"], every_dtype=False),
            *_model_programs(["avx512"], QUICK_MODELS),
            *_workload_programs(["avx512"], quick=True),
        ]
    return [
        *_sample_programs(["avx512"], every_dtype=True),
        *_sample_programs(["avx2", "neon"], every_dtype=False),
        *_model_programs(["avx512"], None),
        *_workload_programs(["avx512", "neon"], quick=False),
    ]


# Compiling as far as text ---------------------------------------------------------------------


def generated_text(graph: Graph, machine: Machine) -> str:
    """LLVM's text of all kernels and entry points of a graph, for a described machine."""
    from monograph.compiler import Options, build_program
    from monograph.runtime.compile_report import CompileReport
    from monograph.runtime.program_cache import Watch
    from monograph.targets.cpu.target import CpuTarget

    options = Options(cache=False, target=CpuTarget("cpu:described", machine))
    with _without_llvm():
        program = build_program(graph, Watch(graph), options, CompileReport())
    return "no native code before the first call" if program is None else program.text


@contextmanager
def _without_llvm() -> Iterator[None]:
    """Within it LLVM makes an empty object of every text."""
    replaced: dict[str, Callable[..., Any]] = {
        "monograph.targets.cpu.build.compile_text": lambda *_, **__: Compiled(b""),
        "monograph.targets.cpu.parts.compile_text": lambda *_, **__: Compiled(b""),
    }
    patches = [patch(name, new) for name, new in replaced.items()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def replay(program: Program, keep: Path | None = None) -> tuple[str, str]:
    """The program's key, and a digest of its text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = generated_text(program.make(), MACHINES[program.machine])
    if keep is not None:
        path = keep / f"{program.key}.ll"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return program.key, hashlib.sha256(text.encode()).hexdigest()[:16]


def _quiet() -> None:
    """One thread for each process, and no notices from torch's exporter."""
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)


def replay_all(chosen: Sequence[Program], workers: int, keep: Path | None) -> dict[str, str]:
    """The table of digests."""
    with ProcessPoolExecutor(workers, get_context("spawn"), _quiet) as pool:
        found = pool.map(partial(replay, keep=keep), chosen)
        return dict(sorted(found))


# Comparing ------------------------------------------------------------------------------------


def differences(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """What differs between two tables, a line each; what only one of them has is no difference."""
    return [name for name in old if name in new and old[name] != new[name]]


def table_at(revision: str, arguments: Sequence[str]) -> dict[str, str]:
    """The table of another revision, replayed in a worktree of its own."""
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), revision)
        try:
            if not (tree / "tests" / "replay.py").exists():
                raise SystemExit(f"{revision} has no tests/replay.py: it is older than this script")
            written = Path(folder) / "table.json"
            command = [sys.executable, "-m", "tests.replay", *arguments, "--out", str(written)]
            subprocess.run(
                command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, check=True
            )
            return dict(json.loads(written.read_text()))
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice that takes under a minute")
    parser.add_argument("--only", default="", help="programs whose keys match this pattern")
    parser.add_argument("--against", help="a table, or a revision that is replayed as well")
    parser.add_argument("--out", type=Path, help="where to write the table")
    parser.add_argument("--keep", type=Path, help="a folder to write the generated texts to")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    pattern = re.compile(given.only)
    chosen = [each for each in programs(given.quick) if pattern.search(each.key)]
    table = replay_all(chosen, given.workers, given.keep)
    out = given.out or TABLES / f"{_git('describe', '--always', '--dirty')}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(table, indent=1) + "\n")
    print(f"{len(table)} programs, digests in {out}")
    if given.against is None:
        return 0
    if Path(given.against).is_file():
        old = dict(json.loads(Path(given.against).read_text()))
    else:
        same = ["--only", given.only, "--workers", str(given.workers)]
        old = table_at(given.against, [*same, *(["--quick"] if given.quick else [])])
    found, shared = differences(old, table), len(old.keys() & table.keys())
    print(*found, sep="\n")
    print(f"{len(found)} of {shared} programs differ from {given.against}")
    return 1 if found or not shared else 0


if __name__ == "__main__":
    sys.exit(main())
