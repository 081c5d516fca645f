"""Nested tuples, lists and dicts of values: flattened to a list, and built up again.

Functions take and return structures; graphs take and return flat lists. A ``Structure`` remembers
the shape of one so that the other side can restore it. Anything that is not a tuple, list, dict or
None is a leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any

from monograph.dataclass import dataclass
from monograph.errors import InputError


@dataclass(frozen=True, slots=True)
class Structure:
    """The skeleton of a nested structure.

    ``kind`` is leaf, none, tuple, list, dict, record (a named tuple) or fields (a dataclass);
    ``keys`` are those of a dict, or the names of fields, and ``maker`` is the class that has them.
    """

    kind: str
    keys: tuple[Any, ...] = ()
    children: tuple[Structure, ...] = ()
    maker: type[Any] | None = field(default=None, compare=False)

    @property
    def leaves(self) -> int:
        """How many leaves it has."""
        if self.kind == "leaf":
            return 1
        return sum(child.leaves for child in self.children)

    def __str__(self) -> str:
        """The nesting, with a star for each leaf: ``(*, {mask: *})``."""
        inner = [str(child) for child in self.children]
        if self.kind == "dict":
            pairs = zip(self.keys, inner, strict=True)
            return "{" + ", ".join(f"{key}: {child}" for key, child in pairs) + "}"
        if self.kind == "list":
            return f"[{', '.join(inner)}]"
        if self.kind == "leaf" or self.kind == "none":
            return "*" if self.kind == "leaf" else "None"
        name = "" if self.maker is None else self.maker.__name__
        return f"{name}({', '.join(inner)}{',' if len(inner) == 1 and not name else ''})"


SIMPLE = (bool, int, float, str)
"""What a program may hold for one value of, None aside."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A leaf of the arguments that a program holds for one value of: a number, a string or None.

    ``position`` is its place among the leaves.
    """

    name: str
    position: int
    value: Any

    def check(self, found: Any) -> None:
        """Refuse a call with another value: its answer would be that for this one."""
        if found is self.value or (type(found) is type(self.value) and found == self.value):
            return
        raise InputError(
            f"the program was made for one value of {self.name}",
            expected=repr(self.value),
            found=repr(found)
            if found is None or isinstance(found, SIMPLE)
            else type(found).__name__,
            hint="compile with a tensor in its place, or once for each value",
        )


LEAF = Structure("leaf")
NONE = Structure("none")


def flatten(tree: Any, *, as_given: bool = False) -> tuple[list[Any], Structure]:
    """The leaves of a structure in order, and its skeleton.

    Dicts go in order of their keys, since arguments are the same in any order; ``as_given`` leaves
    them in their own, which results keep.
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, as_given)


def _flatten(tree: Any, leaves: list[Any], as_given: bool) -> Structure:
    if tree is None:
        return NONE
    if isinstance(tree, dict):
        keys = tuple(tree)
        if not as_given:
            keys = tuple(sorted(keys, key=lambda key: (type(key).__name__, key)))
        children = tuple(_flatten(tree[key], leaves, as_given) for key in keys)
        return Structure("dict", keys, children)
    if isinstance(tree, tuple | list):
        children = tuple(_flatten(item, leaves, as_given) for item in tree)
        if hasattr(tree, "_fields"):
            return Structure("record", tuple(tree._fields), children, type(tree))
        return Structure("tuple" if isinstance(tree, tuple) else "list", (), children)
    leaves.append(tree)
    return LEAF


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The structure with these leaves in it; their number must be right."""
    given = list(leaves)
    if len(given) != structure.leaves:
        raise InputError(
            "wrong number of leaves for this structure",
            expected=str(structure.leaves),
            found=str(len(given)),
        )
    return _unflatten(structure, iter(given))


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure.kind == "leaf":
        return next(leaves)
    if structure.kind == "none":
        return None
    children = [_unflatten(child, leaves) for child in structure.children]
    if structure.kind == "dict":
        return dict(zip(structure.keys, children, strict=True))
    if structure.maker is not None:
        return structure.maker(*children)
    return tuple(children) if structure.kind == "tuple" else children
