"""Deferred ops: those that become others once their operands are known.

What some nodes of a model stand for depends on the rank or the contents of an operand, which a
frontend may not know. It keeps such a node whole, as an op that can *resolve*: asked again, with
operands of which more is known, it adds to the graph what it stands for. If that is still too
little it says whose contents it waits for, so that whoever runs the graph can find them out and ask
again.
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph.errors import MonographError
from monograph.ir.graph import Value
from monograph.ir.op import Op


class Undecided(MonographError):
    """Too little is known of the operands; ``contents`` are the values whose contents would do."""

    def __init__(self, message: str, contents: Sequence[Value] = ()) -> None:
        super().__init__(message)
        self.contents = tuple(contents)


class DeferredOp(Op):
    """An op that stands for others, which depend on what is known of its operands."""

    def resolve(self, operands: Sequence[Value]) -> tuple[Value, ...]:
        """Add to the current graph what it stands for: its results, or ``Undecided``."""
        raise NotImplementedError(f"{self.name} cannot be resolved")
