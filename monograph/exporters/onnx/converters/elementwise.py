"""Arithmetic, comparison, logic and selection.

Division of integers needs care: ONNX Runtime refuses to divide by zero and crashes on the smallest
number over -1, where ours are defined. The divisor is made harmless first; a constant one is left
as it is if it already is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph.exporters.onnx.context import ExportContext, contents_of
from monograph.exporters.onnx.registry import Exported, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.graph import Node
from monograph.ir.types import Kind, bool_, dtype_of, i64, string
from monograph.ops import elementwise as e
from monograph.ops.elementwise.base import limits
from monograph.ops.rectifier import Hardtanh, Relu6

ONNX_NAMES = {
    e.Subtract: "Sub", e.Divide: "Div", e.Abs: "Abs", e.Sign: "Sign", e.Floor: "Floor",
    e.Ceil: "Ceil", e.Round: "Round", e.LogicalAnd: "And", e.LogicalOr: "Or", e.LogicalXor: "Xor",
    e.LogicalNot: "Not",
}  # fmt: skip


@exports(*ONNX_NAMES)
def same(node: ExportContext[e.Subtract]) -> Exported:
    """Ops that ONNX has as they are."""
    return node.emit(ONNX_NAMES[type(node.op)], *node.inputs)


@exports(e.Add, e.Multiply, e.Maximum, e.Minimum)
def arithmetic_or_logic(node: ExportContext[e.Add]) -> Exported:
    """Of bools, the sum and the maximum are *or*, the product and the minimum *and*."""
    names = {
        "add": ("Add", "Or"), "multiply": ("Mul", "And"),
        "maximum": ("Max", "Or"), "minimum": ("Min", "And"),
    }  # fmt: skip
    of_numbers, of_bools = names[node.op.name]
    return node.emit(of_bools if node.dtype is bool_ else of_numbers, *node.inputs)


@exports(e.Negate)
def negate(node: ExportContext[e.Negate]) -> Exported:
    """negate → Neg; of unsigned numbers 0 - x."""
    if node.dtype.kind is Kind.UNSIGNED:
        return node.emit("Sub", node.number(0, node.dtype), *node.inputs)
    return node.emit("Neg", *node.inputs)


@exports(e.Power)
def power(node: ExportContext[e.Power]) -> Exported:
    """power → Pow of floats."""
    return node.emit("Pow", *node.inputs) if node.dtype.is_float else None


@exports(e.Copysign, function=True)
def copysign(node: ExportContext[e.Copysign]) -> Exported:
    """The bits of the magnitude and the bit of the sign, where ONNX can look at bits."""
    bits = {"f64": "i64", "f32": "i32", "f16": "i16", "bf16": "i16"}.get(node.dtype.name)
    if bits is None or node.opset < 26:
        return None
    from monograph.exporters.onnx.protos import CODES

    whole = dtype_of(bits)
    lowest = np.iinfo(whole.numpy).min
    a, b = (node.emit("BitCast", x, dtype=whole, to=CODES[whole]) for x in node.inputs)
    magnitude = node.emit("BitwiseAnd", a, node.number(~lowest, whole))
    sign = node.emit("BitwiseAnd", b, node.number(lowest, whole))
    joined = node.emit("BitwiseOr", magnitude, sign)
    return node.emit("BitCast", joined, dtype=node.dtype, to=CODES[node.dtype])


# Division of integers -----------------------------------------------------------------------------


def _needs_guard(node: Node) -> bool:
    """Whether a division of integers must be made safe first."""
    dividend, divisor = node.operands
    if not dividend.dtype.is_integer:
        return False
    known = contents_of(divisor)
    return known is None or bool(np.isin(known.astype(np.int64), (0, -1)).any())


def _guard_divisor(node: ExportContext[Any]) -> tuple[Term, Term, Term | None]:
    """The divisor with 1 for 0 and -1; where it was 0; where it was -1, if that matters.

    The smallest number over -1 traps in 32 and 64 bits; narrower ones are computed in 32.
    """
    divisor, one = node.inputs[1], node.number(1, node.dtype)
    zero = node.equals(divisor, 0)
    if node.dtype.kind is Kind.UNSIGNED or node.dtype.bits < 32:
        return node.where(zero, one, divisor), zero, None
    minus_one = node.equals(divisor, -1)
    return node.where(node.either(zero, minus_one), one, divisor), zero, minus_one


@exports(e.TruncateDivide, function=_needs_guard)
def truncate_divide(node: ExportContext[e.TruncateDivide]) -> Exported:
    """truncate_divide → Div of integers."""
    return None if node.dtype.is_float else _quotient(node)


@exports(e.FloorDivide, function=_needs_guard)
def floor_divide(node: ExportContext[e.FloorDivide]) -> Exported:
    """Of unsigned numbers it is the quotient; others are decomposed."""
    return _quotient(node) if node.dtype.kind is Kind.UNSIGNED else None


def _quotient(node: ExportContext[Any]) -> Term:
    if not _needs_guard(node.node):
        return node.emit("Div", *node.inputs)
    dividend = node.inputs[0]
    divisor, zero, minus_one = _guard_divisor(node)
    quotient = node.emit("Div", dividend, divisor)
    if minus_one is not None:
        quotient = node.where(minus_one, node.emit("Neg", dividend), quotient)
    return node.where(zero, node.number(0, node.dtype), quotient)


@exports(e.Fmod, function=_needs_guard)
def fmod(node: ExportContext[e.Fmod]) -> Exported:
    """What is left of a division by 1 is 0, which is what 0 and -1 leave too."""
    if node.dtype is i64:
        return _exact_fmod(node)
    dividend = node.inputs[0]
    divisor = _guard_divisor(node)[0] if _needs_guard(node.node) else node.inputs[1]
    like_c = node.dtype.kind is not Kind.UNSIGNED  # which ONNX Runtime gets wrong in u64
    return node.emit("Mod", dividend, divisor, fmod=int(like_c))


def _exact_fmod(node: ExportContext[e.Fmod]) -> Term:
    """The remainder of i64 numbers, which ONNX Runtime takes through doubles that hold 53 bits.

    It makes c / b of (1 / b) * c even of integers, unless something stands between the two.
    """
    dividend, divisor = node.inputs
    one_may_be_seen = contents_of(node.node.operands[0]) is not None
    if not _needs_guard(node.node) and not one_may_be_seen:
        whole = node.emit("Mul", node.emit("Div", dividend, divisor), divisor)
        return node.emit("Sub", dividend, whole)
    safe, zero, minus_one = _guard_divisor(node)
    assert minus_one is not None  # i64 has a sign, and traps
    quotient = node.emit("Div", dividend, safe)
    quotient = node.where(node.either(zero, minus_one), dividend, quotient)
    return node.emit("Sub", dividend, node.emit("Mul", quotient, safe))


@exports(e.Remainder, function=_needs_guard)
def remainder(node: ExportContext[e.Remainder]) -> Exported:
    """remainder → Mod, with the sign of the divisor."""
    if node.dtype.is_float:
        return None
    divisor = _guard_divisor(node)[0] if _needs_guard(node.node) else node.inputs[1]
    return node.emit("Mod", node.inputs[0], divisor)


# Comparison and selection -------------------------------------------------------------------------


@exports(e.Equal, e.Less, e.LessEqual, e.Greater, e.GreaterEqual)
def compare(node: ExportContext[e.Equal]) -> Exported:
    """Comparisons; of strings since opset 19."""
    if node.dtype is string and node.opset < 19:
        return None
    names = {
        "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
        "greater_equal": "GreaterOrEqual",
    }  # fmt: skip
    return node.emit(names[node.op.name], *node.inputs, dtype=bool_)


@exports(e.NotEqual)
def not_equal(node: ExportContext[e.NotEqual]) -> Exported:
    """not_equal → Not(Equal)."""
    return node.emit("Not", node.emit("Equal", *node.inputs, dtype=bool_))


@exports(e.IsNan)
def is_nan(node: ExportContext[e.IsNan]) -> Exported:
    """is_nan → IsNaN."""
    return node.is_nan(node.inputs[0])


@exports(e.IsInf)
def is_inf(node: ExportContext[e.IsInf]) -> Exported:
    """is_inf → IsInf."""
    return node.emit("IsInf", *node.inputs, dtype=bool_)


@exports(e.IsFinite)
def is_finite(node: ExportContext[e.IsFinite]) -> Exported:
    """Whether the magnitude is less than infinity, which a NaN's is not."""
    infinity = node.constant(np.inf, node.dtype)
    if not np.isinf(np.asarray(np.inf).astype(node.dtype.numpy).astype(np.float64)):
        return node.emit("Not", node.is_nan(node.inputs[0]))  # a dtype without infinities
    return node.emit("Less", node.emit("Abs", *node.inputs), infinity, dtype=bool_)


