"""An op without native code, for tests of what runs in the interpreter."""

from __future__ import annotations

from typing import Any

from monograph.ir.build import apply
from monograph.ir.op import Op, op
from monograph.ir.types import Array, TensorType


@op("test.opaque")
class Opaque(Op):
    """The identity, in NumPy alone."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: Array) -> Array:
        return x.copy()


def opaque(x: Any) -> Any:
    """``x``, after a node that no target compiles."""
    return apply(Opaque(), x)
