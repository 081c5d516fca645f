"""Reductions along axes, where the largest element stands, and running sums and products.

Axes are an attribute at first, and an operand from opset 13 (``ReduceSum``) or 18 (the others) on.
Without any, all axes are reduced, or none if ``noop_with_empty_axes``. Narrow floats are reduced in
f32 and rounded once; what is not exact in integers is computed in f64 and cut off.
"""

from __future__ import annotations

from collections.abc import Callable

from monograph import functional as F
from monograph.frontends.onnx.converters.shape import axes_of
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import Dim, provably_at_least
from monograph.ir.graph import Value
from monograph.ir.op import Op
from monograph.ir.types import f64, wide
from monograph.ops.cumulative import Cumprod, Cumsum
from monograph.ops.reduce import Argmax, Argmin, Max, Min, Prod, Sum, reduce_shape
from monograph.ops.reduce.extremum import dtype_limit
from monograph.ops.rules import normalize_axes, normalize_axis


def reduction_axes(node: OnnxNode) -> tuple[int, ...]:
    """The axes that a reduction reduces, normalised."""
    rank = node.input(0).rank
    axes = axes_of(node, 1, 13 if node.op_type == "ReduceSum" else 18)
    if axes:
        return normalize_axes(node.op_type, axes, rank)
    return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))


@converter("ReduceSum")
def reduce_sum(node: OnnxNode) -> Value:
    """The sum along axes."""
    return apply(Sum(reduction_axes(node), _keeps(node)), node.input(0))


@converter("ReduceProd")
def reduce_prod(node: OnnxNode) -> Value:
    """The product along axes."""
    return apply(Prod(reduction_axes(node), _keeps(node)), node.input(0))


@converter("ReduceMax", "ReduceMin")
def reduce_extremum(node: OnnxNode) -> Value:
    """The largest or smallest element along axes; of none, the dtype's own lowest or highest."""
    x, axes, keepdims = node.input(0), reduction_axes(node), _keeps(node)
    largest = node.op_type == "ReduceMax"
    if any(x.shape[axis] == 0 for axis in axes):
        shape = reduce_shape(node.op_type, x.shape, axes, keepdims)
        return F.full(shape, dtype_limit(x.dtype, largest), x.dtype)
    may_be_empty = not all(provably_at_least(x.shape[axis], 1) for axis in axes)
    return apply((Max if largest else Min)(axes, keepdims, may_be_empty), x)


_FLOAT_REDUCTIONS: dict[str, Callable[[Value, tuple[int, ...], bool], Value]] = {
    "ReduceMean": F.mean,
    "ReduceL2": lambda x, axes, keepdims: F.sqrt(F.sum(x * x, axes, keepdims)),
    "ReduceLogSum": lambda x, axes, keepdims: F.log(F.sum(x, axes, keepdims)),
    "ReduceLogSumExp": F.logsumexp,
}
_EXACT_REDUCTIONS: dict[str, Callable[[Value, tuple[int, ...], bool], Value]] = {
    "ReduceL1": lambda x, axes, keepdims: F.sum(F.abs(x), axes, keepdims),
    "ReduceSumSquare": lambda x, axes, keepdims: F.sum(x * x, axes, keepdims),
}


@converter(*_FLOAT_REDUCTIONS)
def reduce_in_floats(node: OnnxNode) -> Value:
    """Reductions with a division, a root or a logarithm in them."""
    x, reduce = node.input(0), _FLOAT_REDUCTIONS[node.op_type]
    exact = cast_to(x, wide(x.dtype) if x.dtype.is_float else f64)
    return cast_to(reduce(exact, reduction_axes(node), _keeps(node)), x.dtype)


@converter(*_EXACT_REDUCTIONS)
def reduce_in_numbers(node: OnnxNode) -> Value:
    """Reductions that integers have too."""
    x, reduce = node.input(0), _EXACT_REDUCTIONS[node.op_type]
    exact = cast_to(x, wide(x.dtype))
    return cast_to(reduce(exact, reduction_axes(node), _keeps(node)), x.dtype)


@converter("ArgMax", "ArgMin")
def arg_extremum(node: OnnxNode) -> Value:
    """The first place of the largest or smallest element, or the last (``select_last_index``)."""
    x = node.input(0)
    axis = normalize_axis(node.op_type, node.integer("axis", 0), x.rank)
    op = (Argmax if node.op_type == "ArgMax" else Argmin)(axis, _keeps(node))
    if not node.integer("select_last_index", 0):
        return apply(op, x)
    return F.subtract(_number(x.shape[axis] - 1), apply(op, F.flip(x, axis)))


def _number(dim: Dim) -> Value | int:
    return dim if isinstance(dim, int) else F.dim(dim)


@converter("CumSum", "CumProd")
def cumulative(node: OnnxNode) -> Value:
    """Running sums and products along an axis."""
    x, (axis,) = node.input(0), node.need_ints(1)
    normal = normalize_axis(node.op_type, axis, x.rank)
    exclusive, reverse = bool(node.integer("exclusive", 0)), bool(node.integer("reverse", 0))
    kind: type[Op] = Cumsum if node.op_type == "CumSum" else Cumprod
    return apply(kind(normal, exclusive, reverse), x)  # type: ignore[call-arg]


def _keeps(node: OnnxNode) -> bool:
    return bool(node.integer("keepdims", 1))
