"""Contractions: products of tensors summed over the dimensions that they share.

``dot_general`` is the primitive, the one contraction that targets know; ``matmul`` and ``linear``
become it, and so does ``einsum`` (a file of its own), operand by operand. Narrow floats are
multiplied and summed in f32 and rounded once; integers wrap around in their own dtype. A sum over
nothing is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import Operand, Tracer, apply, promote_operands
from monograph.ir.dims import Dim, Shape
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, TensorType, bool_, string
from monograph.ops import reduce
from monograph.ops.elementwise import conj
from monograph.ops.rules import (
    always_broadcasts,
    broadcast_shapes,
    normalize_axes,
    normalize_axis,
    require,
    same_dim,
    same_dtype,
)
from monograph.ops.shape import expand, reshape, squeeze, swapaxes, transpose, unsqueeze


def number_dtype(name: str, *types: TensorType) -> DType:
    """The one dtype of operands that are to be multiplied and added."""
    dtype = same_dtype(name, *types)
    require(
        dtype is not string,
        f"{name}: numbers are needed",
        expected="a number dtype",
        found=", ".join(map(str, types)),
    )
    return dtype


def apply_promoted(op_: Op, *operands: Operand) -> Value:
    """Apply an op to operands brought to one dtype; those of a pattern are taken as they are."""
    if any(isinstance(operand, Tracer) for operand in operands):
        return apply(op_, *operands)
    return apply(op_, *promote_operands(*operands))


@op("dot_general", traits=Trait.CONTRACTION)
class DotGeneral(Op):
    """Sum the products over pairs of contracting axes, for each index of the pairs of batch axes.

    The result has the batch axes, then what is left of ``lhs``, then what is left of ``rhs``:
    XLA's op of the same name.
    """

    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        dtype = number_dtype(self.name, lhs, rhs)
        self._check_axes("lhs", self.lhs_contracting, self.lhs_batch, lhs)
        self._check_axes("rhs", self.rhs_contracting, self.rhs_batch, rhs)
        self._pair("contracting", self.lhs_contracting, self.rhs_contracting, lhs, rhs)
        batch = self._pair("batch", self.lhs_batch, self.rhs_batch, lhs, rhs)
        lhs_free, rhs_free = self.free_axes(lhs.rank, rhs.rank)
        left = tuple(lhs.shape[axis] for axis in lhs_free)
        right = tuple(rhs.shape[axis] for axis in rhs_free)
        return TensorType(dtype, (*batch, *left, *right), device=lhs.device)

    def _check_axes(
        self, side: str, contracting: Sequence[int], batch: Sequence[int], type_: TensorType
    ) -> None:
        normalize_axes(f"dot_general: {side}", (*contracting, *batch), type_.rank)

    def _pair(
        self, kind: str, left: Sequence[int], right: Sequence[int], lhs: TensorType, rhs: TensorType
    ) -> Shape:
        require(
            len(left) == len(right),
            f"dot_general: {kind} axes do not pair up",
            expected=f"{len(left)} for rhs",
            found=len(right),
        )
        return tuple(
            same_dim(self.name, f"the {kind} dimensions", lhs.shape[a], rhs.shape[b])
            for a, b in zip(left, right, strict=True)
        )

    def free_axes(self, lhs_rank: int, rhs_rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The axes of each operand that are neither contracted nor batch, in order."""
        return (
            _others(lhs_rank, self.lhs_contracting, self.lhs_batch),
            _others(rhs_rank, self.rhs_contracting, self.rhs_batch),
        )

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        """One batched matrix product: [batch, left, inner] @ [batch, inner, right]."""
        lhs_free, rhs_free = self.free_axes(lhs.ndim, rhs.ndim)
        left = np.transpose(lhs, (*self.lhs_batch, *lhs_free, *self.lhs_contracting))
        right = np.transpose(rhs, (*self.rhs_batch, *self.rhs_contracting, *rhs_free))
        batch = left.shape[: len(self.lhs_batch)]
        left_shape = left.shape[len(batch) : len(batch) + len(lhs_free)]
        right_shape = right.shape[right.ndim - len(rhs_free) :]
        inner = left.shape[len(batch) + len(lhs_free) :]
        paired = right.shape[: len(batch) + len(inner)]
        if paired != (*batch, *inner):
            raise EvaluationError(
                "dot_general: the paired dimensions differ",
                expected=str([*batch, *inner]),
                found=str(list(paired)),
            )
        sizes = [int(np.prod(part, dtype=np.int64)) for part in (left_shape, inner, right_shape)]
        rows = left.reshape((*batch, sizes[0], sizes[1]))
        columns = right.reshape((*batch, sizes[1], sizes[2]))
        return np.asarray(np.matmul(rows, columns)).reshape((*batch, *left_shape, *right_shape))

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """Truth values are multiplied and added as numpy.matmul does: by and, by or."""
        lhs, rhs = b.operands
        lhs_free, rhs_free = self.free_axes(lhs.rank, rhs.rank)
        batch, rest = index[: len(self.lhs_batch)], index[len(self.lhs_batch) :]
        left, right = rest[: len(lhs_free)], rest[len(lhs_free) :]
        multiply, add = ("logical_and", "any") if lhs.dtype is bool_ else ("multiply", "sum")

        def product(along: Position) -> Scalar:
            of_lhs = (*self.lhs_batch, *lhs_free, *self.lhs_contracting)
            of_rhs = (*self.rhs_batch, *rhs_free, *self.rhs_contracting)
            return b.apply(
                multiply,
                b.read(0, _place_axes(of_lhs, (*batch, *left, *along))),
                b.read(1, _place_axes(of_rhs, (*batch, *right, *along))),
            )

        if not self.lhs_contracting:
            return product(())
        return b.reduce(add, tuple(lhs.shape[axis] for axis in self.lhs_contracting), product)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        """Each operand's gradient contracts the other operand with the result's gradient."""
        lhs, rhs = node.operands
        batch = tuple(range(len(self.lhs_batch)))
        lhs_free, rhs_free = self.free_axes(lhs.rank, rhs.rank)
        of_left = tuple(range(len(batch), len(batch) + len(lhs_free)))
        of_right = tuple(range(len(batch) + len(lhs_free), grad.rank))
        to_lhs = DotGeneral(of_right, rhs_free, batch, self.rhs_batch)
        to_rhs = DotGeneral(of_left, lhs_free, batch, self.lhs_batch)
        # The results hold batch, free, then contracting axes, these in the other operand's order.
        lhs_last = _in_order(self.rhs_contracting, self.lhs_contracting, rhs.rank)
        rhs_last = _in_order(self.lhs_contracting, self.rhs_contracting, lhs.rank)
        return (
            _unpermute(apply(to_lhs, grad, conj(rhs)), (*self.lhs_batch, *lhs_free, *lhs_last)),
            _unpermute(apply(to_rhs, grad, conj(lhs)), (*self.rhs_batch, *rhs_free, *rhs_last)),
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)

        def floats(*shape: int) -> Array:
            return generator.normal(size=shape).astype(np.float32)

        yield Sample(cls((1,), (0,)), (floats(3, 4), floats(4, 5)))
        yield Sample(cls((2,), (1,), (0,), (0,)), (floats(2, 3, 4), floats(2, 4, 5)), "batch")
        yield Sample(
            cls((3, 0), (1, 2), (1,), (-1,)), (floats(4, 2, 3, 5), floats(6, 5, 4, 2)), "any order"
        )
        yield Sample(cls((0,), (0,)), (floats(4), floats(4)), "vectors")
        yield Sample(cls((), ()), (floats(2), floats(3)), "outer")
        yield Sample(cls((), ()), (floats(), floats(3)), "scalar")
        yield Sample(cls((0,), (1,)), (floats(4, 6)[:, ::2], floats(8, 5).T[:, ::2]), "strided")
        yield Sample(cls((1,), (0,)), (floats(3, 0), floats(0, 2)), "nothing to sum", False)
        yield Sample(cls((1,), (0,)), (floats(0, 3), floats(3, 2)), "empty", False)
        integers = np.array([[2**30, 3], [-5, 7]], np.int32)
        yield Sample(cls((1,), (0,)), (integers, integers), "i32 wraps")


