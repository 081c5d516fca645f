"""Chooses between our kernel and a library call for each node, by shape."""

from __future__ import annotations

from monograph.ir.dims import Dim, shape_product
from monograph.ir.graph import Node
from monograph.ir.types import bf16, f16
from monograph.ops.attention import Attention
from monograph.ops.linalg import DotGeneral
from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.libraries import library_of

MIN_SIDE = 16
"""Rows, columns and steps of k from which a product is a library's."""


def prefers_library(node: Node, chip: Chip) -> bool:
    """Whether a library computes a node better than a kernel of ours, or only a library does."""
    return why_library(node, chip) is not None


def why_library(node: Node, chip: Chip) -> str | None:
    """Why a library computes a node; None if a kernel of ours had better."""
    if chip.backend != "cuda" or library_of(node) is None:
        return None
    match node.op:
        case DotGeneral():
            if not _is_large_product(node, node.op):
                return None
            return f"all sides of the product have at least {MIN_SIDE}"
        case Attention():
            if node.operands[0].dtype not in (f16, bf16):
                return None
            return "an attention of 16-bit floats"
        case _:
            return "no family writes it"


def _is_aligned(row: Dim) -> bool:
    """Whether rows of so many 16-bit numbers all begin where tensor cores can load from.

    Of results with other rows (a vocabulary of 50,257 words) cuBLAS has slow kernels alone.
    """
    return not isinstance(row, int) or row % 8 == 0


def _is_large_product(node: Node, op: DotGeneral) -> bool:
    lhs, rhs = node.operands
    lhs_free, rhs_free = op.free_axes(lhs.rank, rhs.rank)
    sides = [
        shape_product(lhs.shape[axis] for axis in lhs_free),
        shape_product(rhs.shape[axis] for axis in rhs_free),
        shape_product(lhs.shape[axis] for axis in op.lhs_contracting),
    ]
    if lhs.dtype in (f16, bf16) and not _is_aligned(sides[1]):
        return False
    return all(not isinstance(side, int) or side >= MIN_SIDE for side in sides)
