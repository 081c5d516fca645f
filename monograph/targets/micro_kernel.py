"""Micro-kernels: what one instruction multiplies and adds to a sum, and how many steps of k it is.

A product's inner loop is an instruction again and again. A fused multiply-add takes one step of k
for each sum; others take two, four or sixteen of narrower numbers at once. A target lists its own,
those first that take the most steps, and a contraction goes to the first that takes its operands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from monograph.dataclass import dataclass
from monograph.ir.types import DType, f32, f64, holds_integers_of, i8, i16, i32, u8

if TYPE_CHECKING:
    from monograph.kernel.operand import Operand

BYTES = frozenset((u8, i8))


@dataclass(frozen=True)
class MicroKernel:
    """An instruction of a product's inner loop."""

    function: str
    """What it computes of an element, or a word of several, of either side (``kernel.scalar``)."""
    steps: int
    """Steps of k that it adds to each sum."""
    left: DType
    right: DType
    """What it multiplies."""
    summed: DType

    def takes(self, left: Operand, right: Operand, summed: DType) -> bool:
        """Whether it multiplies these operands and sums exactly as they are to be summed.

        Bytes of the other sign can be moved by 128, for which the sums of weights make up.
        """
        if summed is not self.summed:
            return False
        if summed.is_float:
            return True  # what is narrower is widened as it is read or packed
        is_moved = {left.multiplied, self.left} == BYTES
        return (is_moved or holds_integers_of(self.left, left.multiplied)) and holds_integers_of(
            self.right, right.multiplied
        )

    def __str__(self) -> str:
        return f"{self.function}: {self.steps} steps of k, {self.left} × {self.right}"


PAIRS = MicroKernel("multiply_pairs", 2, i16, i16, i32)
"""Both halves of a word: an instruction of its own, or two that every processor has."""
TILE_BYTES = MicroKernel("dot_u8_i8", 4, u8, i8, i32)
"""Words of four bytes, as a matrix unit multiplies a tile of them by another."""
ONE_STEP = tuple(MicroKernel("multiply", 1, dtype, dtype, dtype) for dtype in (f32, f64, i32))
"""A multiplication and an addition; fused, for floats."""
