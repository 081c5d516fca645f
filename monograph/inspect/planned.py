"""The graph in execution order: kernel by kernel, with memory as it is allocated and freed.

    graph @main(%x: f32[64, 64]) -> (f32[64, 64]) {
      %exp_memory = alloc() {shape = [64, 64]} : f32[64, 64]     # 16.00 KiB at 0
      %exp = exp(%x) : f32[64, 64]                               # k0_exp, in %exp_memory
      %sum = sum(%exp) {axes = [1]} : f32[64]                    # k1_sum, in an output
      free(%exp_memory)
      ...

Each value that a kernel leaves in the arena has an ``alloc`` before the kernel and a ``free`` after
the last one that reads it; what is written in place takes over the memory of what it is written
over, and what stays inside a kernel has none. ``copy`` stands where the program copies. It is a
graph like any other: it parses, verifies, and computes what it did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.fusion.group import Group
from monograph.fusion.prologue import is_stored
from monograph.inspect.explain import arena_plan
from monograph.inspect.inputs import choose_sizes
from monograph.ir.graph import Graph, Node, Value, copy_node
from monograph.ir.text.printer import print_graph
from monograph.ops import memory
from monograph.program.arena import readable
from monograph.program.code import (
    Copy,
    Interpret,
    Launch,
    LibraryCall,
    Slot,
    SlotKind,
    Step,
    list_slots,
    walk_steps,
)
from monograph.program.liveness import arena_requests
from monograph.runtime.compiled import Executable
from monograph.targets.base import Program


@dataclass
class PlannedGraph:
    """The graph, and what is to be said of its nodes."""

    graph: Graph
    remarks: dict[Node, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return format_plan(self)


@dataclass(frozen=True)
class _Turn:
    """A group and the steps that run it."""

    group: Group
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class _Place:
    """A slot's piece of the arena, and the slot whose place it takes over."""

    offset: int
    size: int
    over: int | None


def plan_graph(executable: Executable, sizes: Mapping[str, int] | None = None) -> PlannedGraph:
    """The lowered graph with its memory; places are those at the given symbolic sizes."""
    program = executable.program
    if program is None:
        raise InputError(
            "there is no plan to show",
            found=executable.report.specialised or "a program that was loaded, without its graph",
        )
    return _Planner(executable, program, sizes or {}).run()


def format_plan(planned: PlannedGraph) -> str:
    """The graph as text, with the remarks as comments behind its nodes."""
    lines = print_graph(planned.graph).splitlines()
    nodes = iter(planned.graph.nodes)
    own = [k for k, line in enumerate(lines) if line[:2] == "  " and line[2:3] not in " }"]
    width = max((len(lines[k]) for k in own if len(lines[k]) <= 60), default=0)
    for k, node in zip(own, nodes, strict=False):
        remark = planned.remarks.get(node)
        lines[k] += "" if remark is None else f"{' ' * (width - len(lines[k]))}  # {remark}"
    return "\n".join(lines)


