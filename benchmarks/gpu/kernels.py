"""Single kernels on a GPU: each candidate of ours beside torch, its libraries and a plain copy.

    python -m benchmarks.gpu.kernels [WORD …]     workloads whose names contain a word

Kernels are launched by Triton's own JIT, in a captured graph that rotates over several sets of
operands, so that they come from memory. Times are medians of device events. Errors are relative to
float64: ‖got − reference‖ / ‖reference‖.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

import monograph
from benchmarks.gpu.workloads import WORKLOADS, Workload
from monograph.errors import UnsupportedError
from monograph.fusion.fuse import fuse
from monograph.ir.graph import Graph
from monograph.kernel.lower import is_lowerable
from monograph.ops.attention import Attention
from monograph.passes.manager import run_pipeline
from monograph.targets.gpu.attention import AttentionOperands, attention_candidates
from monograph.targets.gpu.cubin import import_kernel
from monograph.targets.gpu.families import candidates
from monograph.targets.gpu.group_kernel import lower_flat
from monograph.targets.gpu.joint_products import join_products
from monograph.targets.gpu.plan import KernelSequence
from monograph.targets.gpu.source import TritonKernel
from monograph.targets.gpu.target import LOWERING

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
REPEATS = 15
CACHE_BYTES = 120 << 20
"""Operands of all sets together are larger than what caches hold."""


@dataclass(frozen=True)
class Step:
    """A kernel and which of a program's tensors it is given: operands, results, then scratch."""

    kernel: TritonKernel
    path: str
    tensors: tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """One way to compute a workload."""

    steps: tuple[Step, ...]
    scratch: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    microseconds: float

    def __str__(self) -> str:
        return " | ".join(
            f"{x.kernel.family} {'×'.join(map(str, x.kernel.blocks.values()))}"
            f" w{x.kernel.warps} s{x.kernel.stages}"
            for x in self.steps
        )


def our_candidates(workload: Workload, folder: Path) -> list[Candidate]:
    """The candidates of a workload; where its graph has several groups, each has its best."""
    graph = monograph.trace(workload.ours, *workload.types)
    run_pipeline(graph, LOWERING)
    groups = join_products(fuse(graph, {node: is_lowerable(node) for node in graph.nodes})).groups
    choices = []
    for number, group in enumerate(groups):
        first, name = group.nodes[0], f"k{number}_{group.name}"
        if isinstance(first.op, Attention):
            query, key, value = (operand.tensor for operand in first.operands)
            operands = AttentionOperands(query, key, value, None)
            found = attention_candidates(name, first.op, operands)
            choices.append((found, first.operands, first.results))
        else:
            lowered = lower_flat(group, name, group.outputs())
            choices.append((candidates(lowered.flat, most=8), lowered.inputs, lowered.outputs))
    best = [found[:1] if len(choices) > 1 else found for found, _, _ in choices]
    return [
        _candidate(graph, picked, [places for _, *places in choices], folder)
        for picked in itertools.product(*best)
    ]


def _candidate(
    graph: Graph, sequences: Sequence[KernelSequence], places: Sequence[Any], folder: Path
) -> Candidate:
    number = {value: k for k, value in enumerate((*graph.inputs, *graph.outputs))}
    scratch: list[tuple[tuple[int, ...], torch.dtype]] = []
    steps = []

    def add(shape: Any, dtype: str) -> int:
        scratch.append((tuple(shape), DTYPES[dtype]))
        return len(graph.inputs) + len(graph.outputs) + len(scratch) - 1

    for sequence, (inputs, outputs) in zip(sequences, places, strict=True):
        named = {}
        for letter, values in (("b", inputs), ("o", outputs)):
            for k, value in enumerate(values):
                if value not in number:
                    number[value] = add(value.shape, value.dtype.name)
                named[f"{letter}{k}"] = number[value]
        for buffer in sequence.scratch:
            named[buffer.name] = add(buffer.shape, buffer.dtype.name)
        for kernel in sequence.kernels:
            path = folder / f"m{len(list(folder.iterdir()))}"
            import_kernel(kernel, path)
            given = tuple(named[buffer.name] for buffer in kernel.kernel.buffers)
            steps.append(Step(kernel, str(path), given))
    return Candidate(tuple(steps), tuple(scratch), sum(x.microseconds for x in sequences))


_WORK: list[tuple[Step, list[torch.dtype]]] = []
"""What the worker processes compile: they are forked when it is complete."""


def _compile(number: int) -> str:
    """Fill Triton's cache with a kernel; what went wrong, if anything."""
    step, dtypes = _WORK[number]
    kernel = step.kernel
    try:
        import_kernel(kernel, Path(step.path)).warmup(
            *(dtypes[k] for k in step.tensors),
            **kernel.blocks, num_warps=kernel.warps, num_stages=kernel.stages, grid=(1,),
        )  # fmt: skip
    except Exception as error:  # reported with the row
        return f"{type(error).__name__}: {str(error)[-200:]}"
    return ""


