"""Regions of images: pooling them to one size, and dropping those that overlap.

Both ops have the semantics of ONNX's. How finely a region is sampled, and how many regions remain,
may depend on the data, so they are evaluated region by region and have no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import EvaluationError
from monograph.ir.build import Operand, apply, as_operands, graph_of
from monograph.ir.dims import Dim, Symbol, provably_less
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder, Scalar
from monograph.ir.op import Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, f64, i64, u64
from monograph.ops.index.lookup import new_symbol_name
from monograph.ops.rules import require, require_integer, result_symbols, same_dim, same_dtype

Pooling: TypeAlias = Literal["avg", "max"]


@op("roi_align")
class RoiAlign(Op):
    """Regions of an image, each pooled to ``sizes`` from bilinear samples.

    Operands: x of [batch, channels, height, width], regions of [count, 4] as (x1, y1, x2, y2) times
    ``spatial_scale``, and the image that each lies in. A bin averages (or takes the ``max`` of) a
    grid of ``sampling`` × ``sampling`` samples; with 0, about one sample an element. With
    ``half_pixel`` coordinates name the corners of elements, without it their middles, and a region
    is then at least one element large.
    """

    sizes: tuple[int, ...]
    sampling: int = 0
    spatial_scale: float = 1.0
    mode: Pooling = "avg"
    half_pixel: bool = True

    def infer(self, x: TensorType, regions: TensorType, batch_indices: TensorType) -> TensorType:
        same_dtype(self.name, x, regions)
        require_integer(self.name, batch_indices)
        require(
            x.dtype.is_float and x.rank == 4 and regions.rank == 2 and batch_indices.rank == 1,
            "roi_align: the operands do not fit",
            expected="[batch, channels, height, width] and [count, 4] floats, [count] integers",
            found=f"{x}, {regions} and {batch_indices}",
        )
        require(
            self.mode in get_args(Pooling) and self.sampling >= 0,
            "roi_align: an attribute is wrong",
            expected="mode avg or max, and sampling of at least 0",
            found=f"{self.mode}, {self.sampling}",
        )
        require(
            len(self.sizes) == 2 and min(self.sizes) > 0,
            "roi_align: wrong sizes",
            expected="two positive sizes",
            found=self.sizes,
        )
        same_dim(self.name, "the coordinates of a region", 4, regions.shape[1])
        count = same_dim(self.name, "the regions", regions.shape[0], batch_indices.shape[0])
        return x.with_shape((count, x.shape[1], *self.sizes))

    def evaluate(self, x: Array, regions: Array, batch_indices: Array) -> Array:
        result = np.zeros((len(regions), x.shape[1], *self.sizes), np.float64)
        for number, (region, image) in enumerate(zip(regions, batch_indices, strict=True)):
            if not 0 <= image < len(x):
                raise EvaluationError(
                    "roi_align: a region lies in an image that is not there",
                    expected=f"0 to {len(x) - 1}",
                    found=str(image),
                )
            result[number] = self._pool_region(
                x[image].astype(np.float64), region.astype(np.float64)
            )
        return result

    def _pool_region(self, image: Array, region: Array) -> Array:
        """[channels, *sizes]: the samples of one region, pooled."""
        corners = region * self.spatial_scale - (0.5 if self.half_pixel else 0.0)
        rows = self._axis(corners[1], corners[3], self.sizes[0], image.shape[1])
        columns = self._axis(corners[0], corners[2], self.sizes[1], image.shape[2])
        parts = []
        for row, row_weight in rows:
            for column, column_weight in columns:
                taken = image[:, row[:, :, None, None], column]
                parts.append(taken * (row_weight[:, :, None, None] * column_weight))
        # Each part is [channels, bins, samples, bins, samples].
        if not parts[0].shape[2] * parts[0].shape[4]:
            return np.zeros((len(image), *self.sizes))
        if self.mode == "avg":
            return np.asarray(np.sum(parts, axis=0).mean(axis=(2, 4)))
        return np.asarray(np.max(parts, axis=(0, 3, 5)))

    def _axis(self, start: float, end: float, bins: int, size: int) -> list[tuple[Array, Array]]:
        """The two elements, and their weights, of each sample [bins, samples] along one axis."""
        length = end - start if self.half_pixel else max(end - start, 1.0)
        count = self.sampling or max(math.ceil(length / bins), 0)
        offsets = np.arange(bins)[:, None] + (np.arange(count) + 0.5) / max(count, 1)
        position = start + offsets * (length / bins)
        outside = (position < -1.0) | (position > size)
        held = np.clip(position, 0.0, size - 1)
        low = np.minimum(held.astype(np.int64), size - 1)
        high = np.minimum(low + 1, size - 1)
        beyond = held - low
        return [
            (low, np.where(outside, 0.0, 1.0 - beyond)),
            (high, np.where(outside, 0.0, beyond)),
        ]

    def lower_loops(self, b: LoopBuilder) -> None:
        """Each bin by itself, in f64; how many samples it has depends on its region."""
        x, (result,) = b.operands[0], b.results
        with b.parallel(result.shape) as (number, channel, *bins):
            image = b.checked(b.cast(b.read(2, [number]), u64), x.shape[0])
            rows = _Grid.of(b, self, number, bins[0], 0)
            columns = _Grid.of(b, self, number, bins[1], 1)
            pooled = b.variable(b.literal(0.0 if self.mode == "avg" else -math.inf, f64))
            with b.loop(rows.count) as row, b.loop(columns.count) as column:
                for i, up in rows.taps(b, row, x.shape[2]):
                    for j, across in columns.taps(b, column, x.shape[3]):
                        element = b.cast(b.read(0, [image, channel, i, j]), f64)
                        part = b.apply("multiply", element, b.apply("multiply", up, across))
                        combine = "add" if self.mode == "avg" else "maximum"
                        pooled.set(b.apply(combine, pooled.get(), part))
            samples = rows.count * columns.count
            value = pooled.get()
            if self.mode == "avg":
                value = b.apply("divide", value, b.cast(samples, f64))
            some = b.apply("greater", samples, b.index(0))
            value = b.select(some, value, b.literal(0.0, f64))
            b.store(b.result(), [number, channel, *bins], value)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        x = generator.normal(size=(2, 3, 8, 6)).astype(np.float32)
        regions = np.array([[0, 0, 4, 4], [1.5, 2, 9, 7], [3, 3, 3, 3], [-5, -5, -3, -3]])
        regions = regions.astype(np.float32)
        images = np.array([0, 1, 1, 0])
        for mode in get_args(Pooling):
            for half_pixel in (False, True):
                made = cls((2, 3), 2, 0.75, mode, half_pixel)
                yield Sample(made, (x, regions, images), f"{mode} half pixel {half_pixel}", False)
                adaptive = cls((2, 2), 0, 1.0, mode, half_pixel)
                yield Sample(adaptive, (x[..., ::-1], regions[:3], images[:3]), "strided", False)
        yield Sample(cls((2, 2)), (x, regions[:0], images[:0]), "no regions", False)


@dataclass(frozen=True)
class _Grid:
    """The samples of one bin along one axis: the bin, its size, and where the region begins."""

    place: Scalar
    size: Scalar
    start: Scalar
    count: Scalar

    @classmethod
    def of(cls, b: LoopBuilder, op: RoiAlign, number: Scalar, place: Scalar, axis: int) -> _Grid:
        """The grid of a region's bin."""
        half = b.literal(0.5 if op.half_pixel else 0.0, f64)
        scale = b.literal(op.spatial_scale, f64)
        low, high = (
            b.apply("subtract", b.apply("multiply", _coordinate(b, number, k), scale), half)
            for k in (1 - axis, 3 - axis)
        )
        length = b.apply("subtract", high, low)
        if not op.half_pixel:
            length = b.apply("maximum", length, b.literal(1.0, f64))
        size = b.apply("divide", length, b.literal(op.sizes[axis], f64))
        count = b.index(op.sampling)
        if not op.sampling:
            count = b.apply("maximum", b.cast(b.apply("ceil", size), i64), b.index(0))
        return cls(place, size, low, count)

    def taps(self, b: LoopBuilder, sample: Scalar, size: Dim) -> list[tuple[Scalar, Scalar]]:
        """The two elements that a sample lies between, and their weights."""
        middle = b.apply("add", b.cast(sample, f64), b.literal(0.5, f64))
        inside = b.apply("divide", middle, b.cast(self.count, f64))
        offset = b.apply("add", b.cast(self.place, f64), inside)
        position = b.apply("add", self.start, b.apply("multiply", offset, self.size))
        zero, one, end = b.literal(0.0, f64), b.literal(1.0, f64), b.cast(b.index(size), f64)
        before = b.apply("less", position, b.literal(-1.0, f64))
        outside = b.apply("logical_or", before, b.apply("greater", position, end))
        last = b.apply("subtract", end, one)
        held = b.apply("minimum", b.apply("maximum", position, zero), last)
        low = b.checked(b.cast(held, i64), size)
        beyond = b.apply("subtract", held, b.cast(low, f64))
        near = b.select(outside, zero, b.apply("subtract", one, beyond))
        return [(low, near), (b.clamp(low + 1, 0, size), b.select(outside, zero, beyond))]


