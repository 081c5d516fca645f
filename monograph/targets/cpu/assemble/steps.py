"""From a graph to the steps of a program: a launch a group, and control flow around them.

A region's inputs are the slots of what it is given, and its results go straight to where they are
wanted; only what a loop hands on from one iteration to the next is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from monograph.fusion.axis_map import AxisMap
from monograph.fusion.group import Fusion, Group, GroupKind
from monograph.fusion.regions import Fusions
from monograph.ir.dims import Dim, Symbol
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import u8
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel
from monograph.kernel.layout import MemoryLayout
from monograph.kernel.lower import is_lowerable, lower_group
from monograph.kernel.rebased import without_doubles
from monograph.ops import control
from monograph.ops.blocked_linear import BlockedLinear
from monograph.ops.conv import Conv
from monograph.program.code import (
    Alternate,
    Branch,
    Copy,
    ForLoop,
    Launch,
    ParallelFor,
    SliceView,
    Slot,
    SlotKind,
    Step,
    WhileLoop,
    is_independent,
)
from monograph.progress import announce
from monograph.targets.cpu.assemble.packed_results import join_packs
from monograph.targets.cpu.assemble.parallel_loops import join_loops
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.assemble.repeats import Repeats
from monograph.targets.cpu.assemble.shared_packs import Sharing
from monograph.targets.cpu.assemble.side_by_side import join_equal
from monograph.targets.cpu.attention.attend import is_streamed, plan_attention
from monograph.targets.cpu.convolutions.walks import convolution_walks
from monograph.targets.cpu.layouts.choose_layouts import (
    border_value,
    convolution_layouts,
    padding_value,
    plan_layouts,
)
from monograph.targets.cpu.layouts.convert import convert_back, convert_layout, fill_border
from monograph.targets.cpu.libraries import plan_library
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.nests.loop_nest import LoopNest
from monograph.targets.cpu.nests.lower_loops import LoweredLoops, has_loops, lower_node
from monograph.targets.cpu.plans.families import GROUP_FAMILIES, KERNEL_FAMILIES
from monograph.targets.cpu.plans.plan import (
    GroupRequest,
    KernelRequest,
    Launchable,
    choose_plan,
)
from monograph.targets.cpu.products.blocked import plan_blocked_linear
from monograph.targets.cpu.tuning import Tuning
from monograph.targets.plan import PlannedKernel, Refusal


class StepBuilder(ProgramBuilder):
    """Walks the groups of a graph, and gives each to the family that computes it."""

    def __init__(
        self,
        machine: Machine,
        layouts: Mapping[Value, MemoryLayout],
        fusions: Fusions,
        tolerance: float | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        super().__init__(machine, layouts, tolerance, tuning)
        self.fusions = fusions
        self.repeats = Repeats(self)
        self.sharing = Sharing(self)
        self.visited: list[Fusion] = []
        self.ends: list[int] = []
        self.counters = 0
        self.planned: list[PlannedKernel] = []
        """How each kernel is computed that no equal one was before."""
        self.refusals: tuple[Refusal, ...] = ()
        """Why no family computes the group at hand as a whole."""

    def main(self, graph: Graph) -> None:
        """The steps of a whole graph, with its inputs and outputs as slots."""
        self.graph(graph, self.add_ends(graph))
        join_packs(self, self.ends)
        join_equal(self, self.ends)
        join_loops(self, self.ends)

    def graph(self, graph: Graph, targets: Sequence[int]) -> None:
        """The steps of a graph or region whose results are wanted in ``targets``."""
        whole = not self.visited
        fusion = self.fusions[graph]
        self.visited.append(fusion)
        self.layouts = plan_layouts(graph, fusion.groups, self.layouts)
        self.write_outputs_to(graph, targets)
        for number, group in enumerate(fusion.groups):
            if whole:
                announce("kernels", number, len(fusion.groups))
            first = len(self.steps)
            self.group(group)
            self.sharing.settle(first)
            self.hand_over()
            if whole:
                self.ends.append(len(self.steps))
        self.copy_outputs_to(graph, targets)

    def nested(
        self, graph: Graph, inputs: Sequence[int], targets: Sequence[int]
    ) -> tuple[Step, ...]:
        """The steps of a region on these slots."""
        outer, self.steps = self.steps, []
        self.slot_of.update(zip(graph.inputs, inputs, strict=True))
        self.graph(graph, targets)
        inner, self.steps = self.steps, outer
        return tuple(inner)

    # Groups ---------------------------------------------------------------------------------------

    def group(self, group: Group) -> None:
        """The steps of one group."""
        first = group.nodes[0]
        if group.kind is GroupKind.OPAQUE:
            self.opaque(group, first)
            return
        attention = plan_attention(self, group)
        if attention is not None:
            attention = attention.with_edits(self.tuning)
            with self.carrying_out(group, attention):
                attention.launch(self, (), ())
            return
        if all(self.is_alias(node) and self._shares_slot(node) for node in group.nodes):
            return
        outputs = {}
        for value in group.outputs():
            if self._is_there_already(value, group):
                continue
            place = group.places[value]
            assert place is not None, f"%{value.name} has no place in its group"
            outputs[value] = place
        if outputs:
            self.computed(group, outputs)

    def _is_there_already(self, value: Value, group: Group) -> bool:
        """Whether a value is the memory of what the group is given, seen in another shape.

        An input, for one, which may be memory that nobody may write to.
        """
        nodes = set(group.nodes)
        while (node := value.producer) in nodes and node is not None:
            if not self.is_alias(node) or not self._shares_slot(node):
                return False
            value = node.operands[0]
        return True

    def _shares_slot(self, view: Node) -> bool:
        return self.slot(view.results[0]) == self.slot(view.operands[0])

    def computed(self, group: Group, outputs: Mapping[Value, AxisMap]) -> None:
        """Launches that compute a group, with its operands and results in the layouts it wants."""
        wanted = convolution_layouts(group, self.layouts)
        layouts = {**self.layouts, **wanted}
        kernels = [
            lower_group(group.name, group.nodes, group.space, outputs, layouts, walk)
            for walk in convolution_walks(group)
        ]
        kernel, inputs = kernels[0]
        flat = flatten(kernel)
        if not flat.stores:
            return
        request = GroupRequest(group, kernels, flat, outputs, wanted, layouts)
        written = [self.slot(value) for value in outputs] if wanted else []
        found = choose_plan(GROUP_FAMILIES, self, request)
        if isinstance(found, Launchable):
            with self.carrying_out(group, found):
                found.launch(self, (), written)
            return
        self.refusals = found
        operands, results = self.operands(request)
        for kernel, inputs in kernels:
            self.launch(group, flatten(kernel), [operands[v] for v in inputs], results)
        self.refusals = ()
        self.finish(request, results)

    def operands(self, request: GroupRequest) -> tuple[dict[Value, int], list[int]]:
        """The slots of a group's operands and results in the layouts that it wants."""
        group, wanted = request.group, request.wanted
        slots = {
            value: convert_layout(self, group, value, wanted[value], _filling(group, value))
            if value in wanted
            else self.slot(value)
            for value in dict.fromkeys(value for _, inputs in request.kernels for value in inputs)
        }
        written = [
            self.add_scratch(buffer) if value in wanted else self.slot(value)
            for value, buffer in zip(request.outputs, request.kernels[0][0].outputs, strict=True)
        ]
        return slots, written

    def finish(self, request: GroupRequest, written: Sequence[int]) -> None:
        """Bring results into the layouts that they have, and keep their borders zero."""
        group, wanted = request.group, request.wanted
        for value, slot in zip(request.outputs, written, strict=True):
            if value in wanted:
                convert_back(self, group, value, slot, wanted[value])
            elif value in self.layouts:
                layout = self.layouts[value]
                filling = border_value(value)
                fill_border(self, group, slot, value.dtype, value.shape, layout, filling)

    @contextmanager
    def carrying_out(self, group: Group, found: Launchable) -> Iterator[None]:
        """Note a plan, and the kernels that are launched for it meanwhile."""
        first, steps, place = len(self.steps), self.steps, len(self.planned)
        plan = replace(found.plan, refusals=self.refusals + found.plan.refusals)
        self.planned.append(PlannedKernel(group.name, plan))
        yield
        kernels = tuple(each.kernel for each in steps[first:] if isinstance(each, Launch))
        self.planned[place] = PlannedKernel(group.name, plan, kernels)

    def launch(
        self, group: Group, flat: Kernel, read: Sequence[int], written: Sequence[int]
    ) -> None:
        """Steps for a kernel: those that an equal one took, if there was one."""
        flat, written = without_doubles(flat, written)
        self.note_sizes(flat, read, written)
        slots = (*read, *written)
        if self.repeats.again(group, flat, slots):
            return
        moved = self.moved(flat, read, written)
        if moved is None:
            self.launch_noted(group, flat, read, written)
            return
        with self.settling(moved):
            slots = (*moved.read, *moved.written)
            if not self.repeats.again(group, moved.kernel, slots, moved.names):
                self.launch_noted(group, moved.kernel, moved.read, moved.written, moved.names)

    def launch_noted(
        self,
        group: Group,
        flat: Kernel,
        read: Sequence[int],
        written: Sequence[int],
        names: Mapping[Symbol, Symbol] | None = None,
    ) -> None:
        """Steps for a kernel that there is none equal to, which are noted for the next one."""
        with self.repeats.noting(group, flat, (*read, *written), names):
            self.launch_anew(group, flat, read, written)

    def launch_anew(
        self, group: Group, flat: Kernel, read: Sequence[int], written: Sequence[int]
    ) -> None:
        """Steps for a kernel, by the first family that has a plan for it."""
        plan = choose_plan(KERNEL_FAMILIES, self, KernelRequest(group, flat, read, written))
        assert isinstance(plan, Launchable), "the last family computes any kernel"
        with self.carrying_out(group, plan):
            plan.launch(self, read, written)

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
            case BlockedLinear():
                plan = plan_blocked_linear(self.machine, group, node)
                assert plan is not None, "the target decomposes what it has no instruction for"
                with self.carrying_out(group, plan):
                    plan.launch(self, (), ())
            case _ if (library := plan_library(self.machine, group, node)) is not None:
                with self.carrying_out(group, library):
                    library.launch(self, (), ())
            case _ if has_loops(node):
                self.loops(group, node)
            case _:
                self.interpret(node)

    def loops(self, group: Group, node: Node) -> None:
        """A launch a stage of the loops that the op states, but for those that never turn."""
        machine = self.machine
        tasks = machine.costs.task_instructions
        lowered = lower_node(node, self.layouts, machine.vector_bytes, tasks)
        slots = {name: self.slot(value) for name, value in lowered.operands.items()}
        slots |= {name: self.slot(value) for name, value in lowered.results.items()}
        tables = _tables(lowered)
        slots |= {
            name: self.table(group, tables[name]) if name in tables else self.add_scratch(each)
            for name, each in lowered.temporaries.items()
        }
        for stage in lowered.stages:
            if stage in tables.values() or (isinstance(stage, LoopNest) and stage.extent == 0):
                continue
            inputs = [slots[buffer.name] for buffer in stage.inputs]
            outputs = [slots[buffer.name] for buffer in stage.outputs]
            if isinstance(stage, Kernel):
                self.launch_flat(group, flatten(stage), inputs, outputs)
            else:
                self.launch_built(self.built_nest(group, stage), group, inputs, outputs)

    def table(self, group: Group, stage: Kernel) -> int:
        """The slot of numbers that no input changes: they are computed once."""
        flat = flatten(stage)
        key = (flat.digest, ())
        if key not in self.prepared:
            self.prepared[key] = self.add_scratch(stage.outputs[0], SlotKind.PREPARED)
            outer, self.steps = self.steps, self.prepare
            self.launch_flat(group, flat, (), [self.prepared[key]])
            self.steps = outer
        return self.prepared[key]

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
        self.loop_depth += 1
        steps = self.nested(body, state, following)
        self.loop_depth -= 1
        steps += self._hand_on(following, state)
        self.steps.append(WhileLoop(test, goes_on, steps, op.limit, repr(node)))

    def scan(self, node: Node, op: control.Scan) -> None:
        """As a loop, with sequences and stacked results taken piece by piece."""
        (body,) = node.regions
        counter, self.counters = self.counters, self.counters + 1
        sequences = node.operands[op.carries : op.carries + op.sequences]
        constants = [self.slot(v) for v in node.operands[op.carries + op.sequences :]]
        times = sequences[0].shape[0] if op.length is None else op.length
        reverse = times if op.reverse else None
        state, following, pieces = self._alternate_carries(node, op.carries, counter, times)
        inputs = [*state]
        for value, inner in zip(sequences, body.inputs[op.carries :], strict=False):
            slot = self.add_slot(inner, SlotKind.VIEW)
            pieces.append(
                SliceView(slot, self.slot(value), counter, self.slots[slot].nbytes, reverse)
            )
            inputs.append(slot)
        for value, inner in zip(
            node.results[op.carries :], body.outputs[op.carries :], strict=True
        ):
            slot = self.add_slot(inner, SlotKind.VIEW)
            pieces.append(
                SliceView(slot, self.slot(value), counter, self.slots[slot].nbytes, reverse)
            )
            following.append(slot)
        first = len(self.slots)
        self.loop_depth += 1
        steps = self.nested(body, [*inputs, *constants], following)
        self.loop_depth -= 1
        steps = (*pieces, *steps, *self._hand_on(following[: op.carries], state))
        if op.carries == 0 and all(map(is_independent, steps)):
            self.spread(counter, times, steps, first)
        else:
            self.steps.append(ForLoop(counter, times, steps))

    def spread(self, counter: int, times: Dim, steps: tuple[Step, ...], first: int) -> None:
        """A step whose runs need not wait for each other; they alone use the slots from ``first``.

        Only what is computed anew in every run can be theirs.
        """
        made = range(first, len(self.slots))
        own = tuple(k for k in made if self.slots[k].kind is SlotKind.ARENA)
        numbers = [len(self.slots) + k for k in range(3)]
        self.slots.append(Slot(SlotKind.ARENA, "copies", u8, (0,)))
        self.slots.append(Slot(SlotKind.NUMBER, "distance", u8, (0,)))
        self.slots.append(Slot(SlotKind.NUMBER, "number_of_copies", u8, (0,)))
        self.steps.append(ParallelFor(counter, times, steps, own, *numbers))

    def carried(self, node: Node, body: Graph, count: int) -> list[int]:
        """Slots for the carries of a loop: the node's results, filled with the first ones."""
        state = []
        for k in range(count):
            given = self.slot(node.operands[k])
            result = self.slot(node.results[k])
            self.copy(given, result)
            state.append(result)
        return state

    def _alternate_carries(
        self, node: Node, count: int, counter: int, times: Dim
    ) -> tuple[list[int], list[int], list[Step]]:
        """Slots of the carries of a loop that counts, of the next ones, and where those lie.

        Two places take turns, one of them the node's result, which the last run writes to. Both
        are filled at first: who knows which one the first run reads? What is small is copied.
        """
        (body,) = node.regions
        state = self.carried(node, body, count)
        following, places = list[int](), list[Step]()
        for k, result in enumerate(state):
            following.append(self._next(body, k, result))
            nbytes = self.slots[result].nbytes
            if following[k] == result or (isinstance(nbytes, int) and nbytes <= COPIED_BYTES):
                continue
            other = following[k]
            self.copy(self.slot(node.operands[k]), other)
            state[k] = self.add_slot(body.inputs[k], SlotKind.VIEW)
            following[k] = self.add_slot(body.outputs[k], SlotKind.VIEW)
            places.append(Alternate(state[k], other, result, counter, times))
            places.append(Alternate(following[k], result, other, counter, times))
        return state, following, places

    def _next(self, body: Graph, k: int, state: int) -> int:
        """Where the body puts the next value of a carry; one that never changes stays."""
        if body.outputs[k] is body.inputs[k]:
            return state
        return self.add_slot(body.outputs[k], SlotKind.ARENA)

    def _hand_on(self, following: Sequence[int], state: Sequence[int]) -> tuple[Step, ...]:
        return tuple(
            Copy(new, old, self.slots[old].nbytes)
            for new, old in zip(following, state, strict=True)
            if new != old and self.slots[new].kind is not SlotKind.VIEW
        )


def computes(node: Node) -> bool:
    """Whether a kernel can compute a node, alone or with others."""
    return is_lowerable(node) or is_streamed(node)


COPIED_BYTES = 64
"""Bytes of a carry up to which a loop copies it: one instruction."""


def _filling(group: Group, value: Value) -> Value | None:
    """What a group's convolution pads this value with, if it is its image; zeros if it is None."""
    images = [node for node in group.nodes if isinstance(node.op, Conv)]
    return next((padding_value(node) for node in images if node.operands[0] is value), None)


def _tables(lowered: LoweredLoops) -> dict[str, Kernel]:
    """The stages that read nothing, by the temporary that each of them alone writes."""
    written = [buffer.name for stage in lowered.stages for buffer in stage.outputs]
    return {
        stage.outputs[0].name: stage
        for stage in lowered.stages
        if isinstance(stage, Kernel)
        and not (stage.inputs or stage.sizes)
        and stage.outputs[0].name in lowered.temporaries
        and written.count(stage.outputs[0].name) == 1
    }