def _others(rank: int, *groups: Sequence[int]) -> tuple[int, ...]:
    """The axes in none of the groups."""
    named = {axis % rank for group in groups for axis in group}
    return tuple(axis for axis in range(rank) if axis not in named)


def _place_axes(axes: Sequence[int], positions: Position) -> list[Scalar]:
    """Positions along these axes, in the order of the axes."""
    at = {axis % len(axes): place for axis, place in zip(axes, positions, strict=True)}
    return [at[axis] for axis in range(len(axes))]


def _in_order(partners: Sequence[int], axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """``axes`` in the order in which their partners stand in an operand of ``rank``."""
    pairs = zip((partner % rank for partner in partners), axes, strict=True)
    return tuple(axis for _, axis in sorted(pairs))


def _unpermute(x: Value, order: Sequence[int]) -> Value:
    """Put axis ``i`` of ``x`` at position ``order[i]``."""
    places = [axis % x.rank for axis in order]
    inverse = [places.index(axis) for axis in range(x.rank)]
    return x if inverse == sorted(inverse) else transpose(x, inverse)


@function
def dot_general(
    lhs: Operand,
    rhs: Operand,
    lhs_contracting: Sequence[int],
    rhs_contracting: Sequence[int],
    lhs_batch: Sequence[int] = (),
    rhs_batch: Sequence[int] = (),
) -> Value:
    """The products of ``lhs`` and ``rhs`` summed over contracting axes, batch by batch."""
    left, right = promote_operands(lhs, rhs)

    def normal(axes: Sequence[int], value: Value) -> tuple[int, ...]:
        return tuple(normalize_axis("dot_general", axis, value.rank) for axis in axes)

    contraction = DotGeneral(
        normal(lhs_contracting, left),
        normal(rhs_contracting, right),
        normal(lhs_batch, left),
        normal(rhs_batch, right),
    )
    return apply(contraction, left, right)


@op("matmul")
class Matmul(Op):
    """The matrix product of the last two axes; leading axes broadcast.

    A vector on the left is a row, on the right a column, and its axis is gone from the result.
    """

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        dtype = number_dtype(self.name, a, b)
        require(
            a.rank > 0 and b.rank > 0,
            "matmul: a scalar operand",
            expected="vectors, matrices or batches of them",
            found=f"{a} and {b}",
        )
        same_dim(self.name, "the inner dimensions", a.shape[-1], b.shape[max(b.rank - 2, 0)])
        batch = broadcast_shapes(self.name, a.shape[:-2], b.shape[:-2])
        rows = a.shape[-2:-1]
        columns = b.shape[-1:] if b.rank > 1 else ()
        return TensorType(dtype, (*batch, *rows, *columns), device=a.device)

    def holds_at_all_sizes(self, a: TensorType, b: TensorType) -> bool:
        meets = a.shape[-1] == b.shape[max(b.rank - 2, 0)]
        return meets and always_broadcasts(a.shape[:-2], b.shape[:-2])

    def evaluate(self, a: Array, b: Array) -> Array:
        return np.asarray(np.matmul(a, b))

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        left = unsqueeze(a, 0) if a.rank == 1 else a
        right = unsqueeze(b, 1) if b.rank == 1 else b
        full = grad
        if b.rank == 1:
            full = unsqueeze(full, -1)
        if a.rank == 1:
            full = unsqueeze(full, -2)
        to_left = apply(self, full, swapaxes(conj(right), -1, -2))
        to_right = apply(self, swapaxes(conj(left), -1, -2), full)
        return (
            reshape(reduce.sum_to(to_left, left.shape), a.shape),
            reshape(reduce.sum_to(to_right, right.shape), b.shape),
        )

    def decompose(self, a: Value, b: Value) -> Value:
        """Axes that only one operand has are free; those that both have are batch axes."""
        batch = broadcast_shapes(self.name, a.shape[:-2], b.shape[:-2])
        inner, row, column = len(batch), len(batch) + 1, len(batch) + 2
        rows = [row] if a.rank > 1 else []
        columns = [column] if b.rank > 1 else []
        left = [*_align_batch(a, batch), *rows, inner]
        right = [*_align_batch(b, batch), inner, *columns]
        result = [*range(len(batch)), *rows, *columns]
        return contract((a, left), (b, right), result, dict(enumerate(batch)))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)

        def floats(*shape: int) -> Array:
            return generator.normal(size=shape).astype(np.float32)

        yield Sample(cls(), (floats(3, 4), floats(4, 5)))
        yield Sample(cls(), (floats(4), floats(4)), "vectors")
        yield Sample(cls(), (floats(4), floats(2, 4, 3)), "row")
        yield Sample(cls(), (floats(2, 3, 4), floats(4)), "column")
        yield Sample(cls(), (floats(2, 3, 4), floats(2, 4, 5)), "batch")
        yield Sample(cls(), (floats(2, 3, 4), floats(4, 5)), "batch on the left")
        yield Sample(cls(), (floats(3, 4), floats(2, 6, 4, 5)), "batches on the right")
        yield Sample(cls(), (floats(2, 1, 3, 4), floats(6, 4, 1)), "broadcast both")
        yield Sample(cls(), (floats(1, 3, 4), floats(1, 4, 2)), "batch of one")
        yield Sample(cls(), (floats(4, 6).T, floats(8, 10)[::2, ::-3]), "strided")
        yield Sample(cls(), (floats(3, 0), floats(0, 2)), "nothing to sum", False)
        yield Sample(cls(), (floats(0, 3), floats(3, 2)), "empty", False)
        special = np.array([[np.nan, 1.0], [np.inf, 0.0]], np.float32)
        yield Sample(cls(), (special, np.eye(2, dtype=np.float32)), "special", False)
        integers = np.array([[2**30, 3], [-5, 7]], np.int32)
        yield Sample(cls(), (integers, integers), "i32 wraps")


