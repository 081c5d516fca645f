"""A compiled program: slots of memory and the steps that fill them, in order.

A slot is an address that the runtime provides: an input, an output, a weight, or a piece of the
arena. A step launches a kernel on slots, runs one node in the interpreter, copies, or holds steps
of its own (a branch, a loop). The entry point that a target emits runs all of it in one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.data import Data
from monograph.ir.dims import Dim, Shape, Symbol, shape_product
from monograph.ir.graph import Node
from monograph.ir.types import DType

PREPARE = "prepare"
"""The name of the second entry point, which packs weights."""


BROKEN_OFF = -2
"""What the entry point returns where a loop was broken off: the time was up, or a signal came."""


class SlotKind(Enum):
    """Where a slot's memory comes from."""

    INPUT = "input"
    OUTPUT = "output"
    WEIGHT = "weight"
    ARENA = "arena"
    PREPARED = "prepared"
    """Made of weights alone, by the second entry point, before the first call."""
    VIEW = "view"
    """A piece of another slot, or one of two slots, as an ``SliceView`` or ``Alternate``
    chooses."""
    NUMBER = "number"
    """No address, but a number that the runtime settles, for a ``ParallelFor`` step."""


@dataclass(frozen=True)
class Slot:
    """An address; ``number`` counts within inputs, outputs and weights."""

    kind: SlotKind
    name: str
    dtype: DType
    shape: Shape
    number: int = 0
    strides: tuple[int, ...] | None = None
    """Of what is not row-major, in elements."""
    span: Dim | None = None
    """Elements of memory that it takes, if not one an element of the shape."""

    @property
    def nbytes(self) -> Dim:
        """Bytes that it needs; small types take a byte an element, as in NumPy."""
        elements = shape_product(self.shape) if self.span is None else self.span
        return elements * self.dtype.numpy.itemsize


@dataclass(frozen=True)
class Launch:
    """Run a kernel: ``slots`` are its buffers, inputs first."""

    kernel: str
    slots: tuple[int, ...]
    sizes: tuple[Symbol, ...]
    extent: Dim
    grain: Dim
    checked: str = ""
    """What to say if an index that it reads is out of range; empty if it reads none."""
    in_place: tuple[int, ...] = ()
    """Slots among its inputs that its (only) output may be written over."""
    outputs: int = 1
    """How many of the slots, the last ones, it writes."""
    complaint: str = ""
    """What went wrong if a check fails, unless it is an index that is out of range."""
    offsets: tuple[int, ...] = ()
    """How many bytes into each slot its buffer begins; empty if all begin where their slots do."""
    times: int = 1
    """How often it is run, side by side: slots are the inputs of every run, then the outputs."""
    grid: tuple[Dim, ...] = ()
    """On a GPU, how many programs there are along each axis; elsewhere ``extent`` says it."""

    @property
    def runs(self) -> tuple[tuple[int, ...], ...]:
        """The slots of each run."""
        inputs = (len(self.slots) - self.outputs) // self.times
        outputs = self.outputs // self.times
        first = inputs * self.times
        return tuple(
            self.slots[k * inputs :][:inputs] + self.slots[first + k * outputs :][:outputs]
            for k in range(self.times)
        )


@dataclass(frozen=True)
class Interpret:
    """Run a node in the interpreter: its index in ``Code.fallbacks``."""

    call: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class LibraryCall:
    """Let a library of the device compute one node: its index in ``Code.fallbacks``."""

    call: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    library: str
    """What computes it, as people know it: ``cuBLAS``."""
    views: tuple[tuple[int, ...], ...] = ()
    """For each operand and result that is not row-major in its slot, the offset of its first
    element and its strides, in elements; empty ones for the others."""


@dataclass(frozen=True)
class Copy:
    """Copy all of a slot's bytes."""

    source: int
    target: int
    nbytes: Dim


@dataclass(frozen=True)
class SliceView:
    """Let a slot be the ``counter``-th piece of another: one step of a scan."""

    slot: int
    whole: int
    counter: int
    nbytes: Dim
    reverse: Dim | None = None
    """How many pieces there are, if they are visited from the last to the first."""


@dataclass(frozen=True)
class Alternate:
    """Let a slot be one of two others: ``first`` where an odd number of runs of a loop are left.

    A loop writes what it hands on beside what it reads, and takes turns with the two places, so
    that nothing is copied; the last run writes to ``first`` of the slot that is written.
    """

    slot: int
    first: int
    second: int
    counter: int
    times: Dim


