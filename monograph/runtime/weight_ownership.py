"""A program's weights: a snapshot of the model's, and in memory once.

A product reads its weights from panels, which are made when the program is, and what they were made
of is read by nobody after that. Where the graph belongs to the program (it was read from a torch
module or an ONNX file for it), the program holds its weights as ``Held`` and lets go of those: a
model is in memory once, unless its owner keeps it too. The weights that calls read as they are
(biases, tables of embeddings) are copied, unless nobody else can write to them: whatever becomes of
the module after it was compiled, no call sees a mixture of old weights and new ones.
See docs/decisions/31-weights-are-a-snapshot.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.contents import give, snapshot
from monograph.ir.data import ArrayData, Data
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.lazy_data import LazyData
from monograph.ir.types import Array
from monograph.program.code import Code, SlotKind, list_slots, walk_steps

OwnProgram = TypeVar("OwnProgram", bound=Code)


class Held(Data):
    """Contents that can be let go of; after that only their type is known."""

    def __init__(self, source: Data) -> None:
        self.dtype = source.dtype
        self.shape = source.shape
        self.followers: list[Held] = []
        """What else refers to the same contents."""
        self._source: Data | None = source

    def release(self) -> None:
        """Let go of the contents."""
        if self._source is not None:
            self._source.unload()
        self._source = None
        for each in self.followers:
            each.release()

    def unload(self) -> None:
        """Give back memory that reading took, but for what cannot be read again."""
        if self._source is not None:
            self._source.unload()

    def own(self) -> None:
        """Hold the contents as they are now, whoever writes to the model's after this."""
        self._source = self.source.snapshot()
        for each in self.followers:
            each._source = _view_as(self._source, each)

    @property
    def source(self) -> Data:
        """What is held; an error if that was let go of."""
        if self._source is None:
            raise EvaluationError(
                "this weight is no longer held: the program has packed it and reads that alone",
                expected=f"the contents of a {self.type}",
                hint="compile with keep_weights=True, or read the model again",
            )
        return self._source

    def array(self) -> Array:
        """The contents."""
        return self.source.array()

    @property
    def device_tensor(self) -> Any | None:
        """The contents on a GPU, if they lie there."""
        return self.source.device_tensor

    @property
    def is_private(self) -> bool:
        """Whether nobody else can write to the contents."""
        return self._source is None or self._source.is_private

    @property
    def digest(self) -> str:
        """The contents' digest; contents that were let go of are equal to nothing else."""
        return f"{id(self):032x}" if self._source is None else self._source.digest

    @property
    def splat(self) -> Any | None:
        """The element that fills it, if one is known to."""
        return None if self._source is None else self._source.splat

    def __repr__(self) -> str:
        return f"Held({self.type})"


def _view_as(data: Data, other: Data) -> Data:
    """The same memory as contents of another shape."""
    if data.type == other.type:
        return data
    flat = np.ascontiguousarray(data.array()).reshape(-1)
    return ArrayData(flat.view(other.dtype.numpy).reshape(other.shape), other.dtype, private=True)


def hold(graph: Graph) -> None:
    """Let the graph's weights be such that they can be let go of."""
    for node in graph.walk():
        data = _weight(node)
        if data is not None and not isinstance(data, Held):
            give(node, Held(data))


def weights_of(graph: Graph) -> list[Data]:
    """The contents of a graph's weights, those in regions too."""
    found = (_weight(node) for node in graph.walk())
    return [data for data in found if data is not None]


def hold_all(weights: Sequence[Data]) -> tuple[Held, ...]:
    """A program's weights, each of them held: what one is computed of goes with that one."""
    return tuple(data if isinstance(data, Held) else Held(_apart(data)) for data in weights)


def _apart(data: Data) -> Data:
    """The same contents, whatever else is released."""
    if isinstance(data, Held):
        return _apart(data.source)
    return data.of(_apart) if isinstance(data, LazyData) else data


def follow(lowered: Graph, numbers: Mapping[Value, int], weights: Sequence[Held]) -> None:
    """Let the weights of a lowered graph go with those of its program, which they may be views of.

    ``numbers`` says which weight of the program a value is.
    """
    for node in lowered.walk():
        data = _weight(node)
        number = None if data is None else numbers.get(node.results[0])
        if data is None or number is None or isinstance(data, Held):
            continue
        follower = Held(data)
        weights[number].followers.append(follower)
        give(node, follower)


def follow_program(program: OwnProgram, slot_of: Mapping[Value, int], lowered: Graph) -> OwnProgram:
    """The program with weights that it can let go of, wherever they are referred to.

    ``slot_of`` says where the values of the lowered graph lie.
    """
    weights = hold_all(program.weights)
    slots = program.slots
    numbers = {
        value: slots[slot].number
        for value, slot in slot_of.items()
        if slots[slot].kind is SlotKind.WEIGHT
    }
    follow(lowered, numbers, weights)
    return replace(program, weights=weights)


def read_by_calls(code: Code) -> frozenset[int]:
    """The weights, by number, that the steps of a call read; packing alone reads the others."""
    slots = {slot for step in walk_steps(code.steps) for slot in list_slots(step)}
    return frozenset(
        code.slots[slot].number for slot in slots if code.slots[slot].kind is SlotKind.WEIGHT
    )


def own_weights(code: Code) -> Code:
    """The code with copies of those weights that its calls read as they are.

    The memory of the other ones is read once more, when they are packed.
    """
    kept = read_by_calls(code)
    weights = tuple(own(data) if k in kept else data for k, data in enumerate(code.weights))
    for node in code.fallbacks:
        for region in node.regions:
            snapshot(region.walk())
    return replace(code, weights=weights)


def snapshot_weights(code: Code) -> Code:
    """The code with copies of all its weights, for a program that is stored and not run."""
    return replace(code, weights=tuple(data.snapshot() for data in code.weights))


def own(data: Data) -> Data:
    """A snapshot of some contents; what is held is so by everybody who refers to it."""
    if not isinstance(data, Held):
        return data.snapshot()
    data.own()
    return data


def _weight(node: Node) -> Data | None:
    """The contents of a weight."""
    from monograph.ops.data import Weight  # a program that is loaded has no graph to look through

    return node.op.data if isinstance(node.op, Weight) else None
