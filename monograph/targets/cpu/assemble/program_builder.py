"""The memory of a program and the launches that fill it: what every family of kernels builds with.

A slot is made when a value is first needed; a kernel is emitted once and launched as often as
something equal to it is computed; what is made of weights alone is made once, before the first
call.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from monograph.config import Config
from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.fusion.prologue import is_stored
from monograph.ir.dims import is_static
from monograph.ir.graph import Node, Value
from monograph.ir.types import i32
from monograph.kernel.expr import Buffer
from monograph.kernel.in_place import overwritable_inputs
from monograph.kernel.integer_range import holds_small, is_small
from monograph.kernel.kernel import Kernel
from monograph.kernel.layout import MemoryLayout, make_layout
from monograph.kernel.rebased import rename_by_position
from monograph.kernel.verify_kernel import verify_kernel
from monograph.ops.shape import Transpose
from monograph.program.code import Launch, Slot, SlotKind, Step
from monograph.switches import is_on
from monograph.targets.base import Conversion
from monograph.targets.cpu.assemble.moves import Moved, Moves
from monograph.targets.cpu.llvm.emit import NestEmitter
from monograph.targets.cpu.loops.choose_schedule import choose
from monograph.targets.cpu.loops.nest import build_nest
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.nests.loop_nest import LoopNest
from monograph.targets.cpu.nests.verify_in_place import overwrites_in_order
from monograph.targets.cpu.parts import PartsInProgress
from monograph.targets.cpu.plans.loops import LoopsPlan, plan_kernel, plan_whole
from monograph.targets.cpu.products.packing import Tiles
from monograph.targets.cpu.products.product import Product
from monograph.targets.cpu.products.tiles import Tiling
from monograph.targets.cpu.tuning import Recorder, Site, Tunable, Tuning
from monograph.targets.slot_builder import SlotBuilder, is_view

LOOKED_AT = 1 << 12
"""Words of a constant up to which it is looked whether they are small: zero points, say."""


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel at each stage of its making, and how often it is launched."""

    name: str
    group: Group
    kernel: Kernel | None
    """The algorithm; None if the op states its loops itself."""
    schedule: Schedule | Tiling | None
    nest: LoopNest
    text: str
    checked: bool
    how: str = ""
    """What a family of kernels says of its loops, if no schedule says it."""

    @property
    def summary(self) -> str:
        """How it is computed, in a line."""
        return self.how or str(self.schedule or "as the op states its loops")


