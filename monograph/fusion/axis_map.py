"""Axis maps: which axis of an index space each dimension of a value runs along.

A kernel visits an index space, say rows × columns. A value computed in it lies in that space in
one of a few ways: a tensor of the same shape at ``(0, 1)``, its transpose at ``(1, 0)``, a row's
sum at ``(0,)``, a bias at ``(1,)``. That is its *place*: for each of its dimensions the axis of
the space that runs along it, or None for a dimension of size one. A slice, a concatenation or a
gather has no place: its elements are elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from monograph.ir.dims import Dim, Shape, provably_equal
from monograph.ir.graph import Node
from monograph.ir.op import Trait
from monograph.ops.rules import normalize_axes
from monograph.ops.shape import Expand, Reshape, Transpose
from monograph.ops.slicing import Pad

AxisMap: TypeAlias = tuple[int | None, ...]


def identity(shape: Shape) -> AxisMap:
    """The place of a value that has the space's own shape."""
    return tuple(None if dim == 1 else axis for axis, dim in enumerate(shape))


def operand_axis_map(node: Node, operand: int) -> AxisMap | None:
    """Where an operand lies in the space of the node's result; None if nowhere in particular."""
    source, result = node.operands[operand].shape, node.results[0].shape
    if node.op.has(Trait.ELEMENTWISE) or isinstance(node.op, Expand):
        return _align(source, result)
    if isinstance(node.op, Transpose):
        back = {axis % len(source): k for k, axis in enumerate(node.op.permutation)}
        return tuple(None if dim == 1 else back[axis] for axis, dim in enumerate(source))
    if isinstance(node.op, Reshape):
        return _same_but_for_ones(source, result)
    return None


def pads_rows(node: Node) -> bool:
    """Whether a node puts something before, after or between the elements of each row."""
    if not isinstance(node.op, Pad) or not node.results[0].rank:
        return False
    interior = node.op.interior[-1] if node.op.interior else 0
    return any(amount != 0 for amount in (node.op.low[-1], node.op.high[-1], interior))


def cuts_rows_anew(node: Node) -> bool:
    """Whether a reshape's rows cross those of what it reads.

    In memory that is nothing at all. Computed where it is read, every element has to find out by
    division which row it was in.
    """
    if not isinstance(node.op, Reshape):
        return False
    source, result = node.operands[0].shape, node.results[0].shape
    if not source or not result or result[-1] == 0:
        return False
    return not provably_equal(source[-1] % result[-1], 0)


def reduction_axes(node: Node) -> tuple[int, ...]:
    """The axes of its operand that a reduction combines."""
    attributes = node.op.attributes()
    axes = attributes["axes"] if "axes" in attributes else (attributes["axis"],)
    return normalize_axes(node.op.name, axes, node.operands[0].rank)


def _align(source: Shape, result: Shape) -> AxisMap | None:
    """By NumPy's rule: aligned at the right, dimensions of size one stretched."""
    offset = len(result) - len(source)
    place: list[int | None] = []
    for k, dim in enumerate(source):
        if dim == 1:
            place.append(None)
        elif _same(dim, result[k + offset]):
            place.append(k + offset)
        else:
            return None
    return tuple(place)


def _same_but_for_ones(source: Shape, result: Shape) -> AxisMap | None:
    """A reshape that only adds and removes dimensions of size one keeps every element's place."""
    kept = [axis for axis, dim in enumerate(result) if dim != 1]
    place: list[int | None] = []
    for dim in source:
        if dim == 1:
            place.append(None)
        elif kept and _same(dim, result[kept[0]]):
            place.append(kept.pop(0))
        else:
            return None
    return None if kept else tuple(place)


def _same(a: Dim, b: Dim) -> bool:
    return provably_equal(a, b)


def joint_space(
    made_in: Shape, made_at: AxisMap, read_in: Shape, read_at: AxisMap
) -> tuple[Shape, dict[int, int], dict[int, int]] | None:
    """One space for the maker and the reader of a value, and where the axes of each go in it."""
    pairs: dict[int, int] = {}
    for made, read in zip(made_at, read_at, strict=True):
        if made is None and read is None:
            continue
        if made is None or read is None:
            return None
        if pairs.setdefault(made, read) != read:
            return None
    if len(set(pairs.values())) != len(pairs):
        return None
    onto_reader = _extend_pairs(made_in, read_in, pairs)
    if onto_reader is not None:
        return read_in, onto_reader, {k: k for k in range(len(read_in))}
    back = {read: made for made, read in pairs.items()}
    onto_maker = _extend_pairs(read_in, made_in, back)
    if onto_maker is not None:
        return made_in, {k: k for k in range(len(made_in))}, onto_maker
    return None


def _extend_pairs(inner: Shape, outer: Shape, pairs: dict[int, int]) -> dict[int, int] | None:
    """Send every axis of ``inner`` to one of ``outer``: the paired ones, the rest in order."""
    free = [axis for axis, dim in enumerate(outer) if axis not in pairs.values() and dim != 1]
    result = dict(pairs)
    for axis, dim in enumerate(inner):
        if axis in result or dim == 1:
            continue
        match = next((k for k in free if provably_equal(outer[k], dim)), None)
        if match is None:
            return None
        free.remove(match)
        result[axis] = match
    return result


def move_axis_map(place: AxisMap | None, axes: Mapping[int, int]) -> AxisMap | None:
    """A place in a space whose axes have gone elsewhere."""
    if place is None:
        return None
    return tuple(None if axis is None else axes[axis] for axis in place)


def move_rows(rows: frozenset[int] | None, axes: Mapping[int, int]) -> frozenset[int] | None:
    """The axes that rows are counted along, which have gone elsewhere."""
    return None if rows is None else frozenset(axes[axis] for axis in rows)


def joint_rows(a: frozenset[int] | None, b: frozenset[int] | None) -> frozenset[int] | str | None:
    """The rows that two groups have in common."""
    if a is None or b is None:
        return b if a is None else a
    return a if a == b else "different"


def compose_axis_maps(inner: AxisMap | None, outer: AxisMap) -> AxisMap | None:
    """A place in a value's own space, seen in the space where that value has a place."""
    if inner is None:
        return None
    return tuple(None if axis is None else outer[axis] for axis in inner)
