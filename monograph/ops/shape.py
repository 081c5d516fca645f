"""Ops that give the same elements another shape or order: reshape, transpose, expand, squeeze…

They compute nothing, nor do their relatives in ``slicing`` (parts and borders) and ``joining``
(several tensors); a target turns most of them into index arithmetic. Shapes in attributes may be
symbolic; the interpreter has put ints in their place before ``evaluate`` runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from monograph.errors import TypeRuleError
from monograph.ir.build import Operand, apply, as_operands, graph_of
from monograph.ir.dims import (
    Dim,
    Shape,
    SymbolicDim,
    provably_different,
    provably_less,
    shape_product,
)
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Family, Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType
from monograph.ops import reduce
from monograph.ops.rules import (
    broadcast_shapes,
    format_shape,
    is_never_negative,
    normalize_axes,
    normalize_axis,
    require,
)


def one_value(x: Operand) -> Value:
    """An operand as a value of the graph being built."""
    return as_operands(graph_of([x]), [x])[0]


def require_shape(name: str, shape: Shape) -> None:
    """Refuse a shape with a dimension that must be negative."""
    require(
        not any(provably_less(dim, 0) for dim in shape),
        f"{name}: a dimension is negative",
        expected="dimensions of 0 or more",
        found=format_shape(shape),
    )


@op("reshape", family=Family.SHAPE, traits=Trait.MOVE)
class Reshape(Op):
    """The same elements, in row-major order, in another shape."""

    shape: Shape

    def infer(self, x: TensorType) -> TensorType:
        require_shape(self.name, self.shape)
        require(
            not provably_different(shape_product(x.shape), shape_product(self.shape)),
            "reshape: the number of elements changes",
            expected=f"a shape of {shape_product(x.shape)} elements",
            found=f"{format_shape(self.shape)} of {shape_product(self.shape)}, from {x}",
        )
        return x.with_shape(self.shape)

    def holds_at_all_sizes(self, x: TensorType) -> bool:
        return shape_product(x.shape) == shape_product(self.shape) and is_never_negative(self.shape)

    def evaluate(self, x: Array) -> Array:
        return x.reshape(self.shape)  # type: ignore[arg-type]  # symbols are bound by now

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return b.reshaped(0, b.results[0].shape, index)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (reshape(grad, node.operands[0].shape),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        yield Sample(cls((2, 6)), (x,))
        yield Sample(cls((1, 1)), (np.full((), 3.0, np.float32),), "from a scalar")
        yield Sample(cls((0, 5)), (np.zeros((5, 0), np.float32),), "empty", False)
        yield Sample(cls((12,)), (x.T,), "strided")


@function
def reshape(x: Operand, shape: Sequence[Dim]) -> Value:
    """The elements of ``x`` in another shape; one dimension may be -1 and is worked out."""
    value = one_value(x)
    target = _fill_minus_one(tuple(shape), value.tensor)
    return value if target == value.shape else apply(Reshape(target), value)


def _fill_minus_one(shape: Shape, type_: TensorType) -> Shape:
    holes = [axis for axis, dim in enumerate(shape) if dim == -1]
    if not holes:
        return shape
    known = shape_product(tuple(dim for dim in shape if dim != -1))
    if len(holes) > 1 or known == 0:
        raise TypeRuleError(
            "reshape: -1 cannot be worked out",
            expected="one -1 beside dimensions that are not 0",
            found=format_shape(shape),
        )
    left = _quotient(type_.shape, [dim for dim in shape if dim != -1])
    return tuple(left if axis == holes[0] else dim for axis, dim in enumerate(shape))


def _quotient(shape: Shape, divisors: Sequence[Dim]) -> Dim:
    """What is left of a shape's size beside these dimensions.

    Dimensions that stand on both sides cancel even if they might be 0: then nothing is left over,
    and any size would do.
    """
    remaining = list(shape)
    divisor: Dim = 1
    for dim in divisors:
        if dim in remaining:
            remaining.remove(dim)
        else:
            divisor = divisor * dim
    return shape_product(remaining) // divisor


@op("expand", family=Family.SHAPE, traits=Trait.MOVE | Trait.KEEPS_AXES)
class Expand(Op):
    """Repeat dimensions of size 1, and add leading ones, up to ``shape``."""

    shape: Shape

    def infer(self, x: TensorType) -> TensorType:
        require_shape(self.name, self.shape)
        stretched = broadcast_shapes(self.name, x.shape, self.shape)
        require(
            len(stretched) == len(self.shape)
            and not any(map(provably_different, stretched, self.shape)),
            "expand: the operand does not fit",
            expected=format_shape(self.shape),
            found=x,
        )
        return x.with_shape(self.shape)

    def holds_at_all_sizes(self, x: TensorType) -> bool:
        target = self.shape[len(self.shape) - x.rank :]
        fits = all(dim in (1, wanted) for dim, wanted in zip(x.shape, target, strict=True))
        return fits and is_never_negative(self.shape)

    def evaluate(self, x: Array) -> Array:
        return np.broadcast_to(x, self.shape)  # type: ignore[arg-type]  # symbols are bound by now

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return b.broadcast(0, index)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (reduce.sum_to(grad, node.operands[0].shape),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls((2, 3, 4)), (np.ones((3, 1), np.float32),))
        yield Sample(cls((3,)), (np.full((), 2.0, np.float32),), "a scalar")
        yield Sample(cls((0, 3)), (np.ones((1, 3), np.float32),), "to nothing", False)


@function
def expand(x: Operand, shape: Sequence[Dim]) -> Value:
    """``x`` broadcast to ``shape``."""
    value = one_value(x)
    return value if tuple(shape) == value.shape else apply(Expand(tuple(shape)), value)


@op("transpose", family=Family.SHAPE, traits=Trait.MOVE)
class Transpose(Op):
    """Reorder dimensions: result dimension ``i`` is operand dimension ``permutation[i]``."""

    permutation: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        require(
            normalize_axes(self.name, self.permutation, x.rank) == tuple(range(x.rank)),
            "transpose: not a permutation",
            expected=f"each of 0 to {x.rank - 1} once",
            found=self.permutation,
        )
        return x.with_shape(tuple(x.shape[axis] for axis in self.permutation))

    def evaluate(self, x: Array) -> Array:
        return np.transpose(x, self.permutation)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        order = [axis % len(index) for axis in self.permutation]
        return b.read(0, [index[order.index(axis)] for axis in range(len(order))])

    def vjp(self, node: Node, grad: Value) -> Gradients:
        order = [axis % grad.rank for axis in self.permutation]
        return (transpose(grad, [order.index(axis) for axis in range(grad.rank)]),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        yield Sample(cls((2, 0, 1)), (x,))
        yield Sample(cls((-1, 0, -2)), (x[:, ::2, ::-1],), "from the end, strided")
        yield Sample(cls((1, 0)), (np.zeros((0, 3), np.float32),), "empty", False)
        yield Sample(cls(()), (np.full((), 1.0, np.float32),), "scalar")


@function
def transpose(x: Operand, permutation: Sequence[int] | None = None) -> Value:
    """Dimensions reordered; reversed if no permutation is given."""
    value = one_value(x)
    given = tuple(reversed(range(value.rank))) if permutation is None else tuple(permutation)
    normal = tuple(axis % value.rank if -value.rank <= axis < 0 else axis for axis in given)
    return value if normal == tuple(range(value.rank)) else apply(Transpose(normal), value)


@op("squeeze", family=Family.SHAPE)
class Squeeze(Op):
    """Drop ``axes``, each of size 1."""

    axes: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        dropped = normalize_axes(self.name, self.axes, x.rank)
        for axis in dropped:
            require(
                not provably_different(x.shape[axis], 1),
                f"squeeze: dimension {axis} is not 1",
                expected="dimensions of size 1",
                found=x,
            )
        return x.with_shape(tuple(x.shape[axis] for axis in range(x.rank) if axis not in dropped))

    def holds_at_all_sizes(self, x: TensorType) -> bool:
        return all(x.shape[axis] == 1 for axis in self.axes)

    def evaluate(self, x: Array) -> Array:
        return np.squeeze(x, self.axes)

    def decompose(self, x: Value) -> Value:
        return reshape(x, self.infer(x.tensor).shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(6, dtype=np.float32).reshape(1, 3, 1, 2)
        yield Sample(cls((0, 2)), (x,))
        yield Sample(cls((-2,)), (x[:, ::2],), "strided, from the end")
        yield Sample(cls((0,)), (np.ones((1,), np.float32),), "to a scalar")
        yield Sample(cls((1,)), (np.zeros((0, 1), np.float32),), "empty", False)


@function
def squeeze(x: Operand, axis: int | Sequence[int] | None = None) -> Value:
    """Without the axes of size 1: those named, or all that are known to be 1."""
    value = one_value(x)
    if axis is None:
        axes = tuple(position for position, dim in enumerate(value.shape) if dim == 1)
    else:
        axes = normalize_axes("squeeze", (axis,) if isinstance(axis, int) else axis, value.rank)
    return apply(Squeeze(axes), value) if axes else value


@op("unsqueeze", family=Family.SHAPE)
class Unsqueeze(Op):
    """Insert dimensions of size 1; ``axes`` are their positions in the result."""

    axes: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        rank = x.rank + len(self.axes)
        added = normalize_axes(self.name, self.axes, rank)
        kept = iter(x.shape)
        return x.with_shape(tuple(1 if axis in added else next(kept) for axis in range(rank)))

    def holds_at_all_sizes(self, x: TensorType) -> bool:
        return True

    def evaluate(self, x: Array) -> Array:
        return np.expand_dims(x, self.axes)

    def decompose(self, x: Value) -> Value:
        return reshape(x, self.infer(x.tensor).shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        yield Sample(cls((1,)), (x,))
        yield Sample(cls((0, -1)), (x.T,), "both ends, strided")
        yield Sample(cls((0,)), (np.full((), 2.0, np.float32),), "a scalar")
        yield Sample(cls((2,)), (np.zeros((0, 3), np.float32),), "empty", False)


@function
def unsqueeze(x: Operand, axis: int | Sequence[int]) -> Value:
    """With new axes of size 1 at these positions of the result."""
    value = one_value(x)
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    axes = normalize_axes("unsqueeze", given, value.rank + len(given))
    return apply(Unsqueeze(axes), value) if axes else value


@op("tile", family=Family.SHAPE)
class Tile(Op):
    """The whole tensor repeated ``repeats[i]`` times along each dimension ``i``."""

    repeats: Shape

    def infer(self, x: TensorType) -> TensorType:
        require(
            len(self.repeats) == x.rank,
            "tile: one count is needed for each dimension",
            expected=f"{x.rank} counts",
            found=format_shape(self.repeats),
        )
        require(
            not any(provably_less(count, 0) for count in self.repeats),
            "tile: a count is negative",
            expected="counts of 0 or more",
            found=format_shape(self.repeats),
        )
        pairs = zip(x.shape, self.repeats, strict=True)
        return x.with_shape(tuple(dim * count for dim, count in pairs))

    def evaluate(self, x: Array) -> Array:
        return np.tile(x, self.repeats)  # type: ignore[arg-type]  # symbols are bound by now

    def decompose(self, x: Value) -> Value:
        """A dimension of 1 before each dimension, stretched, then merged with it."""
        pairs = list(zip(x.shape, self.repeats, strict=True))
        split: list[Dim] = [size for dim, _ in pairs for size in (1, dim)]
        stretched: list[Dim] = [size for dim, count in pairs for size in (count, dim)]
        return reshape(expand(reshape(x, split), stretched), self.infer(x.tensor).shape)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        places = zip(index, b.operands[0].shape, self.repeats, strict=True)
        return b.read(
            0,
            [
                position if count == 1 or dim == 0 else position % dim
                for position, dim, count in places
            ],
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        yield Sample(cls((2, 3)), (x,))
        yield Sample(cls((1, 2)), (x.T,), "strided")
        yield Sample(cls(()), (np.full((), 2.0, np.float32),), "scalar")
        yield Sample(cls((0, 2)), (x,), "to nothing", False)
        yield Sample(cls((3, 2)), (np.zeros((0, 3), np.float32),), "empty", False)


@function
def tile(x: Operand, repeats: Dim | Sequence[Dim]) -> Value:
    """``x`` repeated along each dimension; the shorter of shape and counts is filled with 1."""
    value = one_value(x)
    counts = (repeats,) if isinstance(repeats, int | SymbolicDim) else tuple(repeats)
    rank = max(value.rank, len(counts))
    aligned = unsqueeze(value, range(rank - value.rank))
    return apply(Tile((1,) * (rank - len(counts)) + counts), aligned)


@function
def flatten(x: Operand, start_axis: int = 0, end_axis: int = -1) -> Value:
    """The axes from ``start_axis`` to ``end_axis``, both included, merged into one."""
    value = one_value(x)
    if value.rank == 0:
        return reshape(value, (1,))
    start = normalize_axis("flatten", start_axis, value.rank)
    end = normalize_axis("flatten", end_axis, value.rank)
    require(
        start <= end,
        "flatten: the axes are out of order",
        expected="start_axis no greater than end_axis",
        found=f"{start_axis} and {end_axis}",
    )
    merged = shape_product(value.shape[start : end + 1])
    return reshape(value, (*value.shape[:start], merged, *value.shape[end + 1 :]))


@function
def swapaxes(x: Operand, a: int, b: int) -> Value:
    """``x`` with two axes exchanged."""
    value = one_value(x)
    order = list(range(value.rank))
    first = normalize_axis("swapaxes", a, value.rank)
    second = normalize_axis("swapaxes", b, value.rank)
    order[first], order[second] = second, first
    return transpose(value, order)


@function
def moveaxis(x: Operand, source: int | Sequence[int], destination: int | Sequence[int]) -> Value:
    """``x`` with axes moved to other positions; the others keep their order."""
    value = one_value(x)
    sources = (source,) if isinstance(source, int) else tuple(source)
    targets = (destination,) if isinstance(destination, int) else tuple(destination)
    require(
        len(sources) == len(targets),
        "moveaxis: sources and destinations do not pair up",
        expected=f"{len(sources)} destinations",
        found=len(targets),
    )
    moved = normalize_axes("moveaxis", sources, value.rank)
    normalize_axes("moveaxis", targets, value.rank)
    order = [axis for axis in range(value.rank) if axis not in moved]
    places = {t % value.rank: s % value.rank for s, t in zip(sources, targets, strict=True)}
    for target in sorted(places):
        order.insert(target, places[target])
    return transpose(value, order)


@function
def broadcast_to(x: Operand, shape: Sequence[Dim]) -> Value:
    """``x`` broadcast to ``shape``: NumPy's name for ``expand``."""
    return expand(x, shape)
