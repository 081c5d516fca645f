"""Where nodes are written: the main graph, the body of a branch or loop, or a local function.

A body sees the names of the scopes around it (ONNX lets it read outer values); a function sees its
own inputs alone. Constants and the sizes that have been worked out are remembered for as long as
their scope lasts, so that each is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from monograph.dataclass import dataclass
from monograph.exporters.onnx.protos import tensor_proto
from monograph.ir.dims import Symbol
from monograph.ir.graph import Value
from monograph.ir.types import Array, DType, TensorType, UnrankedType, ValueType

DOMAIN = "monograph"
"""The domain of the local functions."""

SOURCE = "monograph.source"
"""Under this key of a node's metadata stands the line of the user's program that made it."""


@dataclass(frozen=True, slots=True)
class Term:
    """A value of the model: its name, and what its elements are (None for a sequence)."""

    name: str
    dtype: DType | None

    @property
    def element(self) -> DType:
        """The dtype of a tensor."""
        assert self.dtype is not None, f"{self.name} is no tensor"
        return self.dtype


def dtype_in(type_: ValueType) -> DType | None:
    """The dtype of a tensor's type; None for a sequence or an optional."""
    return type_.dtype if isinstance(type_, TensorType | UnrankedType) else None


def walk_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of the bodies in them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from walk_nodes(attribute.g.node)


def other_domains(nodes: Iterable[NodeProto]) -> list[str]:
    """The domains of nodes that are neither ONNX's own ops nor local functions."""
    return sorted({node.domain for node in walk_nodes(nodes)} - {"", DOMAIN})


class Names:
    """The names that are taken in a model's graph and all its bodies, or in one function."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def take(self, name: str) -> None:
        """Never hand this name out."""
        self._taken.add(name)

    def fresh(self, hint: str) -> str:
        """``hint``, or ``hint`` and a number if it is taken."""
        name, count = hint, self._counts.get(hint, 0)
        while not name or name in self._taken:
            count += 1
            name = f"{hint}.{count}"
        self._counts[hint] = count
        self._taken.add(name)
        return name


class Scope:
    """The nodes being written in one place, and what is known there.

    ``hint`` is what new names begin with, ``source`` the source line of the nodes being written.
    """

    def __init__(self, names: Names, parent: Scope | None = None, *, function: bool = False):
        self.names = names
        self.parent = parent
        self.is_function = function
        self.root: Scope = self if parent is None else parent.root
        self.nodes: list[NodeProto] = []
        self.terms: dict[Value, Term] = {}
        self.sizes: SizeTable = SizeTable(None if parent is None else parent.sizes)
        self.hint: str = "v" if parent is None else parent.hint
        self.source: str | None = None if parent is None else parent.source
        # Of a root: its constants, as initializers of a graph or nodes at the head of a function.
        self.initializers: list[TensorProto] = []
        self.constants: dict[tuple[object, ...], Term] = {}
        # Of a function: the sizes that its operands do not tell, as further inputs.
        self.size_inputs: dict[Symbol, Term] = {}

    def write(
        self,
        op_type: str,
        inputs: Sequence[str],
        count: int = 1,
        *,
        domain: str = "",
        attributes: dict[str, Any] | None = None,
    ) -> list[str]:
        """Add a node; the names of its ``count`` results."""
        outputs = [self.names.fresh(self.hint) for _ in range(count)]
        node = helper.make_node(op_type, inputs, outputs, domain=domain, **(attributes or {}))
        if self.source is not None:
            node.metadata_props.add(key=SOURCE, value=self.source)
        self.nodes.append(node)
        return outputs

    def constant(self, array: Array, dtype: DType) -> Term:
        """A small array that nodes read; each is written once in the whole root."""
        root = self.root
        key = (dtype, array.shape, array.tobytes())
        found = root.constants.get(key)
        if found is not None:
            return found
        name = self.names.fresh(_constant_name(array, dtype))
        proto = tensor_proto(array, dtype, "" if root.is_function else name)
        root.initializers.append(proto)
        if root.is_function:
            proto.name = name  # the Constant node is made when the function is complete
        term = Term(name, dtype)
        root.constants[key] = term
        return term

    def bind(self, value: Value, term: Term, *, known_as: str | None = None) -> None:
        """Remember what stands for a value, and that its shape tells sizes."""
        self.terms[value] = term
        if isinstance(value.type, TensorType):
            self.sizes.learn(value.type.shape, known_as or term.name)

    def term(self, value: Value) -> Term:
        """What stands for a value of the graph that this scope writes."""
        return self.terms[value]

    def rename(self, old: str, new: str, since: int) -> bool:
        """Give a result of the nodes from ``since`` on another name; False if it is none's."""
        for node in reversed(self.nodes[since:]):
            if old in node.output:
                break
        else:
            return False
        for node in self.nodes[since:]:
            for names in (node.input, node.output):
                for position, name in enumerate(names):
                    if name == old:
                        names[position] = new
        self.sizes.rename(old, new)
        return True


class SizeTable:
    """Which tensor's shape tells a symbolic size, and which sizes have been worked out already."""

    def __init__(self, parent: SizeTable | None) -> None:
        self.parent = parent
        self.told_by: dict[Any, tuple[str, int]] = {}  # a dimension → a tensor and its axis
        self.shapes: dict[tuple[Any, ...], str] = {}  # a shape with symbols → a tensor that has it
        self.worked_out: dict[Any, Term] = {}  # a dimension → an i64[1] that holds it

    def learn(self, shape: tuple[Any, ...], name: str) -> None:
        """A tensor of this shape is now there."""
        symbolic = False
        for axis, dim in enumerate(shape):
            if not isinstance(dim, int):
                symbolic = True
                if self.teller(dim) is None:
                    self.told_by[dim] = (name, axis)
        if symbolic and self.tensor_of(shape) is None:
            self.shapes[shape] = name

    def teller(self, dim: Any) -> tuple[str, int] | None:
        """The tensor and axis that tell a dimension."""
        found = self.told_by.get(dim)
        return self.parent.teller(dim) if found is None and self.parent is not None else found

    def tensor_of(self, shape: tuple[Any, ...]) -> str | None:
        """A tensor that has this shape."""
        found = self.shapes.get(shape)
        return self.parent.tensor_of(shape) if found is None and self.parent is not None else found

    def known(self, dim: Any) -> Term | None:
        """The size, if it has been worked out."""
        found = self.worked_out.get(dim)
        return self.parent.known(dim) if found is None and self.parent is not None else found

    def tellers(self) -> Iterable[tuple[Any, tuple[str, int]]]:
        """Every dimension that a tensor tells."""
        yield from self.told_by.items()
        if self.parent is not None:
            yield from self.parent.tellers()

    def rename(self, old: str, new: str) -> None:
        """Follow a tensor to its new name."""
        self.told_by = {
            dim: (new if name == old else name, axis) for dim, (name, axis) in self.told_by.items()
        }
        self.worked_out = {
            dim: Term(new, term.dtype) if term.name == old else term
            for dim, term in self.worked_out.items()
        }


def _constant_name(array: Array, dtype: DType) -> str:
    """A name that says what a small constant holds: ``f32:0.5``, ``i64:[1,-1]``."""
    if array.size > 6 or dtype.numpy == np.object_:
        return f"{dtype}:{'x'.join(map(str, array.shape))}"
    text = ",".join(str(item) for item in array.reshape(-1).tolist())
    return f"{dtype}:{text}" if array.ndim == 0 else f"{dtype}:[{text}]"
