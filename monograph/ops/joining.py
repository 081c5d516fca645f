"""Putting tensors together and taking them apart: concat, stack, split, unstack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from monograph.errors import EvaluationError, TypeRuleError
from monograph.ir.build import Operand, apply, apply_many, promote_operands
from monograph.ir.dims import Dim, Shape, provably_different, provably_less
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Family, Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType
from monograph.ops import data, slicing
from monograph.ops.rules import format_shape, normalize_axis, require, same_dim, same_dtype
from monograph.ops.shape import one_value, squeeze, unsqueeze


def _common_type(name: str, types: Sequence[TensorType]) -> TensorType:
    """The first of operands that must be at least one, of one dtype and one rank."""
    require(bool(types), f"{name}: no operands", expected="at least one", found="none")
    same_dtype(name, *types)
    require(
        all(type_.rank == types[0].rank for type_ in types),
        f"{name}: operands have different ranks",
        expected=f"rank {types[0].rank} throughout",
        found=", ".join(map(str, types)),
    )
    return types[0]


MAX_ASKED_IN_TURN = 32
"""Operands of which one is found by asking for each in turn; among more it is found by halves, so
that formulas are never so deep that a visit of them overflows the stack."""


def _stretch_at(b: Lowering, place: Scalar, stretches: Sequence[tuple[Scalar, Dim]]) -> Scalar:
    """The element of the stretch that a place lies in; with each comes where its stretch ends."""
    if len(stretches) > MAX_ASKED_IN_TURN:
        first, second = stretches[: len(stretches) // 2], stretches[len(stretches) // 2 :]
        is_first = b.within(place, 0, first[-1][1])
        return b.select(is_first, _stretch_at(b, place, first), _stretch_at(b, place, second))
    *others, (chosen, _) = stretches
    for element, end in reversed(others):
        chosen = b.select(b.within(place, 0, end), element, chosen)
    return chosen


@op("concat", family=Family.SHAPE, traits=Trait.KEEPS_AXES)
class Concat(Op):
    """Operands one after the other along ``axis``; their other dimensions agree."""

    axis: int

    def infer(self, *operands: TensorType) -> TensorType:
        first = _common_type(self.name, operands)
        axis = normalize_axis(self.name, self.axis, first.rank)
        shape = list(first.shape)
        for operand in operands[1:]:
            for position, dim in enumerate(operand.shape):
                if position == axis:
                    shape[position] = shape[position] + dim
                else:
                    what = f"sizes of dimension {position}"
                    shape[position] = same_dim(self.name, what, shape[position], dim)
        return first.with_shape(tuple(shape))

    def holds_at_all_sizes(self, *operands: TensorType) -> bool:
        axis = self.axis % operands[0].rank
        beside = {(*each.shape[:axis], *each.shape[axis + 1 :]) for each in operands}
        return len(beside) == 1

    def evaluate(self, *operands: Array) -> Array:
        return np.concatenate(operands, self.axis)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """The operand whose stretch of the axis the position lies in, the last one otherwise."""
        axis = self.axis % len(index)
        stretches: list[tuple[Scalar, Dim]] = []
        start: Dim = 0
        for operand, type_ in enumerate(b.operands):
            size = type_.shape[axis]
            if size == 0:
                continue
            along = b.clamp(index[axis] - start, 0, size)
            start = start + size
            element = b.read(operand, [*index[:axis], along, *index[axis + 1 :]])
            stretches.append((element, start))
        if not stretches:
            return b.read(0, index)
        return _stretch_at(b, index[axis], stretches)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        axis = normalize_axis(self.name, self.axis, grad.rank)
        start: Dim = 0
        gradients: list[Value | None] = []
        for operand in node.operands:
            limit = start + operand.shape[axis]
            gradients.append(slicing.slice(grad, [start], [limit], axes=[axis]))
            start = limit
        return tuple(gradients)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        yield Sample(cls(0), (x, x[:1], x[1:]))
        yield Sample(cls(-1), (x, x[:, ::2]), "strided")
        yield Sample(cls(0), (x,), "one")
        yield Sample(cls(1), (x, x[:, :0], x[:, :0]), "with empties")
        yield Sample(cls(0), (np.zeros((0, 2), np.float32),) * 2, "empty", False)


@function
def concat(operands: Sequence[Operand], axis: int = 0) -> Value:
    """The operands joined along ``axis``."""
    require(bool(operands), "concat: no operands", expected="at least one", found="none")
    values = promote_operands(*operands)
    position = normalize_axis("concat", axis, values[0].rank)
    return values[0] if len(values) == 1 else apply(Concat(position), *values)


@op("stack", family=Family.SHAPE)
class Stack(Op):
    """Operands of one shape side by side along a new ``axis``."""

    axis: int

    def infer(self, *operands: TensorType) -> TensorType:
        first = _common_type(self.name, operands)
        axis = normalize_axis(self.name, self.axis, first.rank + 1)
        shape = list(first.shape)
        for operand in operands[1:]:
            for position, dim in enumerate(operand.shape):
                what = f"sizes of dimension {position}"
                shape[position] = same_dim(self.name, what, shape[position], dim)
        return first.with_shape((*shape[:axis], len(operands), *shape[axis:]))

    def holds_at_all_sizes(self, *operands: TensorType) -> bool:
        return len({each.shape for each in operands}) == 1

    def evaluate(self, *operands: Array) -> Array:
        return np.stack(operands, self.axis)

    def decompose(self, *operands: Value) -> Value:
        axis = normalize_axis(self.name, self.axis, operands[0].rank + 1)
        return concat([unsqueeze(operand, axis) for operand in operands], axis)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        yield Sample(cls(0), (x, x + 1, x * 2))
        yield Sample(cls(-1), (x[::2], x[::-2]), "strided")
        yield Sample(cls(0), (np.float32(1) * np.ones((), np.float32),) * 2, "scalars")
        yield Sample(cls(1), (np.zeros((0, 2), np.float32),) * 2, "empty", False)


@function
def stack(operands: Sequence[Operand], axis: int = 0) -> Value:
    """The operands, all of one shape, along a new axis."""
    require(bool(operands), "stack: no operands", expected="at least one", found="none")
    values = promote_operands(*operands)
    return apply(Stack(normalize_axis("stack", axis, values[0].rank + 1)), *values)


@op("split", family=Family.SHAPE)
class Split(Op):
    """Consecutive parts of a dimension, of the given ``sizes``, as so many results."""

    sizes: Shape
    axis: int

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        axis = normalize_axis(self.name, self.axis, x.rank)
        require(
            bool(self.sizes) and not any(provably_less(size, 0) for size in self.sizes),
            "split: wrong sizes",
            expected="at least one, each 0 or more",
            found=format_shape(self.sizes),
        )
        total: Dim = 0
        for size in self.sizes:
            total = total + size
        require(
            not provably_different(total, x.shape[axis]),
            "split: the parts do not add up to the whole",
            expected=f"{x.shape[axis]} in all",
            found=f"{total}, from {format_shape(self.sizes)}",
        )
        return tuple(
            x.with_shape((*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in self.sizes
        )

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        sizes = data.static_sizes(self.name, self.sizes)
        if sum(sizes) != x.shape[self.axis] or min(sizes) < 0:
            raise EvaluationError(
                "split: the parts do not add up to the whole",
                expected=f"{x.shape[self.axis]} in all",
                found=str(list(sizes)),
            )
        return tuple(np.split(x, np.cumsum(sizes)[:-1], self.axis))

    def vjp(self, node: Node, *grads: Value) -> Gradients:
        return (concat(grads, self.axis),)

    def decompose(self, x: Value) -> tuple[Value, ...]:
        start: Dim = 0
        parts: list[Value] = []
        for size in self.sizes:
            parts.append(slicing.slice(x, [start], [start + size], axes=[self.axis]))
            start = start + size
        return tuple(parts)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(24, dtype=np.float32).reshape(4, 6)
        yield Sample(cls((2, 2), 0), (x,))
        yield Sample(cls((1, 0, 3, 2), -1), (x,), "uneven")
        yield Sample(cls((1, 1), 0), (x[::2],), "strided")
        yield Sample(cls((6,), 1), (x,), "one part")
        yield Sample(cls((1, 2), 1), (np.zeros((0, 3), np.float32),), "empty", False)


@function
def split(x: Operand, sizes: int | Sequence[Dim], axis: int = 0) -> tuple[Value, ...]:
    """Consecutive parts of ``x``: of these sizes, or (an int) so many of one size."""
    value = one_value(x)
    position = normalize_axis("split", axis, value.rank)
    if isinstance(sizes, int):
        require(sizes >= 1, "split: no parts", expected="1 or more", found=sizes)
        parts: Shape = (value.shape[position] // sizes,) * sizes
    else:
        parts = tuple(sizes)
    return apply_many(Split(parts, position), value)


@function
def unstack(x: Operand, axis: int = 0) -> tuple[Value, ...]:
    """The slices of ``x`` along ``axis``, which must have a known size, without that axis."""
    value = one_value(x)
    position = normalize_axis("unstack", axis, value.rank)
    size = value.shape[position]
    if not isinstance(size, int):
        raise TypeRuleError(
            "unstack: the number of results must be known",
            expected=f"an int in dimension {position}",
            found=str(value.type),
        )
    if size == 0:
        return ()
    return tuple(squeeze(part, position) for part in split(value, (1,) * size, position))
