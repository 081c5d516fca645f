"""What each kernel of a program takes on a GPU: the whole without it, taken from the whole.

    python -m benchmarks.gpu.steps [WORD …]     rows of ``programs`` whose names contain a word

A program's steps are captured in a graph, once as they are and once without each kind of step; the
difference is what that kind takes where it stands, its launch and what it evicts included.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

import monograph
from benchmarks.gpu.__main__ import made
from benchmarks.gpu.programs import ROWS, Row
from monograph.program.code import Launch, LibraryCall

REPEATS = 20
_HELD: list[torch.cuda.CUDAGraph] = []
"""Graphs whose memory steps may still read that a later graph leaves out the writer of."""


def step_times(row: Row) -> list[tuple[float, int, str]]:
    """Milliseconds that a program takes less without each kind of step, and how many there are."""
    model, inputs = made(row)
    compiled = monograph.compile(model, *inputs, target="gpu", cache=False)
    with torch.no_grad():
        for _ in range(3):
            kept = compiled(*inputs)  # its memory is what the steps below write to
    torch.cuda.synchronize()
    program: Any = compiled.executable.loaded
    held = program.on(0)
    ((frame, _),) = held.frames.values()
    steps = []
    for step in program.program.steps:
        prepared = frame.prepared(step)
        if prepared is not None:
            steps.append((_name(step, program.program), prepared))
    counts = Counter(name for name, _ in steps)
    whole = _milliseconds([step for _, step in steps], frame, held)
    found = [(whole, len(steps), "all steps")]
    for name, count in counts.items():
        without = _milliseconds([step for each, step in steps if each != name], frame, held)
        found.append((whole - without, count, name))
    del kept
    return sorted(found, reverse=True)


def _name(step: Any, program: Any) -> str:
    if isinstance(step, Launch):
        return step.kernel
    if isinstance(step, LibraryCall):
        node = program.fallbacks[step.call]
        shapes = " × ".join(str(list(value.shape)) for value in node.operands)
        return f"{step.library}: {node.op.name} {shapes}"
    return type(step).__name__


def _milliseconds(steps: Sequence[Any], frame: Any, held: Any) -> float:
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    _HELD.append(graph)
    torch.cuda.synchronize()
    frame.is_captured = True
    with (
        torch.cuda.graph(graph, stream=side, capture_error_mode="relaxed"),
        held.driver.current(held.device),
    ):
        for step in steps:
            step.run(side.cuda_stream)
    frame.is_captured = False
    frame.forget()
    times = []
    for _ in range(REPEATS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def main(words: Sequence[str]) -> None:
    """Print a table for each row."""
    for row in ROWS.values():
        if words and not any(word in row.name for word in words):
            continue
        print(f"\n{row.name}")
        for taken, count, name in step_times(row):
            print(f"{taken:9.4f} ms  {count:4} × {taken / count * 1e3:8.2f} µs  {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
