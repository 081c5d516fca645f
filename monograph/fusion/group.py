"""A group: nodes that share a kernel, and what is said to people of why.

``fuse`` decides which nodes those are; every sentence of why, and what each value that stays inside
saves, is kept with the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from monograph.dataclass import dataclass
from monograph.fusion.axis_map import AxisMap
from monograph.fusion.cost import amount, is_free, nbytes, work
from monograph.ir.dims import Shape, Symbol
from monograph.ir.graph import Node, Value
from monograph.ir.types import TensorType


class GroupKind(Enum):
    """What a kernel is shaped like."""

    POINTWISE = "pointwise"
    ROWS = "rows"
    CONTRACTION = "contraction"
    WINDOW = "window"
    OPAQUE = "opaque"


@dataclass(eq=False)
class Group:
    """Nodes that share a kernel, in graph order.

    ``space`` is the shape of what the kernel visits, ``places`` where each member's result (and
    each value that is read) lies in it, and ``rows`` the axes that are left when its reductions
    are done (None without any).
    """

    nodes: list[Node]
    kind: GroupKind
    space: Shape
    places: dict[Value, AxisMap | None]
    rows: frozenset[int] | None = None
    joined: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """A short name from its ops: ``add_tanh_multiply``."""
        names = [node.op.name for node in self.nodes if not is_free(node)]
        names = names or [node.op.name for node in self.nodes]
        unique = list(dict.fromkeys(names))
        text = "_".join(unique[:4]) + ("_etc" if len(unique) > 4 else "")
        return "".join(c if c.isalnum() or c == "_" else "_" for c in text)

    def outputs(self) -> list[Value]:
        """The members' results that somebody outside reads."""
        inside = set(self.nodes)
        return [
            value
            for node in self.nodes
            if node not in self.copies
            for value in node.results
            if value in self.exported or any(use.node not in inside for use in value.uses)
        ]

    copies: set[Node] = field(default_factory=set)
    """Members that are computed here again, because that is cheaper than reading them."""
    exported: set[Value] = field(default_factory=set)
    """Values that copies elsewhere read (one set for all groups of a graph)."""
    taken_in: list[Value] = field(default_factory=list)
    """Values for which it took in the kernel that makes them."""

    def inputs(self) -> list[Value]:
        """The values that it reads from outside."""
        inside = {value for node in self.nodes for value in node.results}
        read = [operand for node in self.nodes for operand in node.operands]
        return [value for value in dict.fromkeys(read) if value not in inside]

    def savings(self, sizes: Mapping[Symbol, int] | None = None) -> list[str]:
        """What each value that was taken in saves: its round trip, or the way back at least.

        In bytes at these sizes; without them, in terms of the symbolic dimensions.
        """
        written = set(self.outputs())
        return [
            f"%{value.name} is used as it is made: {_write_bytes(value, sizes)} not read back"
            if value in written
            else f"%{value.name} stays inside: {_write_bytes(value, sizes)} not written"
            for value in dict.fromkeys(self.taken_in)
        ]

    def work(self) -> int:
        """Instructions for one element, roughly."""
        return sum(work(node) for node in self.nodes)


@dataclass(frozen=True)
class Fusion:
    """The groups of a graph, in an order in which they can run."""

    groups: tuple[Group, ...]

    def __str__(self) -> str:
        from monograph.fusion.text import fusion_text

        return fusion_text(self)


def _write_bytes(value: Value, sizes: Mapping[Symbol, int] | None) -> str:
    """The bytes of a value for people."""
    if sizes is None and isinstance(value.type, TensorType):
        size = value.type.nbytes
        return amount(size) if isinstance(size, int) else f"{size} bytes"
    return amount(nbytes(value, sizes))