class _Planner:
    def __init__(self, executable: Executable, program: Program, sizes: Mapping[str, int]) -> None:
        self.lowered = executable.lowered
        self.program = program
        self.planned = PlannedGraph(Graph(self.lowered.name))
        self.graph = self.planned.graph
        self.mapping: dict[Value, Value] = {}
        self.memory: dict[int, Value] = {}
        self.alive: dict[int, _Place] = {}
        plan = arena_plan(executable, choose_sizes(executable.graph, sizes))
        slots = [request.slot for request in arena_requests(program)]
        self.places = {
            slot: _Place(offset, request.size, None if over is None else slots[over])
            for slot, offset, request, over in zip(
                slots, plan.offsets, plan.requests, plan.taken_over, strict=True
            )
        }
        self.taken = {place.over for place in self.places.values()}

    def run(self) -> PlannedGraph:
        for value in self.lowered.inputs:
            self.mapping[value] = self.graph.add_input(value.name, value.type)
        for node in self.lowered.nodes:
            if is_stored(node):
                copy_node(node, self.graph, self.mapping)
        turns = list(self._turns())
        first, last = self._lives(turns)
        for number, turn in enumerate(turns):
            for slot in [slot for slot, begin in first.items() if begin == number]:
                self._alloc(slot)
            self._run_group(turn)
            for slot in [slot for slot, end in last.items() if end == number]:
                self._free(slot)
        self.graph.set_outputs([self._output(k) for k in range(len(self.lowered.outputs))])
        self.graph.updates = dict(self.lowered.updates)
        self.graph.donated = set(self.lowered.donated)
        return self.planned

    # Which steps run which group ------------------------------------------------------------------

    def _turns(self) -> Iterator[_Turn]:
        """Steps were made group by group, in order."""
        begin = 0
        for group, end in zip(self.program.fusions[0].groups, self.program.ends, strict=True):
            yield _Turn(group, self.program.steps[begin:end])
            begin = end

    def _slot(self, value: Value) -> int | None:
        return self.program.slot_of.get(value)

    def _lives(self, turns: list[_Turn]) -> tuple[dict[int, int], dict[int, int]]:
        """The turns in which each piece of the arena is touched first and last."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for number, turn in enumerate(turns):
            for slot in _walk_slots(turn.steps):
                if slot in self.places:
                    first.setdefault(slot, number)
                    last[slot] = number
        for value in self.lowered.outputs:  # copied when all is done
            kept = self._slot(value)
            if kept is not None and kept in last:
                last[kept] = len(turns)
        return first, last

    # Nodes ----------------------------------------------------------------------------------------

    def _alloc(self, slot: int) -> None:
        place = self.places[slot]
        if place.over is not None and place.over in self.memory:
            self.memory[slot] = self.memory[place.over]
            self.alive[slot] = self.alive.pop(place.over, place)
            return
        described: Slot = self.program.slots[slot]
        op = memory.Alloc(described.shape, described.dtype)
        node = self.graph.create(op, (), name=f"{described.name}_memory")
        self.memory[slot] = node.result
        beneath = [f"%{self.memory[other].name}" for other in self._beneath(place)]
        after = f", after {', '.join(beneath)}" if beneath else ""
        self.planned.remarks[node] = f"{readable(place.size)} at {place.offset:,}{after}"
        self.alive[slot] = place

    def _beneath(self, place: _Place) -> list[int]:
        """What is still alive in a place: the last of a kernel's several steps may no longer
        need what the first one reads.
        """
        return [
            slot
            for slot, other in self.alive.items()
            if other.offset < place.offset + place.size and place.offset < other.offset + other.size
        ]

    def _free(self, slot: int) -> None:
        self.alive.pop(slot, None)
        if slot not in self.taken:
            self.graph.create(memory.Free(), (self.memory[slot],))

    def _run_group(self, turn: _Turn) -> None:
        inside = dict(self.mapping)
        for step in turn.steps:
            if isinstance(step, Copy):
                self._carry(step, turn.group.nodes[0], inside)
        kernels = [step.kernel for step in turn.steps if isinstance(step, Launch)]
        outputs = set(turn.group.outputs())
        for node in turn.group.nodes:
            copy = copy_node(node, self.graph, inside)
            kept = [value for value in node.results if value in outputs]
            if node not in turn.group.copies:
                self.mapping.update({value: inside[value] for value in node.results})
            self.planned.remarks[copy] = self._remark(turn, kernels, kept)

    def _remark(self, turn: _Turn, kernels: list[str], kept: list[Value]) -> str:
        places = [self._where(value) for value in kept]
        if kernels:
            return f"{' and '.join(kernels)}{', in ' if places else ''}{', '.join(places)}"
        if not turn.steps:
            return f"a view of {', '.join(places)}"
        way = "control flow"
        if isinstance(turn.steps[-1], Interpret):
            way = "in the interpreter"
        elif isinstance(turn.steps[-1], LibraryCall):
            way = f"by {turn.steps[-1].library}"
        return f"{way}, in {', '.join(self._where(value) for value in turn.group.nodes[0].results)}"

    def _where(self, value: Value) -> str:
        slot = self._slot(value)
        if slot is None:
            return "no memory"
        if slot in self.memory:
            over = self.places[slot].over
            return f"%{self.memory[slot].name}" + ("" if over is None else " in place")
        kind = self.program.slots[slot].kind
        return f"the {kind.value} {self.program.slots[slot].name}"

    def _carry(self, step: Copy, loop: Node, inside: dict[Value, Value]) -> None:
        """What a loop changes begins as a copy of what it is given."""
        for operand, result in zip(loop.operands, loop.results, strict=False):
            if (self._slot(operand), self._slot(result)) == (step.source, step.target):
                copy = self.graph.create(memory.Copy(), (inside[operand],), name=operand.name)
                self.planned.remarks[copy] = f"to {self._where(result)}"
                inside[operand] = copy.result
                return

    def _output(self, number: int) -> Value:
        """An output where it was made, or a copy of what lies elsewhere."""
        value = self.lowered.outputs[number]
        slot = self._slot(value)
        described = None if slot is None else self.program.slots[slot]
        here = described is not None and described.kind is SlotKind.OUTPUT
        if here and described is not None and described.number == number:
            return self.mapping[value]
        copy = self.graph.create(memory.Copy(), (self.mapping[value],), name=value.name)
        self.planned.remarks[copy] = f"to the output {value.name}"
        if slot is not None and slot in self.memory and slot not in self.taken:
            self._free_once(slot)
        return copy.result

    def _free_once(self, slot: int) -> None:
        """Give back what had to last until the outputs were copied."""
        if not any(isinstance(use.node.op, memory.Free) for use in self.memory[slot].uses):
            self._free(slot)


def _walk_slots(steps: tuple[Step, ...]) -> Iterator[int]:
    """Every slot that steps read or write, those inside others too."""
    for step in walk_steps(steps):
        yield from list_slots(step)