def _coordinate(b: LoopBuilder, number: Scalar, k: int) -> Scalar:
    return b.cast(b.read(1, [number, b.index(k)]), f64)


@function
def roi_align(
    x: Operand,
    regions: Operand,
    batch_indices: Operand,
    sizes: Sequence[int],
    sampling: int = 0,
    spatial_scale: float = 1.0,
    mode: Pooling = "avg",
    half_pixel: bool = True,
) -> Value:
    """Regions (x1, y1, x2, y2) of images, each pooled to ``sizes``; see ``RoiAlign``."""
    made = RoiAlign(tuple(sizes), sampling, spatial_scale, mode, half_pixel)
    return apply(made, x, regions, batch_indices)


@op("non_max_suppression")
class NonMaxSuppression(Op):
    """The boxes that are left when those that overlap one of a higher score are dropped.

    Operands: boxes of [batch, count, 4], scores of [batch, classes, count], the greatest number of
    boxes for each batch and class, the overlap (intersection over union) above which a box is
    dropped, and the score that a box must exceed. A box is two corners (y1, x1, y2, x2) or, with
    ``centered``, (x, y, width, height). The result holds rows (batch, class, box), the highest
    score first; ``selected`` is their number, a symbol of its own unless it is known.
    """

    selected: Dim
    centered: bool = False

    def infer(
        self,
        boxes: TensorType,
        scores: TensorType,
        most: TensorType,
        overlap: TensorType,
        least_score: TensorType,
    ) -> TensorType:
        require(
            boxes.dtype.is_float and scores.dtype.is_float and boxes.rank == scores.rank == 3,
            "non_max_suppression: the operands do not fit",
            expected="float boxes of [batch, count, 4] and scores of [batch, classes, count]",
            found=f"{boxes} and {scores}",
        )
        require_integer(self.name, most)
        require(
            most.rank == overlap.rank == least_score.rank == 0
            and overlap.dtype.is_float
            and least_score.dtype.is_float,
            "non_max_suppression: the limits are not scalars",
            expected="an integer and two floats of rank 0",
            found=f"{most}, {overlap} and {least_score}",
        )
        same_dim(self.name, "the coordinates of a box", 4, boxes.shape[2])
        same_dim(self.name, "the batches", boxes.shape[0], scores.shape[0])
        same_dim(self.name, "the numbers of boxes and scores", boxes.shape[1], scores.shape[2])
        require(
            not provably_less(self.selected, 0) and not provably_less(scores.size, self.selected),
            "non_max_suppression: there cannot be that many",
            expected=f"0 to {scores.size}",
            found=self.selected,
        )
        return boxes.with_shape((self.selected, 3)).with_dtype(i64)

    def evaluate(
        self, boxes: Array, scores: Array, most: Array, overlap: Array, least_score: Array
    ) -> Array:
        rows = []
        for batch, corners in enumerate(self._corners(boxes)):
            for label, given in enumerate(scores[batch]):
                kept: list[int] = []
                for box in np.argsort(-given, kind="stable"):
                    if len(kept) >= int(most) or not given[box] > least_score:
                        break
                    if not np.any(_overlaps(corners[box], corners[kept]) > overlap):
                        kept.append(int(box))
                rows += [(batch, label, box) for box in kept]
        return np.array(rows, np.int64).reshape(-1, 3)

    def binds(self) -> tuple[Symbol, ...]:
        return result_symbols(self.selected)

    def _corners(self, boxes: Array) -> Array:
        """Boxes as (low, high) corners: [batch, count, 2, 2]."""
        first, second = boxes[..., :2], boxes[..., 2:]
        if self.centered:
            first, second = first - second / 2, first + second / 2
        return np.stack([np.minimum(first, second), np.maximum(first, second)], axis=-2)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        boxes = np.array(
            [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [1, 11.1, 0, 10.1]],
            np.float32,
        )[None]
        scores = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5], [0.5, 0.5, 0.5, 0.1, 0.3]]], np.float32)
        most, half = np.array(3), np.array(0.5, np.float32)
        none = np.array(0.0, np.float32)
        yield Sample(non_max_suppression, (boxes, scores, most, half, none))
        yield Sample(cls(4), (boxes, scores, most, half, none), "known number")
        yield Sample(cls(2, True), (boxes, scores[:, :1], most, half, half), "centered")
        yield Sample(non_max_suppression, (boxes, scores, np.array(0), half, none), "none wanted")
        yield Sample(
            non_max_suppression, (boxes[:, :0], scores[:, :, :0], most, half, none), "no boxes"
        )


def _overlaps(box: Array, others: Array) -> Array:
    """The intersection over union of one box [2, 2] with others [count, 2, 2]."""
    low = np.maximum(box[0], others[:, 0])
    high = np.minimum(box[1], others[:, 1])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = np.prod(others[:, 1] - others[:, 0], axis=-1)
    union = np.prod(box[1] - box[0]) + areas - shared
    return np.where((shared > 0) & (union > 0), shared / np.where(union > 0, union, 1), 0.0)


@function
def non_max_suppression(
    boxes: Operand,
    scores: Operand,
    most: Operand,
    overlap: Operand,
    least_score: Operand = -math.inf,
    centered: bool = False,
) -> Value:
    """Rows (batch, class, box) of the boxes that overlap none of a higher score too much."""
    operands = (boxes, scores, most, overlap, least_score)
    values = as_operands(graph_of(operands), operands)
    size = values[1].tensor.size
    upper = size if isinstance(size, int) else size.bounds()[1]
    name = new_symbol_name(values[0].graph, "selected")
    return apply(NonMaxSuppression(Symbol(name, 0, upper), centered), *values)
