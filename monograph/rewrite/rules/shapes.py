"""Ops that only move elements: chains of them compose, and some do nothing.

Nothing is computed, so all of it is exact. Dimensions may be symbolic: a rule fires only where the
shapes involved are the same expression.
"""

from __future__ import annotations

from monograph.ir.dims import Dim, provably_at_least
from monograph.ir.graph import Node, Value
from monograph.ops.data import Full, Iota, full
from monograph.ops.index import Take
from monograph.ops.joining import Concat, Split, Stack
from monograph.ops.shape import (
    Expand,
    Reshape,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
    expand,
    reshape,
    transpose,
)
from monograph.ops.slicing import Flip, Pad, PadBorder, Roll, Slice
from monograph.rewrite.pattern import capture
from monograph.rewrite.rule import Match, Rule, rewrite

MOVES = "exact: elements only move"
IDENTICAL = (Reshape, Expand, Slice, Pad, PadBorder, Tile, Squeeze, Unsqueeze, Concat)


def _compose(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """One permutation for ``first`` and then ``second``."""
    return tuple(first[axis] for axis in second)


def _is_identity(match: Match) -> bool:
    rank = len(match.permutation)
    return tuple(axis % rank for axis in match.permutation) == tuple(range(rank))


TRANSPOSES = (
    Rule(
        "transpose_twice",
        pattern=lambda x: Transpose(capture("second"))(Transpose(capture("first"))(x)),
        replacement=lambda x, first, second: transpose(x, _compose(first, second)),
        floats=MOVES,
    ),
    Rule(
        "transpose_to_itself",
        pattern=lambda x: Transpose(capture("permutation"))(x),
        replacement=lambda x: x,
        guard=_is_identity,
        floats=MOVES,
    ),
)


@rewrite("transpose_of_ones", root=Transpose, floats=MOVES)
def transpose_of_ones(node: Node) -> Value | None:
    """transpose(x) → reshape(x) where only dimensions of size 1 change places."""
    assert isinstance(node.op, Transpose)
    (x,) = node.operands
    moved = [axis % x.rank for axis in node.op.permutation if x.shape[axis] != 1]
    return reshape(x, node.result.shape) if moved == sorted(moved) else None


@rewrite("move_nothing", root=IDENTICAL, floats=MOVES)
def move_nothing(node: Node) -> Value | None:
    """reshape, expand, slice, pad, tile, concat… that give back their only operand."""
    x = node.operands[0]
    if len(node.operands) != 1 or x.type != node.result.type:
        return None
    if isinstance(node.op, Slice) and not _is_whole(node.op, x):
        return None
    if isinstance(node.op, Pad | PadBorder) and any(
        amount != 0 for amount in (*node.op.low, *node.op.high)
    ):
        return None
    return x


def _is_whole(op: Slice, x: Value) -> bool:
    """Whether a slice takes everything: a result of the same shape may still start elsewhere."""
    return all(start == 0 for start in op.starts) and all(
        step == 1 or dim == 1 for step, dim in zip(op.steps, x.shape, strict=True)
    )


@rewrite("reshape_twice", root=Reshape, floats=MOVES)
def reshape_twice(node: Node) -> Value | None:
    """reshape(reshape(x)) → reshape(x); squeeze and unsqueeze count as reshape."""
    inner = node.operands[0].producer
    if inner is None or not isinstance(inner.op, Reshape | Squeeze | Unsqueeze):
        return None
    return reshape(inner.operands[0], node.result.shape)


@rewrite("expand_twice", root=Expand, floats=MOVES)
def expand_twice(node: Node) -> Value | None:
    """expand(expand(x)) → expand(x)."""
    inner = node.operands[0].producer
    if inner is None or not isinstance(inner.op, Expand):
        return None
    return expand(inner.operands[0], node.result.shape)


@rewrite("move_filled", root=(Expand, Flip, Reshape, Roll, Slice, Transpose), floats=MOVES)
def move_filled(node: Node) -> Value | None:
    """reshape(full) → full, reshape(expand(scalar)) → expand(scalar): order does not matter."""
    inner = node.operands[0].producer
    if inner is None:
        return None
    if isinstance(inner.op, Full):
        return full(node.result.shape, inner.op.value, inner.op.dtype)
    if not isinstance(inner.op, Expand) or inner.operands[0].tensor.size != 1:
        return None
    return expand(reshape(inner.operands[0], ()), node.result.shape)


@rewrite("slice_twice", root=Slice, floats=MOVES)
def slice_twice(node: Node) -> Value | None:
    """slice(slice(x)) → slice(x), where both are inside what they slice."""
    inner = node.operands[0].producer
    if inner is None or not isinstance(inner.op, Slice):
        return None
    assert isinstance(node.op, Slice)
    x = inner.operands[0]
    if not (_is_inside(node.op, node.operands[0]) and _is_inside(inner.op, x)):
        return None
    starts: list[Dim] = []
    limits: list[Dim] = []
    for axis in range(x.rank):
        step, first = inner.op.steps[axis], inner.op.starts[axis]
        starts.append(first + node.op.starts[axis] * step)
        limits.append(first + (node.op.limits[axis] - 1) * step + 1)
    steps = tuple(a * b for a, b in zip(inner.op.steps, node.op.steps, strict=True))
    result: Value = Slice(tuple(starts), tuple(limits), steps)(x)
    return result


def _is_inside(op: Slice, x: Value) -> bool:
    """Whether no position of the slice is moved to the tensor's end."""
    return all(
        provably_at_least(start, 0)
        and provably_at_least(limit, start)
        and provably_at_least(dim, limit)
        for start, limit, dim in zip(op.starts, op.limits, x.shape, strict=True)
    )


@rewrite("concat_flatten", root=Concat, floats=MOVES)
def concat_flatten(node: Node) -> Value | None:
    """concat(concat(a, b), c) → concat(a, b, c), if nothing else reads the inner one."""
    parts: list[Value] = []
    for operand in node.operands:
        inner = operand.producer
        private = inner is not None and inner.op == node.op and len(operand.uses) == 1
        parts.extend(inner.operands if inner is not None and private else (operand,))
    if len(parts) == len(node.operands):
        return None
    result: Value = node.op(*parts)
    return result


@rewrite("concat_with_nothing", root=Concat, floats=MOVES)
def concat_with_nothing(node: Node) -> Value | None:
    """Drop the operands of concat that have no elements along its axis."""
    assert isinstance(node.op, Concat)
    kept = [part for part in node.operands if part.shape[node.op.axis] != 0]
    if len(kept) == len(node.operands):
        return None
    if len(kept) < 2:
        return kept[0] if kept else node.operands[0]
    result: Value = node.op(*kept)
    return result


@rewrite("concat_of_parts", root=Concat, floats=MOVES)
def concat_of_parts(node: Node) -> Value | None:
    """concat of adjacent slices of x (or of all results of a split) → one slice of x, or x."""
    assert isinstance(node.op, Concat)
    axis = node.op.axis % node.result.rank
    pieces = [_piece(part, axis) for part in node.operands]
    first = pieces[0]
    if first is None or len(pieces) < 2:
        return None
    source, start, limit = first
    for piece in pieces[1:]:
        if piece is None or piece[0] is not source or piece[1] != limit:
            return None
        limit = piece[2]
    starts = tuple(start if position == axis else 0 for position in range(source.rank))
    limits = tuple(limit if position == axis else dim for position, dim in enumerate(source.shape))
    made: Value = Slice(starts, limits, (1,) * source.rank)(source)
    return made


def _piece(value: Value, axis: int) -> tuple[Value, Dim, Dim] | None:
    """(source, start, limit) of a value that is a contiguous part of another along one axis."""
    node = value.producer
    if node is None:
        return None
    if isinstance(node.op, Split):
        return _split_piece(node, value.index, axis)
    if not isinstance(node.op, Slice):
        return None
    (x,) = node.operands
    whole = all(
        node.op.starts[other] == 0 and node.op.limits[other] == dim
        for other, dim in enumerate(x.shape)
        if other != axis
    )
    if not whole or any(step != 1 for step in node.op.steps) or not _is_inside(node.op, x):
        return None
    return x, node.op.starts[axis], node.op.limits[axis]


def _split_piece(node: Node, index: int, axis: int) -> tuple[Value, Dim, Dim] | None:
    assert isinstance(node.op, Split)
    (x,) = node.operands
    if node.op.axis % x.rank != axis:
        return None
    start: Dim = 0
    for size in node.op.sizes[:index]:
        start = start + size
    return x, start, start + node.op.sizes[index]


@rewrite("split_of_one", root=Split, floats=MOVES)
def split_of_one(node: Node) -> tuple[Value, ...] | None:
    """A split into one part is its operand; of which one part is used, a slice."""
    if len(node.results) == 1:
        return node.operands
    used = [result for result in node.results if result.is_used]
    if len(used) != 1:
        return None
    parts: tuple[Value, ...] = node.op.decompose(*node.operands)
    return parts


@rewrite("stack_of_one", root=Stack, floats=MOVES)
def stack_of_one(node: Node) -> Value | None:
    """stack(x) → reshape(x)."""
    if len(node.operands) != 1:
        return None
    return reshape(node.operands[0], node.result.shape)


@rewrite("flip_of_ones", root=Flip, floats=MOVES)
def flip_of_ones(node: Node) -> Value | None:
    """flip along dimensions of size 1 → x."""
    assert isinstance(node.op, Flip)
    (x,) = node.operands
    return x if all(x.shape[axis] == 1 for axis in node.op.axes) else None


@rewrite("roll_by_nothing", root=Roll, floats=MOVES)
def roll_by_nothing(node: Node) -> Value | None:
    """roll by 0, or by a whole turn → x."""
    assert isinstance(node.op, Roll)
    (x,) = node.operands
    for shift, axis in zip(node.op.shifts, node.op.axes, strict=True):
        size = x.shape[axis]
        turns = isinstance(shift, int) and isinstance(size, int) and size > 0 and shift % size == 0
        if shift != 0 and not turns and size != 1:
            return None
    return x


@rewrite("take_in_order", root=Take, floats=MOVES)
def take_in_order(node: Node) -> Value | None:
    """take(x, iota) → x, or a slice of it, along the axis that the indices count."""
    assert isinstance(node.op, Take)
    x, indices = node.operands
    if not isinstance(indices.op, Iota) or indices.rank != 1 or indices.dtype.bits < 32:
        return None
    axis = node.op.axis % x.rank
    count = indices.shape[0]
    if not provably_at_least(x.shape[axis], count):
        return None
    limits = tuple(count if position == axis else dim for position, dim in enumerate(x.shape))
    result: Value = Slice((0,) * x.rank, limits, (1,) * x.rank)(x)
    return result


RULES: tuple[Rule, ...] = (
    *TRANSPOSES,
    transpose_of_ones,
    move_nothing,
    reshape_twice,
    expand_twice,
    move_filled,
    slice_twice,
    concat_flatten,
    concat_with_nothing,
    concat_of_parts,
    split_of_one,
    stack_of_one,
    flip_of_ones,
    roll_by_nothing,
    take_in_order,
)
