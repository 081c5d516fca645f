"""Frames: everything that one call at a time needs of a program, built once for each set of sizes.

The *table* has a word for each slot (its address), for each symbolic size, for each flag that a
checked index raises, and for the memory of tensor descriptors. A kernel's parameters are pointers
into the table, so that a call writes the addresses of its inputs and outputs and changes nothing
else: a launch is then one call of the driver, with arguments that were made before.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import EvaluationError, UnsupportedError
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.ir.interpret import evaluate_node
from monograph.ir.types import i32
from monograph.program.arena import ArenaPlan, plan
from monograph.program.code import Copy, Interpret, Launch, LibraryCall, SlotKind, Step, list_slots
from monograph.program.liveness import SlotRequest
from monograph.runtime.gpu.memory import Block
from monograph.targets.gpu.modules import MachineCode

if TYPE_CHECKING:
    from monograph.runtime.gpu.program import OnDevice
    from monograph.targets.gpu.driver import DeviceInfo, Driver
    from monograph.targets.gpu.libraries import Library, LibraryTask

Run = Callable[[int], None]
"""A step, given the stream that it is to run on."""
IO_KINDS = (SlotKind.INPUT, SlotKind.OUTPUT)
WORD_BYTES = 8
MAX_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class PreparedStep:
    """A step that is ready to run, and which of its slots calls bring."""

    run: Run
    io: frozenset[int]
    parameters: int | None
    """Where pointers to a kernel's parameters lie; None if it is not one kernel."""


