"""Times small programs beside each other on a GPU: what a choice by measurement asks.

Each program runs in a captured graph, over several sets of operands one after the other, so that
they come from memory and not from the cache. The graphs are replayed by turns, between two events
of the device, and a program's time is the least of its turns: other work makes a turn only slower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import Logger
from typing import Any

from monograph.dataclass import dataclass
from monograph.ir.dims import evaluate_dim
from monograph.logs import stage_logger
from monograph.program.code import Code, SlotKind
from monograph.runtime.gpu.frame import Frame, plan_arena
from monograph.runtime.gpu.memory import TorchMemory
from monograph.runtime.gpu.program import OnDevice, torch_dtype

CACHE_BYTES = 120 << 20
"""Bytes of operands after which the first ones are no longer in the cache."""
MAX_SETS = 8
MIN_RUNS = 4
"""Runs in a graph: so few that it is quickly captured, so many that launching it does not show."""
TURNS = 5

Timer = Callable[[Mapping[str, Code]], dict[str, float]]
"""Microseconds of programs of the same operands, by name; those that fail are missing."""
_LOG: Logger = stage_logger("assemble")


class Rotation:
    """A program with several sets of operands, ready to run on each."""

    def __init__(self, code: Code, sets: list[dict[int, Any]], number: int) -> None:
        self.held = OnDevice(code, number)
        self.frame = Frame(self.held, (), plan_arena(self.held.requests, {}))
        self.sets = sets
        self.inputs = [
            (k, slot.number) for k, slot in enumerate(code.slots) if slot.kind is SlotKind.INPUT
        ]

    def run(self, turn: int, stream: int) -> None:
        """Run it once, on the set whose turn it is."""
        operands = self.sets[turn % len(self.sets)]
        for slot, number in self.inputs:
            self.frame.words[slot] = operands[number].data_ptr()
        with self.held.driver.current(self.held.device):
            self.frame.run(stream)
        self.frame.forget()


@dataclass(frozen=True)
class _Replayed:
    """A captured graph, how many runs it has, and what must live as long as it."""

    graph: Any
    runs: int
    rotation: Rotation


def time_programs(codes: Mapping[str, Code], number: int = 0) -> dict[str, float]:
    """Microseconds of each program; the operands are the same, and what fails is left out."""
    import torch

    first = next(iter(codes.values()))
    with torch.cuda.device(number):
        try:
            sets = operand_sets(first, torch.device("cuda", number))
        except torch.OutOfMemoryError as problem:
            _LOG.info("nothing is measured, for want of memory: %s", problem)
            return {}
        ready: dict[str, _Replayed] = {}
        for name, code in codes.items():
            try:
                ready[name] = _capture(Rotation(code, sets, number))
            except Exception as problem:  # a backend that refuses is no contender
                _LOG.info("%s cannot be measured: %s", name, problem)
                torch.cuda.synchronize()
        times: dict[str, list[float]] = {name: [] for name in ready}
        for _ in range(TURNS):
            for name, each in ready.items():
                times[name].append(_replay(each))
        for each in ready.values():
            each.rotation.frame.close()
    return {name: min(found) for name, found in times.items()}


def operand_sets(code: Code, device: Any) -> list[dict[int, Any]]:
    """Sets of random operands, by their numbers, so many that they do not fit into the cache."""
    import torch

    slots = [slot for slot in code.slots if slot.kind is SlotKind.INPUT]
    shapes = {slot.number: tuple(evaluate_dim(dim, {}) for dim in slot.shape) for slot in slots}
    kinds = {slot.number: torch_dtype(slot.dtype) for slot in slots}
    sizes = {k: torch.Size(shapes[k]).numel() * kinds[k].itemsize for k in shapes}
    total = sum(sizes.values())
    count = max(1, min(MAX_SETS, -(-CACHE_BYTES // max(total, 1))))
    return [
        {k: _draw(shapes[k], kinds[k], device) for k in shapes} for _ in range(count)
    ]  # fmt: skip


def _draw(shape: tuple[int, ...], kind: Any, device: Any) -> Any:
    """Random numbers; integers are zeros, which index anything."""
    import torch

    if kind.is_floating_point and kind.itemsize >= 2:
        return torch.randn(shape, device=device, dtype=kind)
    return torch.zeros(shape, device=device, dtype=kind)


def _capture(rotation: Rotation) -> _Replayed:
    """The program captured on each of its sets, after a first run that libraries begin in."""
    memory = rotation.held.memory
    assert isinstance(memory, TorchMemory)
    torch = memory.torch
    runs = max(MIN_RUNS, len(rotation.sets))
    side = torch.cuda.Stream(memory.place)
    side.wait_stream(torch.cuda.current_stream(memory.place))
    with torch.cuda.stream(side):
        rotation.run(0, side.cuda_stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="relaxed"):
        for turn in range(runs):
            rotation.run(turn, side.cuda_stream)
    graph.replay()
    torch.cuda.synchronize()
    return _Replayed(graph, runs, rotation)


def _replay(each: _Replayed) -> float:
    """Microseconds of a run, in one replay of its graph."""
    memory = each.rotation.held.memory
    assert isinstance(memory, TorchMemory)
    cuda = memory.torch.cuda
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    begin.record()
    each.graph.replay()
    end.record()
    end.synchronize()
    taken: float = begin.elapsed_time(end)
    return taken * 1e3 / each.runs
