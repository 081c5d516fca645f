"""XLA's ``dot_general`` as ours, with the result dtype that XLA asks for."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.xla.arithmetic import convert
from monograph.ir.graph import Value
from monograph.ir.types import DType, promote

Axes = tuple[int, ...]


def dot_general(
    lhs: Value,
    rhs: Value,
    contracting: tuple[Axes, Axes],
    batch: tuple[Axes, Axes],
    dtype: DType,
) -> Value:
    """Products summed over contracting axes; computed in the result's dtype if that is wider."""
    common = promote(promote(lhs.dtype, rhs.dtype), dtype)
    left, right = convert(lhs, common), convert(rhs, common)
    return convert(F.dot_general(left, right, *contracting, *batch), dtype)