def milliseconds(calls: Sequence[Callable[[], object]]) -> float:
    """The median time of one of these calls, replayed from a captured graph."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2] / len(calls)


@dataclass
class Prepared:
    """A workload with its candidates, and what is wrong with some."""

    name: str
    workload: Workload
    types: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    candidates: list[Candidate]
    problems: dict[str, str]


def prepare(names: Sequence[str], folder: Path) -> list[Prepared]:
    """Workloads with their candidates written and compiled, on all cores."""
    found = []
    for name in names:
        workload = WORKLOADS[name]
        graph = monograph.trace(workload.ours, *workload.types)
        values = (*graph.inputs, *graph.outputs)
        types = tuple((tuple(x.shape), DTYPES[x.dtype.name]) for x in values)
        try:
            ours = our_candidates(workload, folder)
        except UnsupportedError as error:
            print(f"{name}: {error}")
            ours = []
        found.append(Prepared(name, workload, types, ours, {}))
    owners = []
    for each in found:
        for candidate in each.candidates:
            dtypes = [kind for _, kind in (*each.types, *candidate.scratch)]
            _WORK.extend((step, dtypes) for step in candidate.steps)
            owners += [(each, candidate)] * len(candidate.steps)
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        results = pool.map(_compile, range(len(_WORK)), chunksize=1)
    for (each, candidate), problem in zip(owners, results, strict=True):
        if problem:
            each.problems[str(candidate)] = problem
    return found


def measure(each: Prepared) -> None:
    """Print a workload's rows, the fastest first."""
    operand_types, (result_type,) = each.types[:-1], each.types[-1:]
    size = sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in each.types)
    count = max(2, min(8, -(-CACHE_BYTES // size)))
    sets = [[_draw(*kind, each.workload.scale) for kind in operand_types] for _ in range(count)]
    reference = each.workload.torch(*(x.double() for x in sets[-1]))
    rows = []

    def add(label: str, calls: Sequence[Callable[[], Any]], result: torch.Tensor) -> None:
        taken = milliseconds(calls)
        error = (result.double().reshape(reference.shape) - reference).norm() / reference.norm()
        rows.append((taken, label, float(error)))

    peers = {"torch": each.workload.torch, **each.workload.libraries}
    if each.workload.nbytes:
        peers["copy of the largest operand"] = lambda *x: max(x, key=torch.numel).clone()
    for label, function in peers.items():
        result = function(*sets[-1])
        fits = result.numel() == reference.numel() and not label.startswith("copy")
        calls = [partial(function, *x) for x in sets]
        add(label, calls, result if fits else reference)
    for number, candidate in enumerate(each.candidates):
        if str(candidate) in each.problems:
            print(f"{each.name}: {candidate}: {each.problems[str(candidate)]}")
            continue
        result = torch.full(result_type[0], float("nan"), dtype=result_type[1], device="cuda")
        scratch = [
            torch.empty(shape, dtype=kind, device="cuda") for shape, kind in candidate.scratch
        ]
        calls = [partial(_launch, candidate, [*x, result, *scratch]) for x in sets]
        label = f"ours {number}: {candidate} (predicted {candidate.microseconds / 1000:.4f})"
        add(label, calls, result)
    print(f"\n{each.name}, {count} sets")
    for taken, label, error in sorted(rows):
        print(f"{taken:9.4f} ms {_rate(each.workload, taken):>13} {error:.1e}  {label}", flush=True)


def _launch(candidate: Candidate, tensors: Sequence[torch.Tensor]) -> None:
    for step in candidate.steps:
        kernel = step.kernel
        import_kernel_once(kernel, step.path)[kernel.grid](
            *(tensors[k] for k in step.tensors),
            **kernel.blocks, num_warps=kernel.warps, num_stages=kernel.stages,
        )  # fmt: skip


_LOADED: dict[str, Any] = {}


def import_kernel_once(kernel: TritonKernel, path: str) -> Any:
    """The Triton function of a kernel."""
    if path not in _LOADED:
        _LOADED[path] = import_kernel(kernel, Path(path))
    return _LOADED[path]


def _draw(shape: tuple[int, ...], dtype: torch.dtype, scale: float) -> torch.Tensor:
    return torch.randn(shape, device="cuda").mul_(scale if len(shape) > 1 else 1).to(dtype)


def _rate(workload: Workload, taken: float) -> str:
    if workload.nbytes:
        return f"{workload.nbytes / taken / 1e9:.2f} TB/s"
    return f"{workload.operations / taken / 1e9:.0f} TFLOP/s"


def main(words: Sequence[str]) -> None:
    """Measure the workloads whose names contain a word; all without any."""
    names = [name for name in WORKLOADS if not words or any(word in name for word in words)]
    started = time.perf_counter()
    if not torch.cuda.is_available():
        raise SystemExit("this measures on a GPU, and torch sees none here")
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare(names, Path(folder))
        print(f"{len(prepared)} workloads compiled in {time.perf_counter() - started:.0f} s")
        print(torch.cuda.get_device_name(), f"torch {torch.__version__}")
        torch.manual_seed(0)
        triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))
        failed = 0
        for each in prepared:
            try:
                measure(each)
            except Exception:  # the other workloads are still worth their time
                traceback.print_exc()
                failed += 1
        if failed:
            raise SystemExit(f"{failed} of {len(prepared)} workloads failed")


if __name__ == "__main__":
    main(sys.argv[1:])
