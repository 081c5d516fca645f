"""The memory of a program's values, as every target gives it out: slots, made when first needed.

A value is a slot of its own, its operand's in another shape, or a weight. A target's own builder
adds the steps that fill them.
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph.fusion.prologue import is_stored
from monograph.ir.data import Data
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import TensorType
from monograph.ops.shape import Reshape
from monograph.program.code import Copy, Interpret, LibraryCall, Slot, SlotKind, Step


class SlotBuilder:
    """Gathers the slots, weights and steps of one program."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.slot_of: dict[Value, int] = {}
        self.weights: list[Data] = []
        self.steps: list[Step] = []
        self.fallbacks: list[Node] = []
        """The nodes that no kernel computes."""

    def add_slot(self, value: Value, kind: SlotKind, number: int = 0) -> int:
        """A new slot of the value's type."""
        self.slots.append(Slot(kind, value.name, value.dtype, value.shape, number))
        return len(self.slots) - 1

    def add_ends(self, graph: Graph) -> list[int]:
        """Slots for the inputs of a whole graph and for its outputs, which are returned."""
        for number, value in enumerate(graph.inputs):
            self.slot_of[value] = self.add_slot(value, SlotKind.INPUT, number)
        return [
            self.add_slot(value, SlotKind.OUTPUT, number)
            for number, value in enumerate(graph.outputs)
        ]

    def write_outputs_to(self, graph: Graph, targets: Sequence[int]) -> None:
        """Let what computes an output write it where it is wanted."""
        for value, target in zip(graph.outputs, targets, strict=True):
            written = self.written(value)
            if written not in self.slot_of and self.is_computed(written):
                self.slot_of[written] = target

    def copy_outputs_to(self, graph: Graph, targets: Sequence[int]) -> None:
        """Copy the outputs that are not where they are wanted: an input, or one given twice."""
        for value, target in zip(graph.outputs, targets, strict=True):
            self.copy(self.slot(value), target)

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
        elif self.is_alias(node):
            found = self.slot(node.operands[0])
        else:
            found = self.add_slot(value, SlotKind.ARENA)
        self.slot_of[value] = found
        return found

    def is_alias(self, node: Node) -> bool:
        """Whether the node's result is its operand's memory in another shape."""
        return is_view(node)

    def written(self, value: Value) -> Value:
        """The value whose memory this one is, perhaps in another shape."""
        while value.producer is not None and self.is_alias(value.producer):
            value = value.producer.operands[0]
        return value

    def is_computed(self, value: Value) -> bool:
        """Whether a step writes the value, so that it can be written where it is wanted."""
        node = value.producer
        return node is not None and not is_stored(node) and not self.is_alias(node)

    def copy(self, source: int, target: int) -> None:
        """Copy a slot, unless it is there already."""
        if source != target:
            self.steps.append(Copy(source, target, self.slots[source].nbytes))

    def interpret(self, node: Node) -> None:
        """A step that runs in Python."""
        inputs = tuple(self.slot(value) for value in node.operands)
        outputs = tuple(self.slot(value) for value in node.results)
        self.steps.append(Interpret(len(self.fallbacks), inputs, outputs))
        self.fallbacks.append(node)

    def call_library(self, node: Node, library: str) -> None:
        """A step that a library computes, on row-major operands."""
        inputs = tuple(self.slot(value) for value in node.operands)
        outputs = tuple(self.slot(value) for value in node.results)
        self.steps.append(LibraryCall(len(self.fallbacks), inputs, outputs, library))
        self.fallbacks.append(node)


def is_view(node: Node) -> bool:
    """Whether the result is the operand's own memory."""
    return isinstance(node.op, Reshape) and isinstance(node.operands[0].type, TensorType)
