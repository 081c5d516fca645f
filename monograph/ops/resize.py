"""Resizing by interpolation: nearest, linear and cubic, one axis after the other.

Along each axis an output element looks at a *source coordinate* between the input elements and
takes a weighted sum of its nearest neighbours: one, two or four of them. Coordinates are computed
in f32 (in f64 for f64 operands), in the order of operations that PyTorch has, because a last bit
decides which neighbour is nearest. The same arithmetic is written once for NumPy and for graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar, get_args

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import EvaluationError, TypeRuleError
from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.dims import Dim, Shape, dim_max, dim_min, provably_less
from monograph.ir.graph import Value
from monograph.ir.op import Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, TensorType, dtype_of, f32, f64, i64, wide
from monograph.ops import data, elementwise, index
from monograph.ops import shape as shape_ops
from monograph.ops.rules import format_shape, normalize_axis, require

Mode: TypeAlias = Literal["nearest", "linear", "cubic"]
Coordinates: TypeAlias = Literal[
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"
]
Rounding: TypeAlias = Literal["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]

Number = TypeVar("Number", Array, Value)


@dataclass(frozen=True)
class Arithmetic(Generic[Number]):
    """What the coordinates need beside Python's operators, in NumPy or as graph."""

    floor: Callable[[Number], Number]
    ceil: Callable[[Number], Number]
    minimum: Callable[[Number, Number | float], Number]
    maximum: Callable[[Number, Number | float], Number]
    equal: Callable[[Number, Number], Number]
    where: Callable[[Number, Number, float], Number]
    dimension: Callable[[Dim, Number], Number | float]