class Frame:
    """Addresses, parameters and steps of a program at some sizes, on one stream."""

    def __init__(self, held: OnDevice, sizes: tuple[int, ...], arena_plan: ArenaPlan) -> None:
        self.held = held
        self.program = held.program
        self.sizes = sizes
        self.bindings = dict(zip(self.program.sizes, sizes, strict=True))
        slots = self.program.slots
        self.shapes = [
            tuple(evaluate_dim(dim, self.bindings) for dim in slot.shape) for slot in slots
        ]
        self.arena: Block = held.memory.allocate(arena_plan.peak)
        checked = [step for step in self.program.steps if held.is_checked(step)]
        self.flags = Flags(held, checked) if checked else None
        self.begins = _list_begins(self.program.steps)
        """The slots that kernels begin inside of, and how many bytes into each."""
        words = len(slots) + len(sizes) + len(checked)
        self.first_begin = words
        """Where the table has the addresses of ``begins``."""
        self.table = np.zeros(words + len(self.begins) + 2, np.uint64)
        self.words = memoryview(self.table.data)
        self.table[len(slots) : len(slots) + len(sizes)] = sizes
        if self.flags is not None:
            first = len(slots) + len(sizes)
            for k in range(len(checked)):
                self.table[first + k] = self.flags.block.address + 4 * k
        self.scratch: Block = held.memory.allocate(self.scratch_bytes())
        self.table[-2] = self.scratch.address
        offsets = {
            request.slot: offset
            for request, offset in zip(held.requests, arena_plan.offsets, strict=True)
        }
        for k, slot in enumerate(slots):
            if slot.kind is SlotKind.WEIGHT and slot.number in held.weights:
                self.table[k] = held.weights[slot.number].address
            elif slot.kind is SlotKind.ARENA and k in offsets:
                self.table[k] = self.arena.address + offsets[k]
        self.tensors: dict[int, Any] = {}
        """Slots as torch tensors, for libraries."""
        self.given: dict[int, Any] = {}
        """Tensors that libraries gave, which are the memory of their slots while these are read."""
        self.given_at: dict[int, int] = {}
        """Where libraries left what they gave in this call."""
        self.last_use = {
            slot: number
            for number, step in enumerate(self.program.steps)
            for slot in list_slots(step)
        }
        self._kept: list[Any] = []
        self.is_captured = False
        """Whether its steps are noted for a graph now, and not run."""
        self.follows_kernel = False
        """Whether the step before the one that is prepared is a kernel of ours."""
        self.steps = self.prepared_steps(checked)

    def scratch_bytes(self) -> int:
        """What the launch that wants the most needs for its programs' tensor descriptors.

        Launches follow each other on one stream, so that all of them can use the same memory.
        """
        wanted = [0]
        for step in self.program.steps:
            if isinstance(step, Launch) and self.held.codes[step.kernel].scratch:
                programs = math.prod(evaluate_dim(dim, self.bindings) for dim in step.grid)
                wanted.append(programs * self.held.codes[step.kernel].scratch)
        return max(wanted)

    def address(self, slot: int) -> int:
        """Where a slot lies now."""
        return int(self.words[slot])

    def run(self, stream: int) -> None:
        """All steps, one after the other."""
        for step in self.steps:
            step.run(stream)

    def place_begins(self) -> None:
        """Write where kernels begin that begin inside of a slot, after slots have moved."""
        for place, (slot, offset) in enumerate(self.begins, self.first_begin):
            self.words[place] = self.words[slot] + offset

    def close(self) -> None:
        """Let go of the memory now: steps and frame hold each other until they are collected."""
        self.steps.clear()
        self.tensors.clear()
        self.given.clear()
        self.given_at.clear()
        self.arena = self.scratch = Block(0, 0)

    def forget(self) -> None:
        """Let go of what libraries gave in this call: later ones get new memory of them."""
        for slot in self.given:
            self.tensors.pop(slot, None)
        self.given.clear()
        self.given_at.clear()

    def forget_before(self, number: int) -> None:
        """Let go of what libraries gave and no step from this one on reads."""
        for slot in [slot for slot in self.given if self.last_use[slot] < number]:
            if self.program.slots[slot].kind not in IO_KINDS:
                del self.given[slot]
                self.tensors.pop(slot, None)

    # Steps ----------------------------------------------------------------------------------------

    def prepared_steps(self, checked: Sequence[Step]) -> list[PreparedStep]:
        """The steps that have something to do; after the last that checks, flags are fetched."""
        found = []
        for step in self.program.steps:
            made = self.prepared(step)
            self.follows_kernel = made is not None and isinstance(step, Launch)
            found += [] if made is None else [made]
            if checked and step is checked[-1]:
                found.append(PreparedStep(self.fetch_flags, frozenset(), None))
                self.follows_kernel = False
        return found

    def fetch_flags(self, stream: int) -> None:
        assert self.flags is not None
        self.flags.fetch(stream, in_graph=self.is_captured)

    def prepared(self, step: Step) -> PreparedStep | None:
        """A step with its arguments; None if it has nothing to do at these sizes."""
        match step:
            case Launch():
                return self.launch(step)
            case Copy(source, target, nbytes):
                return self.copy(source, target, evaluate_dim(nbytes, self.bindings))
            case LibraryCall(_, inputs, outputs, _):
                return PreparedStep(self.library_call(step), self.io((*inputs, *outputs)), None)
            case Interpret(_, inputs, outputs):
                return PreparedStep(self.interpret(step), self.io((*inputs, *outputs)), None)
        raise UnsupportedError(f"a GPU has no way to run a {type(step).__name__} step")

    def io(self, slots: Sequence[int]) -> frozenset[int]:
        """Those of these slots that a call brings."""
        return frozenset(k for k in slots if self.program.slots[k].kind in IO_KINDS)

    def launch(self, step: Launch) -> PreparedStep | None:
        grid = [evaluate_dim(dim, self.bindings) for dim in step.grid]
        if 0 in grid:
            return None
        if any(count > limit for count, limit in zip(grid, MAX_GRID, strict=False)):
            raise UnsupportedError(
                f"{step.kernel}: a GPU cannot run a grid of {' × '.join(map(str, grid))} programs"
            )
        x, y, z = (*grid, 1, 1)[:3]
        code = self.held.codes[step.kernel]
        parameters = self.parameters(step, code)
        arguments = (
            self.held.functions[step.kernel], x, y, z, code.threads, 1, 1, code.shared,
        )  # fmt: skip
        pointers = ctypes.addressof(parameters)
        launch, driver = self.held.driver.launch_function, self.held.driver
        io = self.io(step.slots)
        if (
            code.begins_early and self.follows_kernel and not io
        ):  # a graph changes the addresses of those that have any
            early = driver.early_launch(
                self.held.functions[step.kernel], (x, y, z), code.threads, code.shared, pointers
            )

            def run_early(stream: int) -> None:
                if step.offsets:
                    self.place_begins()
                driver.check(early(stream), f"launching {step.kernel}")

            return PreparedStep(run_early, io, pointers)

        def run(stream: int) -> None:
            if step.offsets:
                self.place_begins()
            result = launch(*arguments, stream, pointers, None)
            if result:
                driver.check(result, f"launching {step.kernel}")

        return PreparedStep(run, io, pointers)

    def parameters(self, step: Launch, code: MachineCode) -> ctypes.Array[ctypes.c_void_p]:
        """Pointers to the words of a kernel's parameters.

        Two of Triton's own are at the end: memory for descriptors, and for profiles.
        """
        offsets = step.offsets or (0,) * len(step.slots)
        slots, base = iter(zip(step.slots, offsets, strict=True)), self.table.ctypes.data
        sizes = iter(step.sizes)
        first = len(self.program.slots)
        numbers = {symbol: first + k for k, symbol in enumerate(self.program.sizes)}
        places = []
        for kind in code.parameters:
            if kind == "buffer":
                slot, offset = next(slots)
                begins = self.begins.index((slot, offset)) + self.first_begin if offset else slot
                places.append(begins)
            elif kind == "error":
                assert self.flags is not None
                places.append(first + len(numbers) + self.flags.steps.index(step))
            else:
                places.append(numbers[next(sizes)])
        scratch, null = len(self.table) - 2, len(self.table) - 1
        pointers = [base + WORD_BYTES * place for place in (*places, scratch, null)]
        made = (ctypes.c_void_p * len(pointers))(*pointers)
        self._kept.append(made)
        return made

    def copy(self, source: int, target: int, nbytes: int) -> PreparedStep | None:
        if nbytes == 0:
            return None

        def run(stream: int) -> None:
            self.held.driver.copy(self.address(target), self.address(source), nbytes, stream)

        return PreparedStep(run, self.io((source, target)), None)

    def library_call(self, step: LibraryCall) -> Run:
        from monograph.targets.gpu.libraries import LibraryTask, find_library

        node = self.program.fallbacks[step.call]
        library = find_library(node.op)
        assert library is not None, "the compiler found one"
        shapes = [
            tuple(evaluate_dim(dim, self.bindings) for dim in value.shape)
            for value in (*node.operands, *node.results)
        ]
        op = node.op.substitute(self.bindings)
        slots = (*step.inputs, *step.outputs)
        views = step.views or ((),) * len(slots)
        places = list(zip(slots, shapes, views, strict=True))
        count = len(step.inputs)
        number = next(k for k, each in enumerate(self.program.steps) if each is step)

        def run(stream: int) -> None:
            self.forget_before(number)
            tensors = [self.tensor(*place) for place in places]
            task = LibraryTask(op, tensors[:count], tensors[count:], self.flag(step), step.library)
            given = call_library(library, task)
            if given is not None:
                for slot, tensor, place in zip(step.outputs, given, tensors[count:], strict=True):
                    self.take(slot, tensor, place)

        return run

    def flag(self, step: Step) -> Any:
        """The word of a step that checks indices, as a tensor; None of others."""
        if self.flags is None or step not in self.flags.steps:
            return None
        address = self.flags.block.address + 4 * self.flags.steps.index(step)
        return self.held.tensor_at(address, i32, (1,))

    def take(self, slot: int, given: Any, place: Any) -> None:
        """A library's own tensor as the memory of a slot: what is read later is read there.

        An output that is given back at once is that tensor; else it is copied.
        """
        kind = self.program.slots[slot].kind
        is_kept = kind is SlotKind.OUTPUT and self.is_captured
        if is_kept or not _lies_as(given, place) or given.data_ptr() % 16:
            write_back(place, given)
            return
        self.words[slot] = given.data_ptr()
        self.given[slot] = given
        self.given_at[slot] = given.data_ptr()
        if kind not in IO_KINDS:
            self.tensors[slot] = given.as_strided((given.numel(),), (1,))

    def tensor(self, slot: int, shape: tuple[int, ...], view: tuple[int, ...]) -> Any:
        """The memory of a slot as a torch tensor: row by row, or by an offset and strides."""
        flat = self.tensors.get(slot)
        if flat is None or flat.data_ptr() != self.words[slot]:  # a call has brought another
            size = math.prod(self.shapes[slot])
            flat = self.held.tensor_at(self.address(slot), self.program.slots[slot].dtype, (size,))
            self.tensors[slot] = flat
        return flat.as_strided(shape, view[1:], view[0]) if view else flat.view(shape)

    def interpret(self, step: Interpret) -> Run:
        """Run a node in NumPy: its operands are brought to the host, and its results back."""
        node = self.program.fallbacks[step.call]

        def run(stream: int) -> None:
            memory = self.held.memory
            operands = [
                memory.download(
                    self.address(slot), value.dtype,
                    tuple(evaluate_dim(dim, self.bindings) for dim in value.shape),
                )
                for slot, value in zip(step.inputs, node.operands, strict=True)
            ]  # fmt: skip
            with np.errstate(all="ignore"):
                results = evaluate_node(node, operands, self.bindings)
            for slot, value, result in zip(step.outputs, node.results, results, strict=True):
                array = np.ascontiguousarray(result, value.dtype.numpy)
                if array.nbytes:
                    with self.held.driver.current(self.held.device):
                        address = self.address(slot)
                        self.held.driver.upload(address, array.ctypes.data, array.nbytes, stream)
                        self.held.driver.synchronize(stream)

        return run


