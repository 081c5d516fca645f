"""The cost model of fusion: bytes moved, and instructions."""

from __future__ import annotations

from collections.abc import Mapping

from monograph.ir.dims import Symbol, evaluate_dim, likely_size
from monograph.ir.graph import Node, Value
from monograph.ir.op import Family, Trait
from monograph.ir.types import TensorType, i64
from monograph.ops.slicing import PadBorder

MAX_PRODUCERS_VISITED = 16
"""Ops above a node that are looked at."""


def work(node: Node) -> int:
    """Instructions for one element of a node's result, roughly."""
    if is_free(node) or node.op.family is Family.DATA:
        return 0
    if isinstance(
        node.op, PadBorder
    ):  # where an element is from is asked twice, and it is gathered
        return 6
    if is_position(node):
        return 0
    return 12 if node.op.has(Trait.TRANSCENDENTAL) else 1


def is_free(node: Node) -> bool:
    """Whether a node is subscripts alone: it moves elements, or makes them of their positions."""
    return node.op.has(Trait.MOVE) or node.op.has(Trait.GENERATOR)


def is_position(node: Node | None, reach: int = MAX_PRODUCERS_VISITED) -> bool:
    """Whether a node's result is arithmetic of ``iota`` and single numbers: of positions."""
    if node is None or not reach:
        return False
    if node.op.has(Trait.GENERATOR) or not node.operands:
        return node.op.has(Trait.GENERATOR) or node.results[0].tensor.size == 1
    is_arithmetic = node.op.has(Trait.SUBSCRIPT) or node.op.has(Trait.MOVE)
    if not is_arithmetic or node.results[0].dtype is not i64:
        return False
    return all(is_position(operand.producer, reach - 1) for operand in node.operands)


def nbytes(value: Value, sizes: Mapping[Symbol, int] | None = None) -> int:
    """Bytes of a value; of a symbolic dimension without a size its likely one counts."""
    if not isinstance(value.type, TensorType):
        return 0
    total = value.dtype.bits // 8 or 1
    for dim in value.shape:
        total *= likely_size(dim) if sizes is None else evaluate_dim(dim, sizes)
    return total


def amount(count: int) -> str:
    """A number of bytes for people."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
