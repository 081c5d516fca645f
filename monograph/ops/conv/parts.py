"""What convolutions have in common: checks, pieces of their formulas, and sums in NumPy."""

from __future__ import annotations

from math import prod

import numpy as np

from monograph.ir.dims import Dim, Shape, provably_at_least
from monograph.ir.graph import Value
from monograph.ir.lower import Lowering, Scalar
from monograph.ir.types import Array, DType, TensorType
from monograph.ops import reduce, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.rules import require, same_dtype
from monograph.ops.windows import Windows


def group_of(b: Lowering, channel: Scalar, channels: Dim, groups: int) -> Scalar:
    """The group that a channel belongs to."""
    return b.index(0) if groups == 1 else channel // (channels // groups)


def if_inside(b: Lowering, inside: Scalar, element: Scalar, tap: Scalar) -> Scalar:
    """The product of a tap with an element, or with zero in the padding."""
    padded = b.select(inside, element, b.literal(0, element.dtype))
    return b.apply("multiply", padded, tap)


def with_bias(b: Lowering, total: Scalar, channel: Scalar) -> Scalar:
    """The sum of a channel and its bias, the third operand, if there is one."""
    return b.apply("add", total, b.read(2, [channel])) if len(b.operands) > 2 else total


def cut_to(x: Value, shape: Shape) -> Value:
    """The leading elements of ``x`` along every axis, up to ``shape``."""
    if x.shape == shape:
        return x
    return shape_ops.reshape(slicing.slice(x, (0,) * len(shape), shape), shape)


def exact_matmul(a: Array, b: Array) -> Array:
    """Products of f32 matrices, added up in f64 and rounded once.

    A library adds in an order that depends on where in the matrix an element stands, so that equal
    rows and columns may give results that differ; rounded from f64 they are the same.
    """
    if a.dtype != np.float32:
        return np.asarray(np.matmul(a, b))
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return np.asarray(exact, np.float32)


def window_patches(x: Array, windows: Windows, groups: int) -> Array:
    """What each window sees: [group, batch * windows, channels of the group * kernel]."""
    rank = windows.rank
    view = windows.view(x, 0)  # [batch, channels, *counts, *kernel]
    batch, channels, *rest = view.shape
    counts, kernel = rest[:rank], rest[rank:]
    grouped = view.reshape(batch, groups, channels // groups, *counts, *kernel)
    axes = (1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    width = channels // groups * prod(kernel)
    return grouped.transpose(axes).reshape(groups, batch * prod(counts), width)


def group_channels(x: Array, groups: int) -> Array:
    """[batch, channels, *sizes] as [group, batch * positions, channels of the group]."""
    batch, channels, *sizes = x.shape
    grouped = x.reshape(batch, groups, channels // groups, prod(sizes)).transpose(1, 0, 3, 2)
    return grouped.reshape(groups, batch * prod(sizes), channels // groups)


def channels_back(outputs: Array, batch: int, counts: tuple[int, ...]) -> Array:
    """[group, batch * windows, outputs] as [batch, group * outputs, *counts]."""
    groups, _, width = outputs.shape
    apart = outputs.reshape(groups, batch, prod(counts), width).transpose(1, 0, 3, 2)
    return apart.reshape(batch, groups * width, *counts)


def per_channel(bias: Array, rank: int) -> Array:
    """A bias in the shape that adds it to every element of its channel."""
    return bias.reshape(1, -1, *(1,) * (rank - 2))


def sum_to_channels(grad: Value) -> Value:
    """The sum of everything but the channels: what a bias gets."""
    return reduce.sum(grad, (0, *range(2, grad.rank)))


def check_ranks(name: str, x: TensorType, weight: TensorType) -> None:
    """Refuse operands that are no image and weights of one to three dimensions."""
    require(
        3 <= x.rank <= 5,
        f"{name}: one to three spatial dimensions are needed",
        expected="an operand of rank 3 to 5: [batch, channels, *spatial]",
        found=x,
    )
    require(
        weight.rank == x.rank,
        f"{name}: the ranks of the operands differ",
        expected=f"rank {x.rank}, as {x}",
        found=weight,
    )


def check_operands(
    name: str, x: TensorType, weight: TensorType, bias: TensorType | None, groups: int
) -> None:
    """Refuse operands of different or complex types, of wrong ranks, and groups of none."""
    dtype: DType = same_dtype(name, x, weight, *(() if bias is None else (bias,)))
    require(
        dtype.is_float or dtype.is_integer,
        f"{name}: real numbers are needed",
        expected="a float or integer dtype",
        found=x,
    )
    check_ranks(name, x, weight)
    require(
        groups >= 1,
        f"{name}: groups must be positive",
        expected="an integer of at least 1",
        found=groups,
    )
    if bias is not None:
        require(bias.rank == 1, f"{name}: the bias is not a vector", expected="rank 1", found=bias)


def require_multiple(name: str, what: str, size: Dim, groups: int) -> None:
    """Refuse channels that do not divide into groups."""
    rest = size % groups
    require(
        not provably_at_least(rest, 1),
        f"{name}: the {what} do not divide into groups",
        expected=f"a multiple of {groups}",
        found=size,
    )


def draw(*shape: int) -> Array:
    """Sample data: the same for the same shape."""
    seed = sum((axis + 1) * size for axis, size in enumerate(shape))
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)
