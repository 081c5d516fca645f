"""From a graph to the steps of a program: a launch a group, and control flow around them.

A region's inputs are the slots of what it is given, and its results go straight to where they are
wanted; only what a loop hands on from one iteration to the next is copied.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from monograph.fusion.group import Fusion, Group, Kind, fuse, is_stored
from monograph.ir.data import Data
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import TensorType
from monograph.kernel.contraction import Contraction, as_contraction, pack
from monograph.kernel.expr import Buffer, Load, Reduce, walk
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel
from monograph.kernel.loop_lower import has_loops, lower_node
from monograph.kernel.loops import LoopNest
from monograph.kernel.lower import is_lowerable, lower_group
from monograph.kernel.nest import build_nest
from monograph.kernel.schedule import Schedule
from monograph.kernel.split import split_reductions
from monograph.ops import control
from monograph.progress import announce
from monograph.targets.cpu.choose import choose, choose_tile, is_worth_packing
from monograph.targets.cpu.emit import NestEmitter
from monograph.targets.cpu.machine import Machine
from monograph.targets.program import (
    Branch,
    Copy,
    Count,
    Element,
    Interpret,
    Launch,
    Repeat,
    Slot,
    SlotKind,
    Step,
)


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel at each stage of its making, and how often it is launched."""

    name: str
    group: Group
    kernel: Kernel | None
    """The algorithm; None if the op states its loops itself."""
    schedule: Schedule | None
    nest: LoopNest
    text: str
    checked: bool


