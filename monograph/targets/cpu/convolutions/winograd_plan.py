"""A 3×3 convolution as Winograd's method sees it, and how the method cuts it up."""

from __future__ import annotations

from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.dims import (
    Dim,
    Symbol,
    SymbolicDim,
)
from monograph.ir.types import i32
from monograph.kernel import expr as e
from monograph.kernel.expr import Buffer, Expr
from monograph.kernel.flatten import flat_buffer, flat_expr, offset
from monograph.kernel.kernel import Store
from monograph.kernel.winograd_transform import Transform

Point: TypeAlias = tuple[Symbol, Symbol, Symbol, Symbol]


@dataclass(frozen=True)
class Convolution:
    """A 3×3 convolution with what is computed of its result, as formulas.

    The formulas are of flat buffers. ``element`` is the input at the symbols ``at``: batch,
    channel, row, column; ``weight`` is at output channel, channel of the group, row, column;
    ``stores`` are over the symbols ``result_at`` (None for a dimension of one), and read ``result``
    where the convolution's own result is meant.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    element: Expr
    at: Point
    weight: Expr
    weight_at: Point
    bias: Expr | None
    """Of the output channel, ``weight_at[0]``."""
    stores: tuple[Store, ...]
    result: Expr
    """The load of the convolution's own result; of floats, what is computed sees it in f32."""
    result_at: tuple[Symbol | None, ...]
    batch: Dim
    groups: int
    channels: int
    """Channels of the input in a group."""
    features: int
    """Channels of the result in a group."""
    size: tuple[Dim, Dim]
    """Rows and columns of the input."""
    result_size: tuple[Dim, Dim]
    before: tuple[int, int]
    """Rows and columns of zeros that the windows see before the input."""
    border: tuple[int, int] = (0, 0)
    """Rows and columns of zeros around the input that are there in memory."""
    stride: int = 1
    dilation: tuple[int, int] = (1, 1)
    """How far apart the rows and columns of a window are, at stride 1."""
    padding: Expr | None = None
    """What windows see outside of the input, if that is not 0."""

    @property
    def is_whole(self) -> bool:
        """Whether bytes are convolved, and summed in 32 bits."""
        return self.result.dtype is i32

    @property
    def together(self) -> int:
        """Channels that an instruction multiplies and adds up: of bytes, two halves of a word."""
        return 2 if self.is_whole else 1

    def formulas(self) -> tuple[Expr, ...]:
        """Everything that is computed, but for the transforms."""
        bias = () if self.bias is None else (self.bias,)
        return (self.element, self.weight, *bias, *self.stored())

    def stored(self) -> tuple[Expr, ...]:
        """What is stored, and where."""
        return tuple(expr for store in self.stores for expr in (*store.position, store.value))

    def sizes(self) -> tuple[Symbol, ...]:
        """The symbolic dimensions that it depends on, by name."""
        own = {*self.at, *self.weight_at, *(s for s in self.result_at if s is not None)}
        found = {symbol for expr in self.formulas() for symbol in expr.symbols}
        dims = [self.batch, *self.size, *self.result_size]
        dims += [dim for buffer in (*self.inputs, *self.outputs) for dim in buffer.shape]
        for dim in dims:
            if isinstance(dim, SymbolicDim):
                found.update(dim.symbols())
        return tuple(sorted(found - own, key=lambda symbol: symbol.name))

    def weight_buffers(self) -> tuple[Buffer, ...]:
        """What the weights are read from."""
        return self.reads((self.weight,))

    def reads(self, roots: tuple[Expr, ...]) -> tuple[Buffer, ...]:
        """The inputs that formulas read."""
        names = {load.buffer.name for load in e.find_loads(*roots)}
        return tuple(buffer for buffer in self.inputs if buffer.name in names)


@dataclass(frozen=True)
class WinogradPlan:
    """How a convolution is cut up.

    ``block`` tiles are transformed and multiplied together, ``rows`` of them at a time with
    ``columns`` output channels in registers; ``lanes`` numbers share an instruction. If ``whole``,
    the input is transformed by a nest of its own, and threads share the channels of a block too.
    """

    transform: Transform
    block: int
    rows: int
    columns: int
    lanes: int
    whole: bool = False
    prefetch: bool = False
    """Whether the weights' planes come from far, and are asked for before they are used."""


def flat_store(store: Store) -> Store:
    """A store in a flat buffer."""
    done: dict[Expr, Expr] = {}
    position = offset(store.buffer, [flat_expr(place, done) for place in store.position])
    return Store(flat_buffer(store.buffer), (position,), flat_expr(store.value, done))


def tile_counts(convolution: Convolution, transform: Transform) -> tuple[Dim, Dim]:
    """How many tiles a result has along its columns and its rows.

    Windows with gaps see every few rows alone: the rows of a result are dealt out in turn, and each
    share has tiles of its own. The same tile of every share comes before the next one.
    """
    c, sides = convolution, (transform.down, transform.along)
    rows, columns = (
        gap * (((size + gap - 1) // gap + side.results - 1) // side.results)
        for size, gap, side in zip(c.result_size, c.dilation, sides, strict=True)
    )
    return rows, columns
