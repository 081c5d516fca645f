"""Running sums of numbers that are given, and wanted, by their logarithms.

The running sum is kept as a peak, the largest logarithm so far, and the sum over e to the peak,
which lies between 1 and the number of elements: nothing overflows and nothing is lost. Each new
element costs one exponential, of how far it lies from the peak before it, so along contiguous rows
the peaks come first, then all exponentials in the lanes of vectors, then the sums, then the
logarithms. Sums are carried in double precision: a row may be long.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.ir.build import Operand, apply
from monograph.ir.dims import Shape, provably_less, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, f64, wide
from monograph.ops import elementwise, reduce
from monograph.ops.cumulative import INTERLEAVED_ROWS
from monograph.ops.math import exp, log
from monograph.ops.rules import normalize_axis, require_float


@op("logcumsumexp")
class Logcumsumexp(Op):
    """The logarithm of the running sum of exponentials along ``axis``, from its end if reversed."""

    axis: int
    reverse: bool = False

    def infer(self, x: TensorType) -> TensorType:
        require_float(self.name, x)
        normalize_axis(self.name, self.axis, x.rank)
        return x.with_shape(x.shape)

    def evaluate(self, x: Array) -> Array:
        ordered = np.flip(x, self.axis) if self.reverse else x
        if not x.size:
            return ordered
        running = np.logaddexp.accumulate(ordered.astype(np.float64), axis=self.axis)
        result: Array = running.astype(x.dtype)
        return np.flip(result, self.axis) if self.reverse else result

    def lower_loops(self, b: LoopBuilder) -> None:
        (x,) = b.operands
        axis = self.axis % x.rank
        size, inner = x.shape[axis], shape_product(x.shape[axis + 1 :])
        shape = (shape_product(x.shape[:axis]), size, inner)
        running = _Running(b, shape, self.reverse)
        if inner == 1:
            running.lower_rows(
                1 if provably_less(shape[0], 2 * INTERLEAVED_ROWS) else INTERLEAVED_ROWS
            )
        else:
            running.lower_lanes()

    def vjp(self, node: Node, grad: Value) -> Gradients:
        """An element's share of each later sum, e^(x - sum); shares are summed as logarithms too,
        those of positive and of negative gradients apart.
        """
        (x,) = node.operands
        backwards = Logcumsumexp(self.axis, not self.reverse)

        def share(part: Value) -> Value:
            positive = elementwise.greater(part, 0.0)
            logs = log(elementwise.where(positive, part, 1.0)) - node.result
            return exp(apply(backwards, elementwise.where(positive, logs, -np.inf)) + x)

        return (share(grad) - share(elementwise.negate(grad)),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        x = generator.normal(size=(2, 3, 4)).astype(np.float32)
        special = np.array([[-np.inf, -np.inf, 2], [1, np.inf, -np.inf], [0, np.nan, 1]], "f4")
        yield Sample(cls(1), (x,))
        yield Sample(cls(-1, True), (x,), "reverse")
        yield Sample(cls(1), (x.T[::2, ::-1],), "strided")
        yield Sample(cls(1), (generator.normal(size=(9, 5)) * 300,), "f64, far apart", False)
        yield Sample(cls(0), (np.zeros((0, 3), np.float32),), "empty", False)
        yield Sample(cls(1), (special,), "special", False)


@function
def logcumsumexp(x: Operand, axis: int, reverse: bool = False) -> Value:
    """The logarithm of the running sum of exponentials along ``axis``."""
    value = reduce.one_value(x)
    return apply(Logcumsumexp(normalize_axis("logcumsumexp", axis, value.rank), reverse), value)


class _Running:
    """The loops, over an operand seen as [before, along, after]."""

    def __init__(self, b: LoopBuilder, shape: Shape, reverse: bool) -> None:
        self.b, self.shape, self.reverse = b, shape, reverse
        self.dtype = wide(b.operands[0].dtype)
        self.result = b.viewed(b.result(), shape)

    def lower_lanes(self) -> None:
        """Positions beside each other share the lanes of a vector."""
        b, (outer, size, inner) = self.b, self.shape
        with b.parallel((outer, inner), lanes=True) as (before, after):
            peak, total = b.variable(self._lowest()), b.variable(b.literal(0.0, f64))
            with b.loop(size) as step:
                place = (before, self._along(step), after)
                x, old = b.reshaped(0, self.shape, place), peak.get()
                distance = b.cast(self._distance(x, old), f64)
                sum_ = self._add(total.get(), x, old, distance)
                top = self._higher(x, old)
                peak.set(top)
                total.set(sum_)
                log_sum = b.apply("log", b.cast(sum_, self.dtype))
                b.store(self.result, place, b.apply("add", log_sum, top))

    def lower_rows(self, together: int) -> None:
        """Some rows in turn, so that a processor works on one while it waits for another.

        The last few are clamped to the last row, which is then computed more than once.
        """
        b, (rows, size, _) = self.b, self.shape
        shape = (-(-rows // together), together, size)
        peaks, totals = (b.temporary(self.dtype, shape) for _ in range(2))
        with b.parallel((shape[0],)) as (tile,):
            starts = [b.clamp(tile * together + k, 0, rows) for k in range(together)]
            places: list[Position] = [(tile, b.index(k)) for k in range(together)]
            self._write_peaks(starts, places, peaks)
            for row, place in zip(starts, places, strict=True):
                with b.loop(size, lanes=True) as k:
                    x, peak = self._read(row, k), b.load(peaks, (*place, k))
                    b.store(totals, (*place, k), self._distance(x, peak))
            self._write_totals(starts, places, peaks, totals)
            for row, place in zip(starts, places, strict=True):
                with b.loop(size, lanes=True) as k:
                    top = self._higher(self._read(row, k), b.load(peaks, (*place, k)))
                    total = b.apply("log", b.load(totals, (*place, k)))
                    b.store(self.result, (row, k, b.index(0)), b.apply("add", total, top))

    def _write_peaks(self, rows: list[Scalar], places: list[Position], peaks: Memory) -> None:
        """The largest element before each one."""
        b = self.b
        highest = [b.variable(self._lowest()) for _ in rows]
        with b.loop(self.shape[1]) as step:
            k = self._along(step)
            for row, place, peak in zip(rows, places, highest, strict=True):
                old = peak.get()
                b.store(peaks, (*place, k), old)
                peak.set(self._higher(self._read(row, k), old))

    def _write_totals(
        self, rows: list[Scalar], places: list[Position], peaks: Memory, totals: Memory
    ) -> None:
        """The sums, each written where the distance stood that it is made of."""
        b = self.b
        sums = [b.variable(b.literal(0.0, f64)) for _ in rows]
        with b.loop(self.shape[1]) as step:
            k = self._along(step)
            for row, place, sum_ in zip(rows, places, sums, strict=True):
                x, peak = self._read(row, k), b.load(peaks, (*place, k))
                distance = b.cast(b.load(totals, (*place, k)), f64)
                total = self._add(sum_.get(), x, peak, distance)
                sum_.set(total)
                b.store(totals, (*place, k), b.cast(total, self.dtype))

    def _read(self, row: Scalar, k: Scalar) -> Scalar:
        return self.b.reshaped(0, self.shape, (row, k, self.b.index(0)))

    def _along(self, step: Scalar) -> Scalar:
        return self.shape[1] - 1 - step if self.reverse else step

    def _lowest(self) -> Scalar:
        return self.b.literal(-np.inf, self.dtype)

    def _higher(self, x: Scalar, peak: Scalar) -> Scalar:
        """The larger of two; a NaN is none, and is met in the sums."""
        return self.b.select(self.b.apply("greater", x, peak), x, peak)

    def _distance(self, x: Scalar, peak: Scalar) -> Scalar:
        """e^-|x - peak|, which is 1 of equal infinities."""
        b = self.b
        apart = b.apply("abs", b.apply("subtract", x, peak))
        is_equal = b.apply("equal", x, peak)
        power = b.apply("exp", b.apply("negate", apart))
        return b.select(is_equal, b.literal(1.0, self.dtype), power)

    def _add(self, total: Scalar, x: Scalar, peak: Scalar, distance: Scalar) -> Scalar:
        """The sum over the new peak: either what was summed is made less, or the new term is."""
        b, one = self.b, self.b.literal(1.0, total.dtype)
        rises = b.apply("greater", x, peak)
        kept = b.select(rises, b.apply("multiply", total, distance), total)
        return b.apply("add", kept, b.select(rises, one, distance))
