"""Reductions and running totals: sum, mean, amax, argmax, var, norms, cumsum…

torch lets a scalar be reduced along its axis 0 (or -1), which it does not have; there the
reduction is over nothing. An empty list of axes means all of them, except where it says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.node import TorchNode, as_list
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import provably_equal, shape_product
from monograph.ir.graph import Value
from monograph.ir.types import bool_, i64, wide


def axes_of(x: Value, dim: Any) -> tuple[int, ...]:
    """The axes that a torch argument names; all of them for None or an empty list."""
    named = as_list(dim)
    if not named:
        return tuple(range(x.rank))
    return () if x.rank == 0 else tuple(sorted(axis % x.rank for axis in named))


def axis_of(x: Value, dim: int) -> int:
    """One axis, counted from the front."""
    return dim % x.rank if x.rank else 0


def _keepdim(node: TorchNode) -> bool:
    return bool(node.get("keepdim", False))


@converter("aten.sum.default", "aten.sum.dim_IntList")
def _sum(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return F.sum(x, axes_of(x, node.get("dim")), _keepdim(node))


@converter("aten.nansum.default")
def _nansum(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    known = F.where(F.is_nan(x), 0, x) if x.dtype.is_differentiable else x
    return F.sum(known, axes_of(x, node.get("dim")), _keepdim(node))


@converter("aten.mean.default", "aten.mean.dim")
def _mean(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return F.mean(x, axes_of(x, node.get("dim")), _keepdim(node))


@converter("aten.prod.default", "aten.prod.dim_int")
def _prod(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return F.prod(x, axes_of(x, node.get("dim")), _keepdim(node))


@converter("aten.amax.default")
def _amax(node: TorchNode) -> Value:
    x = node["self"]
    return F.max(x, axes_of(x, node["dim"]), _keepdim(node))


@converter("aten.amin.default")
def _amin(node: TorchNode) -> Value:
    x = node["self"]
    return F.min(x, axes_of(x, node["dim"]), _keepdim(node))


@converter("aten.aminmax.default")
def _aminmax(node: TorchNode) -> tuple[Value, Value]:
    x = node["self"]
    axes = axes_of(x, node["dim"])
    return F.min(x, axes, _keepdim(node)), F.max(x, axes, _keepdim(node))


@converter("aten.max.default")
def _max(node: TorchNode) -> Value:
    return F.max(node["self"])


@converter("aten.min.default")
def _min(node: TorchNode) -> Value:
    return F.min(node["self"])


@converter("aten.max.dim")
def _max_along(node: TorchNode) -> tuple[Value, Value]:
    return _extremum(node, F.max, F.argmax)


@converter("aten.min.dim")
def _min_along(node: TorchNode) -> tuple[Value, Value]:
    return _extremum(node, F.min, F.argmin)


def _extremum(
    node: TorchNode, value: Callable[..., Value], place: Callable[..., Value]
) -> tuple[Value, Value]:
    x = node["self"]
    if x.rank == 0:
        return x, F.zeros((), i64)
    axis, keep = axis_of(x, node["dim"]), _keepdim(node)
    return value(x, axis, keep), place(x, axis, keep)


@converter("aten.argmax.default")
def _argmax(node: TorchNode) -> Value:
    return _place(node, F.argmax)


@converter("aten.argmin.default")
def _argmin(node: TorchNode) -> Value:
    return _place(node, F.argmin)


def _place(node: TorchNode, place: Callable[..., Value]) -> Value:
    x, dim = node["self"], node["dim"]
    if x.rank == 0:
        return F.zeros((), i64)
    if dim is not None:
        return place(x, axis_of(x, dim), _keepdim(node))
    flat = place(F.reshape(x, (-1,)), 0, False)
    return F.reshape(flat, node.result_type().shape)


@converter("aten.any.default", "aten.any.dim", "aten.any.dims")
def _any(node: TorchNode) -> Value:
    x = node["self"]
    return F.any(truth(x), _truth_axes(node, x), _keepdim(node))


@converter("aten.all.default", "aten.all.dim", "aten.all.dims")
def _all(node: TorchNode) -> Value:
    x = node["self"]
    return F.all(truth(x), _truth_axes(node, x), _keepdim(node))


def _truth_axes(node: TorchNode, x: Value) -> tuple[int, ...]:
    """For these two an empty list of axes really means none."""
    dim = node.get("dim")
    return () if isinstance(dim, list | tuple) and not dim else axes_of(x, dim)


def truth(x: Value) -> Value:
    """Which elements are not zero; NaN is not."""
    return x if x.dtype is bool_ else F.not_equal(x, 0)


@converter("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def _count_nonzero(node: TorchNode) -> Value:
    x = node["self"]
    return F.sum(F.cast(truth(x), i64), axes_of(x, node.get("dim")))


@converter("aten.logsumexp.default", "aten.special_logsumexp.default")
def _logsumexp(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return F.logsumexp(x, axes_of(x, node["dim"]), _keepdim(node))


def _correction(node: TorchNode) -> float:
    """How many degrees of freedom the mean has used up: one, unless it is said."""
    if node.get("unbiased") is not None:
        return 1.0 if node["unbiased"] else 0.0
    given = node.get("correction")
    return 1.0 if given is None else float(given)


def _deviation(node: TorchNode) -> Value:
    """The root of a variance, which may itself be too large for 16 bits."""
    x = node["self"]
    root = F.sqrt(_variance(node, F.cast(x, wide(x.dtype))))
    return F.cast(root, x.dtype) if x.dtype.is_float else root


def _variance(node: TorchNode, x: Value) -> Value:
    axes, keep, correction = axes_of(x, node.get("dim")), _keepdim(node), _correction(node)
    if x.dtype.is_complex:
        first, second = (F.variance(part, axes, keep, 0) for part in (F.real(x), F.imag(x)))
        return _correct_variance(first + second, x, axes, correction)
    if correction.is_integer():
        return F.variance(x, axes, keep, int(correction))
    return _correct_variance(F.variance(x, axes, keep, 0), x, axes, correction)


def _correct_variance(variance: Value, x: Value, axes: tuple[int, ...], correction: float) -> Value:
    """A variance over n elements as one over n less the correction."""
    count = F.cast(F.dim(shape_product([x.shape[axis] for axis in axes])), variance.dtype)
    return variance * count / F.maximum(count - correction, 0)


@converter("aten.var.default", "aten.var.dim", "aten.var.correction")
def _var(node: TorchNode) -> Value:
    return _variance(node, node["self"])


@converter("aten.std.default", "aten.std.dim", "aten.std.correction")
def _std(node: TorchNode) -> Value:
    return _deviation(node)


@converter("aten.var_mean.default", "aten.var_mean.dim", "aten.var_mean.correction")
def _var_mean(node: TorchNode) -> tuple[Value, Value]:
    x = node["self"]
    return _variance(node, x), F.mean(x, axes_of(x, node.get("dim")), _keepdim(node))


@converter("aten.std_mean.default", "aten.std_mean.dim", "aten.std_mean.correction")
def _std_mean(node: TorchNode) -> tuple[Value, Value]:
    x = node["self"]
    return _deviation(node), F.mean(x, axes_of(x, node.get("dim")), _keepdim(node))


@converter("aten.linalg_vector_norm.default")
def _vector_norm(node: TorchNode) -> Value:
    x = node["self"]
    dtype = node["dtype"]
    return vector_norm(
        x if dtype is None else node.value(x, dtype),
        float(node["ord"]),
        axes_of(x, node["dim"]),
        _keepdim(node),
    )


def vector_norm(x: Value, order: float, axes: tuple[int, ...], keepdim: bool) -> Value:
    """The norm of that order along the axes; 0 counts what is not zero.

    Powers of 16-bit numbers are taken in 32: they may be too large where the norm is not. A single
    number is its own norm, however large: its square could overflow.
    """
    if x.dtype.is_float and wide(x.dtype) is not x.dtype:
        return F.cast(vector_norm(F.cast(x, wide(x.dtype)), order, axes, keepdim), x.dtype)
    size = F.abs(x)
    is_single = provably_equal(shape_product([x.shape[axis] for axis in axes]), 1)
    if order == 1.0 or (is_single and order != 0.0):
        return F.sum(size, axes, keepdim)
    if order == 2.0:
        return F.sqrt(F.sum(F.square(size), axes, keepdim))
    if order == 0.0:
        return F.sum(F.cast(F.not_equal(size, 0), size.dtype), axes, keepdim)
    if math.isinf(order):
        if provably_equal(shape_product([x.shape[axis] for axis in axes]), 0):
            return F.sum(size, axes, keepdim)
        return F.max(size, axes, keepdim) if order > 0 else F.min(size, axes, keepdim)
    return F.power(F.sum(F.power(size, order), axes, keepdim), 1.0 / order)


@converter("aten.cumsum.default")
def _cumsum(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return x if x.rank == 0 else F.cumsum(x, axis_of(x, node["dim"]))


@converter("aten.cumprod.default")
def _cumprod(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return x if x.rank == 0 else F.cumprod(x, axis_of(x, node["dim"]))


@converter("aten.logcumsumexp.default")
def _logcumsumexp(node: TorchNode) -> Value:
    x: Value = node["self"]
    if x.rank == 0:
        return x
    if x.dtype.is_complex:
        raise UnsupportedError("logcumsumexp of complex numbers")
    return F.logcumsumexp(x, axis_of(x, node["dim"]))


@converter("aten.cummax.default")
def _cummax(node: TorchNode) -> tuple[Value, Value]:
    return _running(node["self"], node["dim"], lambda x: x)


@converter("aten.cummin.default")
def _cummin(node: TorchNode) -> tuple[Value, Value]:
    values, places = _running(node["self"], node["dim"], F.negate)
    return F.negate(values), places


def _running(x: Value, dim: int, turn: Callable[[Value], Value]) -> tuple[Value, Value]:
    """The running maximum and the last place that reached it, of ``turn(x)``."""
    x = turn(x)
    if x.rank == 0:
        return x, F.zeros((), i64)
    axis = axis_of(x, dim)
    peak = F.cummax(x, axis)
    reached = F.equal(x, peak)
    if x.dtype.is_float:
        reached = F.logical_or(reached, F.is_nan(x))
    places = F.where(reached, F.iota(x.shape, axis), 0)
    return peak, F.cummax(places, axis)
