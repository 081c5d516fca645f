"""Counting: bins, histograms, places in a sorted list, distinct elements.

How many bins or distinct elements there are may be known only at run time. The op then has a symbol
for that number as an attribute, a new one that the function chooses, as ``nonzero`` has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import (
    Operand,
    apply,
    apply_many,
    as_operands,
    cast_to,
    graph_of,
    promote_operands,
)
from monograph.ir.dims import Dim, Shape, Symbol, provably_less
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder, Lowering, Position, Scalar
from monograph.ir.op import Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, Kind, TensorType, f64, i64, u64, wide
from monograph.ops import data, elementwise, index, joining, reduce, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.index.lookup import new_symbol_name
from monograph.ops.rules import (
    normalize_axis,
    require,
    require_integer,
    result_symbols,
    same_dim,
    same_dtype,
)


def _symbol(value: Value, hint: str, lower: int, upper: Dim | None) -> Symbol:
    """A new symbol for a number that ``value``'s elements decide."""
    most = upper if isinstance(upper, int | None) else upper.bounds()[1]
    return Symbol(new_symbol_name(value.graph, hint), lower, most)


ELEMENTS_PER_STEP = 4
"""Elements that are counted one after the other in one step of a loop."""


@op("bincount", traits=Trait.WINDOW)
class Bincount(Op):
    """How often each of 0, 1, 2… occurs in a vector, or the sum of the ``weights`` beside it.

    The result has ``length`` elements: a number, or a symbol that stands for one more than the
    largest element and at least ``minimum``. Negative elements are refused. The op settles what a
    symbol stands for, unless it ``is_settled`` before.
    """

    length: Dim
    minimum: int = 0
    is_settled: bool = False

    def infer(self, x: TensorType, weights: TensorType | None = None) -> TensorType:
        require_integer(self.name, x)
        require(x.rank == 1, "bincount: a vector is needed", expected="integers of rank 1", found=x)
        require(
            not provably_less(self.length, 0) and self.minimum >= 0,
            "bincount: a length is negative",
            expected="0 or more",
            found=f"length {self.length}, minimum {self.minimum}",
        )
        if weights is None:
            return x.with_shape((self.length,)).with_dtype(i64)
        reduce.require_number(self.name, weights)
        require(
            weights.rank == 1,
            "bincount: the weights are not a vector",
            expected="one weight an element",
            found=weights,
        )
        same_dim(self.name, "the lengths of elements and weights", x.shape[0], weights.shape[0])
        return weights.with_shape((self.length,))

    def evaluate(self, x: Array, weights: Array | None = None) -> Array:
        is_known = isinstance(self.length, int)
        least = self.length if isinstance(self.length, int) else self.minimum
        if x.size and (int(x.min()) < 0 or (is_known and int(x.max()) >= least)):
            raise EvaluationError(
                "bincount: an element has no bin",
                expected=f"0 to {least - 1}" if is_known else "0 or more",
                found=f"{int(x.min())} to {int(x.max())}",
            )
        bins = x.astype(np.int64, copy=False)
        if weights is None:
            return np.bincount(bins, minlength=least)
        if weights.dtype.kind == "f":
            return np.bincount(bins, weights, least).astype(weights.dtype)
        length = max(int(x.max()) + 1 if x.size else 0, least)
        counts = np.zeros(length, weights.dtype)
        np.add.at(counts, bins, weights)
        return counts

    def binds(self) -> tuple[Symbol, ...]:
        return () if self.is_settled else result_symbols(self.length)

    def has_loops(self) -> bool:
        """Only a length that is known before it runs."""
        return self.is_settled or isinstance(self.length, int)

    def lower_loops(self, b: LoopBuilder) -> None:
        x, (result,) = b.operands[0], b.results
        dtype = wide(result.dtype)
        counts = b.result() if dtype is result.dtype else b.temporary(dtype, result.shape)
        b.fill(counts, lambda _: b.literal(0, dtype))
        size = x.shape[0]

        def count(k: Scalar) -> None:
            element = b.cast(b.read(0, [k]), u64)  # a negative one is beyond any length
            place = [b.checked(element, self.length)]
            weight = b.read(1, [k]) if len(b.operands) > 1 else b.literal(1, dtype)
            b.store(counts, place, b.apply("add", b.load(counts, place), weight))

        with b.parallel(()):
            with b.loop(size // ELEMENTS_PER_STEP) as k:
                for more in range(ELEMENTS_PER_STEP):
                    count(k * ELEMENTS_PER_STEP + more)
            with b.loop(size % ELEMENTS_PER_STEP) as k:
                count(size // ELEMENTS_PER_STEP * ELEMENTS_PER_STEP + k)
        if dtype is not result.dtype:
            b.fill(b.result(), lambda at: b.load(counts, at))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.array([1, 4, 1, 0, 4, 4])
        weights = np.linspace(-1, 2, 6, dtype=np.float32)
        yield Sample(bincount, (x,))
        yield Sample(cls(5), (x,), "known length")
        yield Sample(cls(8), (x[::-2].astype(np.uint8), weights[::2]), "weights, strided", False)
        yield Sample(lambda x: bincount(x, minimum=9), (x,), "minimum")
        yield Sample(bincount, (x[:0],), "empty")
        yield Sample(bincount, (x, weights), "weights", False)


@function
def bincount(x: Operand, weights: Operand | None = None, minimum: int = 0) -> Value:
    """How often 0, 1, 2… occur in ``x``, up to the largest; at least ``minimum`` counts.

    With ``weights`` (integers count as f64), the sums of what stands beside each.
    """
    value = reduce.one_value(x)
    length = _symbol(value, "bins", minimum, None)
    if weights is None:
        return apply(Bincount(length, minimum), value)
    beside = reduce.one_value(weights)
    if not beside.dtype.is_differentiable:
        beside = cast_to(beside, f64)
    return apply(Bincount(length, minimum), value, beside)


def _bisect(b: Lowering, length: Dim, steps: int, is_after: Callable[[Scalar], Scalar]) -> Scalar:
    """The first of ``length`` places, in order, that ``is_after`` holds for; ``length`` if none."""
    low, high = b.index(0), b.index(length)
    for _ in range(steps):
        middle = (low + high) // 2
        after = is_after(b.clamp(middle, 0, length))
        is_open = b.apply("less", low, high)
        is_before = b.both(is_open, b.apply("logical_not", after))
        low, high = (
            b.select(is_before, middle + 1, low),
            b.select(b.both(is_open, after), middle, high),
        )
    return low


@op("searchsorted", traits=Trait.WINDOW)
class Searchsorted(Op):
    """Where each of ``values`` would go to keep the last axis of ``sorted`` in order, by bisection.

    Before the elements that equal it or, with ``right``, after them. ``sorted`` is a vector, or has
    the leading dimensions of ``values``. NaN goes last.
    """

    right: bool = False

    def infer(self, sorted: TensorType, values: TensorType) -> TensorType:
        reduce.require_ordered(self.name, sorted)
        same_dtype(self.name, sorted, values)
        require(
            sorted.rank == 1 or (sorted.rank == values.rank and sorted.rank > 0),
            "searchsorted: the ranks do not fit",
            expected="a sorted vector, or one for each row of values",
            found=f"{sorted} and {values}",
        )
        leading = values.shape[:-1] if sorted.rank > 1 else ()
        for axis, (a, b) in enumerate(zip(sorted.shape[:-1], leading, strict=True)):
            same_dim(self.name, f"the operands' dimensions {axis}", a, b)
        return values.with_shape(values.shape).with_dtype(i64)

    def evaluate(self, sorted: Array, values: Array) -> Array:
        if sorted.ndim > 1 and sorted.shape[:-1] != values.shape[:-1]:
            raise EvaluationError(
                "searchsorted: the leading dimensions differ",
                expected=str(list(sorted.shape[:-1])),
                found=str(list(values.shape[:-1])),
            )
        length = sorted.shape[-1]
        low = np.zeros(values.shape, np.int64)
        high = np.full(values.shape, length, np.int64)
        while np.any(low < high):
            middle = (low + high) // 2
            place = np.minimum(middle, length - 1)
            found = (
                sorted[place] if sorted.ndim == 1 else np.take_along_axis(sorted, place, axis=-1)
            )
            before = ~(found > values if self.right else found >= values)
            open_ = low < high
            low, high = (
                np.where(open_ & before, middle + 1, low),
                np.where(open_ & ~before, middle, high),
            )
        return low

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """The same bisection, in as many steps as the longest row may need.

        Where rows may have any length, the first element that is not before the value is sought.
        """
        rows = b.operands[0]
        length = rows.shape[-1]
        value = b.read(1, index)
        row = [] if rows.rank == 1 else list(index[:-1])

        def is_after(place: Scalar) -> Scalar:
            order = "greater" if self.right else "greater_equal"
            return b.apply(order, b.read(0, [*row, place]), value)

        most = length if isinstance(length, int) else length.bounds()[1]
        if most is not None:
            return _bisect(b, length, most.bit_length(), is_after)
        end = b.index(length)
        first = b.reduce("min", (length,), lambda at: b.select(is_after(at[0]), at[0], end))
        return b.apply("minimum", first, end)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        edges = np.array([-1, 0.5, 0.5, 2, 7], np.float32)
        values = np.array([[0.5, -3, 9], [7, 1, -1]], np.float32)
        special = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
        rows = np.sort(np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32))
        for right in (False, True):
            yield Sample(cls(right), (edges, values), "")
            yield Sample(cls(right), (rows, values), "rows")
            yield Sample(cls(right), (edges, values[0, 0]), "scalar")
            yield Sample(cls(right), (edges, special), "special")
            yield Sample(cls(right), (edges[::2], values.T[::2]), "strided")
            yield Sample(cls(right), (edges[:0], values), "nothing to search")
            yield Sample(cls(right), (edges, values[:0]), "empty")
        yield Sample(cls(), (np.array([1, 3, 5]), np.array([3, 6, 0])), "i64")


@function
def searchsorted(
    sorted: Operand, values: Operand, right: bool = False, sorter: Operand | None = None
) -> Value:
    """The place of each value in ``sorted`` (put in order by ``sorter`` first, if given)."""
    table, sought = promote_operands(sorted, values)
    if sorter is not None:
        table = index.take_along_axis(table, sorter, -1)
    return apply(Searchsorted(right), table, sought)


@function
def bucketize(values: Operand, boundaries: Operand, right: bool = False) -> Value:
    """The bucket of each value between sorted boundaries; ``right`` closes buckets at the left."""
    return searchsorted(boundaries, values, right)


@function
def histogram(
    x: Operand,
    edges: Operand | Sequence[Operand],
    weights: Operand | None = None,
    density: bool = False,
) -> Value:
    """How many elements (or what weight) lie in each bin between sorted ``edges``.

    Several vectors of edges, one for each element of the last axis of ``x``, make bins in so many
    dimensions. The last bin includes its upper edge. ``density`` makes the integral
    over all bins 1.
    """
    many = isinstance(edges, Sequence)
    listed = list(edges) if isinstance(edges, Sequence) else [edges]
    value = as_operands(graph_of([x, *listed]), [x])[0]
    bounds = [cast_to(reduce.one_value(edge), value.dtype) for edge in listed]
    points = shape_ops.reshape(value, (-1, len(bounds)) if many else (-1, 1))
    sizes = [bound.shape[0] - 1 for bound in bounds]
    inside, places = None, []
    for position, bound in enumerate(bounds):
        column = points[:, position]
        last = bound[-1]
        place = elementwise.where(
            elementwise.equal(column, last),
            data.dim(sizes[position] - 1),
            searchsorted(bound, column, right=True) - 1,
        )
        fits = elementwise.logical_and(column >= bound[0], column <= last)
        inside = fits if inside is None else elementwise.logical_and(inside, fits)
        places.append(elementwise.where(fits, place, 0))
    assert inside is not None  # there is at least one vector of edges
    if weights is None:
        amounts = cast_to(inside, value.dtype)
    else:
        given = shape_ops.reshape(cast_to(reduce.one_value(weights), value.dtype), (-1,))
        amounts = elementwise.where(inside, given, 0)
    with value.graph.as_current():
        empty = data.zeros(sizes, value.dtype)
    counts = index.scatter(empty, joining.stack(places, -1), amounts, "add")
    return _as_density(counts, bounds) if density else counts


def _as_density(counts: Value, bounds: Sequence[Value]) -> Value:
    result = counts / reduce.sum(counts)
    for axis, bound in enumerate(bounds):
        widths = slicing.slice(bound, [1], [None]) - slicing.slice(bound, [0], [-1])
        result = result / shape_ops.unsqueeze(widths, range(1, len(bounds) - axis))
    return result


@function
def histogram_uniform(
    x: Operand, bins: Dim, low: Operand | None = None, high: Operand | None = None
) -> Value:
    """How many elements lie in each of ``bins`` equal bins from ``low`` to ``high``.

    Without bounds: from the least element to the greatest (one less and one more if they are
    equal). Elements outside are not counted. torch knows it as histc.
    """
    value = shape_ops.flatten(reduce.as_float(x))
    if value.shape[0] == 0:
        with value.graph.as_current():
            return data.zeros((bins,), value.dtype)
    first = reduce.min(value) if low is None else cast_to(reduce.one_value(low), value.dtype)
    last = reduce.max(value) if high is None else cast_to(reduce.one_value(high), value.dtype)
    if low is None and high is None:
        apart = cast_to(elementwise.equal(first, last), value.dtype)
        first, last = first - apart, last + apart
    with value.graph.as_current():
        number = cast_to(data.dim(bins), value.dtype)
        counts = data.zeros((bins,), value.dtype)
        final = data.dim(bins - 1)
    inside = elementwise.logical_and(value >= first, value <= last)
    held = elementwise.where(inside, value, first)
    place = cast_to((held - first) * number / (last - first), i64)
    places = shape_ops.unsqueeze(elementwise.minimum(place, final), -1)
    return index.scatter(counts, places, cast_to(inside, value.dtype), "add")


@op("unique", traits=Trait.STORAGE)
class Unique(Op):
    """The distinct elements or, along ``axis``, the distinct slices.

    Four results: those (ascending if ``sorted``, otherwise as they first occur), the position where
    each first occurs, which of them each element (in row-major order) or slice is, and how often
    each occurs. ``count`` is how many there are, a symbol of its own unless it is known. A NaN
    equals no other unless ``equal_nan``.
    """

    count: Dim
    axis: int | None = None
    sorted: bool = True
    equal_nan: bool = False

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType, TensorType]:
        require(
            x.dtype.kind is not Kind.COMPLEX,
            "unique: complex numbers have no order",
            expected="an integer, float, bool or string dtype",
            found=x,
        )
        axis = None if self.axis is None else normalize_axis(self.name, self.axis, x.rank)
        size = x.size if axis is None else x.shape[axis]
        require(
            not provably_less(self.count, 0) and not provably_less(size, self.count),
            "unique: there cannot be that many",
            expected=f"0 to {size}",
            found=self.count,
        )
        shape: Shape = (self.count,)
        if axis is not None:
            shape = (*x.shape[:axis], self.count, *x.shape[axis + 1 :])
        each = x.with_shape((self.count,)).with_dtype(i64)
        return x.with_shape(shape), each, each.with_shape((size,)), each

    def evaluate(self, x: Array) -> tuple[Array, Array, Array, Array]:
        first, inverse, counts = _distinct(x, self.axis, self.equal_nan)
        if not self.sorted:
            order = np.argsort(first, kind="stable")
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            first, inverse, counts = first[order], rank[inverse], counts[order]
        values = x.reshape(-1)[first] if self.axis is None else np.take(x, first, self.axis)
        return values, first, inverse, counts

    def binds(self) -> tuple[Symbol, ...]:
        return result_symbols(self.count)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.array([[2, 1, 2], [3, 1, 2], [2, 1, 2]], np.float32)
        yield Sample(unique, (x,), "", False)
        yield Sample(cls(3, sorted=False), (x,), "as they occur")
        yield Sample(cls(2, 0), (x,), "rows")
        yield Sample(cls(3, -1, sorted=False), (x[:, ::-1][:2],), "columns, strided")
        special = np.array([np.nan, -0.0, np.nan, 0.0, np.inf], np.float32)
        yield Sample(cls(4), (special,), "special")
        yield Sample(cls(3, equal_nan=True), (special,), "equal NaN")
        yield Sample(unique, (np.array([True, False, True]),), "bool")
        yield Sample(cls(1), (np.array(7),), "scalar")
        yield Sample(unique, (x[:0],), "empty")
        yield Sample(cls(1, 0), (np.zeros((3, 0), np.int8),), "empty slices")


