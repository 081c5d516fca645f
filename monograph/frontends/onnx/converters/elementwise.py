"""Arithmetic, comparison, logic, bits and selection.

Since opset 7 operands broadcast as in NumPy. Before, a ``broadcast`` attribute allowed the second
operand to be smaller, its dimensions beginning at ``axis`` of the first.
"""

from __future__ import annotations

from functools import reduce

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import Convert, converter
from monograph.ir.build import apply, cast_to
from monograph.ir.graph import Value
from monograph.ir.op import Op
from monograph.ir.types import Kind, bool_, f32, f64
from monograph.ops import elementwise

_VARIADIC: dict[str, Op] = {
    "Sum": elementwise.Add(),
    "Max": elementwise.Maximum(),
    "Min": elementwise.Minimum(),
}


def same(op: type[Op]) -> Convert:
    """The converter of an op on one or two operands that means the same here."""

    def convert(node: OnnxNode) -> Value:
        return apply(op(), *((node.input(0),) if op.arity[1] == 1 else operands(node)))

    return convert


def operands(node: OnnxNode) -> tuple[Value, Value]:
    """The two operands of a binary op, the second aligned as models before opset 7 ask for."""
    a, b = node.input(0), node.input(1)
    if node.opset >= 7 or not node.integer("broadcast", 0) or not node.has("axis"):
        return a, b
    axis = node.integer("axis")
    start = axis + a.rank if axis < 0 else axis
    missing = a.rank - start - b.rank
    if not 0 <= start <= a.rank or missing < 0:
        raise node.error("the axis does not fit", found=f"axis {axis} of {a.type} for {b.type}")
    return a, F.unsqueeze(b, range(b.rank, b.rank + missing))


@converter(*_VARIADIC)
def variadic(node: OnnxNode) -> Value:
    """An op on any number of operands: two at a time."""
    op = _VARIADIC[node.op_type]
    return reduce(lambda a, b: apply(op, a, b), node.given())


@converter("Mean")
def mean(node: OnnxNode) -> Value:
    """The mean of any number of operands, element by element."""
    values = node.given()
    return F.divide(reduce(F.add, values), float(len(values)))


@converter("Div")
def divide(node: OnnxNode) -> Value:
    """Division; integers round towards zero."""
    a, b = operands(node)
    integer = a.dtype.is_integer
    return apply(elementwise.TruncateDivide() if integer else elementwise.Divide(), a, b)


@converter("Mod")
def mod(node: OnnxNode) -> Value:
    """The rest of a division, with the sign of the divisor or (``fmod``) of the dividend."""
    a, b = node.input(0), node.input(1)
    fmod = bool(node.integer("fmod", 0))
    return apply(elementwise.Fmod() if fmod else elementwise.Remainder(), a, b)


@converter("Pow")
def power(node: OnnxNode) -> Value:
    """A power, in the dtype of the base; the exponent may have another."""
    base, exponent = operands(node)
    if base.dtype is exponent.dtype:
        return F.power(base, exponent)
    if base.dtype.is_float or exponent.dtype.is_integer:
        return F.power(base, cast_to(exponent, base.dtype))
    return cast_to(F.power(cast_to(base, f64), cast_to(exponent, f64)), base.dtype)


@converter("BitShift")
def bit_shift(node: OnnxNode) -> Value:
    """Bits moved to the left or right."""
    direction = node.string("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise node.error("an unknown direction", expected="LEFT or RIGHT", found=direction)
    shift = F.shift_left if direction == "LEFT" else F.shift_right
    return shift(node.input(0), node.input(1))


@converter("IsNaN")
def is_nan(node: OnnxNode) -> Value:
    """Whether an element is no number."""
    return F.is_nan(node.input(0))


@converter("IsInf")
def is_inf(node: OnnxNode) -> Value:
    """Whether an element is infinite, of either sign or of one."""
    x = node.input(0)
    negative, positive = node.integer("detect_negative", 1), node.integer("detect_positive", 1)
    infinite = F.is_inf(x)
    if negative and positive:
        return infinite
    if not negative and not positive:
        return F.zeros_like(infinite)
    wide = x if x.dtype in (f32, f64) else cast_to(x, f32)
    side = F.less(wide, 0.0) if negative else F.greater(wide, 0.0)
    return F.logical_and(infinite, side)


@converter("Where")
def where(node: OnnxNode) -> Value:
    """Elements of one operand or the other."""
    condition, a, b = (node.input(index) for index in range(3))
    if condition.dtype is not bool_ or a.dtype is not b.dtype:
        raise node.error(
            "wrong dtypes",
            expected="bool, and one dtype for both choices",
            found=f"{condition.type}, {a.type} and {b.type}",
        )
    return F.where(condition, a, b)


@converter("Clip")
def clip_attributes(node: OnnxNode) -> Value:
    """``x`` held between bounds that are attributes."""
    low, high = node.attribute("min"), node.attribute("max")
    return F.clip(node.input(0), low, high)


@converter("Clip", since=11)
def clip(node: OnnxNode) -> Value:
    """``x`` held between bounds that are scalar operands, either of them optional."""
    x = node.input(0)
    bounds = [_read_bound(node, index) for index in (1, 2)]
    if all(bound is None for bound in bounds):
        return x
    if x.dtype.kind is Kind.FLOAT and not any(isinstance(bound, Value) for bound in bounds):
        return F.clip(x, *bounds)
    low, high = node.optional(1), node.optional(2)
    raised = x if low is None else F.maximum(x, _scalar(low))
    return raised if high is None else F.minimum(raised, _scalar(high))


def _read_bound(node: OnnxNode, index: int) -> float | Value | None:
    """A bound as a number if its contents are known; the value itself if not."""
    value, known = node.optional(index), node.constant(index)
    return value if known is None else float(known.reshape(()))


def _scalar(bound: Value) -> Value:
    return bound if bound.rank == 0 else F.reshape(bound, ())
