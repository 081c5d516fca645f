"""Taking parts of a tensor out and filling borders in: slice, pad, flip, roll.

Positions and amounts may be symbolic. ``slice`` and ``pad`` are each other's gradient: a slice with
steps is undone by padding between elements (``interior``) as well as around them.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import Operand, apply
from monograph.ir.dims import (
    Dim,
    Max,
    Shape,
    SymbolicDim,
    dim_max,
    dim_min,
    provably_at_least,
    provably_less,
)
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Family, Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, bool_, wide
from monograph.ops import data, joining, reduce
from monograph.ops.rules import format_shape, normalize_axes, normalize_axis, require
from monograph.ops.shape import expand, one_value, reshape


@op("slice", family=Family.SHAPE, traits=Trait.MOVE | Trait.KEEPS_AXES)
class Slice(Op):
    """Every ``steps[i]``-th element from ``starts[i]`` up to, not including, ``limits[i]``.

    Positions count from the front, never from the end; those outside the tensor are moved to its
    nearest end, as Python does.
    """

    starts: Shape
    limits: Shape
    steps: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        require(
            len(self.starts) == len(self.limits) == len(self.steps) == x.rank,
            "slice: one start, limit and step is needed for each dimension",
            expected=f"{x.rank} of each",
            found=f"{len(self.starts)}, {len(self.limits)} and {len(self.steps)}",
        )
        require(
            all(step >= 1 for step in self.steps),
            "slice: a step is not positive",
            expected="steps of 1 or more (flip first to go backwards)",
            found=self.steps,
        )
        ranges = zip(self._ranges(x.shape), self.steps, strict=True)
        return x.with_shape(
            tuple((limit - start + step - 1) // step for (start, limit), step in ranges)
        )

    def holds_at_all_sizes(self, x: TensorType) -> bool:
        return True  # positions outside are moved to the nearest end

    def evaluate(self, x: Array) -> Array:
        ranges = zip(self._ranges(x.shape), self.steps, strict=True)
        return x[tuple(builtins.slice(start, limit, step) for (start, limit), step in ranges)]

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        ranges = self._ranges(b.operands[0].shape)
        places = zip(index, ranges, self.steps, strict=True)
        return b.read(0, [position * step + start for position, (start, _), step in places])

    def vjp(self, node: Node, grad: Value) -> Gradients:
        shape = node.operands[0].shape
        low = tuple(start for start, _ in self._ranges(shape))
        interior = tuple(step - 1 for step in self.steps)
        covered = zip(low, map(_dilate_dim, grad.shape, interior), strict=True)
        high = tuple(dim - start - size for dim, (start, size) in zip(shape, covered, strict=True))
        return (apply(Pad(low, high, interior, zero_of(grad)), grad),)

    def _ranges(self, shape: Shape) -> list[tuple[Dim, Dim]]:
        """(start, limit) of each dimension, inside it and in order."""
        ranges: list[tuple[Dim, Dim]] = []
        for start, limit, dim in zip(self.starts, self.limits, shape, strict=True):
            first = _inside(start, dim)
            ranges.append((first, dim_max(first, _inside(limit, dim))))
        return ranges

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(35, dtype=np.float32).reshape(5, 7)
        yield Sample(cls((1, 2), (4, 6), (1, 1)), (x,))
        yield Sample(cls((0, 1), (5, 7), (2, 3)), (x,), "steps")
        yield Sample(cls((1, 0), (5, 2), (3, 5)), (x[:, ::2],), "strided")
        yield Sample(cls((3, 0), (99, 7), (1, 1)), (x,), "limit clamped")
        yield Sample(cls((4, 9), (2, 12), (1, 2)), (x,), "nothing", False)
        yield Sample(cls((), (), ()), (np.full((), 2.0, np.float32),), "scalar")
        yield Sample(cls((0, 1), (3, 2), (1, 1)), (np.zeros((0, 3), np.float32),), "empty", False)


BEYOND_ALL = 2**62
"""No dimension is as large: exporters write INT64_MAX for the end of one, whatever its size."""


def _inside(position: Dim, dim: Dim) -> Dim:
    """The position, moved to the nearest end of the dimension where it may lie outside."""
    if provably_at_least(position, BEYOND_ALL):
        return dim
    from_start = dim_max(position, 0)
    parts = from_start.arguments if isinstance(from_start, Max) else (from_start,)
    if all(provably_at_least(dim, part) for part in parts):
        return from_start
    return dim_min(from_start, dim)


def _dilate_dim(dim: Dim, interior: int) -> Dim:
    """The size once ``interior`` elements stand between each two."""
    return dim + dim_max(dim - 1, 0) * interior if interior else dim


def zero_of(x: Value) -> bool | int | float:
    """Zero as an attribute that stands for an element of ``x``."""
    return data.as_attribute(0, x.dtype)


@function
def slice(
    x: Operand,
    starts: Sequence[Dim],
    limits: Sequence[Dim | None],
    steps: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
) -> Value:
    """``x[start:limit:step]`` along ``axes`` (all, in order, if None).

    As in Python, a negative position counts from the end and a limit of None is the end.
    """
    value = one_value(x)
    named = range(len(starts)) if axes is None else axes
    chosen = [normalize_axis("slice", axis, value.rank) for axis in named]
    normalize_axes("slice", chosen, value.rank)
    strides = [1] * len(chosen) if steps is None else list(steps)
    require(
        len(starts) == len(limits) == len(strides) == len(chosen),
        "slice: one start, limit and step is needed for each axis",
        expected=f"{len(chosen)} of each",
        found=f"{len(starts)}, {len(limits)} and {len(strides)}",
    )
    all_starts: list[Dim] = [0] * value.rank
    all_limits: list[Dim] = list(value.shape)
    all_steps = [1] * value.rank
    for axis, start, limit, step in zip(chosen, starts, limits, strides, strict=True):
        dim = value.shape[axis]
        all_starts[axis] = _from_front(start, dim)
        if limit is not None:
            all_limits[axis] = dim_max(all_starts[axis], _from_front(limit, dim))
        all_steps[axis] = step
    whole = all(step == 1 for step in all_steps) and not any(start != 0 for start in all_starts)
    if whole and tuple(all_limits) == value.shape:
        return value
    return apply(Slice(tuple(all_starts), tuple(all_limits), tuple(all_steps)), value)


def _from_front(position: Dim, dim: Dim) -> Dim:
    """A position that may count from the end as one inside the dimension."""
    return _inside(position + dim if provably_less(position, 0) else position, dim)


@op("pad", family=Family.SHAPE, traits=Trait.KEEPS_AXES)
class Pad(Op):
    """``value`` before, after and between the elements of each dimension.

    A negative ``low`` or ``high`` crops instead. ``interior`` (none if empty) goes between each two
    neighbours, before the ends are padded or cropped.
    """

    low: Shape
    high: Shape
    interior: tuple[int, ...] = ()
    value: bool | int | float = 0

    def infer(self, x: TensorType) -> TensorType:
        _check_amounts(self.name, self.low, self.high, x)
        require(
            len(self.interior) in (0, x.rank) and all(amount >= 0 for amount in self.interior),
            "pad: wrong interior padding",
            expected=f"{x.rank} amounts of 0 or more",
            found=self.interior,
        )
        data.check_fill(self.name, self.value, x.dtype)
        inner = self._dilate_shape(x.shape)
        return x.with_shape(_pad_shape(self.name, x, inner, self.low, self.high))

    def _dilate_shape(self, shape: Shape) -> Shape:
        if not self.interior:
            return shape
        return tuple(map(_dilate_dim, shape, self.interior))

    def evaluate(self, x: Array) -> Array:
        low = data.static_sizes(self.name, self.low)
        high = data.static_sizes(self.name, self.high)
        inner = data.static_sizes(self.name, self._dilate_shape(x.shape))
        require_sizes(self.name, [sum(parts) for parts in zip(low, inner, high, strict=True)])
        grown = [max(a, 0) + b + max(c, 0) for a, b, c in zip(low, inner, high, strict=True)]
        result = np.full(grown, self.value, x.dtype)
        interior = self.interior or (0,) * x.ndim
        spots = zip(low, inner, interior, strict=True)
        result[tuple(builtins.slice(max(a, 0), max(a, 0) + b, c + 1) for a, b, c in spots)] = x
        crops = zip(low, high, grown, strict=True)
        return result[tuple(builtins.slice(max(-a, 0), c + min(b, 0)) for a, b, c in crops)]

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        shape, dtype = b.operands[0].shape, b.operands[0].dtype
        fill = b.literal(self.value, wide(dtype))
        if any(dim == 0 for dim in shape):
            return fill
        interior = self.interior or (0,) * len(index)
        inside, source = b.literal(True, bool_), []
        for axis, (between, dim) in enumerate(zip(interior, shape, strict=True)):
            moved = index[axis] - self.low[axis]
            if not between and self.low[axis] == 0 and self.high[axis] == 0:
                source.append(moved)
                continue
            if between:
                inside = b.both(inside, b.within(moved % (between + 1), 0, 1))
                moved = moved // (between + 1)
            inside = b.both(inside, b.within(moved, 0, dim))
            source.append(b.clamp(moved, 0, dim))
        return b.select(inside, b.read(0, source), fill)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        low = tuple(-amount for amount in self.low)
        high = tuple(-amount for amount in self.high)
        inner = apply(Pad(low, high, (), zero_of(grad)), grad)
        if not any(self.interior):
            return (inner,)
        steps = tuple(amount + 1 for amount in self.interior)
        return (apply(Slice((0,) * grad.rank, inner.shape, steps), inner),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
        yield Sample(cls((1, 0), (2, 3), (), -1.5), (x,))
        yield Sample(cls((1, 2), (0, 1), (2, 1), 0.5), (x,), "interior")
        yield Sample(cls((-1, 2), (1, -2), (), 0.0), (x.T,), "crops, strided")
        yield Sample(cls((-2, 1), (1, -1), (1, 0), 7.0), (x,), "crops between elements")
        yield Sample(cls((3,), (-5,), (), 2.0), (x[0],), "crops more than there is", False)
        yield Sample(cls((), ()), (np.full((), 2.0, np.float32),), "scalar")
        empty = np.zeros((0, 1), np.float32)
        yield Sample(cls((1, 0), (1, 2), (1, 1), 3.0), (empty,), "empty", False)
        yield Sample(cls((1,), (1,), (), float("-inf")), (x[0],), "infinity", False)
        yield Sample(cls((1,), (1,), (), -(2**31)), (np.arange(3, dtype=np.int32),), "i32")


def _check_amounts(name: str, low: Shape, high: Shape, x: TensorType) -> None:
    require(
        len(low) == len(high) == x.rank,
        f"{name}: amounts before and after are needed for each dimension",
        expected=f"{x.rank} of each",
        found=f"{format_shape(low)} and {format_shape(high)}",
    )


def _pad_shape(name: str, x: TensorType, inner: Shape, low: Shape, high: Shape) -> Shape:
    """The shape once padded; a dimension that must come out negative is an error."""
    shape = tuple(before + dim + after for before, dim, after in zip(low, inner, high, strict=True))
    require(
        not any(provably_less(dim, 0) for dim in shape),
        f"{name}: more is cropped than there is",
        expected="dimensions of 0 or more",
        found=f"{format_shape(shape)}, from {x}",
    )
    return shape


def require_sizes(name: str, sizes: Sequence[int]) -> None:
    """What a type rule could not prove of symbolic dimensions: no size is negative."""
    if any(size < 0 for size in sizes):
        raise EvaluationError(
            f"{name}: more is cropped than there is",
            expected="dimensions of 0 or more",
            found=str(list(sizes)),
        )


Border: TypeAlias = Literal["reflect", "edge", "wrap"]
BORDERS: tuple[Border, ...] = get_args(Border)


@op("pad_border", family=Family.SHAPE, traits=Trait.KEEPS_AXES)
class PadBorder(Op):
    """Grow a tensor by elements of its own.

    ``reflect`` mirrors it at its first and last element (``c b | a b c | b a``), ``edge`` repeats
    those (``a a | a b c | c c``) and ``wrap`` goes round (``b c | a b c | a b``). A negative amount
    crops. No more can be taken than the tensor has; reflecting does not use the end itself.
    """

    low: Shape
    high: Shape
    mode: Border = "reflect"

    def infer(self, x: TensorType) -> TensorType:
        require(
            self.mode in BORDERS,
            "pad_border: no such mode",
            expected=", ".join(BORDERS),
            found=self.mode,
        )
        _check_amounts(self.name, self.low, self.high, x)
        for low, high, dim in zip(self.low, self.high, x.shape, strict=True):
            for amount in (low, high):
                most = self._most(dim, amount)
                require(
                    most is None or not provably_less(most, amount),
                    f"pad: a border is wider than {self.mode} can fill",
                    expected=f"at most {most}",
                    found=f"{amount}, on {x}",
                )
                require(
                    not provably_less(dim + amount, 0),
                    "pad: more is cropped than there is",
                    expected=f"at most {dim}",
                    found=f"{-amount}, from {x}",
                )
        return x.with_shape(_pad_shape("pad", x, x.shape, self.low, self.high))

    def _most(self, dim: Dim, amount: Dim) -> Dim | None:
        """The widest border that can be filled; None for no bound."""
        if self.mode == "wrap":
            return dim
        if self.mode == "reflect":
            return dim_max(dim - 1, 0)
        return 0 if dim == 0 else None

    def evaluate(self, x: Array) -> Array:
        amounts = zip(
            data.static_sizes(self.name, self.low),
            data.static_sizes(self.name, self.high),
            x.shape,
            strict=True,
        )
        result = x
        for axis, (low, high, size) in enumerate(amounts):
            self._check_bound(low, high, size)
            position = np.arange(-low, size + high)
            result = np.take(result, self._sources(position, size), axis)
        return result

    def _sources(self, position: Array, size: int) -> Array:
        """Which element of a dimension each position, inside or out, takes."""
        last = size - 1
        if self.mode == "reflect":
            return np.asarray(last - np.abs(last - np.abs(position)))
        if self.mode == "edge":
            return np.clip(position, 0, last) if size else position
        return position % size if size else position

    def _check_bound(self, low: int, high: int, size: int) -> None:
        """What the type rule could not prove of symbolic dimensions."""
        require_sizes(self.name, [size + low, size + high, size + low + high])
        for amount in (low, high):
            most = self._most(size, amount)
            if isinstance(most, int) and amount > most:
                raise EvaluationError(
                    f"pad: a border is wider than {self.mode} can fill",
                    expected=f"at most {most}",
                    found=str(amount),
                )

    def decompose(self, x: Value) -> Value:
        """The borders, cut out of the tensor, joined to it, one axis after the other."""
        result = x
        for axis, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            dim = x.shape[axis]
            start = dim_max(-low, 0)
            middle = slice(result, [start], [dim_max(start, dim + dim_min(high, 0))], axes=[axis])
            before = self._border(result, axis, dim_max(low, 0), at_end=False)
            after = self._border(result, axis, dim_max(high, 0), at_end=True)
            pieces = [piece for piece in (before, middle, after) if piece is not None]
            result = joining.concat(pieces, axis)
        return result

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        source = []
        for axis, dim in enumerate(b.operands[0].shape):
            untouched = dim == 0 or (self.low[axis] == 0 and self.high[axis] == 0)
            moved = index[axis] - self.low[axis]
            source.append(moved if untouched else self._source(b, moved, dim))
        return b.read(0, source)

    def _source(self, b: Lowering, position: Scalar, dim: Dim) -> Scalar:
        """Which element a position, inside or out, takes."""
        if self.mode == "wrap":
            return position % dim
        if self.mode == "edge":
            return b.clamp(position, 0, dim)
        at_end = b.select(b.within(position, 0, dim), position, (dim - 1) * 2 - position)
        return b.select(b.within(position, 0, dim * 2), at_end, 0 - position)

    def _border(self, x: Value, axis: int, width: Dim, *, at_end: bool) -> Value | None:
        """What fills ``width`` positions before or after the tensor."""
        if width == 0:
            return None
        dim = x.shape[axis]
        if self.mode == "edge":
            corner = slice(x, [dim - 1 if at_end else 0], [dim if at_end else 1], axes=[axis])
            return expand(corner, (*x.shape[:axis], width, *x.shape[axis + 1 :]))
        if self.mode == "wrap":
            start, limit = (0, width) if at_end else (dim - width, dim)
            return slice(x, [start], [limit], axes=[axis])
        start, limit = (dim - 1 - width, dim - 1) if at_end else (1, 1 + width)
        return flip(slice(x, [start], [limit], axes=[axis]), axis)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
        for mode in BORDERS:
            yield Sample(cls((1, 2), (2, 0), mode), (x,), mode)
            yield Sample(cls((-1, 1), (2, -2), mode), (x.T,), f"{mode}, crops, strided")
            yield Sample(cls((), (), mode), (np.full((), 2.0, np.float32),), f"{mode}, scalar")
            yield Sample(
                cls((0, 1), (0, 1), mode), (np.zeros((0, 3), np.float32),), f"{mode}, empty", False
            )
        yield Sample(cls((5,), (9,), "edge"), (x[0],), "edge, far")


@function
def pad(
    x: Operand,
    low: Sequence[Dim],
    high: Sequence[Dim],
    value: bool | int | float = 0,
    mode: Literal["constant"] | Border = "constant",
    interior: Sequence[int] = (),
) -> Value:
    """``x`` with borders: ``low[i]`` elements before and ``high[i]`` after dimension ``i``.

    Negative amounts crop. Mode ``constant`` fills with ``value``; ``reflect``, ``edge`` and
    ``wrap`` fill with elements of ``x``, as in NumPy. ``interior`` elements of ``value`` go between
    each two.
    """
    operand = one_value(x)
    before, after, between = tuple(low), tuple(high), tuple(interior)
    if not any(between):
        between = ()
    if not between and all(amount == 0 for amount in (*before, *after)):
        _check_amounts("pad", before, after, operand.tensor)
        return operand
    if mode == "constant":
        return apply(Pad(before, after, between, data.as_attribute(value, operand.dtype)), operand)
    require(
        mode in BORDERS,
        "pad: no such mode",
        expected=", ".join(("constant", *BORDERS)),
        found=mode,
    )
    require(
        not between,
        "pad: only a constant can go between elements",
        expected="mode 'constant'",
        found=mode,
    )
    return apply(PadBorder(before, after, mode), operand)


@op("flip", family=Family.SHAPE, traits=Trait.INVOLUTION | Trait.MOVE | Trait.KEEPS_AXES)
class Flip(Op):
    """The elements in reverse order along ``axes``."""

    axes: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        normalize_axes(self.name, self.axes, x.rank)
        return x.with_shape(x.shape)

    def evaluate(self, x: Array) -> Array:
        return np.flip(x, self.axes)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        shape = b.operands[0].shape
        flipped = normalize_axes(self.name, self.axes, len(index))
        return b.read(
            0,
            [
                shape[axis] - 1 - position if axis in flipped else position
                for axis, position in enumerate(index)
            ],
        )

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (apply(self, grad),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        yield Sample(cls((1,)), (x,))
        yield Sample(cls((0, -1)), (x[:, ::2],), "two axes, strided")
        yield Sample(cls(()), (np.full((), 2.0, np.float32),), "scalar")
        yield Sample(cls((0,)), (np.zeros((0, 3), np.float32),), "empty", False)


@function
def flip(x: Operand, axis: int | Sequence[int] | None = None) -> Value:
    """``x`` in reverse order along ``axis`` (all axes if None)."""
    value = one_value(x)
    axes = reduce.as_axes("flip", axis, value.rank)
    return apply(Flip(axes), value) if axes else value


@op("roll", family=Family.SHAPE, traits=Trait.KEEPS_AXES)
class Roll(Op):
    """Shift elements along each of ``axes``; what leaves at one end comes in at the other."""

    shifts: Shape
    axes: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        require(
            len(self.shifts) == len(self.axes),
            "roll: one shift is needed for each axis",
            expected=f"{len(self.axes)} shifts",
            found=format_shape(self.shifts),
        )
        normalize_axes(self.name, self.axes, x.rank)
        return x.with_shape(x.shape)

    def evaluate(self, x: Array) -> Array:
        if not self.axes:
            return x
        return np.roll(x, data.static_sizes(self.name, self.shifts), self.axes)

    def decompose(self, x: Value) -> Value:
        result = x
        for shift, axis in zip(self.shifts, self.axes, strict=True):
            dim = x.shape[axis]
            cut = dim - shift % dim_max(dim, 1)
            tail = slice(result, [cut], [dim], axes=[axis])
            head = slice(result, [0], [cut], axes=[axis])
            result = joining.concat((tail, head), axis)
        return result

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        shape, source = b.operands[0].shape, list(index)
        for shift, axis in zip(self.shifts, self.axes, strict=True):
            if shape[axis] != 0:
                source[axis] = (source[axis] - shift) % shape[axis]
        return b.read(0, source)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(15, dtype=np.float32).reshape(3, 5)
        yield Sample(cls((2,), (1,)), (x,))
        yield Sample(cls((-1, 8), (0, -1)), (x[:, ::2],), "both ways, strided")
        yield Sample(cls((), ()), (np.full((), 2.0, np.float32),), "scalar")
        yield Sample(cls((3,), (0,)), (np.zeros((0, 3), np.float32),), "empty", False)


@function
def roll(x: Operand, shift: Dim | Sequence[Dim], axis: int | Sequence[int] | None = None) -> Value:
    """``x`` shifted round along ``axis``; along its flattened order if None."""
    value = one_value(x)
    if axis is None:
        return reshape(roll(reshape(value, (-1,)), shift, 0), value.shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int | SymbolicDim) else tuple(shift)
    normal = tuple(normalize_axis("roll", position, value.rank) for position in axes)
    return apply(Roll(shifts, normal), value)
