"""Operations on bits. ONNX shifts unsigned numbers only; signed ones have the same bits."""

from __future__ import annotations

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, expands, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.build import apply
from monograph.ir.graph import Value
from monograph.ir.types import DType, Kind, bool_, dtype_of
from monograph.ops import elementwise as e

NAMES = {"bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor", "bitwise_not": "Not"}


@exports(e.BitwiseAnd, e.BitwiseOr, e.BitwiseXor, e.BitwiseNot)
def bitwise(node: ExportContext[e.BitwiseAnd]) -> Exported:
    """Bits of integers; bools are one bit and have ops of their own."""
    name = NAMES[node.op.name]
    return node.emit(name if node.dtype is bool_ else f"Bitwise{name}", *node.inputs)


def _to_unsigned(dtype: DType) -> DType:
    """The dtype of the same width in which bits are shifted."""
    return dtype_of(f"u{max(dtype.bits, 8)}")


def _shift(node: ExportContext[e.ShiftLeft], x: Term, direction: str) -> Term:
    """An amount that is negative is a large one without a sign: every bit is moved out."""
    kind = _to_unsigned(node.dtype)
    amount = node.cast(node.inputs[1], kind)
    moved = node.emit("BitShift", node.cast(x, kind), amount, direction=direction)
    return node.cast(moved, node.dtype)


@exports(e.ShiftLeft, function=True)
def shift_left(node: ExportContext[e.ShiftLeft]) -> Exported:
    """shift_left → BitShift."""
    return None if node.dtype.is_packed else _shift(node, node.inputs[0], "LEFT")


@expands(e.ShiftLeft, e.ShiftRight)
def shift_widened(op: e.ShiftLeft | e.ShiftRight, a: Value, b: Value) -> Value:
    """Types under eight bits, which arrive here widened, as they do in the interpreter."""
    return apply(op, a, b)


@exports(e.ShiftRight, function=True)
def shift_right(node: ExportContext[e.ShiftRight]) -> Exported:
    """A negative number is shifted inside out, so that it fills up with its sign."""
    if node.dtype.is_packed:
        return None
    x = node.inputs[0]
    if node.dtype.kind is Kind.UNSIGNED:
        return _shift(node, x, "RIGHT")  # type: ignore[arg-type]  # only its operands count
    negative = node.emit("Less", x, node.number(0, node.dtype), dtype=bool_)
    positive = node.where(negative, node.emit("BitwiseNot", x), x)
    moved = _shift(node, positive, "RIGHT")  # type: ignore[arg-type]
    return node.where(negative, node.emit("BitwiseNot", moved), moved)
