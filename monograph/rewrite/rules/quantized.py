"""Products of what quantized numbers stand for: multiply the integers, and scale the sums.

    dequantize(a, s, z) @ dequantize(b, t, w) = float((a - z) @ (b - w)) * (s * t)

Scales must not change along the sum. Small integers are multiplied at a higher rate than floats, a
word holds several, and their sums are exact.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.types import f32, i32
from monograph.ops.conv import Conv
from monograph.ops.elementwise import add, multiply, subtract
from monograph.ops.linalg import Linear, Matmul
from monograph.ops.quant import Dequantize, is_zero
from monograph.ops.shape import reshape
from monograph.rewrite.rule import Rule, rewrite

FLOATS = "rounds once after an exact sum, instead of with every product"
MAX_WORD_SUM = 1 << 31
"""Sums of words stay below this."""


@dataclass(frozen=True)
class _Quantized:
    """Small integers, and what makes real numbers of them."""

    stored: Value
    scale: Value
    zero_point: Value | None
    axis: int | None

    def centred(self) -> Value:
        """The integers less their zero point, as words."""
        words = cast_to(self.stored, i32)
        if self.zero_point is None:
            return words
        return subtract(words, self._spread(cast_to(self.zero_point, i32)))

    def largest(self) -> int:
        """The largest number that is multiplied, its sign aside."""
        bits = self.stored.dtype.bits
        return (1 << bits) - 1 if self.zero_point is not None else 1 << bits

    def _spread(self, parameter: Value) -> Value:
        if self.axis is None:
            return parameter
        column = [1] * self.stored.rank
        return reshape(
            parameter, (*column[: self.axis], parameter.shape[0], *column[self.axis + 1 :])
        )


@rewrite("quantized_matmul", root=Matmul, floats=FLOATS)
def quantized_matmul(node: Node) -> Value | None:
    """dequantize(a) @ dequantize(b) → float(a @ b) * scales, if scales are of rows and columns."""
    a, b = (_match_quantized(operand) for operand in node.operands)
    if a is None or b is None or a.stored.rank < 2 or b.stored.rank < 2:
        return None
    rows, columns = a.stored.rank - 2, b.stored.rank - 1
    if a.axis not in (None, rows) or b.axis not in (None, columns):
        return None
    if not _holds(a, b, a.stored.shape[-1]):
        return None
    scale = a.scale if a.axis is None else reshape(a.scale, (a.scale.shape[0], 1))
    total = apply(node.op, a.centred(), b.centred())
    return multiply(cast_to(total, f32), multiply(scale, b.scale))


@rewrite("quantized_linear", root=Linear, floats=FLOATS)
def quantized_linear(node: Node) -> Value | None:
    """linear(dequantize(x), dequantize(w), bias) → float(linear(x, w)) * scales + bias."""
    x, weight, *bias = node.operands
    a, b = _match_quantized(x), _match_quantized(weight)
    if a is None or b is None or a.axis is not None or b.axis not in (None, 0):
        return None
    if not _holds(a, b, weight.shape[-1]):
        return None
    total = apply(node.op, a.centred(), b.centred())
    real = multiply(cast_to(total, f32), multiply(a.scale, b.scale))
    return add(real, bias[0]) if bias else real


@rewrite("quantized_conv", root=Conv, floats=FLOATS)
def quantized_conv(node: Node) -> Value | None:
    """conv(dequantize(x), dequantize(w), bias) → float(conv(x, w)) * scales + bias."""
    x, weight, *bias = node.operands
    a, b = _match_quantized(x), _match_quantized(weight)
    if a is None or b is None or a.axis is not None or b.axis not in (None, 0):
        return None
    if not _holds(a, b, shape_product(weight.shape[1:])):
        return None
    total = apply(node.op, a.centred(), b.centred())
    scale = multiply(a.scale, _along_channels(b.scale, total.rank))
    real = multiply(cast_to(total, f32), scale)
    return add(real, _along_channels(bias[0], total.rank)) if bias else real


def _match_quantized(value: Value) -> _Quantized | None:
    """A value as integers of at most 8 bits with a scale along one axis at most, or None."""
    node = value.producer
    if node is None or not isinstance(node.op, Dequantize) or value.dtype is not f32:
        return None
    stored, scale, *point = node.operands
    if not stored.dtype.is_integer or stored.dtype.bits > 8 or scale.dtype is not f32:
        return None
    if node.op.block is not None:
        return None
    axis = None if node.op.axis is None else node.op.axis % stored.rank
    moved = next((each for each in point if not is_zero(each)), None)
    return _Quantized(stored, scale, moved, axis)


def _holds(a: _Quantized, b: _Quantized, depth: object) -> bool:
    """Whether a word holds the sum of so many products."""
    return isinstance(depth, int) and depth * a.largest() * b.largest() < MAX_WORD_SUM


def _along_channels(parameter: Value, rank: int) -> Value:
    """A parameter of each channel, along axis 1 of the result."""
    if parameter.rank == 0:
        return parameter
    return reshape(parameter, (parameter.shape[0], *([1] * (rank - 2))))


RULES: tuple[Rule, ...] = (quantized_matmul, quantized_linear, quantized_conv)