def _list_begins(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """The slots that launches begin inside of, each with how many bytes into it."""
    launches = [step for step in steps if isinstance(step, Launch) and step.offsets]
    pairs = (pair for step in launches for pair in zip(step.slots, step.offsets, strict=True))
    return list(dict.fromkeys(pair for pair in pairs if pair[1]))


def call_library(library: Library, task: LibraryTask) -> Sequence[Any] | None:
    """Let a library compute an op on torch tensors."""
    return library.run(task)


def write_back(place: Any, given: Any) -> None:
    """Copy what a library gave to where it is wanted."""
    place.copy_(given)


def _lies_as(one: Any, other: Any) -> bool:
    """Whether the elements of two tensors are as far apart."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    pairs = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(size == 1 or step == step_ for size, step, step_ in pairs)


class Flags:
    """Words that kernels with checked indices write to, and the host looks at after a call.

    The host waits for the last of these kernels alone: what comes after it may still run.
    """

    def __init__(self, held: OnDevice, steps: Sequence[Step]) -> None:
        self.steps = list(steps)
        self.held = held
        self.nbytes = 4 * len(steps)
        self.block = held.memory.upload(np.zeros(len(steps), np.int32))
        with held.driver.current(held.device):
            self.host = held.driver.allocate_host(self.nbytes)
            self.event = held.driver.new_event()
        release = weakref.finalize(
            self, _release_flags, held.driver, held.device, self.host, self.event
        )
        release.atexit = False  # the driver gives back all that a process had
        self.words = (ctypes.c_int32 * len(steps)).from_address(self.host)

    def fetch(self, stream: int, *, in_graph: bool) -> None:
        """Bring the words to the host, after what the stream has been given so far."""
        driver = self.held.driver
        driver.download(self.host, self.block.address, self.nbytes, stream)
        driver.record(self.event, stream, in_graph=in_graph)

    def look(self) -> None:
        """Wait for the words, and raise what they say."""
        self.held.driver.wait(self.event)
        for word, step in zip(self.words, self.steps, strict=True):
            if not word:
                continue
            self.held.clear(self.block, self.nbytes)
            name = step.kernel if isinstance(step, Launch) else self.held.library_node(step).op.name
            where = step.checked if isinstance(step, Launch) else repr(self.held.library_node(step))
            raise EvaluationError(
                f"an index is out of range, in {name}",
                where=where,
                hint="interpret the graph on the same inputs to see where",
            )


def _release_flags(driver: Driver, device: DeviceInfo, host: int, event: int) -> None:
    """Give back what flags had of the host; the driver waits for who still writes to it."""
    with driver.current(device):
        driver.free_host(host)
        driver.destroy_event(event)


def plan_arena(requests: Sequence[SlotRequest], bindings: Mapping[Symbol, int]) -> ArenaPlan:
    """Where in the arena each slot lies at some sizes."""
    return plan([each.at(bindings) for each in requests], alignment=256, effort=0)