class StepBuilder:
    """Gathers the slots, kernels and steps of one program."""

    def __init__(
        self, machine: Machine, strides: Mapping[Value, tuple[int, ...]], fusion: bool
    ) -> None:
        self.machine = machine
        self.strides = strides
        self.fusion = fusion
        self.slots: list[Slot] = []
        self.slot_of: dict[Value, int] = {}
        self.weights: list[Data] = []
        self.fallbacks: list[Node] = []
        self.steps: list[Step] = []
        self.prepare: list[Step] = []
        """Steps that need weights alone, and run once."""
        self.prepared: dict[tuple[str, tuple[int, ...]], int] = {}
        self.fusions: list[Fusion] = []
        self.ends: list[int] = []
        self.kernels: dict[tuple[str, bool, bool], BuiltKernel] = {}
        self.declarations: set[str] = set()
        self.counters = 0
        self.fusion_seconds = 0.0

    def main(self, graph: Graph) -> None:
        """The steps of a whole graph, with its inputs and outputs as slots."""
        for number, value in enumerate(graph.inputs):
            self.slot_of[value] = self.add_slot(value, SlotKind.INPUT, number)
        targets = [
            self.add_slot(value, SlotKind.OUTPUT, number)
            for number, value in enumerate(graph.outputs)
        ]
        self.graph(graph, targets)

    def graph(self, graph: Graph, targets: Sequence[int]) -> None:
        """The steps of a graph or region whose results are wanted in ``targets``."""
        for value, target in zip(graph.outputs, targets, strict=True):
            if value not in self.slot_of and _is_computed(value):
                self.slot_of[value] = target
        whole = not self.fusions
        if whole:
            announce("fusion")
        started = time.perf_counter()
        lowerable = {node: is_lowerable(node) for node in graph.nodes}
        fusion = fuse(graph, lowerable, enabled=self.fusion)
        self.fusion_seconds += time.perf_counter() - started
        self.fusions.append(fusion)
        for number, group in enumerate(fusion.groups):
            if whole:
                announce("kernels", number, len(fusion.groups))
            self.group(group)
            if whole:
                self.ends.append(len(self.steps))
        for value, target in zip(graph.outputs, targets, strict=True):
            self.copy(self.slot(value), target)

    def nested(
        self, graph: Graph, inputs: Sequence[int], targets: Sequence[int]
    ) -> tuple[Step, ...]:
        """The steps of a region on these slots."""
        outer, self.steps = self.steps, []
        self.slot_of.update(zip(graph.inputs, inputs, strict=True))
        self.graph(graph, targets)
        inner, self.steps = self.steps, outer
        return tuple(inner)

    # Slots ----------------------------------------------------------------------------------------

    def add_slot(self, value: Value, kind: SlotKind, number: int = 0) -> int:
        """A new slot of the value's type."""
        strides = self.strides.get(value)
        self.slots.append(Slot(kind, value.name, value.dtype, value.shape, number, strides))
        return len(self.slots) - 1

    def slot(self, value: Value) -> int:
        """The slot of a value, made when it is first needed."""
        found = self.slot_of.get(value)
        if found is not None:
            return found
        node = value.producer
        assert node is not None, f"%{value.name} has no slot"
        if is_stored(node):
            data: Data = node.op.attributes()["data"]
            found = self.add_slot(value, SlotKind.WEIGHT, len(self.weights))
            self.weights.append(data)
        elif is_view(node) and node.operands[0] not in self.strides:
            found = self.slot(node.operands[0])
        else:
            found = self.add_slot(value, SlotKind.ARENA)
        self.slot_of[value] = found
        return found

    def copy(self, source: int, target: int) -> None:
        """Copy a slot, unless it is there already."""
        if source != target:
            self.steps.append(Copy(source, target, self.slots[source].nbytes))

    # Groups ---------------------------------------------------------------------------------------

    def group(self, group: Group) -> None:
        """The steps of one group."""
        first = group.nodes[0]
        if group.kind is Kind.OPAQUE:
            self.opaque(group, first)
            return
        is_alias = len(group.nodes) == 1 and is_view(first)
        if is_alias and first.operands[0] not in self.strides and self._shares_slot(first):
            return
        outputs = {}
        for value in group.outputs():
            place = group.places[value]
            assert place is not None, f"%{value.name} has no place in its group"
            outputs[value] = place
        if outputs:
            kernel, inputs = lower_group(
                group.name, group.nodes, group.space, outputs, self.strides
            )
            self.launch(group, kernel, inputs, tuple(outputs))

    def _shares_slot(self, view: Node) -> bool:
        return self.slot(view.results[0]) == self.slot(view.operands[0])

    def launch(
        self, group: Group, kernel: Kernel, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> None:
        """Steps for a kernel: one, or two if its few long rows are split among threads."""
        flat = flatten(kernel)
        if not flat.stores:
            return
        read = [self.slot(value) for value in inputs]
        written = [self.slot(value) for value in outputs]
        contraction = as_contraction(flat)
        if contraction is not None and self.should_pack(contraction, read):
            self.contract(group, contraction, read, written)
            return
        split = split_reductions(flat)
        if split is None:
            self.launch_flat(group, flat, read, written)
            return
        partial = [self.add_scratch(buffer) for buffer in split.pieces.outputs]
        self.launch_flat(group, split.pieces, read, partial)
        rest = [*(read[k] for k in split.rest_inputs), *partial]
        self.launch_flat(group, split.rest, rest, written)

    def contract(
        self,
        group: Group,
        contraction: Contraction,
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        """Steps that pack both operands and multiply them; packed weights are made beforehand."""
        packed = pack(contraction, choose_tile(contraction, self.machine))
        slots = {b.name: slot for b, slot in zip(contraction.kernel.inputs, inputs, strict=True)}
        sides = []
        for kernel in (packed.left, packed.right):
            read = tuple(slots[buffer.name] for buffer in kernel.inputs)
            sides.append(self.packed(group, flatten(kernel), read))
        rest = [inputs[k] for k in packed.epilogue_inputs]
        self.launch_flat(group, packed.product, [*sides, *rest], outputs, packed.schedule)

    def should_pack(self, contraction: Contraction, inputs: Sequence[int]) -> bool:
        """Whether a contraction is large enough to pay for packing what is not prepared."""
        slots = {b.name: slot for b, slot in zip(contraction.kernel.inputs, inputs, strict=True)}
        loads = (x for x in walk((contraction.right,)) if isinstance(x, Load))
        constant = self.is_constant(tuple(slots[load.buffer.name] for load in loads))
        return is_worth_packing(contraction, constant)

    def is_constant(self, slots: Sequence[int]) -> bool:
        """Whether all of these are weights."""
        return all(self.slots[slot].kind is SlotKind.WEIGHT for slot in slots)

    def packed(self, group: Group, kernel: Kernel, read: tuple[int, ...]) -> int:
        """The slot of a packed operand: prepared if it is made of weights, else made each time."""
        (buffer,) = kernel.outputs
        if not read or not self.is_constant(read):
            target = self.add_scratch(buffer)
            self.launch_flat(group, kernel, read, [target])
            return target
        key = (kernel.digest, read)
        if key not in self.prepared:
            self.prepared[key] = self.add_scratch(buffer, SlotKind.PREPARED)
            outer, self.steps = self.steps, self.prepare
            self.launch_flat(group, kernel, read, [self.prepared[key]])
            self.steps = outer
        return self.prepared[key]

    def add_scratch(self, buffer: Buffer, kind: SlotKind = SlotKind.ARENA) -> int:
        """A slot for what one kernel leaves for another."""
        self.slots.append(Slot(kind, buffer.name, buffer.dtype, buffer.shape))
        return len(self.slots) - 1

    def launch_flat(
        self,
        group: Group,
        flat: Kernel,
        inputs: Sequence[int],
        outputs: Sequence[int],
        schedule: Schedule | None = None,
    ) -> None:
        """Emit the kernel, unless an equal one is there, and a step that runs it."""
        shared = tuple(inputs[k] for k in _in_place(flat))
        aligned = all(self.slots[slot].kind is not SlotKind.VIEW for slot in outputs)
        key = (flat.digest, bool(shared), aligned)
        if key not in self.kernels:
            chosen = choose(flat, self.machine) if schedule is None else schedule
            self.kernels[key] = self.built(group, flat, chosen, bool(shared), aligned)
        self.launch_built(self.kernels[key], group, inputs, outputs, shared)

    def launch_built(
        self,
        built: BuiltKernel,
        group: Group,
        inputs: Sequence[int],
        outputs: Sequence[int],
        shared: tuple[int, ...] = (),
    ) -> None:
        """A step that runs a kernel on these slots."""
        nest = built.nest
        slots = (*inputs, *outputs)
        checked = "; ".join(repr(node) for node in group.nodes) if built.checked else ""
        self.steps.append(
            Launch(
                built.name,
                slots,
                nest.sizes,
                nest.extent,
                nest.grain,
                checked,
                shared,
                len(outputs),
                nest.complaint,
            )
        )

    def built(
        self, group: Group, flat: Kernel, schedule: Schedule, aliased: bool, aligned: bool
    ) -> BuiltKernel:
        """Emit a kernel; only what is aligned can be written past the cache."""
        if not aligned:
            schedule = replace(schedule, streaming=frozenset())
        suffix = flat.name.removeprefix(group.name)
        name = f"k{len(self.kernels)}_{group.name}{suffix}"
        named = Kernel(name, flat.inputs, flat.outputs, flat.axes, flat.stores)
        nest = build_nest(named, schedule)
        emitter = NestEmitter(nest, self.declarations, aliased)
        text = emitter.emit()
        return BuiltKernel(name, group, named, schedule, nest, text, emitter.has_checks)

    # Control flow ---------------------------------------------------------------------------------

    def opaque(self, group: Group, node: Node) -> None:
        """A node that no formula gives: control flow, loops, or one for the interpreter."""
        match node.op:
            case control.If():
                self.branch(node)
            case control.While():
                self.repeat(node, node.op)
            case control.Scan():
                self.scan(node, node.op)
            case _ if has_loops(node):
                self.loops(group, node)
            case _:
                self.interpret(node)

    def loops(self, group: Group, node: Node) -> None:
        """A launch a stage of the loops that the op states."""
        lowered = lower_node(node, self.strides, self.machine.vector_bytes)
        slots = {name: self.slot(value) for name, value in lowered.operands.items()}
        slots |= {name: self.slot(value) for name, value in lowered.results.items()}
        slots |= {name: self.add_scratch(each) for name, each in lowered.temporaries.items()}
        for stage in lowered.stages:
            inputs = [slots[buffer.name] for buffer in stage.inputs]
            outputs = [slots[buffer.name] for buffer in stage.outputs]
            if isinstance(stage, Kernel):
                self.launch_flat(group, flatten(stage), inputs, outputs)
            else:
                self.launch_built(self.built_nest(group, stage), group, inputs, outputs)

    def built_nest(self, group: Group, nest: LoopNest) -> BuiltKernel:
        """Emit a loop nest, unless an equal one is there."""
        key = (nest.digest, False, True)
        if key not in self.kernels:
            name = f"k{len(self.kernels)}_{group.name}"
            emitter = NestEmitter(replace(nest, name=name), self.declarations)
            text = emitter.emit()
            self.kernels[key] = BuiltKernel(
                name, group, None, None, emitter.nest, text, emitter.has_checks
            )
        return self.kernels[key]

    def interpret(self, node: Node) -> None:
        """A step that runs in Python."""
        inputs = tuple(self.slot(value) for value in node.operands)
        outputs = tuple(self.slot(value) for value in node.results)
        self.steps.append(Interpret(len(self.fallbacks), inputs, outputs))
        self.fallbacks.append(node)

    def branch(self, node: Node) -> None:
        """Both regions read the operands where they are and write the same results."""
        predicate, *operands = (self.slot(value) for value in node.operands)
        results = [self.slot(value) for value in node.results]
        then, otherwise = (self.nested(region, operands, results) for region in node.regions)
        self.steps.append(Branch(predicate, then, otherwise))

    def repeat(self, node: Node, op: control.While) -> None:
        """The carries live in the results; the body writes the next ones beside them."""
        condition, body = node.regions
        state = self.carried(node, body, len(node.operands))
        goes_on = self.add_slot(condition.outputs[0], SlotKind.ARENA)
        test = self.nested(condition, state, [goes_on])
        following = [self._next(body, k, state[k]) for k in range(len(state))]
        steps = self.nested(body, state, following)
        steps += self._handed_on(following, state)
        self.steps.append(Repeat(test, goes_on, steps, op.limit, repr(node)))

    def scan(self, node: Node, op: control.Scan) -> None:
        """As a loop, with sequences and stacked results taken piece by piece."""
        (body,) = node.regions
        counter, self.counters = self.counters, self.counters + 1
        state = self.carried(node, body, op.carries)
        sequences = node.operands[op.carries : op.carries + op.sequences]
        constants = [self.slot(v) for v in node.operands[op.carries + op.sequences :]]
        times = sequences[0].shape[0] if op.length is None else op.length
        reverse = times if op.reverse else None
        pieces: list[Step] = []
        inputs = [*state]
        for value, inner in zip(sequences, body.inputs[op.carries :], strict=False):
            slot = self.add_slot(inner, SlotKind.VIEW)
            pieces.append(
                Element(slot, self.slot(value), counter, self.slots[slot].nbytes, reverse)
            )
            inputs.append(slot)
        following = [self._next(body, k, state[k]) for k in range(op.carries)]
        for value, inner in zip(
            node.results[op.carries :], body.outputs[op.carries :], strict=True
        ):
            slot = self.add_slot(inner, SlotKind.VIEW)
            pieces.append(
                Element(slot, self.slot(value), counter, self.slots[slot].nbytes, reverse)
            )
            following.append(slot)
        steps = self.nested(body, [*inputs, *constants], following)
        steps = (*pieces, *steps, *self._handed_on(following[: op.carries], state))
        self.steps.append(Count(counter, times, steps))

    def carried(self, node: Node, body: Graph, count: int) -> list[int]:
        """Slots for the carries of a loop: the node's results, filled with the first ones."""
        state = []
        for k in range(count):
            given = self.slot(node.operands[k])
            result = self.slot(node.results[k])
            self.copy(given, result)
            state.append(result)
        return state

    def _next(self, body: Graph, k: int, state: int) -> int:
        """Where the body puts the next value of a carry; one that never changes stays."""
        if body.outputs[k] is body.inputs[k]:
            return state
        return self.add_slot(body.outputs[k], SlotKind.ARENA)

    def _handed_on(self, following: Sequence[int], state: Sequence[int]) -> tuple[Step, ...]:
        return tuple(
            Copy(new, old, self.slots[old].nbytes)
            for new, old in zip(following, state, strict=True)
            if new != old
        )


def is_view(node: Node) -> bool:
    """Whether the result is the operand's own memory."""
    return node.op.name == "reshape" and isinstance(node.operands[0].type, TensorType)


def _is_computed(value: Value) -> bool:
    """Whether a step writes the value, so that it can be written where it is wanted."""
    node = value.producer
    return node is not None and not is_stored(node) and not is_view(node)


def _in_place(kernel: Kernel) -> tuple[int, ...]:
    """Inputs that the output may be written over: each element is read where it is written."""
    if len(kernel.stores) != 1 or any(isinstance(x, Reduce) for x in kernel.expressions()):
        return ()
    (store,) = kernel.stores
    loads: dict[str, list[Load]] = {}
    for load in kernel.loads():
        loads.setdefault(load.buffer.name, []).append(load)
    found = []
    for k, buffer in enumerate(kernel.inputs):
        same = all(load.operands == store.position for load in loads.get(buffer.name, []))
        fits = buffer.dtype.bits == store.buffer.dtype.bits and buffer.shape == store.buffer.shape
        if same and fits and buffer.name in loads:
            found.append(k)
    return tuple(found)
