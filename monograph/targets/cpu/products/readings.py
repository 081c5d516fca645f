"""Chooses how a product reads its operands: where they lie, or copied into tiles and panels first.

An array whose rows are long is read in place; a right operand that only a few rows ask for is read
where it lies too. Copying pays where many read what is copied, and weights are copied once for all.
"""

from __future__ import annotations

import math
from enum import Enum

from monograph.ir.dims import Dim, likely_size
from monograph.kernel.contraction import Contraction, k_steps, runs_across_k, runs_along_k
from monograph.kernel.expr import Apply, Axis, Expr, Index, Load
from monograph.kernel.flatten import coefficient
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.products.packing import STEPS_PER_WORD
from monograph.targets.cpu.products.tiles import Reading


class Weights(Enum):
    """Which operand of a product is known when the program is loaded, and packed once for all."""

    NONE = "none"
    LEFT = "left"
    RIGHT = "right"


def choose_left(contraction: Contraction, machine: Machine) -> Reading:
    """In place if it is an array in which k is a fixed step, and its rows lie well.

    Bytes whose highest bits are flipped as they are read are as good.
    """
    left = contraction.left
    if isinstance(left, Apply) and left.function == "bitwise_xor":
        left = left.operands[0]
    steps = k_steps(left, contraction)
    if steps is None:
        return Reading.PACKED
    size = likely_size(contraction.size((*contraction.m, *contraction.k)))
    nbytes = size * contraction.reduction.dtype.bits // 8
    is_long = 1 not in steps and nbytes > machine.l1
    if is_long and _has_rows_beside(contraction, steps):
        return Reading.IN_PLACE
    return Reading.PACKED if is_long else Reading.IN_PLACE


def _has_rows_beside(contraction: Contraction, steps: tuple[Dim, ...]) -> bool:
    """Whether neighbouring rows of the left operand share cache lines, as those of an image do."""
    if len(contraction.k) < 2 or not contraction.m:
        return False
    return find_step(contraction.left, contraction.m[-1]) == 1


def choose_right(contraction: Contraction, machine: Machine, weights: Weights) -> Reading:
    """In place if it is small, or read by few rows; packed once if read by many blocks of them."""
    if is_beside_weights(contraction, machine, weights):
        return Reading.IN_PLACE
    rows = likely_size(contraction.size(contraction.m))
    nbytes = likely_size(contraction.size((*contraction.n, *contraction.k)))
    nbytes = nbytes * contraction.reduction.dtype.bits // 8
    is_small = nbytes <= 2 * machine.l1 and not _is_crowded(contraction, machine)
    sizes = machine.costs.product
    if has_columns_beside(contraction) and (rows <= sizes.max_in_place_rows or is_small):
        return Reading.IN_PLACE
    in_tiles = is_worth_packing(contraction, weights, machine) or lies_across(contraction, machine)
    most = sizes.max_single_block_rows if in_tiles else sizes.max_single_block_rows_in_place
    return Reading.BLOCK if rows <= most else Reading.PACKED


def is_beside_weights(contraction: Contraction, machine: Machine, weights: Weights) -> bool:
    """Whether a round of k of all columns stays in the second cache beside a block of weights.

    Threads then share the weights, each reads its part of them once, and nobody copies columns.
    """
    if weights is not Weights.LEFT or not is_worth_packing(contraction, weights, machine):
        return False
    columns = contraction.size(contraction.n)
    if not isinstance(columns, int) or contraction.outer or contraction.batch:
        return False
    if not has_columns_beside(contraction):
        return False
    element = contraction.reduction.dtype.bits // 8
    is_aligned = columns * element % (machine.vector_bytes // 2) == 0
    return is_aligned and columns * machine.costs.block_steps * element <= machine.l2 // 2


def is_worth_packing(contraction: Contraction, weights: Weights, machine: Machine) -> bool:
    """Whether so many columns read the left operand's rows that copying them into tiles pays.

    A tile is then one run of memory: it comes in time, whatever the distance between its rows.
    Weights are copied once for all calls.
    """
    held, sizes = weights is Weights.LEFT, machine.costs.product
    if (contraction.outer and not held) or not runs_along_k(contraction):
        return False
    depth = contraction.k[0].extent
    if (
        not contraction.reduction.dtype.is_float
        or not isinstance(depth, int)
        or depth % STEPS_PER_WORD
    ):
        return False
    rows, columns = (likely_size(contraction.size(axes)) for axes in (contraction.m, contraction.n))
    if held:
        return rows > sizes.max_in_place_rows and columns >= sizes.min_packed_weight_columns
    return rows >= sizes.min_tiled_rows and columns >= sizes.min_tiled_columns


def lies_across(contraction: Contraction, machine: Machine) -> bool:
    """Whether rows lie side by side at each step of k: tiles of them are quicker made than rows."""
    if contraction.outer or not runs_across_k(contraction):
        return False
    rows, depth = contraction.size(contraction.m), contraction.k[0].extent
    if not isinstance(rows, int) or not isinstance(depth, int):
        return False
    return (
        contraction.reduction.dtype.is_float
        and rows >= machine.costs.product.min_packed_across_rows
        and depth % STEPS_PER_WORD == 0
    )


def has_columns_beside(contraction: Contraction) -> bool:
    """Whether the right operand is an array whose columns are neighbours in memory."""
    if k_steps(contraction.right, contraction) is None or len(contraction.n) != 1:
        return False
    return find_step(contraction.right, contraction.n[0]) == 1


def _is_crowded(contraction: Contraction, machine: Machine) -> bool:
    """Whether the rows of a panel, read in place, fall on too few lines of the first cache."""
    stride = find_step(contraction.right, contraction.k[-1])
    if not isinstance(stride, int) or stride == 0:
        return False
    distance = math.gcd(machine.costs.set_bytes, stride * contraction.reduction.dtype.bits // 8)
    ways = max(1, machine.l1 // machine.costs.set_bytes)
    return likely_size(contraction.k[-1].extent) > machine.costs.set_bytes // distance * ways


def find_step(formula: Expr, axis: Axis) -> Dim | None:
    """How far an axis moves through the array that a formula is an element of."""
    if not isinstance(formula, Load) or not isinstance(formula.operands[0], Index):
        return None
    return coefficient(formula.operands[0].dim, axis.symbol)
