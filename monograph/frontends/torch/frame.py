"""The state of reading one torch graph: what each node has become, and which values share memory.

torch graphs may still write in place (``add_``, ``relu_``, batch-norm statistics). Ours never do: a
write makes a new value, and every torch node that stands for the same piece of memory from then on
means that value. Nodes that stand for another view of it (a row of the written matrix) become
*stale*; reading one is an error that sends the whole program through torch's own functionalization.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from monograph.dataclass import dataclass
from monograph.frontends.torch.schema import bind, find_mutated_arguments
from monograph.ir.graph import Value


class NeedsFunctionalization(Exception):  # a signal to the caller
    """A view of memory that was written through another view is read."""


@dataclass(frozen=True)
class Stale:
    """In place of a value that a write has made out of date."""

    writer: str


class Frame:
    """What the nodes of one torch graph have become so far."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.values: dict[Any, Any] = {}
        self.written: dict[Any, Value] = {}  # placeholders that were overwritten

    def read(self, node: Any) -> Any:
        """What a node has become."""
        found = self.values[node]
        if isinstance(found, Stale):
            raise NeedsFunctionalization(f"{node} is read after {found.writer} wrote its memory")
        return found

    def write(self, node: Any, value: Any) -> None:
        """Let ``node``, and every node that is the same piece of memory, mean ``value``."""
        targets = list(_targets(node))
        places = [_place(target.meta.get("val")) for target in targets]
        for other in list(self.values):
            if other not in targets and not any(_shares(other, place) for place in places):
                continue
            same = other in targets or _place(other.meta.get("val")) in places
            self.values[other] = value if same else Stale(str(node))
            if other.op == "placeholder":
                self.written[other] = self.values[other]


def _targets(node: Any) -> Iterator[Any]:
    """A node and, if it is what an in-place op returned, the node that the op wrote, and so on.

    torch may have recorded other memory for a tensor that a function holds than for what an op
    that wrote it returned.
    """
    while True:
        yield node
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return
        names = find_mutated_arguments(node.target)
        written = bind(node, node.target._schema)[names[0]] if len(names) == 1 else None
        if not isinstance(written, torch.fx.Node) or not _returns_what_it_writes(node.target):
            return
        node = written


def _returns_what_it_writes(op: Any) -> bool:
    (*rest, last) = op._schema.returns or (None,)
    return not rest and last is not None and last.alias_info is not None


def shares_memory(a: Any, b: Any) -> bool:
    """Whether two torch nodes stand for views of the same memory, of one dtype."""
    first, second = _place(a.meta.get("val")), _place(b.meta.get("val"))
    if first is None or second is None:
        return False
    return first.storage == second.storage and first.geometry[-1] == second.geometry[-1]


@dataclass(frozen=True)
class _Place:
    storage: int
    geometry: tuple[Any, ...]


def _place(tensor: Any) -> _Place | None:
    """The piece of memory that a fake tensor stands for."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    geometry = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype)
    return _Place(tensor.untyped_storage()._cdata, tuple(map(str, geometry)))


def _shares(node: Any, place: _Place | None) -> bool:
    if place is None:
        return False
    found = (_place(tensor) for tensor in _tensors(node.meta.get("val")))
    return any(each is not None and each.storage == place.storage for each in found)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
