"""Requantizing: what lies between the sums of a product and the bytes that are stored of them.

    quantize(relu(float(sums) * scales + bias), step)
    ─▶ quantize(float(sums) * (scales / step) + bias / step, 1)

A division for each element is one for each constant, and a clip to what the bytes hold anyway goes.
"""

from __future__ import annotations

import numpy as np

from monograph.ir.build import apply, constant
from monograph.ir.graph import Node, Value
from monograph.ir.types import Array, f32
from monograph.ops.elementwise import multiply
from monograph.ops.elementwise.arithmetic import Add, Multiply, Subtract
from monograph.ops.elementwise.select import Clip
from monograph.ops.quant import Dequantize, Quantize, limits_of
from monograph.ops.rectifier import Hardtanh, Relu, Relu6
from monograph.ops.shape import Expand, Reshape, Squeeze, Transpose, Unsqueeze
from monograph.ops.slicing import Slice
from monograph.rewrite.constant_evaluator import ConstantEvaluator
from monograph.rewrite.constants import real_splat
from monograph.rewrite.rule import Rule, rewrite

MAX_PARAMETERS = 1 << 16
"""Elements of a constant that is divided: those of channels, and not of images."""
MIN_STEP = 2.0**-100
"""Scales from which on their reciprocals are far from overflowing."""
MOVES = (Expand, Reshape, Squeeze, Transpose, Unsqueeze, Slice)


@rewrite(
    "quantized_clip",
    root=Quantize,
    floats="exact: rounding is monotone, and the bounds are at the ends of the range or beyond",
)
def quantized_clip(node: Node) -> Value | None:
    """quantize(relu(x)) → quantize(x), where 0 is stored as the least byte; so clips."""
    assert isinstance(node.op, Quantize)
    x, *parameters = node.operands
    bounds = _bounds(x)
    if bounds is None or x.producer is None or x.dtype is not f32:
        return None
    is_known = all(each.rank == 0 and real_splat(each) is not None for each in parameters)
    if not is_known or not node.op.dtype.is_integer:
        return None
    stored = [np.asarray(real_splat(each)).astype(each.dtype.numpy) for each in parameters]
    for bound, limit in zip(bounds, limits_of(node.op.dtype), strict=True):
        if bound is None:
            continue
        if node.op.evaluate(np.asarray(bound, np.float32), *stored) != limit:
            return None
    return apply(node.op, x.producer.operands[0], *parameters)


@rewrite(
    "requantize",
    root=Quantize,
    floats="rounds products and sums in steps of what is stored: a number within an ulp or so of "
    "the middle of two steps may become either",
)
def requantize(node: Node) -> Value | None:
    """quantize(x * a + b, s) → quantize(x * (a / s) + b / s, 1), for constants a, b and s."""
    assert isinstance(node.op, Quantize)
    x, scale, *point = node.operands
    step = real_splat(scale)
    is_f32 = x.dtype is f32 and scale.dtype is f32
    if scale.rank or step is None or not is_f32 or not node.op.dtype.is_integer:
        return None
    if step == 1 or step < MIN_STEP or not _is_computed(x):
        return None
    division = _Division(np.float32(step))
    made = division.of(x) if division.reaches(x) else multiply(x, constant(np.float32(1 / step)))
    return apply(node.op, made, constant(np.float32(1)), *point)


class _Division:
    """Divides values by a number, by dividing the constants that they are made of."""

    def __init__(self, step: np.float32) -> None:
        self.step = step
        self.known = ConstantEvaluator(MAX_PARAMETERS)

    def reaches(self, value: Value) -> bool:
        """Whether constants alone need to be divided, and nothing else reads what is between."""
        if self._constant(value) is not None:
            return True
        node = value.producer
        if node is None or len(value.uses) != 1:
            return False
        if isinstance(node.op, Multiply | Dequantize):
            return self._factor(node) is not None
        return isinstance(node.op, Relu | Add | Subtract) and all(map(self.reaches, node.operands))

    def of(self, value: Value) -> Value:
        """The quotient."""
        found = self._constant(value)
        if found is not None:
            return constant(found)
        node = value.producer
        assert node is not None, "a value that is divided is computed"
        if not isinstance(node.op, Multiply | Dequantize):
            return apply(node.op, *map(self.of, node.operands))
        place = self._factor(node)
        assert place is not None, "a product that is divided has a constant"
        operands = list(node.operands)
        operands[place] = self.of(operands[place])
        return apply(node.op, *operands)

    def _factor(self, node: Node) -> int | None:
        """Which operand of a product, or of a dequantize, is a constant that can be divided."""
        places = (1,) if isinstance(node.op, Dequantize) else (1, 0)
        return next((k for k in places if self._constant(node.operands[k]) is not None), None)

    def _constant(self, value: Value) -> Array | None:
        """The quotient of a constant; None if it is none, or not finite."""
        contents = self.known.contents(value)
        if contents is None or value.dtype is not f32:
            return None
        with np.errstate(over="ignore", invalid="ignore"):
            quotient = np.asarray(contents / self.step, np.float32)
        return quotient if np.isfinite(quotient).all() else None


def _is_computed(value: Value) -> bool:
    """Whether a value was rounded before: it is not just an input that was moved."""
    while value.producer is not None and isinstance(value.op, MOVES):
        value = value.producer.operands[0]
    return value.producer is not None


def _bounds(value: Value) -> tuple[float | None, float | None] | None:
    """What a value is held between; None if it is no clip."""
    match value.op:
        case Relu():
            return 0.0, None
        case Relu6():
            return 0.0, 6.0
        case Hardtanh(low=low, high=high) | Clip(low=low, high=high):
            return low, high
    return None


RULES: tuple[Rule, ...] = (quantized_clip, requantize)
