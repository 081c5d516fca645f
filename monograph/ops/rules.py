"""What type rules share: broadcasting, axes, agreement of dtypes and dimensions.

A rule refuses only what is *provably* wrong. Two dimensions that may or may not be equal (``a`` and
``b``) are accepted, and held against the actual sizes when the graph runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from monograph.errors import TypeRuleError
from monograph.ir.dims import Dim, Shape, Symbol, provably_at_least, provably_different
from monograph.ir.types import DType, TensorType


def broadcast_shapes(name: str, *shapes: Shape) -> Shape:
    """The shape in which these meet by NumPy's rule: aligned at the right, 1 stretches."""
    if all(shape == shapes[0] for shape in shapes[1:]):
        return shapes[0] if shapes else ()
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = []
    for position in range(rank):
        dims = [shape[position - rank] for shape in shapes if rank - position <= len(shape)]
        result.append(_broadcast_dim(name, dims, shapes))
    return tuple(result)


def _broadcast_dim(name: str, dims: Sequence[Dim], shapes: Sequence[Shape]) -> Dim:
    stretched = [dim for dim in dims if dim != 1]
    if not stretched:
        return 1
    chosen = next((dim for dim in stretched if isinstance(dim, int)), stretched[0])
    for dim in stretched:
        if provably_different(dim, chosen) and not (_may_be_one(dim) or _may_be_one(chosen)):
            raise TypeRuleError(
                f"{name}: shapes do not broadcast",
                expected=f"equal dimensions, or 1; {chosen} and {dim} are neither",
                found=" and ".join(map(format_shape, shapes)),
            )
    return chosen


def always_broadcasts(*shapes: Shape) -> bool:
    """Whether these meet at all sizes: all that is aligned is one and the same dimension, or 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return all(len({dim for dim in dims if dim != 1}) <= 1 for dims in zip(*aligned, strict=True))


def is_never_negative(shape: Shape) -> bool:
    """Whether all of it is 0 or more, at all sizes."""
    return all(provably_at_least(dim, 0) for dim in shape)


def _may_be_one(dim: Dim) -> bool:
    return not isinstance(dim, int) and not provably_different(dim, 1)


def format_shape(shape: Shape) -> str:
    """A shape as the text form writes it."""
    return f"[{', '.join(map(str, shape))}]"


def result_symbols(*sizes: Dim) -> tuple[Symbol, ...]:
    """The sizes that are symbols of their own: what an op that names its result's sizes binds."""
    return tuple(size for size in sizes if isinstance(size, Symbol))


def same_dim(name: str, what: str, a: Dim, b: Dim) -> Dim:
    """Either of two dimensions that must agree; an int is preferred."""
    if provably_different(a, b):
        raise TypeRuleError(f"{name}: {what} differ", expected=str(a), found=str(b))
    return b if isinstance(b, int) else a


def same_dtype(name: str, *types: TensorType) -> DType:
    """The one dtype that all operands must have."""
    first = types[0].dtype
    for type_ in types[1:]:
        if type_.dtype is not first:
            raise TypeRuleError(
                f"{name}: operands have different dtypes",
                expected=f"{first} throughout",
                found=", ".join(str(t) for t in types),
                hint="cast one of them; the functions in monograph.functional do so by themselves",
            )
    return first


def require(condition: bool, message: str, *, expected: str, found: object) -> None:
    """Raise a TypeRuleError unless ``condition`` holds."""
    if not condition:
        raise TypeRuleError(message, expected=expected, found=str(found))


def require_float(name: str, *types: TensorType) -> None:
    """Operands must be real or complex floats."""
    for type_ in types:
        require(
            type_.dtype.is_differentiable,
            f"{name}: a float operand is needed",
            expected="a float or complex dtype",
            found=type_,
        )


def require_integer(name: str, type_: TensorType) -> None:
    """An operand that must hold integers (indices, shifts)."""
    require(
        type_.dtype.is_integer,
        f"{name}: an integer operand is needed",
        expected="an integer dtype",
        found=type_,
    )


def normalize_axis(name: str, axis: int, rank: int) -> int:
    """A possibly negative axis as one in ``range(rank)``."""
    if -rank <= axis < rank:
        return axis % rank
    raise TypeRuleError(
        f"{name}: axis {axis} is out of range",
        expected=f"-{rank} to {rank - 1}" if rank else "no axis: the operand has rank 0",
        found=str(axis),
    )


def normalize_axes(name: str, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes as sorted, non-negative and distinct ones."""
    normal = sorted(normalize_axis(name, axis, rank) for axis in axes)
    if len(set(normal)) != len(normal):
        raise TypeRuleError(
            f"{name}: an axis is named twice", expected="distinct axes", found=str(tuple(axes))
        )
    return tuple(normal)
