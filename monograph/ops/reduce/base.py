"""What reductions share: axes, what their operands must be, and the way back for gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import EvaluationError
from monograph.ir.build import Operand, as_operands, cast_to, graph_of
from monograph.ir.dims import Shape
from monograph.ir.graph import Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Op
from monograph.ir.types import Array, Kind, TensorType, bool_, f32, i64
from monograph.ops import shape as shape_ops
from monograph.ops.rules import normalize_axes, require


@dataclass(frozen=True, eq=False, repr=False)
class Reduction(Op):
    """Combines the elements along ``axes``; the axes stay, with size 1, if ``keepdims``."""

    axes: tuple[int, ...]
    keepdims: bool = False

    def infer(self, x: TensorType) -> TensorType:
        """The operand's dtype without the reduced axes."""
        return x.with_shape(reduce_shape(self.name, x.shape, self.axes, self.keepdims))

    def holds_at_all_sizes(self, x: TensorType) -> bool:
        """The rules of all of them ask for a kind of number and for axes."""
        return True


def lower_reduction(
    b: Lowering,
    kind: str,
    axes: Sequence[int],
    keepdims: bool,
    index: Position,
    convert: Callable[[Scalar], Scalar] = lambda element: element,
) -> Scalar:
    """The combination of the elements along ``axes`` that meet at ``index`` of the result."""
    shape = b.operands[0].shape
    reduced = normalize_axes(kind, axes, len(shape))

    def element(along: Position) -> Scalar:
        inner, outer = iter(along), iter(index)
        position = []
        for axis in range(len(shape)):
            if axis in reduced:
                position.append(next(inner))
                if keepdims:
                    next(outer)
            else:
                position.append(next(outer))
        return convert(b.read(0, position))

    if not reduced:
        return element(())
    return b.reduce(kind, tuple(shape[axis] for axis in reduced), element)


def reduce_shape(name: str, shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """The shape that is left when ``axes`` are reduced."""
    reduced = set(normalize_axes(name, axes, len(shape)))
    if keepdims:
        return tuple(1 if axis in reduced else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in reduced)


def sum_axes(x: Array, axes: Sequence[int], keepdims: bool = False) -> Array:
    """The sum along axes, rounded alike however the array lies in memory.

    NumPy adds floats up pairwise along a contiguous axis but one after the other along another,
    which loses more digits the more there are; so the axes are brought together, last.
    """
    if x.dtype.kind in "iub":
        return np.asarray(np.sum(x, axis=tuple(axes), keepdims=keepdims, dtype=x.dtype))
    reduced = sorted(axis % x.ndim for axis in axes)
    kept = [axis for axis in range(x.ndim) if axis not in reduced]
    count = prod(x.shape[axis] for axis in reduced)
    rows = np.ascontiguousarray(x.transpose(*kept, *reduced))
    total = rows.reshape(*(x.shape[axis] for axis in kept), count).sum(-1, dtype=x.dtype)
    return np.asarray(np.expand_dims(total, tuple(reduced)) if keepdims else total)


def one_value(x: Operand) -> Value:
    """An operand as a value of the graph being built."""
    return as_operands(graph_of([x]), [x])[0]


def as_float(x: Operand) -> Value:
    """An operand as a float value: integers and bools become ``f32``."""
    value = one_value(x)
    return value if value.dtype.is_differentiable else cast_to(value, f32)


def as_number(x: Operand) -> Value:
    """An operand as numbers: bools are counted in ``i64``."""
    value = one_value(x)
    return cast_to(value, i64) if value.dtype is bool_ else value


def as_axes(name: str, axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The axes that a caller means, normalised."""
    if axis is None:
        return tuple(range(rank))
    return normalize_axes(name, axis if isinstance(axis, Sequence) else (int(axis),), rank)


def require_number(name: str, x: TensorType) -> None:
    """An operand that can be added and multiplied."""
    require(
        x.dtype.is_integer or x.dtype.is_differentiable,
        f"{name}: numbers are needed",
        expected="an integer, float or complex dtype",
        found=x,
    )


def require_ordered(name: str, x: TensorType) -> None:
    """An operand whose elements can be compared."""
    require(
        x.dtype.kind not in (Kind.COMPLEX, Kind.STRING),
        f"{name}: the elements have no order",
        expected="an integer, float or bool dtype",
        found=x,
    )


def require_elements(name: str, x: TensorType, axis: int) -> None:
    """An axis that must not be empty."""
    require(
        x.shape[axis] != 0,
        f"{name}: no elements along axis {axis}",
        expected="a dimension of at least 1",
        found=x,
    )


def check_elements(name: str, x: Array, axes: Sequence[int]) -> None:
    """The same at run time, for dimensions that were symbolic in the type."""
    for axis in axes:
        if x.shape[axis] == 0:
            raise EvaluationError(
                f"{name}: no elements along axis {axis}",
                expected="a dimension of at least 1",
                found=str(list(x.shape)),
            )


def spread(grad: Value, shape: Shape, axes: Sequence[int]) -> Value:
    """Give a reduced value back the axes it lost, repeated to ``shape``."""
    kept = reduce_shape("spread", shape, axes, keepdims=True)
    return shape_ops.expand(shape_ops.reshape(grad, kept), shape)


# What samples share -------------------------------------------------------------------------------

SPECIAL = np.array(
    [[1, np.nan, 2], [np.nan, np.inf, np.nan], [-np.inf, -np.inf, -np.inf], [-np.inf, 0, np.inf]],
    np.float32,
)


def sample_operands() -> Iterator[tuple[tuple[int, ...], bool, Array, str]]:
    """Float operands with which every reduction is tried: (axes, keepdims, array, note)."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2, 3, 4)).astype(np.float32)
    yield (1,), False, x, ""
    yield (0, 2), True, x, "two axes kept"
    yield (0, 1, 2), False, x, "all axes"
    yield (-1, 0), False, x, "negative axis"
    yield (), False, x, "no axes"
    yield (), False, np.full((), 1.5, np.float32), "scalar"
    yield (1,), False, np.zeros((0, 3), np.float32), "empty result"
    yield (0,), False, x.T[::2, ::-1], "strided"
    yield (1,), False, generator.normal(size=(3, 5)), "f64"