@op("resize", traits=Trait.KEEPS_AXES)
class Resize(Op):
    """Interpolates between elements to make ``axes`` as long as ``sizes``.

    ``coordinates`` says where output element i looks, with s the input size over the output size
    (or one over the entry of ``scales``, if there are any):

    - ``half_pixel``: (i + 0.5) * s - 0.5, the centres of equal cells;
    - ``align_corners``: i * (input - 1) / (output - 1), the corners on the corners;
    - ``asymmetric``: i * s;
    - ``pytorch_half_pixel``: half_pixel, but 0 where the output has one element;
    - ``half_pixel_symmetric``: half_pixel about the middle, where a scale makes a broken size.

    ``rounding`` chooses the neighbour of mode nearest. Cubic weights come from Keys' kernel with
    ``cubic_coefficient``. Elements outside are those at the edge or, with ``exclude_outside``,
    have no weight.
    """

    axes: tuple[int, ...]
    sizes: Shape
    scales: tuple[float, ...] = ()
    mode: Mode = "nearest"
    coordinates: Coordinates = "half_pixel"
    rounding: Rounding = "round_prefer_floor"
    cubic_coefficient: float = -0.75
    exclude_outside: bool = False

    def infer(self, x: TensorType) -> TensorType:
        self._check_choices()
        require(
            self.mode == "nearest" or x.dtype.is_float,
            f"resize: mode {self.mode} needs floats",
            expected="a float dtype, or mode nearest",
            found=x,
        )
        axes = [normalize_axis(self.name, axis, x.rank) for axis in self.axes]
        require(
            len(set(axes)) == len(axes) == len(self.sizes),
            "resize: axes and sizes do not fit",
            expected="distinct axes, with a size for each",
            found=f"axes {self.axes}, sizes {format_shape(self.sizes)}",
        )
        require(
            len(self.scales) in (0, len(axes))
            and all(0 < scale < math.inf for scale in self.scales),
            "resize: scales do not fit",
            expected=f"none, or {len(axes)} positive numbers",
            found=self.scales,
        )
        shape = list(x.shape)
        for axis, size in zip(axes, self.sizes, strict=True):
            require(
                not provably_less(size, 0) and (x.shape[axis] != 0 or size == 0),
                "resize: nothing to interpolate between",
                expected="a size of at least 0, and elements to take",
                found=f"{x} to {format_shape(self.sizes)}",
            )
            shape[axis] = size
        return x.with_shape(tuple(shape))

    def _check_choices(self) -> None:
        choices = (
            ("mode", self.mode, Mode),
            ("coordinates", self.coordinates, Coordinates),
            ("rounding", self.rounding, Rounding),
        )
        for label, chosen, known in choices:
            require(
                chosen in get_args(known),
                f"resize: no such {label}",
                expected=", ".join(get_args(known)),
                found=chosen,
            )

    def evaluate(self, x: Array) -> Array:
        kind = np.float64 if x.dtype == np.float64 else np.float32
        sizes = data.static_sizes(self.name, self.sizes)
        for position, (axis, count) in enumerate(zip(self.axes, sizes, strict=True)):
            size = x.shape[axis]
            if self._keeps(size, count):
                continue
            if size == 0 and count > 0:
                raise EvaluationError(
                    "resize: nothing to interpolate between", found=str(list(x.shape))
                )
            counted = np.arange(count).astype(kind)
            taps = self._taps(_NUMPY, counted, position, size, count)
            beside = (1,) * (x.ndim - 1 - axis % x.ndim)
            parts = [
                np.take(x, place.astype(np.int64), axis)
                * (1 if weight is None else weight.reshape(-1, *beside))
                for place, weight in taps
            ]
            x = parts[0] if len(parts) == 1 else sum(parts[1:], parts[0])
        return x

    def decompose(self, x: Value) -> Value:
        kind = f64 if x.dtype is f64 else f32
        y = x if self.mode == "nearest" else cast_to(x, wide(x.dtype))
        for position, (axis, count) in enumerate(zip(self.axes, self.sizes, strict=True)):
            size = x.shape[axis]
            if self._keeps(size, count):
                continue
            counted = data.iota((count,), 0, kind)
            taps = self._taps(_GRAPH, counted, position, size, count)
            y = _sum_weighted(y, taps, axis % x.rank, count)
        return cast_to(y, x.dtype)

    def _keeps(self, size: Dim, count: Dim) -> bool:
        return size == count and not self.scales

    def _taps(
        self, do: Arithmetic[Number], counted: Number, position: int, size: Dim, count: Dim
    ) -> list[tuple[Number, Number | None]]:
        """The neighbours of each output element along one axis, and their weights."""
        last = do.dimension(size - 1, counted)
        if self.mode == "nearest":
            place = self._nearest(do, counted, position, size, count)
            return [(do.minimum(do.maximum(place, 0.0), last), None)]
        source = self._source(do, counted, position, size, count)
        base = do.floor(source)
        beyond, linear = source - base, self.mode == "linear"
        weights = (
            [1.0 - beyond, beyond] if linear else cubic_weights(beyond, self.cubic_coefficient)
        )
        first = 0.0 if linear else -1.0
        places = [base + (first + offset) for offset in range(len(weights))]
        inside = [do.minimum(do.maximum(place, 0.0), last) for place in places]
        if self.exclude_outside:
            kept = [
                do.where(do.equal(place, clipped), weight, 0.0)
                for place, clipped, weight in zip(places, inside, weights, strict=True)
            ]
            total = sum(kept[1:], kept[0])
            weights = [weight / total for weight in kept]
        return list(zip(inside, weights, strict=True))

    def _nearest(
        self, do: Arithmetic[Number], counted: Number, position: int, size: Dim, count: Dim
    ) -> Number:
        if self.coordinates == "half_pixel" and self.rounding == "round_prefer_ceil":
            # floor(x + 0.5) without the - 0.5 before it: PyTorch's nearest-exact.
            return do.floor((counted + 0.5) * self._scale(do, counted, position, size, count))
        source = self._source(do, counted, position, size, count)
        if self.rounding == "floor":
            return do.floor(source)
        if self.rounding == "ceil":
            return do.ceil(source)
        if self.rounding == "round_prefer_floor":
            return do.ceil(source - 0.5)
        return do.floor(source + 0.5)

    def _scale(
        self, do: Arithmetic[Number], like: Number, position: int, size: Dim, count: Dim
    ) -> Number | float:
        """Input elements for each output element."""
        if self.scales and self.coordinates != "align_corners":
            return 1.0 / self.scales[position]
        if self.coordinates == "align_corners":
            size, count = size - 1, count - 1
        return do.dimension(size, like) / do.dimension(dim_max(count, 1), like)

    def _source(
        self, do: Arithmetic[Number], counted: Number, position: int, size: Dim, count: Dim
    ) -> Number:
        """The source coordinate of each output element."""
        scale = self._scale(do, counted, position, size, count)
        if self.coordinates in ("align_corners", "asymmetric"):
            return counted * scale
        centres = (counted + 0.5) * scale - 0.5
        if self.coordinates == "pytorch_half_pixel":
            return centres * do.dimension(dim_min(count - 1, 1), counted)
        if self.coordinates == "half_pixel_symmetric" and self.scales:
            whole = do.dimension(size, counted) * self.scales[position]
            broken = 1.0 - do.dimension(count, counted) / whole
            return centres + do.dimension(size, counted) * 0.5 * broken
        return centres

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def draw(*shape: int) -> Array:
            return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32) + 3

        plane, box = draw(2, 3, 4, 5), draw(1, 2, 3, 2, 4)
        for sizes in ((8, 10), (6, 3), (1, 7)):
            floor = cls((2, 3), sizes, (), "nearest", "asymmetric", "floor")
            yield Sample(floor, (plane,), "torch")
            exact = cls((2, 3), sizes, (), "nearest", "half_pixel", "round_prefer_ceil")
            yield Sample(exact, (plane,), "torch exact")
            for mode in get_args(Mode)[1:]:
                yield Sample(cls((2, 3), sizes, (), mode), (plane,), mode)
                yield Sample(cls((2, 3), sizes, (), mode, "align_corners"), (plane,), "corners")
        yield Sample(cls((2,), (7,), (), "linear"), (draw(2, 3, 4),), "1-d")
        yield Sample(cls((2, 3, 4), (5, 4, 2), (), "linear"), (box,), "3-d")
        yield Sample(cls((2, 3), (6, 7), (1.6, 1.5), "linear"), (plane,), "scales")
        scaled = cls((2, 3), (6, 7), (1.6, 1.5), "nearest", "asymmetric", "floor")
        yield Sample(scaled, (plane,), "scales, nearest")
        for rounding in get_args(Rounding):
            yield Sample(cls((3,), (8,), (), "nearest", "half_pixel", rounding), (plane,), rounding)
        yield Sample(cls((-1,), (1,), (), "linear", "pytorch_half_pixel"), (plane,), "one")
        symmetric = cls((3,), (7,), (1.5,), "linear", "half_pixel_symmetric")
        yield Sample(symmetric, (plane,), "symmetric")
        excluding = cls((2, 3), (8, 4), (), "cubic", "half_pixel", "floor", -0.5, True)
        yield Sample(excluding, (plane,), "outside excluded")
        yield Sample(cls((2, 3), (3, 3), (), "linear"), (plane[:, ::-1, ::2, ::2],), "strided")
        yield Sample(cls((1,), (0,)), (draw(2, 3),), "to nothing", False)
        yield Sample(cls((1,), (4,), (), "linear"), (np.zeros((0, 3), np.float32),), "empty", False)
        special = np.array([[np.nan, np.inf, -np.inf, -0.0, 1.0]], np.float32)
        yield Sample(cls((1,), (9,), (), "nearest"), (special,), "special", False)
        yield Sample(cls((0,), (5,)), (np.arange(6, dtype=np.int32).reshape(3, 2),), "i32")


