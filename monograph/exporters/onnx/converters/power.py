"""Integer powers, which wrap: written as products, since ONNX Runtime computes Pow in floats."""

from __future__ import annotations

from typing import Any

from monograph.exporters.onnx.registry import expands
from monograph.ir.graph import Value
from monograph.ir.types import Kind
from monograph.ops import control, data, reduce
from monograph.ops import elementwise as e


@expands(e.Power)
def power(op: e.Power, base: Value, exponent: Value) -> Value:
    """Repeated squaring; a negative exponent gives the truncated 1 / base ** -exponent."""
    signed = base.dtype.kind is Kind.SIGNED
    start = e.maximum(exponent, 0) if signed else exponent
    one = data.ones_like(base + exponent)
    square = base + data.zeros_like(one)

    def body(carry: Any) -> Any:
        result, factor, left = carry
        odd = e.not_equal(e.bitwise_and(left, 1), 0)
        return e.where(odd, result * factor, result), factor * factor, e.shift_right(left, 1)

    def unfinished(carry: Any) -> Value:
        return reduce.any(e.not_equal(carry[2], 0))

    result: Value = control.while_loop(unfinished, body, (one, square, start))[0]
    if not signed:
        return result
    odd = e.not_equal(e.bitwise_and(exponent, 1), 0)
    of_minus_one = e.where(e.equal(base, -1), e.where(odd, -1, 1), 0)
    unit = e.where(e.equal(base, 1), 1, of_minus_one)
    return e.where(exponent < 0, e.cast(unit, base.dtype), result)