class ProgramBuilder(SlotBuilder):
    """Gathers the slots, kernels and steps of one program."""

    def __init__(
        self,
        machine: Machine,
        layouts: Mapping[Value, MemoryLayout],
        tolerance: float | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        super().__init__()
        self.machine = machine
        self.verifies = Config.from_environment().verify
        self.tuning = tuning or Tuning()
        """What measurements say of the choices that are made here."""
        self.tolerance = tolerance
        """The error, over the largest result, that a faster convolution may have."""
        self.layouts = dict(layouts)
        """How the values lie that are not row-major."""
        self.prepare: list[Step] = []
        """Steps that need weights alone, and run once."""
        self.prepared: dict[tuple[str, tuple[int, ...]], int] = {}
        self.packs: set[int] = set()
        """Slots of operands that are packed in every call."""
        self.packings: dict[str, Tiles] = {}
        """What the kernels that pack the rows of an array in tiles make of it, by their names."""
        self.products: dict[str, Product] = {}
        """What the loops of products are made of, by the names of their kernels."""
        self.kernels: dict[tuple[str, bool, bool], BuiltKernel] = {}
        self.parts: PartsInProgress | None = None
        """Where kernels are compiled while others are made, if anywhere."""
        self._handed_over = 0
        self.declarations: set[str] = set()
        self.schedules: dict[str, Schedule] = {}
        """What was chosen for kernels, by their digests."""
        self.nests: dict[Hashable, LoopNest] = {}
        """Loops that a family made, by what they are made of."""
        self.converted: dict[tuple[Value, MemoryLayout, Value | None], int] = {}
        """Slots of values that were copied into another layout."""
        self.conversions: list[Conversion] = []
        self.small: set[int] = set()
        """Slots of words that a kernel fills with small integers."""
        self.filled: set[int] = set()
        self.moves = Moves(self.slots)
        self.loop_depth = 0
        """How many loops of the program the steps that are made lie in."""

    # Slots ----------------------------------------------------------------------------------------

    def add_slot(self, value: Value, kind: SlotKind, number: int = 0) -> int:
        """A new slot of the value's type."""
        layout = self.layouts.get(value)
        strides = None
        if layout is not None and is_static(layout.strides):
            strides = layout.strides
        span = None if layout is None else layout.reach(value.shape)
        self.slots.append(Slot(kind, value.name, value.dtype, value.shape, number, strides, span))
        return len(self.slots) - 1

    def is_alias(self, node: Node) -> bool:
        """Whether the node's result is its operand's memory in another shape."""
        if not is_view(node):
            return self._is_turned_by_layout(node)
        (source,), (result,) = node.operands, node.results
        layout = self.layouts.get(source)
        if layout is None:
            return result not in self.layouts
        view = layout.viewed(source.shape, result.shape)
        return view is not None and view == self.layouts.get(result)

    def _is_turned_by_layout(self, node: Node) -> bool:
        """Whether a transpose's result, row by row, is how its operand lies anyway."""
        if not isinstance(node.op, Transpose):
            return False
        (source,), (result,) = node.operands, node.results
        if source not in self.layouts or result in self.layouts:
            return False
        turned = make_layout(source.shape, [axis % source.rank for axis in node.op.permutation])
        return replace(self.layouts[source], span=turned.span) == turned

    def note_sizes(self, flat: Kernel, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Note which slots a kernel fills with small integers; one that several fill never is."""
        named = self.small_inputs(flat, inputs)
        for buffer, slot in zip(flat.outputs, outputs, strict=True):
            values = [store.value for store in flat.stores if store.buffer.name == buffer.name]
            found = buffer.dtype is i32 and all(is_small(each, named) for each in values)
            if found and slot not in self.filled:
                self.small.add(slot)
            elif not found:
                self.small.discard(slot)
            self.filled.add(slot)

    def small_inputs(self, flat: Kernel, inputs: Sequence[int]) -> set[str]:
        """The inputs of a kernel that hold small integers in words."""
        named = zip(flat.inputs, inputs, strict=True)
        return {buffer.name for buffer, slot in named if self.is_small(slot)}

    def is_small(self, slot: int) -> bool:
        """Whether a slot holds small integers: by the kernel that fills it, or by looking."""
        found = self.slots[slot]
        if found.kind is not SlotKind.WEIGHT or found.dtype is not i32:
            return slot in self.small
        data = self.weights[found.number]
        return data.size <= LOOKED_AT and holds_small(data.array())

    # Kernels --------------------------------------------------------------------------------------

    def is_any_view(self, slots: Sequence[int]) -> bool:
        """Whether one of these begins at any address, in the middle of another."""
        return any(self.slots[slot].kind is SlotKind.VIEW for slot in slots)

    def is_constant(self, slots: Sequence[int]) -> bool:
        """Whether all of these are weights."""
        return all(self.slots[slot].kind is SlotKind.WEIGHT for slot in slots)

    def is_weight(self, value: Value) -> bool:
        """Whether a value's slot is a weight, or will be when it is made."""
        found = self.slot_of.get(value)
        if found is not None:
            return self.slots[found].kind is SlotKind.WEIGHT
        node = value.producer
        if node is None or is_stored(node):
            return node is not None
        return self.is_alias(node) and self.is_weight(node.operands[0])

    def packed(
        self,
        group: Group,
        kernel: Kernel,
        read: tuple[int, ...],
        schedule: Schedule | None = None,
    ) -> int:
        """The slot of a packed operand: prepared if it is made of weights, else made each time.

        One that depends on a symbolic size is not made of weights alone.
        """
        kernel = rename_by_position(kernel)
        (buffer,) = kernel.outputs
        if not read or kernel.sizes or not self.is_constant(read):
            target = self.add_scratch(buffer)
            self.packs.add(target)
            self.launch_flat(group, kernel, read, [target], schedule)
            return target
        key = (kernel.digest, read)
        if key not in self.prepared:
            self.prepared[key] = self.add_scratch(buffer, SlotKind.PREPARED)
            outer, self.steps = self.steps, self.prepare
            self.launch_flat(group, kernel, read, [self.prepared[key]], schedule)
            self.steps = outer
        return self.prepared[key]

    def add_scratch(self, buffer: Buffer, kind: SlotKind = SlotKind.ARENA) -> int:
        """A slot for what one kernel leaves for another."""
        span = None if buffer.layout is None else buffer.reach()
        self.slots.append(Slot(kind, buffer.name, buffer.dtype, buffer.shape, span=span))
        return len(self.slots) - 1

    def plan_kernel(self, group: Group, flat: Kernel, outputs: Sequence[int] = ()) -> LoopsPlan:
        """Loops over a kernel that is to write these slots, or memory of its own.

        Schedules of what begins at any address are not for measurements to edit.
        """
        is_tunable = not self.is_any_view(outputs)
        return plan_kernel(group, flat, self.choose, is_tunable=is_tunable)

    def choose(self, kernel: Kernel) -> Schedule:
        """The schedule of a kernel; equal ones have the same."""
        if kernel.digest not in self.schedules:
            self.schedules[kernel.digest] = choose(kernel, self.machine)
        return self.schedules[kernel.digest]

    def launch_flat(
        self,
        group: Group,
        flat: Kernel,
        inputs: Sequence[int],
        outputs: Sequence[int],
        schedule: Schedule | None = None,
    ) -> None:
        """Plan a kernel that a family makes beside others, and launch it."""
        if schedule is not None:
            plan = plan_whole(group, flat, schedule, is_tunable=False)
        else:
            plan = self.edit_loops(self.plan_kernel(group, flat, outputs))
        plan.launch(self, inputs, outputs)

    def edit_loops(self, plan: LoopsPlan) -> LoopsPlan:
        """The plan as measurements prefer it; what runs once does not matter."""
        return plan if self.steps is self.prepare else plan.with_edits(self.tuning)

    def overwritable(
        self, flat: Kernel, inputs: Sequence[int], outputs: Sequence[int]
    ) -> tuple[int, ...]:
        """The slots that a kernel's result may be written over, if they are not read any more.

        A view is a piece of a slot that others may read, whatever its kernel does.
        """
        if self.is_any_view((*inputs, *outputs)) or not is_on("in_place"):
            return ()
        return tuple(inputs[k] for k in overwritable_inputs(flat, inputs))

    def launch_part(self, plan: LoopsPlan, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Launch a piece of a kernel; most differ only in where they begin.

        One that is taken for another is planned as that one.
        """
        moved = self.moved(plan.kernel, inputs, outputs)
        if moved is None:
            self.launch_whole(plan, inputs, outputs)
            return
        with self.settling(moved):
            is_tunable = not self.is_any_view(moved.written)
            schedule = self.choose(moved.kernel)
            other = plan_whole(plan.group, moved.kernel, schedule, is_tunable=is_tunable)
            self.launch_whole(self.edit_loops(other), moved.read, moved.written)

    def moved(self, flat: Kernel, inputs: Sequence[int], outputs: Sequence[int]) -> Moved | None:
        """The kernel as one that was met before, if it differs so little (``moves``).

        Whoever records choices wants to hear of each kernel by its own name.
        """
        if isinstance(self.tuning, Recorder):
            return None
        found = self.moves.moved(flat, inputs, outputs)
        if found is not None:
            self.small.update(
                piece
                for whole, piece in zip(inputs, found.read, strict=True)
                if piece != whole and self.is_small(whole)
            )
        return found

    @contextmanager
    def settling(self, moved: Moved) -> Iterator[None]:
        """What is launched meanwhile is launched for a kernel that another is taken for."""
        steps, step, slot = self.steps, len(self.steps), len(self.slots)
        yield
        self.moves.settle(moved, steps, step, slot)

    def launch_whole(
        self,
        plan: LoopsPlan,
        inputs: Sequence[int],
        outputs: Sequence[int],
        shared: tuple[int, ...] = (),
    ) -> None:
        """Emit a kernel of one piece, unless an equal one is there, and a step that runs it.

        It may write its result over the inputs that are ``shared``.
        """
        flat = plan.kernel
        aligned = not self.is_any_view(outputs)
        key = (flat.digest, bool(shared), aligned)
        if plan.is_tunable:
            self.record(plan, inputs, outputs)
        if key not in self.kernels:
            self.kernels[key] = self.built(plan.group, flat, plan.choice, bool(shared), aligned)
        built = self.kernels[key]
        if shared:
            pairs = zip(inputs, built.nest.inputs, strict=True)
            names = {buffer.name for slot, buffer in pairs if slot in shared}
            shared = shared if overwrites_in_order(built.nest, names) else ()
        self.launch_built(built, plan.group, inputs, outputs, shared)

    def record(self, plan: Tunable, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Let a tuner that listens know of a choice, and how to launch the kernel alone."""
        if self.steps is self.prepare:
            return

        def site() -> Site:
            given = tuple(self.slots[slot] for slot in inputs)
            constant = tuple(slot.kind is SlotKind.WEIGHT for slot in given)
            made = tuple(self.slots[slot] for slot in outputs)
            return Site(plan.digest, plan.group.name, plan, given, constant, made)

        self.tuning.note(plan.digest, site)

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
            schedule = replace(schedule, streaming=frozenset(), pipelined_rows=0)
        suffix = flat.name.removeprefix(group.name)
        name = f"k{len(self.kernels)}_{group.name}{suffix}"
        named = replace(flat, name=name)
        if self.verifies:
            verify_kernel(named)
        nest = build_nest(named, schedule)
        emitter = NestEmitter(nest, self.declarations, aliased, self.machine.dots)
        text = emitter.emit()
        return BuiltKernel(name, group, named, schedule, nest, text, emitter.has_checks)

    def hand_over(self) -> None:
        """Let new kernels be compiled, but for products, which may yet become others."""
        if self.parts is None:
            return
        for built in islice(self.kernels.values(), self._handed_over, None):
            may_change = built.name in self.products or built.name in self.packings
            if not may_change and self.parts.code(built.name, built.text) == built.name:
                self.parts.gather(built.name, built.text, self.declarations)
        self._handed_over = len(self.kernels)

    def built_nest(
        self,
        group: Group,
        nest: LoopNest,
        kernel: Kernel | None = None,
        schedule: Schedule | Tiling | None = None,
        how: str = "",
    ) -> BuiltKernel:
        """Emit a loop nest (of a kernel, by a schedule), unless an equal one is there."""
        key = (nest.digest, False, True)
        if key not in self.kernels:
            own = nest.name.startswith(group.name)
            suffix = nest.name.removeprefix(group.name) if own else ""
            name = f"k{len(self.kernels)}_{group.name}{suffix}"
            emitter = NestEmitter(
                replace(nest, name=name),
                self.declarations,
                dots=self.machine.dots,
                tile_unit=self.machine.tile_unit,
            )
            text = emitter.emit()
            self.kernels[key] = BuiltKernel(
                name, group, kernel, schedule, emitter.nest, text, emitter.has_checks, how
            )
        return self.kernels[key]
