"""Recognizes depthwise convolutions, and decides whether their own loops pay.

A sum over the taps of a window of an image's element times a weight, where an output's channel is
the input's. ``convolve`` makes the loops.

Images of bytes are widened in registers. Where the processor multiplies pairs of 16 bits and adds
them up in one instruction, a tap and a byte are such pairs, with nothing in their other halves.
"""

from __future__ import annotations

from math import prod

from monograph.dataclass import dataclass
from monograph.ir.dims import Symbol, likely_size
from monograph.ir.types import DType, f32, f64, i8, i32, u8
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Expr, Index, Load, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.integer_range import fits as has_range
from monograph.kernel.kernel import Kernel

BLOCK_BYTES = 128
"""Bytes of a column's channels that are computed before the row below: two cache lines."""
MOST_TAPS = 256
"""Taps of a window up to which they are multiplied one by one."""
LONGEST_ROW = 15
"""Taps along one side of a window up to which they are written out."""


@dataclass(frozen=True)
class Depthwise:
    """A kernel that is a convolution of each channel by itself.

    ``lane`` is the axis that vectors run along, the last in memory, and ``tile`` the one before.
    """

    kernel: Kernel
    reduction: Reduce
    image: Load
    weight: Expr
    outer: tuple[Axis, ...]
    tile: Axis
    lane: Axis
    in_pairs: bool = False
    """Whether words are multiplied as pairs of 16 bits."""

    @property
    def taps(self) -> tuple[Axis, ...]:
        """The axes of a window."""
        return self.reduction.axes

    @property
    def has_channels_last(self) -> bool:
        """Whether vectors hold channels, each with weights of its own."""
        return self.lane.symbol in self.weight.symbols

    @property
    def has_blocks(self) -> bool:
        """Whether a few of its many channels are followed down the image at a time.

        That pays where the next row reads the same rows but one.
        """
        channels = likely_size(self.lane.extent)
        if not self.has_channels_last or channels <= self.block_channels or not self.outer:
            return False
        row = self.steps(self.outer[-1])
        return any(self.steps(axis) == row for axis in self.taps)

    @property
    def block_channels(self) -> int:
        """Channels of a block."""
        return BLOCK_BYTES * 8 // self.image.dtype.bits

    @property
    def reads_image_again(self) -> bool:
        """Whether the image is read beside the windows: a sum of both, say."""
        total = e.variable("total", self.reduction.dtype)
        values = [e.replace(x.value, {self.reduction: total}) for x in self.kernel.stores]
        name = self.image.buffer.name
        return any(isinstance(x, Load) and x.buffer.name == name for x in e.walk(tuple(values)))

    @property
    def is_narrow(self) -> bool:
        """Whether it is bytes that are summed in words."""
        return self.image.dtype is not self.reduction.dtype

    def product(self, element: Expr, tap: Expr) -> Expr:
        """What is summed, of an element as it is stored and a packed tap."""
        if not self.is_narrow:
            return e.apply("multiply", element, tap)
        function = "multiply_pairs" if self.in_pairs else "multiply"
        return e.apply(function, e.cast(element, i32), tap)

    def tap(self) -> Expr:
        """A tap as it is packed."""
        if not self.is_narrow or not self.in_pairs:
            return self.weight
        return e.apply("bitwise_and", self.weight, e.literal(0xFFFF, i32))

    def weight_axes(self) -> tuple[Axis, ...]:
        """The axes of the weights, in the order in which they are packed."""
        outer = tuple(axis for axis in self.outer if axis.symbol in self.weight.symbols)
        return (*outer, *self.taps, *((self.lane,) if self.has_channels_last else ()))

    def steps(self, axis: Axis) -> int:
        """How far apart in the image neighbours along an axis are, about."""
        (place,) = self.image.operands
        assert isinstance(place, Index)
        step = coefficient(place.dim, axis.symbol)
        return 0 if step is None else likely_size(step)


def as_depthwise(kernel: Kernel) -> Depthwise | None:
    """The kernel as a convolution whose channels do not mix, contiguous along its last axis."""
    reductions = [x for x in kernel.expressions() if isinstance(x, Reduce)]
    if len(reductions) != 1 or reductions[0].kind != "sum" or len(kernel.axes) < 2:
        return None
    (reduction,) = reductions
    body = reduction.body
    if not isinstance(body, Apply) or body.function != "multiply":
        return None
    if body.dtype not in (f32, f64, i32):
        return None
    *outer, tile, lane = kernel.axes
    axes = frozenset(axis.symbol for axis in kernel.axes)
    taps = frozenset(axis.symbol for axis in reduction.axes)
    if not _is_window(reduction):
        return None
    if not all(_lies(store.position[0], axes, lane) for store in kernel.stores):
        return None
    for factor, weight in (body.operands, body.operands[::-1]):
        image = _image(factor, body.dtype)
        if image is None or (body.dtype is i32 and not has_range(weight, i8)):
            continue
        fits = tile.symbol not in weight.symbols and taps <= weight.symbols
        steps = (1,) if lane.symbol in weight.symbols else (1, 2)
        if fits and _lies(image.operands[0], axes | taps, lane, steps):
            return Depthwise(kernel, reduction, image, weight, tuple(outer), tile, lane)
    return None


def _image(factor: Expr, dtype: DType) -> Load | None:
    """What is read of an image: an element of the dtype that is summed, or a byte for words."""
    if dtype is i32:
        if not isinstance(factor, Apply) or factor.function != "cast":
            return None
        (factor,) = factor.operands
        return factor if isinstance(factor, Load) and factor.dtype in (i8, u8) else None
    return factor if isinstance(factor, Load) and factor.dtype is dtype else None


def _is_window(reduction: Reduce) -> bool:
    """Whether it has a few taps, known beforehand."""
    extents = [axis.extent for axis in reduction.axes]
    known = [extent for extent in extents if isinstance(extent, int)]
    if len(known) != len(extents) or not known:
        return False
    return prod(known) <= MOST_TAPS and max(known) <= LONGEST_ROW


def _lies(
    position: Expr, symbols: frozenset[Symbol], lane: Axis, steps: tuple[int, ...] = (1,)
) -> bool:
    """Whether a position steps evenly along these symbols, and by so much along the lanes."""
    if not isinstance(position, Index) or not symbols <= position.symbols:
        return False
    even = all(coefficient(position.dim, symbol) is not None for symbol in symbols)
    return even and coefficient(position.dim, lane.symbol) in steps