def _align_batch(x: Value, batch: Shape) -> list[int]:
    """Labels of an operand's leading axes: their places in the broadcast batch shape."""
    count = max(x.rank - 2, 0)
    return list(range(len(batch) - count, len(batch)))


def contract(
    a: tuple[Value, Sequence[int]],
    b: tuple[Value, Sequence[int]],
    result: Sequence[int],
    sizes: Mapping[int, Dim],
) -> Value:
    """The sum of products of two values whose axes carry labels, as ``dot_general``.

    Labels of ``result`` are kept, in its order; all others are summed over. A label in ``sizes``
    broadcasts: an axis of 1 stretches to that size.
    """
    left, left_labels = _without_ones(*a, other=b)
    right, right_labels = _without_ones(*b, other=a)
    shared = [label for label in left_labels if label in right_labels]
    left = _broadcast_shared(left, left_labels, shared, sizes)
    right = _broadcast_shared(right, right_labels, shared, sizes)
    batch = [label for label in shared if label in result]
    summed = [label for label in shared if label not in result]
    left, left_labels = _sum_unlabelled(left, left_labels, [*shared, *result])
    right, right_labels = _sum_unlabelled(right, right_labels, [*shared, *result])
    contraction = DotGeneral(
        tuple(left_labels.index(label) for label in summed),
        tuple(right_labels.index(label) for label in summed),
        tuple(left_labels.index(label) for label in batch),
        tuple(right_labels.index(label) for label in batch),
    )
    free = [label for label in (*left_labels, *right_labels) if label not in shared]
    produced = [*batch, *free]
    order = [produced.index(label) for label in result]
    product = apply(contraction, left, right)
    return product if order == sorted(order) else transpose(product, order)