def cubic_weights(beyond: Number, a: float) -> list[Number]:
    """Keys' weights for the elements at distances 1 + t, t, 1 - t and 2 - t."""
    return [
        _keys_far(beyond + 1.0, a),
        _keys_near(beyond, a),
        _keys_near(1.0 - beyond, a),
        _keys_far(2.0 - beyond, a),
    ]


def keys_kernel(distance: Array, a: float) -> Array:
    """Keys' kernel at distances."""
    near, far = _keys_near(distance, a), _keys_far(distance, a)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _keys_near(t: Number, a: float) -> Number:
    """At a distance of at most 1."""
    return ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0


def _keys_far(t: Number, a: float) -> Number:
    """At a distance of 1 to 2."""
    return ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a


@function
def resize(
    x: Operand,
    sizes: Sequence[Dim] | None = None,
    scales: Sequence[float] | None = None,
    axes: Sequence[int] | None = None,
    mode: Mode = "nearest",
    coordinates: Coordinates = "half_pixel",
    rounding: Rounding = "round_prefer_floor",
    cubic_coefficient: float = -0.75,
    exclude_outside: bool = False,
) -> Value:
    """Interpolate ``x`` to ``sizes``, or by ``scales``, along ``axes`` (the last ones if None).

    PyTorch's ``interpolate`` is mode nearest with coordinates asymmetric and rounding floor for
    ``nearest``; half_pixel and round_prefer_ceil for ``nearest-exact``; mode linear or cubic with
    half_pixel, or align_corners, for the others. The defaults are ONNX's.
    """
    value = shape_ops.one_value(x)
    require(
        (sizes is None) != (scales is None),
        "resize: sizes or scales are needed",
        expected="one of the two",
        found=f"sizes {sizes}, scales {scales}",
    )
    factors = () if scales is None else tuple(float(scale) for scale in scales)
    rank = len(factors) if sizes is None else len(sizes)
    chosen = tuple(range(value.rank - rank, value.rank)) if axes is None else tuple(axes)
    require(
        len(chosen) == rank <= value.rank,
        "resize: axes do not fit",
        expected=f"an axis for each of {rank} sizes or scales",
        found=f"{axes} for {value}",
    )
    normal = tuple(normalize_axis("resize", axis, value.rank) for axis in chosen)
    if sizes is None:
        pairs = zip(normal, factors, strict=True)
        wanted = tuple(_scale_size(value.shape[axis], factor) for axis, factor in pairs)
    else:
        wanted = tuple(sizes)
    made = Resize(
        normal, wanted, factors, mode, coordinates, rounding, cubic_coefficient, exclude_outside
    )
    return apply(made, value)


