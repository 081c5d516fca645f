"""Loop nests: a kernel after its schedule has been applied, ready for a target to emit.

    parallel p < 64:
      m = -inf
      vector i1 < 128 by 16:
        m = max(m, b0[128*p + i1])
      vector i1 < 128 by 16:
        o0[128*p + i1] = b0[128*p + i1] - m

Buffers are flat here: a subscript is one offset in elements. A nest has one parallel loop, the
outermost; its iterations are independent, and a thread is given a range of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol
from monograph.kernel.expr import Buffer, Expr, Variable


class LoopKind(Enum):
    """How the iterations of a loop are run."""

    SERIAL = "for"
    VECTOR = "vector"


@dataclass(frozen=True)
class Let:
    """Name a value that several later statements use."""

    variable: Variable
    value: Expr


@dataclass(frozen=True)
class Accumulator:
    """Declare a variable that a reduction gathers into, at the reduction's neutral element."""

    variable: Variable
    kind: str


@dataclass(frozen=True)
class Combine:
    """Take one more element into an accumulator; ``position`` is for argmax and argmin."""

    variable: Variable
    kind: str
    value: Expr
    position: Expr


@dataclass(frozen=True)
class Write:
    """``buffer[offset] = value``; a streaming write goes past the cache."""

    buffer: Buffer
    offset: Expr
    value: Expr
    streaming: bool = False


@dataclass(frozen=True)
class Prefetch:
    """Ask for an element that will be read soon; it may lie outside the buffer.

    What is ``far`` is wanted later, and waits in the second cache.
    """

    buffer: Buffer
    offset: Expr
    far: bool = False


@dataclass(frozen=True)
class MultiplyTiles:
    """``sums = left @ right``, as a matrix unit multiplies tiles of words (``dot_u8_i8`` of them).

    ``sums`` and ``right`` are ``columns`` wide. Each group of ``TILE_ROWS`` rows of the left
    operand begins at an offset of its own, and its rows lie ``stride`` words apart. Of each row,
    ``steps`` times ``TILE_WORDS`` are multiplied with as many rows of the right operand.
    """

    sums: Buffer
    left: Buffer
    offsets: tuple[Expr, ...]
    stride: int
    right: Buffer
    place: Expr
    columns: int
    steps: int


TILE_ROWS = 16
"""Rows of a tile of a matrix unit."""
TILE_WORDS = 16
"""Words in a row of a tile: sums, or four bytes each of an operand."""


@dataclass(frozen=True)
class Declare:
    """Declare a variable that ``Assign`` changes; a ``Let`` of it keeps what it holds then."""

    variable: Variable
    value: Expr


@dataclass(frozen=True)
class Assign:
    """Let a declared variable hold another value."""

    variable: Variable
    value: Expr


@dataclass(frozen=True)
class If:
    """Run ``body`` if the condition, the same in every lane, holds."""

    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class While:
    """Run ``test``, then ``body`` if the condition holds, and again until it does not."""

    test: tuple[Statement, ...]
    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """Run ``body`` for ``start <= symbol < start + extent``, ``width`` iterations at a time."""

    symbol: Symbol
    start: Dim
    extent: Dim
    body: tuple[Statement, ...]
    kind: LoopKind = LoopKind.SERIAL
    width: int = 1


Statement: TypeAlias = (
    Let
    | Accumulator
    | Combine
    | Write
    | Prefetch
    | MultiplyTiles
    | Loop
    | Declare
    | Assign
    | If
    | While
)


@dataclass(frozen=True)
class LoopNest:
    """A scheduled kernel: ``body`` for each value of the parallel variable."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    sizes: tuple[Symbol, ...]
    parallel: Symbol
    extent: Dim
    grain: Dim
    """How many parallel iterations are worth handing to a thread."""
    body: tuple[Statement, ...]
    complaint: str = ""
    """What a check that fails means, unless it is of an index."""
    volatile: frozenset[str] = frozenset()
    """Buffers that are written and read in turns: a load of one stays where it is."""
    padded: frozenset[str] = frozenset()
    """Buffers that hold whole vectors, so that nothing has to be masked when one is read."""

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Every buffer that the caller passes, in order."""
        return self.inputs + self.outputs

    @cached_property
    def digest(self) -> str:
        """A key for the nest that does not depend on its name."""
        from monograph.targets.cpu.nests.text import nest_text

        said = (nest_text(replace(self, name="nest")), self.complaint, *sorted(self.volatile))
        said += ("padded", *sorted(self.padded))
        return hashlib.sha256("\n".join(said).encode()).hexdigest()

    def __str__(self) -> str:
        from monograph.targets.cpu.nests.text import nest_text

        return nest_text(self)
