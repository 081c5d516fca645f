"""Pooling to a given number of windows: global pools, and adaptive ones that share elements out.

These are functions, not ops: they build reductions, pools of fixed windows where the sizes divide,
and otherwise gather each window and reduce it. Sizes may be symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from monograph.ir.build import Operand, cast_to
from monograph.ir.dims import Dim, provably_less
from monograph.ir.graph import Value
from monograph.ir.operators import function
from monograph.ir.types import wide
from monograph.ops import data, elementwise, index, pool, reduce
from monograph.ops import shape as shape_ops
from monograph.ops.rules import require

OutputSize: TypeAlias = int | Sequence[int | None]


@function
def global_avg_pool(x: Operand) -> Value:
    """The mean over every dimension after the first two, which stay with size 1."""
    value = shape_ops.one_value(x)
    return reduce.mean(value, tuple(range(2, value.rank)), keepdims=True)


@function
def global_max_pool(x: Operand) -> Value:
    """The maximum over every dimension after the first two, which stay with size 1."""
    value = shape_ops.one_value(x)
    return reduce.max(value, tuple(range(2, value.rank)), keepdims=True)


@function
def adaptive_avg_pool(x: Operand, output_size: OutputSize) -> Value:
    """Means of ``output_size`` windows that share the elements out evenly, overlapping if need be.

    Window i runs from floor(i * size / count) to ceil((i + 1) * size / count). None keeps a
    dimension as it is. The windows run over the dimensions after the first two.
    """
    return _adaptive("adaptive_avg_pool", x, output_size)


@function
def adaptive_max_pool(x: Operand, output_size: OutputSize) -> Value:
    """Maxima of the windows that ``adaptive_avg_pool`` takes the means of.

    Elements that tie may share the gradient.
    """
    return _adaptive("adaptive_max_pool", x, output_size)


def _adaptive(name: str, x: Operand, output_size: OutputSize) -> Value:
    mean = name == "adaptive_avg_pool"
    value = reduce.as_float(x) if mean else shape_ops.one_value(x)
    require(
        value.rank >= 3,
        f"{name}: no spatial dimension",
        expected="rank 3 or more",
        found=value.type,
    )
    spatial = value.rank - 2
    wanted = (output_size,) * spatial if isinstance(output_size, int) else tuple(output_size)
    require(
        len(wanted) == spatial and all(count is None or count >= 1 for count in wanted),
        f"{name}: output_size does not fit",
        expected=f"an integer of at least 1, or {spatial} of them",
        found=output_size,
    )
    dims = value.shape[2:]
    counts = [dim if count is None else count for dim, count in zip(dims, wanted, strict=True)]
    even = [
        dim // count for dim, count in zip(dims, counts, strict=True) if dim % count == 0 != dim
    ]
    sizes = tuple(size for size in even if isinstance(size, int))
    if len(sizes) == spatial:
        return pool.avg_pool(value, sizes) if mean else pool.max_pool(value, sizes)
    pooled = cast_to(value, wide(value.dtype)) if mean else value
    with value.graph.as_current():
        for axis, count in enumerate(counts):
            pooled = _adaptive_along(name, pooled, axis + 2, count, mean)
    return cast_to(pooled, value.dtype)


def _adaptive_along(name: str, x: Value, axis: int, count: Dim, mean: bool) -> Value:
    """Pool one axis by gathering every window, as long as the longest, and reducing it."""
    size = x.shape[axis]
    require(
        not provably_less(size, 1), f"{name}: nothing to pool", expected="elements", found=x.type
    )
    if size == count:
        return x
    if count == 1:
        return reduce.mean(x, axis, True) if mean else reduce.max(x, axis, True)
    longest = size // count if size % count == 0 else -(-size // count) + 1
    whole, windows = data.dim(size), data.iota((count,))
    starts = windows * whole // count
    ends = ((windows + 1) * whole + (count - 1)) // count
    last = shape_ops.reshape(ends - 1, (count, 1))
    places = shape_ops.reshape(starts, (count, 1)) + data.iota((1, longest), 1)
    gathered = index.take(x, elementwise.minimum(places, last), axis=axis)
    if not mean:
        return reduce.max(gathered, axis + 1)
    beside = (1,) * (x.rank - axis - 1)
    inside = shape_ops.reshape(elementwise.less_equal(places, last), (count, longest, *beside))
    lengths = shape_ops.reshape(cast_to(ends - starts, x.dtype), (count, *beside))
    return reduce.sum(elementwise.where(inside, gathered, 0.0), axis + 1) / lengths
