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
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from monograph import functional as F
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
INTEGER_MACHINES = {
    "vnni": replace(MACHINES["avx512"], features="+avx512f,+avx512vl,+avx512vnni"),
    "avx2-bytes": replace(MACHINES["avx2"], features="+avx2"),
    "dotprod": replace(MACHINES["neon"], features="+neon,+dotprod"),
}
"""Those that multiply bytes, each by another instruction."""
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


def _product_programs() -> Iterator[Program]:
    """Products of integers and of weights in few bits, by each instruction that there is."""
    for name in NARROW_PRODUCTS:
        for machine in ("avx512", *INTEGER_MACHINES):
            yield Program(f"product/{name}", machine, partial(_product_graph, name))


def _product_graph(name: str) -> Graph:
    from monograph.frontends.trace import trace

    function, *types = NARROW_PRODUCTS[name]
    return trace(function, *types)


def _words(left: Any, right: Any) -> Any:
    return F.matmul(F.cast(left, "i32"), F.cast(right, "i32"))


def _numbers(dtype: str, *shape: int) -> Any:
    """Weights of a dtype, the same in every process."""
    low, high = {"i4": (-8, 8), "u4": (0, 16), "i8": (-128, 128), "i16": (-900, 900)}[dtype]
    return F.cast(np.random.default_rng(0).integers(low, high, shape), dtype)


def _convolved(x: Any, channels: int, groups: int = 1) -> Any:
    weight = F.cast(_numbers("i8", 32, channels // groups, 3, 3), "i32")
    return F.conv(F.cast(x, "i32") - 7, weight, padding=1, groups=groups)


def _scaled(x: Any, dtype: str, group: int) -> Any:
    """A layer whose weights have a scale for each group of steps."""
    shape = (96, 256 // group, group)
    scale = np.linspace(0.5, 1, 96 * shape[1], dtype=np.float32).reshape(96, shape[1], 1)
    return F.linear(x, F.reshape(F.cast(_numbers(dtype, *shape), "f32") * scale, (96, 256)))


NARROW_PRODUCTS: dict[str, tuple[Any, ...]] = {
    "u8-i8": (lambda x: _words(x, _numbers("i8", 64, 96)), "u8[40, 64]"),
    "i8-i8": (lambda x: _words(x, _numbers("i8", 64, 96)), "i8[40, 64]"),
    "u8-i8-odd": (lambda x: _words(x, _numbers("i8", 67, 45)), "u8[rows, 67]"),
    "i8-i8-turned": (
        lambda x: _words(F.transpose(x, (1, 0)), _numbers("i8", 67, 45)),
        "i8[67, 40]",
    ),
    "i8-i8-both": (_words, "i8[40, 64]", "i8[64, 96]"),
    "u8-i8-odd-both": (_words, "u8[40, 67]", "i8[67, 96]"),
    "i16-i16": (lambda x: _words(x, _numbers("i16", 64, 96)), "i16[40, 64]"),
    "i16-i8-both": (_words, "i16[40, 67]", "i8[67, 96]"),
    "i32-i32": (lambda x, y: F.matmul(x, y), "i32[40, 64]", "i32[64, 96]"),
    "conv-u8": (lambda x: _convolved(x, 32), "u8[1, 32, 14, 15]"),
    "conv-i8-few": (lambda x: _convolved(x, 3), "i8[1, 3, 14, 15]"),
    "conv-u8-grouped": (lambda x: _convolved(x, 32, groups=2), "u8[1, 32, 14, 15]"),
    "conv-u8-depthwise": (lambda x: _convolved(x, 32, groups=32), "u8[1, 32, 14, 15]"),
    "conv-words": (lambda x: _convolved(F.cast(F.round(x * 9), "i8"), 32), "f32[1, 32, 14, 15]"),
    "i8-columns": (lambda x: _scaled(x, "i8", 256), "f32[2, 256]"),
    "i8-groups": (lambda x: _scaled(x, "i8", 64), "f32[2, 256]"),
    "i4-columns": (lambda x: _scaled(x, "i4", 256), "f32[2, 256]"),
    "u4-groups": (lambda x: _scaled(x, "u4", 64), "f32[2, 256]"),
    "i4-many-rows": (lambda x: _scaled(x, "i4", 256), "f32[40, 256]"),
}
"""Functions and the types of what they are given."""


def programs(quick: bool) -> list[Program]:
    """All that is replayed, or the slice of it that takes less than a minute."""
    if quick:
        return [
            *_product_programs(),
            *_sample_programs(["avx512"], every_dtype=False),
            *_model_programs(["avx512"], QUICK_MODELS),
            *_workload_programs(["avx512"], quick=True),
        ]
    return [
        *_product_programs(),
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
        text = generated_text(program.make(), (MACHINES | INTEGER_MACHINES)[program.machine])
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
