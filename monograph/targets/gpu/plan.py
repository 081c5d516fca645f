"""Choosing how a kernel is computed on a GPU: families that write it or refuse with a reason."""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim


@dataclass(frozen=True)
class Refusal:
    """Why a family does not compute a kernel."""

    reason: str


def divide_up(total: Dim, size: int) -> Dim:
    """How many blocks of a size hold so many elements."""
    return (total + (size - 1)) // size


def next_power_of_two(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def warps_for(elements: int) -> int:
    """Warps for a block of so many elements: about 16 elements a thread, at most 16 warps."""
    return min(16, max(1, next_power_of_two(elements) // 512))