@dataclass(frozen=True)
class Branch:
    """Run one of two lists of steps."""

    condition: int
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True)
class WhileLoop:
    """While the condition, which ``test`` computes, holds, run ``body``.

    Going on after ``limit`` times, if there is one, is an error.
    """

    test: tuple[Step, ...]
    condition: int
    body: tuple[Step, ...]
    limit: int | None = None
    where: str = ""


@dataclass(frozen=True)
class ForLoop:
    """Run ``body`` so many times; ``counter`` numbers the loops of a program."""

    counter: int
    times: Dim
    body: tuple[Step, ...]


@dataclass(frozen=True)
class ParallelFor:
    """Run ``body`` so many times, in any order and on any thread: no run reads what another writes.

    What only the body uses, the slots ``own``, is there several times, once for each thread. The
    table has the addresses of the first copy. ``memory`` holds all copies (in its first line, which
    of them are taken), and ``distance`` and ``copies`` are how far apart they are and how many.
    """

    counter: int
    times: Dim
    body: tuple[Step, ...]
    own: tuple[int, ...]
    memory: int
    distance: int
    copies: int


@dataclass(frozen=True)
class Sections:
    """Run lists of steps side by side, each on one thread: none reads what another writes.

    Where each could keep more threads busy than there are lists, they run one after the other, on
    all threads. ``number`` counts such steps of a program.
    """

    number: int
    parts: tuple[tuple[Step, ...], ...]


Step: TypeAlias = (
    Launch
    | Interpret
    | LibraryCall
    | Copy
    | SliceView
    | Alternate
    | Branch
    | WhileLoop
    | ForLoop
    | ParallelFor
    | Sections
)


@dataclass(frozen=True)
class Code:
    """All that running needs, and all that a cache or an artifact stores.

    ``failures`` says which step each result code of the entry point stands for, ``weights`` and
    ``fallbacks`` are what the slots and the ``Interpret`` and ``LibraryCall`` steps refer to by
    number: the nodes that no kernel of ours computes.
    """

    object: bytes
    slots: tuple[Slot, ...]
    sizes: tuple[Symbol, ...]
    steps: tuple[Step, ...]
    failures: Mapping[int, Step]
    weights: tuple[Data, ...]
    fallbacks: tuple[Node, ...]
    codes: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """The function that each kernel runs, by its name, where that is called otherwise: kernels of
    the same text share one."""

    @property
    def interpreted(self) -> tuple[Node, ...]:
        """The nodes that run in the interpreter: on the host, in Python."""
        steps = [step for step in walk_steps(self.steps) if isinstance(step, Interpret)]
        return tuple(self.fallbacks[step.call] for step in steps)


def walk_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Every step, those inside others after their parents."""
    for step in steps:
        yield step
        match step:
            case Branch(_, then, otherwise):
                yield from walk_steps(then)
                yield from walk_steps(otherwise)
            case WhileLoop(test, _, body, _, _):
                yield from walk_steps(test)
                yield from walk_steps(body)
            case ForLoop(_, _, body) | ParallelFor(_, _, body):
                yield from walk_steps(body)
            case Sections(_, parts):
                for part in parts:
                    yield from walk_steps(part)


def has_loops(steps: Sequence[Step]) -> bool:
    """Whether any of the steps, or of those in them, is a loop."""
    return any(
        isinstance(step, WhileLoop | ForLoop | ParallelFor) for step in walk_steps(tuple(steps))
    )


def is_independent(step: Step) -> bool:
    """Whether a step can neither fail nor ask Python, so that any thread can run it."""
    if isinstance(step, Launch):
        return not step.checked
    return isinstance(step, SliceView | Alternate | Copy)


def list_slots(step: Step) -> tuple[int, ...]:
    """The slots that a step itself reads or writes, those of the steps in it aside."""
    match step:
        case Launch():
            return step.slots
        case Interpret(_, inputs, outputs) | LibraryCall(_, inputs, outputs, _, _):
            return inputs + outputs
        case Copy(source, target, _):
            return (source, target)
        case SliceView(slot, whole, _, _, _):
            return (slot, whole)
        case Alternate(slot, first, second, _, _):
            return (slot, first, second)
        case Branch(condition, _, _):
            return (condition,)
        case WhileLoop(_, condition, _, _, _):
            return (condition,)
        case ForLoop() | Sections():
            return ()
        case ParallelFor():
            return (step.memory,)