def _without_ones(
    value: Value, labels: Sequence[int], other: tuple[Value, Sequence[int]]
) -> tuple[Value, list[int]]:
    """Drop the axes of size 1 that the other operand has in a size of its own."""
    partner, partner_labels = other
    sizes = dict(zip(partner_labels, partner.shape, strict=True))
    dropped = [
        axis
        for axis, label in enumerate(labels)
        if value.shape[axis] == 1 and sizes.get(label, 1) != 1
    ]
    kept = [label for axis, label in enumerate(labels) if axis not in dropped]
    return squeeze(value, dropped) if dropped else value, kept


def _broadcast_shared(
    value: Value, labels: Sequence[int], shared: Sequence[int], sizes: Mapping[int, Dim]
) -> Value:
    """Give shared axes the size that they have in the product."""
    shape = [
        sizes.get(label, dim) if label in shared else dim
        for label, dim in zip(labels, value.shape, strict=True)
    ]
    return expand(value, shape)


def _sum_unlabelled(
    value: Value, labels: list[int], kept: Sequence[int]
) -> tuple[Value, list[int]]:
    """Sum over the axes whose labels nobody needs."""
    axes = [axis for axis, label in enumerate(labels) if label not in kept]
    remaining = [label for label in labels if label in kept]
    return (reduce.sum(value, axes) if axes else value), remaining


