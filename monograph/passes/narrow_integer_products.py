"""Integer products on the stored bytes, with the zero points corrected in the sums.

    sum((x - z) * w) = sum(x * w) - z * sum(w)

What is multiplied are then bytes, which a target reads as they lie in memory, several to an
instruction. The sums of the weights are constants. An image is padded with its zero point, so that
every window has all of its taps and the correction is the same for every pixel.

Weights less their own zero point may need a ninth bit (bytes 0 to 255 less 127). They are stored
moved by some ``d`` that lets them fit; ``d`` times the sum of what a window sees makes up for it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.build import apply, cast_to, constant
from monograph.ir.data import ArrayData
from monograph.ir.graph import Node, Value
from monograph.ir.types import Array, DType, i8, i32, u8
from monograph.ops import elementwise, reduce
from monograph.ops import shape as shape_ops
from monograph.ops.conv import Conv, IntegerConv
from monograph.ops.data import Constant, Weight
from monograph.ops.elementwise import Add, Cast, Subtract
from monograph.ops.linalg import DotGeneral
from monograph.ops.slicing import Pad
from monograph.passes.base import RewritePass
from monograph.rewrite.constants import splat
from monograph.rewrite.rule import Rule, rewrite

BYTES: tuple[DType, ...] = (u8, i8)
FLOATS = "exact: sums of integers, in whatever order"
CHANNELS_PER_WORD = 4
"""Bytes that are multiplied at a time: an image with fewer channels, or with some left over, gets
more, which meet weights of 0."""


@dataclass(frozen=True)
class NarrowIntegerProducts(RewritePass):
    """Multiply bytes instead of words that were made of them.

        %a = subtract(cast(%x), %z) : i32[1, 8, 4, 4]
        %y = conv(%a, cast(%w)) {padding = [[1, 1], [1, 1]]}
        ─▶ %s = integer_conv(%x, %w, %z) {padding = [[1, 1], [1, 1]]} : i32[1, 8, 4, 4]
           %y = subtract(%s, multiply(%z, %sums))

    where ``%x`` and ``%w`` are bytes and the weights are known. A matrix product stays what it is
    and loses its zero point.
    """

    name: ClassVar[str] = "narrow_integer_products"

    def rules(self) -> tuple[Rule, ...]:
        """Both rules."""
        return (narrow_conv, narrow_dot)


@dataclass(frozen=True)
class _Image:
    """Bytes, less a zero point: a scalar of 32 bits, or none."""

    stored: Value
    zero_point: Value | None

    def padding(self) -> Value | None:
        """The zero point as an element of the image; None if that is not known to be one."""
        dtype, point = self.stored.dtype, self.zero_point
        number = 0 if point is None else splat(point)
        if number is not None:
            limits = np.iinfo(dtype.numpy)
            is_byte = limits.min <= number <= limits.max
            return constant(np.asarray(number, dtype.numpy)) if is_byte else None
        assert point is not None, "a zero point that is not there is the number 0"
        if isinstance(point.op, Cast) and point.producer is not None:
            (given,) = point.producer.operands
            return given if given.dtype is dtype else None
        return None


@dataclass(frozen=True)
class _Weights:
    """Weights as signed bytes, and the number that was taken off all of them."""

    stored: Array
    moved: int


@rewrite("narrow_conv", root=Conv, floats=FLOATS)
def narrow_conv(node: Node) -> Value | None:
    """conv(cast(x) - z, w) → integer_conv(x, w, z) - z * sum(w), for bytes x and known weights."""
    op = node.op
    if type(op) is not Conv or node.results[0].dtype is not i32:
        return None
    x, weight, *bias = node.operands
    image, taps = _image(x), _read_moved_weights(weight)
    if image is None or taps is None:
        return None
    is_depthwise = taps.shape[1] == 1 and op.groups == taps.shape[0] > 1
    missing = 0 if is_depthwise else -taps.shape[1] % CHANNELS_PER_WORD
    if missing and op.groups != 1:
        return None
    known, padding = _to_signed_weights(taps), image.padding()
    if known is None or padding is None or (known.moved and op.groups != 1):
        return None
    spatial = [(0, 0)] * len(op.stride)
    filled = np.pad(known.stored, [(0, 0), (0, missing), *spatial])
    stored = node.graph.add_weight(f"{_label(weight)}.bytes", ArrayData(filled))
    narrow = IntegerConv(op.stride, op.padding, op.dilation, op.groups)
    total = apply(narrow, _pad_channels(image.stored, missing), stored, padding)
    sums = known.stored.reshape(len(taps), -1).sum(1, dtype=np.int32)
    column = (len(taps), *(1,) * (taps.ndim - 2))
    total = _correct_sums(total, image.zero_point, sums.reshape(column))
    if known.moved:
        seen = reduce.sum(x, (1,), keepdims=True)
        ones = constant(np.ones((1, 1, *taps.shape[2:]), np.int32))
        seen = apply(Conv(op.stride, op.padding, op.dilation), seen, ones)
        total = elementwise.add(total, elementwise.multiply(seen, known.moved))
    if bias:
        total = elementwise.add(total, shape_ops.reshape(bias[0], column))
    return total


@rewrite("narrow_dot", root=DotGeneral, floats=FLOATS)
def narrow_dot(node: Node) -> Value | None:
    """dot_general(cast(x) - z, w) → dot_general(cast(x), w) - z * sum(w), for bytes x."""
    op = node.op
    assert isinstance(op, DotGeneral)
    if op.lhs_batch or node.results[0].dtype is not i32:
        return None
    x, weight = node.operands
    image, taps = _image(x), _read_moved_weights(weight)
    if image is None or taps is None:
        return None
    known = _to_signed_weights(taps)
    if known is None or (image.zero_point is None and _fits(weight)):
        return None
    stored = weight
    if not _fits(weight):
        stored = node.graph.add_weight(f"{_label(weight)}.bytes", ArrayData(known.stored))
        stored = cast_to(stored, i32)
    total = apply(op, cast_to(image.stored, i32), stored)
    sums = known.stored.sum(op.rhs_contracting, dtype=np.int32)
    total = _correct_sums(total, image.zero_point, sums)
    if known.moved:
        seen = reduce.sum(x, op.lhs_contracting)
        rows = shape_ops.reshape(seen, (*seen.shape, *(1,) * sums.ndim))
        total = elementwise.add(total, elementwise.multiply(rows, known.moved))
    return total


def _pad_channels(image: Value, more: int) -> Value:
    """An image with more channels, whatever is in them."""
    if not more:
        return image
    high = (0, more, *(0,) * (image.rank - 2))
    return apply(Pad((0,) * image.rank, high), image)


def _correct_sums(total: Value, zero_point: Value | None, sums: Array) -> Value:
    """Sums less what the zero point added to each."""
    if zero_point is None:
        return total
    return elementwise.subtract(total, elementwise.multiply(zero_point, constant(sums)))


def _image(value: Value) -> _Image | None:
    """Words that were made of bytes, perhaps less a scalar."""
    stored = _strip_widening(value)
    if stored is not None:
        return _Image(stored, None)
    node = value.producer
    if node is None or not isinstance(node.op, Add | Subtract):
        return None
    words, point = node.operands
    if isinstance(node.op, Add) and _strip_widening(words) is None:
        words, point = point, words
    stored = _strip_widening(words)
    if stored is None or point.rank:
        return None
    if isinstance(node.op, Subtract):
        return _Image(stored, point)
    number = splat(point)
    return None if number is None else _Image(stored, constant(-np.asarray(number, np.int32)))


def _strip_widening(value: Value) -> Value | None:
    """The bytes that words were made of."""
    node = value.producer
    if node is None or not isinstance(node.op, Cast) or value.dtype is not i32:
        return None
    (stored,) = node.operands
    return stored if stored.dtype in BYTES else None


def _read_moved_weights(value: Value) -> Array | None:
    """Weights, or bytes of them that were widened and moved by a constant, as words."""
    if isinstance(value.op, Constant | Weight):
        data = value.op.data
        return data.array() if value.dtype is i32 or value.dtype in BYTES else None
    node = value.producer
    if node is None or value.dtype is not i32:
        return None
    if isinstance(node.op, Cast) and node.operands[0].dtype in BYTES:
        found = _read_moved_weights(node.operands[0])
        return None if found is None else found.astype(np.int32)
    if isinstance(node.op, Add | Subtract):
        left, right = (_read_moved_weights(each) for each in node.operands)
        if left is None or right is None:
            return None
        return left + right if isinstance(node.op, Add) else left - right
    return None


def _to_signed_weights(weights: Array) -> _Weights | None:
    """Weights as signed bytes, moved no further than they must be; None if they are no bytes."""
    if weights.size == 0:
        return None
    low, high = int(weights.min()), int(weights.max())
    if high - low > 255:
        return None
    moved = max(0, high - 127) + min(0, low + 128)
    return _Weights((weights.astype(np.int32) - moved).astype(np.int8), moved)


def _fits(weight: Value) -> bool:
    """Whether weights are signed bytes already, and widened."""
    stored = _strip_widening(weight)
    return stored is not None and stored.dtype is i8


def _label(weight: Value) -> str:
    """A name for what is made of a weight."""
    while weight.producer is not None and not isinstance(weight.op, Constant | Weight):
        weight = weight.producer.operands[0]
    return weight.op.label if isinstance(weight.op, Weight) else weight.name