def _scale_size(size: Dim, factor: float) -> Dim:
    """floor(size * factor); a symbolic size takes factors that floats hold exactly."""
    require(
        0 < factor < math.inf, "resize: no such scale", expected="a positive number", found=factor
    )
    if isinstance(size, int):
        return math.floor(size * factor)
    from fractions import Fraction  # which few programs need

    exact = Fraction(factor)
    if exact.denominator > 2**16:
        raise TypeRuleError(
            "resize: a symbolic size cannot be scaled by a rounded fraction",
            expected="a scale such as 2, 0.5 or 1.25",
            found=f"{size} * {factor}",
            hint="give sizes instead of scales",
        )
    return size * exact.numerator // exact.denominator


def _sum_weighted(x: Value, taps: list[tuple[Value, Value | None]], axis: int, count: Dim) -> Value:
    """The sum of the elements at the taps' places along ``axis``, each times its weight."""
    beside = (1,) * (x.rank - 1 - axis)
    total: Value | None = None
    for place, weight in taps:
        part = index.take(x, cast_to(place, i64), axis=axis)
        if weight is not None:
            part = part * shape_ops.reshape(cast_to(weight, x.dtype), (count, *beside))
        total = part if total is None else total + part
    assert total is not None
    return total


def _float(value: Dim, _like: Array) -> float:
    assert isinstance(value, int)
    return float(value)


def _scalar(value: Dim, like: Value) -> Value | float:
    dtype: DType = dtype_of(like.dtype)
    return float(value) if isinstance(value, int) else cast_to(data.dim(value), dtype)


_NUMPY: Arithmetic[Array] = Arithmetic(
    np.floor, np.ceil, np.minimum, np.maximum, np.equal, np.where, _float
)
_GRAPH: Arithmetic[Value] = Arithmetic(
    elementwise.floor,
    elementwise.ceil,
    elementwise.minimum,
    elementwise.maximum,
    elementwise.equal,
    elementwise.where,
    _scalar,
)