@function
def matmul(a: Operand, b: Operand) -> Value:
    """The matrix product ``a @ b``, with NumPy's rules for vectors and batches."""
    return apply_promoted(Matmul(), a, b)


@op("linear")
class Linear(Op):
    """``x @ weight.T + bias`` for a weight of [outputs, inputs]: a layer of a network."""

    def infer(
        self, x: TensorType, weight: TensorType, bias: TensorType | None = None
    ) -> TensorType:
        operands = (x, weight) if bias is None else (x, weight, bias)
        dtype = number_dtype(self.name, *operands)
        require(
            x.rank >= 1 and weight.rank == 2,
            "linear: wrong ranks",
            expected="x of [..., inputs] and weight of [outputs, inputs]",
            found=f"{x} and {weight}",
        )
        same_dim(self.name, "the inner dimensions", x.shape[-1], weight.shape[1])
        outputs = weight.shape[0]
        if bias is not None:
            require(
                bias.rank == 1,
                "linear: wrong rank of bias",
                expected=f"[{outputs}]",
                found=bias,
            )
            outputs = same_dim(self.name, "sizes of weight and bias", outputs, bias.shape[0])
        return TensorType(dtype, (*x.shape[:-1], outputs), device=x.device)

    def holds_at_all_sizes(
        self, x: TensorType, weight: TensorType, bias: TensorType | None = None
    ) -> bool:
        added = () if bias is None else bias.shape
        return x.shape[-1] == weight.shape[1] and all(dim == weight.shape[0] for dim in added)

    def evaluate(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        product = np.matmul(x, weight.T)
        return np.asarray(product if bias is None else product + bias)

    def decompose(self, x: Value, weight: Value, bias: Value | None = None) -> Value:
        product = apply(DotGeneral((x.rank - 1,), (1,)), x, weight)
        return product if bias is None else product + bias

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)

        def floats(*shape: int) -> Array:
            return generator.normal(size=shape).astype(np.float32)

        yield Sample(cls(), (floats(3, 4), floats(5, 4), floats(5)))
        yield Sample(cls(), (floats(2, 3, 4), floats(5, 4)), "no bias")
        yield Sample(cls(), (floats(4), floats(5, 4), floats(5)), "vector")
        yield Sample(cls(), (floats(4, 3).T, floats(4, 10).T[::2], floats(5)), "strided")
        yield Sample(cls(), (floats(0, 4), floats(5, 4), floats(5)), "empty", False)
        yield Sample(cls(), (floats(2, 0), floats(3, 0), floats(3)), "no inputs", False)


@function
def linear(x: Operand, weight: Operand, bias: Operand | None = None) -> Value:
    """``x @ weight.T + bias``, for a weight of [outputs, inputs]."""
    operands = (x, weight) if bias is None else (x, weight, bias)
    return apply_promoted(Linear(), *operands)


@function
def outer(a: Operand, b: Operand) -> Value:
    """Every element of ``a`` times every element of ``b``, both flattened: a matrix."""
    left, right = promote_operands(a, b)
    return apply(DotGeneral((), ()), reshape(left, (-1,)), reshape(right, (-1,)))


@function
def inner(a: Operand, b: Operand) -> Value:
    """The products along the last axes, summed."""
    left, right = promote_operands(a, b)
    if left.rank == 0 or right.rank == 0:
        return left * right
    return dot_general(left, right, (-1,), (-1,))


@function
def tensordot(a: Operand, b: Operand, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Value:
    """The products summed over pairs of axes; an int: so many, last of ``a`` and first of ``b``."""
    left, right = promote_operands(a, b)
    if isinstance(axes, int):
        require(
            0 <= axes <= min(left.rank, right.rank),
            "tensordot: wrong number of axes",
            expected=f"0 to {min(left.rank, right.rank)}",
            found=axes,
        )
        return dot_general(left, right, range(left.rank - axes, left.rank), range(axes))
    return dot_general(left, right, *axes)
