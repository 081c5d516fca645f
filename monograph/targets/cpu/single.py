"""A program of one kernel, on arrays of the right sizes: what a tuner measures."""

from __future__ import annotations

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.data import ArrayData, Data
from monograph.ir.dims import Dim, Symbol, SymbolicDim, evaluate_dim, likely_size
from monograph.ir.graph import Graph
from monograph.ir.types import Array, DType, TensorType, f32
from monograph.program.code import Code, Slot, SlotKind
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.build import module_of
from monograph.targets.cpu.machine import Machine, compile_text
from monograph.targets.cpu.tuning import Choice, Site

ALIGNMENT = 64


@dataclass(frozen=True)
class Single:
    """The code of one kernel, a graph with its inputs alone, and arrays to call it with.

    What it writes are arrays of its caller too, the last ones: a kernel may write only a part.
    """

    code: Code
    graph: Graph
    arrays: tuple[Array, ...]


class KernelInputs:
    """Everything that a kernel needs to run alone: sizes for its symbols, and its arrays."""

    def __init__(self, site: Site, machine: Machine) -> None:
        self.site = site
        self.machine = machine
        slots = (*site.inputs, *site.outputs)
        self.sizes = _symbols([slot.nbytes for slot in slots])
        self.bindings = {symbol: likely_size(symbol) for symbol in self.sizes}
        generator = np.random.default_rng(0)
        self.filled = [self._fill(slot, generator) for slot in site.inputs]
        self.written = [self._empty(slot) for slot in site.outputs]

    @property
    def nbytes(self) -> int:
        """Bytes that the kernel reads and writes."""
        outputs = (evaluate_dim(slot.nbytes, self.bindings) for slot in self.site.outputs)
        return sum(array.nbytes for array in self.filled) + sum(outputs)

    def build(self, choice: Choice) -> Single:
        """The kernel as a choice has it.

        Sizes that are not known come from inputs of their own, which nobody reads.
        """
        graph, arrays = Graph("single"), list[Array]()
        builder = ProgramBuilder(self.machine, {})
        weights: list[Data] = []
        for symbol in self.sizes:
            value = graph.add_input(f"size_{symbol.name}", TensorType(f32, (symbol,)))
            builder.slots.append(_slot(SlotKind.INPUT, value.name, f32, symbol, len(arrays)))
            arrays.append(np.zeros(self.bindings[symbol], np.float32))
        read, written = [], []
        for slot, constant, array in zip(
            self.site.inputs, self.site.constant, self.filled, strict=True
        ):
            read.append(len(builder.slots))
            elements = _elements(slot)
            if constant:
                kind, number = SlotKind.WEIGHT, len(weights)
                weights.append(ArrayData(array))
            else:
                kind, number = SlotKind.INPUT, len(arrays)
                arrays.append(array)
                graph.add_input(f"x{number}", TensorType(slot.dtype, (elements,)))
            builder.slots.append(_slot(kind, slot.name, slot.dtype, elements, number))
        for slot, array in zip(self.site.outputs, self.written, strict=True):
            written.append(len(builder.slots))
            elements, number = _elements(slot), len(arrays)
            arrays.append(array)
            graph.add_input(f"y{number}", TensorType(slot.dtype, (elements,)))
            builder.slots.append(_slot(SlotKind.INPUT, slot.name, slot.dtype, elements, number))
        self.site.plan.with_choice(choice).launch(builder, read, written)
        module, failures = module_of(builder, self.sizes)
        compiled = compile_text(module.text, self.machine)
        slots, steps = tuple(builder.slots), tuple(builder.steps)
        code = Code(compiled.object, slots, self.sizes, steps, failures, tuple(weights), ())
        return Single(code, graph, tuple(arrays))

    def _fill(self, slot: Slot, generator: np.random.Generator) -> Array:
        """Numbers of a usual size; of integers, which may be positions, zeros."""
        count = evaluate_dim(_elements(slot), self.bindings)
        if slot.dtype.numpy.kind != "f":
            return np.zeros(count, slot.dtype.numpy)
        return generator.standard_normal(count, np.float32).astype(slot.dtype.numpy)

    def _empty(self, slot: Slot) -> Array:
        """Memory at an address that the widest vectors may be stored to."""
        nbytes = evaluate_dim(slot.nbytes, self.bindings)
        memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + nbytes].view(slot.dtype.numpy)


def _slot(kind: SlotKind, name: str, dtype: DType, elements: Dim, number: int) -> Slot:
    return Slot(kind, name, dtype, (elements,), number)


def _elements(slot: Slot) -> Dim:
    return slot.nbytes // slot.dtype.numpy.itemsize


def _symbols(dims: list[Dim]) -> tuple[Symbol, ...]:
    found = {s for dim in dims if isinstance(dim, SymbolicDim) for s in dim.symbols()}
    return tuple(sorted(found, key=lambda symbol: symbol.name))
