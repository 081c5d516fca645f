"""A program that runs: check the inputs, one native call, give the outputs.

Each call leases a *frame*: the table of addresses that the entry point reads, with the arena's
addresses already in it. Steady state allocates nothing: frames, arenas and outputs are reused, and
calls from several threads each have a frame of their own.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from monograph.config import Config
from monograph.dataclass import dataclass
from monograph.errors import EvaluationError
from monograph.ir.data import Data
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.ir.dims.size_table import SizeTable
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import bind_inputs, evaluate_node
from monograph.ir.op import Trait
from monograph.ir.types import Array
from monograph.program.arena import ArenaPlan
from monograph.program.code import (
    Code,
    Interpret,
    Launch,
    LibraryCall,
    SlotKind,
    WhileLoop,
    has_loops,
    walk_steps,
)
from monograph.program.layouts import ArenaLayout, ArenaLayouts
from monograph.program.liveness import arena_requests, copies_of, plan_arena
from monograph.runtime.addresses import address_of
from monograph.runtime.cpu import interrupts
from monograph.runtime.cpu.fences import FencedCall, Fences
from monograph.runtime.cpu.thread_pool import symbols as register_pool_symbols
from monograph.runtime.cpu.torch_ranges import KernelRanges, is_profiling
from monograph.runtime.cpu.weight_packing import Packing, in_order
from monograph.runtime.device import LoadedProgram
from monograph.runtime.locks import ForkedLock
from monograph.runtime.output_memory import MAX_MALLOC_BYTES, OutputPool
from monograph.runtime.sizes import Guard, SizeChecks, guards_of
from monograph.runtime.specialization import Variants
from monograph.runtime.thread_count import thread_count
from monograph.runtime.weight_ownership import Held, read_by_calls, weights_of
from monograph.targets.cpu.machine import Library
from monograph.targets.cpu.parts import objects_in

if TYPE_CHECKING:
    from monograph.program.verify import ProgramVerifier
    from monograph.runtime.cpu.accesses import AccessVerifier

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
MOST_PLANS = 256
"""For how many sizes of its symbolic dimensions a program remembers what a call needs to know."""


@dataclass
class Frame:
    """The addresses for one call at a time, and the arena that some of them point into.

    It serves all sizes of its layout: its last sizes stand in the table.
    """

    table: Array
    words: memoryview
    """The same memory, which is quicker to write to."""
    address: int
    arena: object
    status: Any
    status_address: int
    sizes: tuple[int, ...]
    size_words: slice
    """Where those are in the table."""
    watch: Array
    """What loops look at, to see whether the call is to be broken off."""
    native: weakref.ref[Native]

    def called(self, number: int) -> None:
        """Run a node that has no native code; the program is alive, since it calls."""
        native = self.native()
        assert native is not None
        native.interpret(self, number)

    def resize(self, sizes: tuple[int, ...]) -> None:
        """Let the next call be of these sizes."""
        self.table[self.size_words] = sizes
        self.sizes = sizes


@dataclass(frozen=True)
class CallPlan:
    """What a call needs to know at some sizes."""

    layout: ArenaLayout
    outputs: list[tuple[int, int, np.dtype[Any], tuple[int, ...]]]
    """Slot, bytes, dtype and shape of each output, in order."""
    free: list[Frame]
    """Frames of the layout that no call uses."""


class Native(LoadedProgram):
    """A program in this process, called with arrays in the graph's order.

    ``prepared`` is what is made of weights alone, by slot, if that was made before. ``lets_go``
    says that weights belong to the program, which releases those that no call reads (``holding``).
    ``verify=False`` is for programs that are not like others, whatever ``MONOGRAPH_VERIFY`` and
    ``MONOGRAPH_FENCES`` say: a kernel that is measured alone writes to memory that it is given.
    """

    takes_variants = True

    def __init__(
        self,
        program: Code,
        graph: Graph,
        threads: int | None = None,
        guards: tuple[Guard, ...] | None = None,
        *,
        prepared: dict[int, Array] | None = None,
        lets_go: bool = False,
        verify: bool = True,
    ) -> None:
        register_pool_symbols(threads)
        self.has_loops = has_loops(program.steps)
        """Whether calls can be broken off (``runtime.cpu.interrupts``)."""
        if self.has_loops:
            interrupts.make_known()
        self.program = program
        self.graph = graph
        self.threads = threads or thread_count()
        self.library = Library(*objects_in(program.object))
        self._descriptions: list[weakref.ref[Array]] = []
        self.own_entry_address = self.library.address("entry")
        self.enter_at(self.own_entry_address)
        self._ranges: KernelRanges | None = None
        self.pool = OutputPool()
        self.fences = _fences(program) if verify else None
        """What puts fences around memory; None unless a test wants it (``runtime.cpu.fences``)."""
        self.frames: dict[ArenaLayout, list[Frame]] = {}
        """Frames that no call uses, of each layout."""
        self.needed = read_by_calls(program)
        self.weights = {k: in_order(program.weights[k].array()) for k in sorted(self.needed)}
        if self.fences is not None:
            self.weights = self.fences.weights(self.weights)
            prepared = None if prepared is None else self.fences.panels_of(prepared)
        self._prepared = prepared
        self._lets_go = lets_go
        self.has_let_go = False
        """Whether weights have been released."""
        self._preparing = ForkedLock()
        self._planning = ForkedLock()
        self.inputs = [
            (k, slot.number) for k, slot in enumerate(program.slots) if slot.kind is SlotKind.INPUT
        ]
        outputs = [(k, s) for k, s in enumerate(program.slots) if s.kind is SlotKind.OUTPUT]
        self.outputs = sorted(outputs, key=lambda each: each[1].number)
        steps = walk_steps(program.steps)
        self.calls = {s.call: s for s in steps if isinstance(s, Interpret | LibraryCall)}
        self.static = not program.sizes
        self.requests = arena_requests(program)
        self.layouts = ArenaLayouts(program, self.requests, self.threads)
        self.calls_at: dict[tuple[int, ...], CallPlan] = {}
        """By sizes; those that were met last."""
        self._output_sizes = SizeTable(
            [dim for _, slot in self.outputs for dim in slot.shape], program.sizes
        )
        if guards is None:  # a loaded program brings its own: its graph has no nodes
            guards = () if self.static else guards_of(graph)
        self.guards = guards
        self._size_checks = SizeChecks(guards)
        self._is_verified = verify and Config.from_environment().verify
        self._verifies: tuple[ProgramVerifier, AccessVerifier] | None = None
        self.variants: Variants | None = None
        """Programs for sizes that came back; None for a program with no symbolic sizes."""

    @property
    def strides(self) -> dict[int, tuple[int, ...]]:
        """The inputs, by number, that it reads with strides of their own."""
        return {
            slot.number: slot.strides
            for slot in self.program.slots
            if slot.kind is SlotKind.INPUT and slot.strides is not None
        }

    def enter_at(self, address: int) -> None:
        """Let calls from now on run this entry point: the program's, or one that records."""
        self.entry_address = address
        self.entry: interrupts.Entry = _ENTRY(address)
        if self.has_loops or self.program.fallbacks:
            self.entry = interrupts.entry_point(address)
        for reference in self._descriptions:
            description = reference()
            if description is not None:
                description[0] = address

    def described_by(self, description: Array) -> None:
        """Remember words (``quick_calls``) of which the first is the entry point's address."""
        alive = [each for each in self._descriptions if each() is not None]
        self._descriptions = [*alive, weakref.ref(description)]

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs for these inputs."""
        return self.run([address_of(each) for each in arrays], self.sizes(arrays))

    def run(self, addresses: Sequence[int], sizes: tuple[int, ...]) -> list[Array]:
        """The outputs for inputs that lie at these addresses."""
        if is_profiling():
            with self._kernel_ranges().shown():
                return self._run(addresses, sizes)
        return self._run(addresses, sizes)

    def _kernel_ranges(self) -> KernelRanges:
        if self._ranges is None:
            self._ranges = KernelRanges(self)
        return self._ranges

    def _run(self, addresses: Sequence[int], sizes: tuple[int, ...]) -> list[Array]:
        variant = None if self.variants is None else self.variants.find(sizes)
        if variant is not None:
            program, others = variant
            assert isinstance(program, Native), "variants are of the same kind"
            return program.run(addresses, others)
        if self.fences is not None:
            return self._run_fenced(self.fences, addresses, sizes)
        plan = self.calls_at.get(sizes)
        if plan is None:
            plan = self.call_plan(sizes)
        free = plan.free
        try:
            frame = free.pop()
        except IndexError:  # several threads at once, or the first call
            frame = self._new_frame(plan.layout, sizes)
        if frame.sizes != sizes:
            frame.resize(sizes)
        words = frame.words
        for slot, number in self.inputs:
            words[slot] = addresses[number]
        results = []
        for slot, nbytes, dtype, shape in plan.outputs:
            if nbytes <= MAX_MALLOC_BYTES:
                result: Array = np.empty(shape, dtype)
                words[slot] = address_of(result)
            else:
                buffer = self.pool.acquire(nbytes)
                words[slot] = buffer.address
                result = buffer.as_array(dtype, shape)
            results.append(result)
        code = self.entry(frame.address, frame.status_address, self.threads)
        if code:
            self._fail(frame, code, free)
        free.append(frame)
        return results

    def _run_fenced(
        self, fences: Fences, addresses: Sequence[int], sizes: tuple[int, ...]
    ) -> list[Array]:
        """The same with fences around all memory, which is checked after the call."""
        plan = self.call_plan(sizes)
        frame = self._new_frame(plan.layout, sizes)
        bindings = dict(zip(self.program.sizes, sizes, strict=True))
        slots = [each.slot for each in self.requests]
        spread = copies_of(self.program, bindings, self.threads)
        call = FencedCall(fences, bindings, (slots, self.plan_for(sizes)), spread)
        for slot, number in self.inputs:
            call.input(slot, addresses[number])
        results = [call.output(slot, dtype, shape) for slot, _, dtype, shape in plan.outputs]
        for slot, word in call.words.items():
            frame.words[slot] = word
        code = self.entry(frame.address, frame.status_address, self.threads)
        call.check()
        if code:
            self._fail(frame, code, [])
        return results

    def sizes(self, arrays: Sequence[Array]) -> tuple[int, ...]:
        """What the symbolic dimensions are for these inputs."""
        if self.static:
            return ()
        _, bindings = bind_inputs(self.graph, arrays)
        return tuple(bindings[symbol] for symbol in self.program.sizes)

    def _fail(self, frame: Frame, code: int, free: list[Frame]) -> None:
        frame.status.value = 0
        free.append(frame)
        step = self.program.failures[code]
        if isinstance(step, WhileLoop):
            raise EvaluationError(
                f"while: the condition still holds after {step.limit} iterations",
                where=step.where,
            )
        complaint = step.complaint if isinstance(step, Launch) else ""
        where = step.checked if isinstance(step, Launch) else ""
        raise EvaluationError(
            complaint or "an index is out of range",
            where=where,
            source=self._sources(where),
            hint="interpret the graph on the same inputs to see where",
        )

    def _sources(self, checked: str) -> str | None:
        """The lines of the nodes that a kernel checks, of which elementwise ones cannot fail."""
        known = {repr(node): node for node in self.graph.nodes}
        nodes = [known[text] for text in checked.split("; ") if text in known]
        places = (node.location for node in nodes if not node.op.has(Trait.ELEMENTWISE))
        return "\n".join(dict.fromkeys(map(str, filter(None, places)))) or None

    def prepared(self) -> dict[int, Array]:
        """What depends on weights alone: packed operands, made by the first call for all calls."""
        with self._preparing:
            if self._prepared is None:
                if self._lets_go:
                    self._let_go_but(self.program.weights)
                self._prepared = self._prepare()
                if self._lets_go:
                    self._let_go_but([self.program.weights[k] for k in self.needed])
            return self._prepared

    def share_prepared(self, equal: Mapping[int, Array]) -> None:
        """Read these in place of equal ones.

        All panels lie in one piece of memory: those that are left move, so that it can go.
        """
        panels = self.prepared()
        if not equal or self.fences is not None:
            return
        for slot in panels:
            if slot in equal:
                panels[slot] = equal[slot]
            else:
                memory = self.pool.acquire(max(panels[slot].nbytes, 1))
                copy = memory.as_array(panels[slot].dtype, panels[slot].shape)
                copy[...] = panels[slot]
                panels[slot] = copy
        self.pool.clear()

    def stored(self) -> tuple[Code, dict[int, Array] | None]:
        """The code, with what was packed in place of the weights that no call reads."""
        return self.program, self.prepared()

    def _prepare(self) -> dict[int, Array]:
        packing = Packing(
            self.program, self.weights, self.pool, lets_go=self._lets_go, fences=self.fences
        )
        return packing.run(self.library, self.threads)

    def _let_go_but(self, kept: Sequence[Data]) -> None:
        """Release all weights but these: first what passes made others of, then what is packed."""
        known = {id(data) for data in kept}
        for data in (*self.program.weights, *weights_of(self.graph)):
            if isinstance(data, Held) and id(data) not in known:
                data.release()
                self.has_let_go = True

    # Frames ---------------------------------------------------------------------------------------

    def take_frame(self, sizes: tuple[int, ...]) -> Frame:
        """A frame for somebody who keeps it; one that an earlier call has left, if there is one."""
        plan = self.call_plan(sizes)
        frame = plan.free.pop() if plan.free else self._new_frame(plan.layout, sizes)
        frame.resize(sizes)
        return frame

    def call_plan(self, sizes: tuple[int, ...]) -> CallPlan:
        """What a call of these sizes needs to know; an error if they do not fit."""
        found = self.calls_at.get(sizes)
        if found is None:
            with self._planning:
                found = self._plan(sizes)
        return found

    def _plan(self, sizes: tuple[int, ...]) -> CallPlan:
        if self.guards:
            self._size_checks.check(dict(zip(self.program.sizes, sizes, strict=True)))
        layout = self.layouts.find(sizes)
        if self._is_verified:
            self._verify(dict(zip(self.program.sizes, sizes, strict=True)), layout)
        if layout not in self.frames:
            self._keep(layout)
        for oldest in list(self.calls_at)[: 1 - MOST_PLANS]:
            del self.calls_at[oldest]
        found = CallPlan(layout, self._output_rows(sizes), self.frames[layout])
        self.calls_at[sizes] = found
        return found

    def _keep(self, layout: ArenaLayout) -> None:
        """Have frames of a layout, and let go of those of layouts that went for it."""
        self.frames[layout] = []
        for old in set(self.frames).difference(self.layouts.kept):
            del self.frames[old]
        for sizes, each in list(self.calls_at.items()):
            if each.layout not in self.frames:
                del self.calls_at[sizes]

    def _output_rows(
        self, sizes: tuple[int, ...]
    ) -> list[tuple[int, int, np.dtype[Any], tuple[int, ...]]]:
        dims = iter(self._output_sizes.values(sizes))
        rows = []
        for k, slot in self.outputs:
            shape = tuple(islice(dims, len(slot.shape)))
            dtype = slot.dtype.numpy
            rows.append((k, dtype.itemsize * math.prod(shape), dtype, shape))
        return rows

    def plan_for(self, sizes: tuple[int, ...]) -> ArenaPlan:
        """The arena as it is packed for just these sizes; calls may use one with room to spare."""
        bindings = dict(zip(self.program.sizes, sizes, strict=True))
        return plan_arena(self.requests, bindings, copies_of(self.program, bindings, self.threads))

    def _verify(self, bindings: Mapping[Symbol, int], layout: ArenaLayout) -> None:
        """Check a plan and the accesses, for whoever asks for it (``MONOGRAPH_VERIFY``)."""
        if self._verifies is None:
            from monograph.program.verify import ProgramVerifier
            from monograph.runtime.cpu.accesses import AccessVerifier

            plans = ProgramVerifier(self.program, self.requests)
            self._verifies = (plans, AccessVerifier(self.program))
        plans, accesses = self._verifies
        plans.verify(bindings, layout.plan, layout.copies)
        accesses.verify(bindings)

    def _new_frame(self, layout: ArenaLayout, sizes: tuple[int, ...]) -> Frame:
        program = self.program
        prepared = self.prepared()
        arena = self.pool.acquire(max(layout.plan.peak, 1))
        table = np.zeros(len(program.slots) + len(program.sizes) + 2, np.int64)
        for k, slot in enumerate(program.slots):
            if slot.kind is SlotKind.WEIGHT and slot.number in self.needed:
                table[k] = self.weights[slot.number].ctypes.data
            elif slot.kind is SlotKind.PREPARED:
                table[k] = prepared[k].ctypes.data
            elif slot.kind is SlotKind.ARENA and k in layout.offsets:
                table[k] = arena.address + layout.offsets[k]
        for memory, copies in layout.copies.items():
            words = copies.numbers() | copies.addresses(int(table[memory]))
            for k, word in words.items():
                table[k] = word
        watch = interrupts.new_watch()
        table[-2] = interrupts.call_back_address() if program.fallbacks else 0
        table[-1] = watch.ctypes.data
        status = ctypes.c_int32(0)
        frame = Frame(
            table,
            memoryview(table.data),
            table.ctypes.data,
            arena,
            status,
            ctypes.addressof(status),
            sizes,
            slice(len(program.slots), len(program.slots) + len(program.sizes)),
            watch,
            weakref.ref(self),
        )
        frame.resize(sizes)
        interrupts.receivers[frame.address] = frame
        return frame

    # The interpreter ------------------------------------------------------------------------------

    def interpret(self, frame: Frame, call: int) -> None:
        """Run one node in Python, or in a library of NumPy's, on the memory of its slots."""
        node = self.program.fallbacks[call]
        step = self.calls[call]
        bindings = dict(zip(self.program.sizes, frame.sizes, strict=True))

        def views(slots: Sequence[int], values: Sequence[Value]) -> list[Array]:
            """A slot may be seen in several shapes: that of the value counts."""
            shapes = [tuple(evaluate_dim(dim, bindings) for dim in v.shape) for v in values]
            return [_view(frame, *pair) for pair in zip(slots, values, shapes, strict=True)]

        with np.errstate(all="ignore"):
            results = evaluate_node(node, views(step.inputs, node.operands), bindings)
        for view, result in zip(views(step.outputs, node.results), results, strict=True):
            view[...] = result


def _fences(program: Code) -> Fences | None:
    side = Config.from_environment().fences
    return None if side is None else Fences(program, side)


def _view(frame: Frame, slot: int, value: Value, shape: tuple[int, ...]) -> Array:
    """The memory of a slot as an array."""
    dtype = value.dtype.numpy
    nbytes = dtype.itemsize * math.prod(shape)
    if nbytes == 0:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * nbytes).from_address(int(frame.table[slot]))
    return np.ndarray(shape, dtype, memoryview(memory))