@exports(e.Where)
def where(node: ExportContext[e.Where]) -> Exported:
    """where → Where."""
    return node.where(*node.inputs)


@exports(e.Clip, Hardtanh)
def clip(node: ExportContext[e.Clip]) -> Exported:
    """clip, hardtanh → Clip."""
    return _clip(node, node.op.low, node.op.high)


@exports(Relu6)
def relu6(node: ExportContext[Relu6]) -> Exported:
    """relu6 → Clip."""
    return _clip(node, 0.0, 6.0)


def _clip(node: ExportContext[Any], low: float | None, high: float | None) -> Term:
    """Held within bounds; a bound that Clip is not given is finite, and loses an infinity."""
    if low is not None and high is not None:
        return node.emit("Clip", node.inputs[0], _write_bound(node, low), _write_bound(node, high))
    lifted = (
        node.inputs[0] if low is None else node.emit("Max", *node.inputs, _write_bound(node, low))
    )
    return lifted if high is None else node.emit("Min", lifted, _write_bound(node, high))


def _write_bound(node: ExportContext[Any], bound: float) -> Term:
    """A bound as a scalar of the dtype; one beyond its range is moved to the end of it."""
    smallest, largest = limits(node.dtype)
    held = min(max(bound, smallest), largest)
    with np.errstate(over="ignore"):
        return node.number(int(held) if node.dtype.is_integer else held, node.dtype)
