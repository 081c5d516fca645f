"""Names in scope: the values of one graph or function body, and those of the enclosing ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from monograph.dataclass import dataclass
from monograph.ir.graph import Value


@dataclass
class Scope:
    """The names of one graph. A body sees those of the graphs around it; a function does not.

    A name that stands for None is an optional input that the caller omitted. ``prefix`` goes before
    the names that values get in our graph, so that those of functions do not clash. ``declared``
    are the types that the model says values have (each a ``TypeProto``).
    """

    opsets: Mapping[str, int]
    parent: Scope | None = None
    prefix: str = ""
    depth: int = 0
    values: dict[str, Value | None] = field(default_factory=dict)
    declared: Mapping[str, object] = field(default_factory=dict)

    def inner(self) -> Scope:
        """A scope for a body of a node in this one."""
        return Scope(self.opsets, self, self.prefix, self.depth + 1)

    def find(self, name: str) -> Value | None:
        """What a name stands for; KeyError if it is not known."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        """Whether a name can be read here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return True
            scope = scope.parent
        return False
