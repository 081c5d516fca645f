"""Non-maximum suppression in memory bounded by the number of boxes.

How many boxes are left is known only at the end, so native code has this choice, with its counts,
and whoever runs it takes as many as there are (``specialize.padded_results``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.ir.build import apply_many
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder, Scalar
from monograph.ir.op import Op, Sample, op
from monograph.ir.types import Array, TensorType, bool_, i64
from monograph.ops.rules import require, same_dim


@op("kept_boxes")
class KeptBoxes(Op):
    """Boxes in the order of their scores, without those that overlap an earlier one too much.

    Operands: the order of the boxes, ``[batch, classes, count]``, and their scores in that order;
    low and high corners, ``[batch, count, 2]``; then, as of ``non_max_suppression``, the greatest
    number, the overlap and the score that limit them. Results: the boxes that are left, followed by
    zeros, and how many they are.
    """

    def infer(
        self,
        order: TensorType,
        scores: TensorType,
        low: TensorType,
        high: TensorType,
        most: TensorType,
        overlap: TensorType,
        least: TensorType,
    ) -> tuple[TensorType, TensorType]:
        require(
            order.dtype is i64 and order.rank == 3 and order.shape == scores.shape,
            "kept_boxes: the order does not fit the scores",
            expected="i64[batch, classes, count] and scores of that shape",
            found=f"{order} and {scores}",
        )
        require(
            low.rank == 3 and low == high and low.dtype is overlap.dtype and low.dtype.is_float,
            "kept_boxes: the corners do not fit",
            expected=f"two float tensors [batch, count, 2] of the overlap's dtype, {overlap}",
            found=f"{low} and {high}",
        )
        require(
            most.dtype is i64
            and scores.dtype is least.dtype
            and most.rank == overlap.rank == least.rank == 0,
            "kept_boxes: the limits are not scalars that fit",
            expected=f"i64[], {low.dtype}[] and {scores.dtype}[]",
            found=f"{most}, {overlap} and {least}",
        )
        same_dim(self.name, "the batches", order.shape[0], low.shape[0])
        same_dim(self.name, "the numbers of boxes", order.shape[2], low.shape[1])
        same_dim(self.name, "the coordinates of a corner", 2, low.shape[2])
        return order, order.with_shape(order.shape[:2])

    def evaluate(
        self,
        order: Array,
        scores: Array,
        low: Array,
        high: Array,
        most: Array,
        overlap: Array,
        least: Array,
    ) -> tuple[Array, Array]:
        kept = np.zeros(order.shape, np.int64)
        counts = np.zeros(order.shape[:2], np.int64)
        for batch, label in np.ndindex(*counts.shape):
            chosen: list[int] = []
            for box, score in zip(order[batch, label], scores[batch, label], strict=True):
                if len(chosen) >= int(most) or not score > least:
                    break
                if not np.any(_overlaps(low[batch], high[batch], int(box), chosen) > overlap):
                    chosen.append(int(box))
            kept[batch, label, : len(chosen)] = chosen
            counts[batch, label] = len(chosen)
        return kept, counts

    def lower_loops(self, b: LoopBuilder) -> None:
        batches, classes, size = b.operands[0].shape
        kept, counts = b.result(0), b.result(1)
        zero, one = b.literal(0, i64), b.literal(1, i64)
        with b.parallel((batches, classes)) as (batch, label):
            count, place = b.variable(zero), b.variable(zero)
            most, least = b.read(4, []), b.read(6, [])

            def goes_on() -> Scalar:
                position = b.clamp(b.index(place.get()), 0, size)
                is_there = b.apply("less", place.get(), b.index(size))
                has_room = b.apply("less", count.get(), most)
                is_good = b.apply("greater", b.read(1, [batch, label, position]), least)
                return b.both(b.both(is_there, has_room), is_good)

            with b.while_(goes_on):
                box = b.checked(b.read(0, [batch, label, b.checked(place.get(), size)]), size)
                hidden, other = b.variable(b.literal(False, bool_)), b.variable(zero)

                def looks_on() -> Scalar:
                    is_left = b.apply("less", other.get(), count.get())
                    return b.both(is_left, b.apply("logical_not", hidden.get()))

                with b.while_(looks_on):
                    before = b.load(kept, [batch, label, b.checked(other.get(), size)])
                    hidden.set(_hides(b, batch, box, b.checked(before, size)))
                    other.set(b.apply("add", other.get(), one))
                with b.when(b.apply("logical_not", hidden.get())):
                    here = b.checked(count.get(), size)
                    b.store(kept, [batch, label, here], b.index(box))
                    count.set(b.apply("add", count.get(), one))
                place.set(b.apply("add", place.get(), one))
            b.store(counts, [batch, label], count.get())
            with b.while_(lambda: b.apply("less", count.get(), b.index(size))):
                b.store(kept, [batch, label, b.checked(count.get(), size)], zero)
                count.set(b.apply("add", count.get(), one))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        random = np.random.default_rng(0)
        low = random.random((2, 9, 2), np.float32)
        high = low + random.random((2, 9, 2), np.float32) / 2
        scores = np.sort(random.random((2, 3, 9), np.float32))[..., ::-1]
        order = random.permuted(np.broadcast_to(np.arange(9), (2, 3, 9)), axis=-1)
        fifth, least = np.array(0.2, np.float32), np.array(0.3, np.float32)
        yield Sample(cls(), (order, scores, low, high, np.array(4), fifth, least))
        yield Sample(cls(), (order, scores, low, high, np.array(0), fifth, least), "none wanted")
        none = (order[..., :0], scores[..., :0], low[:, :0], high[:, :0])
        yield Sample(cls(), (*none, np.array(4), fifth, least), "no boxes")
        halves = (low.astype(np.float64), high.astype(np.float64))
        yield Sample(
            cls(), (order, scores, *halves, np.array(9), fifth.astype(np.float64), least), "f64"
        )


def _overlaps(low: Array, high: Array, box: int, others: list[int]) -> Array:
    """The intersection over union of one box with others."""
    shared = np.minimum(high[box], high[others]) - np.maximum(low[box], low[others])
    common = np.prod(np.maximum(shared, 0), axis=-1)
    areas = np.prod(high - low, axis=-1)
    union = areas[box] + areas[others] - common
    return np.where((common > 0) & (union > 0), common / np.where(union > 0, union, 1), 0)


def _hides(b: LoopBuilder, batch: Scalar, box: Scalar, other: Scalar) -> Scalar:
    """Whether two boxes overlap by more than the limit."""
    dtype = b.read(5, []).dtype
    nothing, one = b.literal(0, dtype), b.literal(1, dtype)
    common = area = area_of_other = one
    for axis in range(2):
        along = b.index(axis)
        low, high = (b.read(k, [batch, box, along]) for k in (2, 3))
        low_of_other, high_of_other = (b.read(k, [batch, other, along]) for k in (2, 3))
        end, start = (
            b.apply("minimum", high, high_of_other),
            b.apply("maximum", low, low_of_other),
        )
        shared = b.apply("maximum", b.apply("subtract", end, start), nothing)
        common = b.apply("multiply", common, shared)
        area = b.apply("multiply", area, b.apply("subtract", high, low))
        span = b.apply("subtract", high_of_other, low_of_other)
        area_of_other = b.apply("multiply", area_of_other, span)
    union = b.apply("subtract", b.apply("add", area, area_of_other), common)
    is_some = b.both(b.apply("greater", common, nothing), b.apply("greater", union, nothing))
    share = b.apply("divide", common, b.select(is_some, union, one))
    return b.both(is_some, b.apply("greater", share, b.read(5, [])))


def suppress_boxes(
    order: Value,
    scores: Value,
    low: Value,
    high: Value,
    most: Value,
    overlap: Value,
    least: Value,
) -> tuple[Value, Value]:
    """The boxes that are left, followed by zeros, and how many; see ``KeptBoxes``."""
    kept, counts = apply_many(KeptBoxes(), order, scores, low, high, most, overlap, least)
    return kept, counts
