"""Running results: at each position, the sum, product or maximum of what stands up to there.

``reverse`` runs from the end. ``exclusive`` leaves each position's own element out, so that the
first result is that of no elements. Sums and products of f32 accumulate in f64, since a running
result rounds at every position and each rounding stays in all that follow; those of narrower floats
in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np

from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.dims import Shape, provably_less, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.lower import LoopBuilder, Memory, Scalar
from monograph.ir.op import Gradients, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import (
    Array,
    DType,
    TensorType,
    bool_,
    c64,
    c128,
    f32,
    f64,
    i64,
    integer_limits,
    wide,
)
from monograph.ops import data, elementwise, index, reduce
from monograph.ops.rules import normalize_axis

ACCUMULATORS = {f32: f64, c64: c128}
"""The dtypes in which sums and products run, where they differ from what arithmetic is done in."""
PRECISE = {narrow.numpy: accumulator.numpy for narrow, accumulator in ACCUMULATORS.items()}
INTERLEAVED_ROWS = 4
"""Rows that are taken further in turn: each step waits for the one before it in its row."""


class Cumulative(Op):
    """A running result along ``axis``, in the operand's own type."""

    axis: int
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        """The operand's own type, which must be a number's."""
        reduce.require_number(self.name, x)
        normalize_axis(self.name, self.axis, x.rank)
        return x.with_shape(x.shape)

    def holds_at_all_sizes(self, x: TensorType) -> bool:
        """The rule asks for a number's type and an axis."""
        return True

    def _lower_running(
        self,
        b: LoopBuilder,
        initial: bool | int | float,
        combine: Callable[[Scalar, Scalar], Scalar],
        *,
        accumulator: DType | None = None,
        exclusive: bool = False,
        reverse: bool = False,
    ) -> None:
        """One pass along the axis; positions beside each other share the lanes of a vector.

        The running result has the dtype ``accumulator``, or that of arithmetic on the elements.
        """
        (x,) = b.operands
        start = b.literal(initial, accumulator or wide(x.dtype))
        axis = self.axis % x.rank
        size, inner = x.shape[axis], shape_product(x.shape[axis + 1 :])
        shape = (shape_product(x.shape[:axis]), size, inner)
        result = b.viewed(b.result(), shape)
        if inner == 1 and not provably_less(shape[0], 2 * INTERLEAVED_ROWS):
            self._lower_rows(b, result, start, combine, shape, exclusive, reverse)
            return
        with b.parallel((shape[0], inner), lanes=inner != 1) as (before, after):
            running = b.variable(start)
            with b.loop(size) as step:
                place = (before, size - 1 - step if reverse else step, after)
                old = running.get()
                new = combine(old, b.cast(b.reshaped(0, shape, place), old.dtype))
                running.set(new)
                b.store(result, place, old if exclusive else new)

    def _lower_rows(
        self,
        b: LoopBuilder,
        result: Memory,
        start: Scalar,
        combine: Callable[[Scalar, Scalar], Scalar],
        shape: Shape,
        exclusive: bool,
        reverse: bool,
    ) -> None:
        """Several rows in turn, so that a processor works on one while it waits for another.

        The last few are clamped to the last row, which is then computed more than once.
        """
        rows, size, _ = shape
        with b.parallel((-(-rows // INTERLEAVED_ROWS),)) as (tile,):
            places = [
                b.clamp(tile * INTERLEAVED_ROWS + k, 0, rows) for k in range(INTERLEAVED_ROWS)
            ]
            running = [b.variable(start) for _ in places]
            with b.loop(size) as step:
                along = size - 1 - step if reverse else step
                for row, total in zip(places, running, strict=True):
                    place = (row, along, b.index(0))
                    old = total.get()
                    new = combine(old, b.cast(b.reshaped(0, shape, place), old.dtype))
                    total.set(new)
                    b.store(result, place, old if exclusive else new)


@op("cumsum")
class Cumsum(Cumulative):
    """The running sum along ``axis``; integers wrap around."""

    axis: int
    exclusive: bool = False
    reverse: bool = False

    def evaluate(self, x: Array) -> Array:
        return _accumulate(np.add, x, self.axis, self.exclusive, self.reverse)

    def lower_loops(self, b: LoopBuilder) -> None:
        """From -0.0, which added to any number leaves it as it is, unless 0 is a result."""
        initial = 0 if self.exclusive or not b.results[0].dtype.is_float else -0.0
        self._lower_running(
            b,
            initial,
            lambda total, x: b.apply("add", total, x),
            accumulator=ACCUMULATORS.get(b.operands[0].dtype),
            exclusive=self.exclusive,
            reverse=self.reverse,
        )

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (apply(Cumsum(self.axis, self.exclusive, not self.reverse), grad),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for x, axis, exclusive, reverse, note, gradient in _operands():
            yield Sample(cls(axis, exclusive, reverse), (x,), note, gradient)


@function
def cumsum(x: Operand, axis: int, exclusive: bool = False, reverse: bool = False) -> Value:
    """The running sum along ``axis``; of bools, in ``i64``."""
    value = _number(x)
    normal = normalize_axis("cumsum", axis, value.rank)
    return apply(Cumsum(normal, exclusive, reverse), value)


@op("cumprod")
class Cumprod(Cumulative):
    """The running product along ``axis``; integers wrap around."""

    axis: int
    exclusive: bool = False
    reverse: bool = False

    def evaluate(self, x: Array) -> Array:
        return _accumulate(np.multiply, x, self.axis, self.exclusive, self.reverse)

    def lower_loops(self, b: LoopBuilder) -> None:
        self._lower_running(
            b,
            1,
            lambda product, x: b.apply("multiply", product, x),
            accumulator=ACCUMULATORS.get(b.operands[0].dtype),
            exclusive=self.exclusive,
            reverse=self.reverse,
        )

    def vjp(self, node: Node, grad: Value) -> Gradients:
        """Each element scales the products that it is part of, and so do they over the element.

        From the first zero on every product is 0, so the zero's own gradient is worked out with a
        1 in its place, and the elements beyond it have none.
        """
        x, conj = node.operands[0], elementwise.conj
        zero = elementwise.equal(x, 0)
        seen = apply(Cumsum(self.axis, False, self.reverse), cast_to(zero, i64))
        first_zero = elementwise.logical_and(zero, elementwise.equal(seen, 1))
        products_without = apply(self, elementwise.where(first_zero, 1, x))
        collect = Cumsum(self.axis, self.exclusive, not self.reverse)
        at_zero = apply(collect, grad * conj(products_without))
        before_zero = apply(collect, grad * conj(node.result)) / conj(elementwise.where(zero, 1, x))
        beyond = elementwise.where(first_zero, at_zero, 0)
        return (elementwise.where(elementwise.equal(seen, 0), before_zero, beyond),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for x, axis, exclusive, reverse, note, gradient in _operands():
            yield Sample(cls(axis, exclusive, reverse), (x,), note, gradient)
        zeros = np.array([[2.0, 0.0, 3.0, 0.5], [0.0, 5.0, 0.0, 2.0]], np.float32)
        yield Sample(cls(1), (zeros,), "zeros")
        yield Sample(cls(1, True), (zeros,), "zeros exclusive")
        yield Sample(cls(1, True, True), (zeros,), "zeros exclusive reverse")


@function
def cumprod(x: Operand, axis: int, exclusive: bool = False, reverse: bool = False) -> Value:
    """The running product along ``axis``; of bools, in ``i64``."""
    value = _number(x)
    normal = normalize_axis("cumprod", axis, value.rank)
    return apply(Cumprod(normal, exclusive, reverse), value)


@op("cummax")
class Cummax(Cumulative):
    """The largest element so far along ``axis``; NaN from the first NaN on.

    The gradient goes to the latest of the elements that tie.
    """

    axis: int
    reverse: bool = False

    def infer(self, x: TensorType) -> TensorType:
        reduce.require_ordered(self.name, x)
        normalize_axis(self.name, self.axis, x.rank)
        return x.with_shape(x.shape)

    def evaluate(self, x: Array) -> Array:
        return _accumulate(np.maximum, x, self.axis, False, self.reverse)

    def lower_loops(self, b: LoopBuilder) -> None:
        """The later of two that tie (zeros, perhaps) is taken, and a NaN stays."""

        def larger(so_far: Scalar, x: Scalar) -> Scalar:
            ahead = b.apply("greater", so_far, x)
            if so_far.dtype.is_float:
                ahead = b.apply("logical_or", ahead, b.apply("is_nan", so_far))
            return b.select(ahead, so_far, x)

        lowest = _lowest(b.results[0].dtype)
        self._lower_running(b, lowest, larger, reverse=self.reverse)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        axis = self.axis % x.rank
        reached = elementwise.logical_or(elementwise.equal(x, node.result), elementwise.is_nan(x))
        places = data.iota(x.shape, axis)
        if self.reverse:  # the latest place is then the lowest: count down from 0
            places = elementwise.negate(places)
        lowest = np.iinfo(np.int64).min
        latest = apply(Cummax(axis, self.reverse), elementwise.where(reached, places, lowest))
        source = elementwise.negate(latest) if self.reverse else latest
        return (index.put_along_axis(data.zeros_like(x), source, grad, axis, "add"),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for x, axis, exclusive, reverse, note, gradient in _operands():
            if not exclusive:
                yield Sample(cls(axis, reverse), (x,), note, gradient)
        ties = np.array([[1, 3, 3, 2, 4], [2, 2, 2, 2, 2]], np.float32)
        yield Sample(cls(1), (ties,), "ties", False)
        yield Sample(cls(1, True), (ties,), "ties reverse", False)
        yield Sample(cls(0), (np.array([False, True, False]),), "bool")


@function
def cummax(x: Operand, axis: int, reverse: bool = False) -> Value:
    """The largest element so far along ``axis``."""
    value = reduce.one_value(x)
    return apply(Cummax(normalize_axis("cummax", axis, value.rank), reverse), value)


def _lowest(dtype: DType) -> bool | int | float:
    """What nothing is less than."""
    if dtype.is_float:
        return -np.inf
    return False if dtype is bool_ else integer_limits(dtype)[0]


def _number(x: Operand) -> Value:
    """An operand as numbers: bools are counted in ``i64``."""
    value = reduce.one_value(x)
    return cast_to(value, i64) if value.dtype is bool_ else value


def _accumulate(combine: np.ufunc, x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Running results of a ufunc, from either end, with or without each position's own element."""
    ordered = np.flip(x, axis) if reverse else x
    if exclusive and x.shape[axis]:
        first = np.full_like(np.take(ordered, [0], axis), combine.identity)
        ordered = np.concatenate([first, np.delete(ordered, -1, axis)], axis)
    precise = PRECISE.get(x.dtype, x.dtype)
    running = combine.accumulate(ordered, axis=axis, dtype=precise).astype(x.dtype, copy=False)
    return np.flip(running, axis) if reverse else running


def _operands() -> Iterator[tuple[Array, int, bool, bool, str, bool]]:
    """Operands that every running result is tried with.

    Each comes as (array, axis, exclusive, reverse, note, differentiable).
    """
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2, 3, 4)).astype(np.float32)
    special = np.array([[1, np.nan, 2], [np.inf, 0, -np.inf], [-0.0, 0.0, -1]], np.float32)
    yield x, 1, False, False, "", True
    yield x, -1, False, True, "reverse", True
    yield x, 0, True, False, "exclusive", True
    yield x, 2, True, True, "exclusive reverse", True
    yield x.T[::2, ::-1], 1, False, False, "strided", True
    yield generator.normal(size=(7,)), 0, False, False, "f64", True
    yield x[:, :1], 1, True, False, "one element exclusive", True
    yield np.zeros((3, 0), np.float32), 1, False, False, "empty", False
    yield np.zeros((0, 3), np.float32), 0, True, True, "empty exclusive", False
    yield special, 1, False, False, "special", False
    yield np.array([100, 100, -7], np.int8), 0, False, False, "i8 wraps around", False