def _distinct(x: Array, axis: int | None, equal_nan: bool) -> tuple[Array, Array, Array]:
    """First positions, inverse and counts of the distinct elements (slices), ascending."""
    wide = x if x.dtype.kind in "biufO" else x.astype(np.float32)
    found = np.unique(wide, True, True, True, axis, equal_nan=equal_nan)
    return found[1], found[2].reshape(-1), found[3]


@function
def unique(
    x: Operand, axis: int | None = None, sorted: bool = True, equal_nan: bool = False
) -> tuple[Value, Value, Value, Value]:
    """(values, first positions, inverse, counts) of the distinct elements, or of slices."""
    value = reduce.one_value(x)
    normal = None if axis is None else normalize_axis("unique", axis, value.rank)
    size = value.tensor.size if normal is None else value.shape[normal]
    count = _symbol(value, "unique", 0, size)
    values, first, inverse, counts = apply_many(Unique(count, normal, sorted, equal_nan), value)
    return values, first, inverse, counts


@op("unique_consecutive", traits=Trait.STORAGE)
class UniqueConsecutive(Op):
    """Each run of equal elements (of equal slices along ``axis``) made one.

    Three results: the runs' elements, the run of each element or slice, and the runs' lengths.
    """

    count: Dim
    axis: int | None = None

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        values, _, inverse, counts = Unique(self.count, self.axis).infer(x)
        return values, inverse, counts

    def evaluate(self, x: Array) -> tuple[Array, Array, Array]:
        slices = x.reshape(-1, 1) if self.axis is None else np.moveaxis(x, self.axis, 0)
        differs = slices[1:] != slices[:-1]
        changes = differs.any(axis=tuple(range(1, slices.ndim)))
        starts = np.concatenate([np.ones(min(len(slices), 1), np.bool_), changes])
        first = np.flatnonzero(starts)
        lengths = np.diff(np.append(first, len(slices)))
        values = slices[first].reshape(-1) if self.axis is None else np.take(x, first, self.axis)
        return values, np.cumsum(starts) - 1, lengths

    def binds(self) -> tuple[Symbol, ...]:
        return result_symbols(self.count)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.array([[2, 2, 1], [2, 2, 1], [2, 1, 1]], np.float32)
        yield Sample(unique_consecutive, (x,), "", False)
        yield Sample(cls(2, 0), (x,), "rows")
        yield Sample(cls(2, -1), (x[:2, ::-1],), "columns, strided")
        yield Sample(unique_consecutive, (np.array([np.nan] * 2, np.float32),), "NaN", False)
        yield Sample(unique_consecutive, (x[:0],), "empty")
        yield Sample(cls(1), (np.array(7),), "scalar")


@function
def unique_consecutive(x: Operand, axis: int | None = None) -> tuple[Value, Value, Value]:
    """(values, inverse, counts) of the runs of equal elements, or slices of ``axis``."""
    value = reduce.one_value(x)
    normal = None if axis is None else normalize_axis("unique_consecutive", axis, value.rank)
    size = value.tensor.size if normal is None else value.shape[normal]
    count = _symbol(value, "runs", 0, size)
    values, inverse, counts = apply_many(UniqueConsecutive(count, normal), value)
    return values, inverse, counts
