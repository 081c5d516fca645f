"""What torch computes for reductions, running results and order."""

from __future__ import annotations

from typing import Any

import torch


def _over_axes(function: Any) -> Any:
    """A reduction of several axes at once; torch takes an empty list to mean all of them."""

    def reference(op: Any, x: torch.Tensor) -> torch.Tensor:
        return function(x, op.axes, op.keepdims) if op.axes else x.clone()

    return reference


def _one_axis_at_a_time(function: Any) -> Any:
    """A reduction that torch has for one axis only."""

    def reference(op: Any, x: torch.Tensor) -> torch.Tensor:
        axes = sorted((axis % x.ndim for axis in op.axes), reverse=True)
        for axis in axes:
            x = function(x, axis, op.keepdims)
        return x

    return reference


def _sum(x: torch.Tensor, axes: Any, keepdims: bool) -> torch.Tensor:
    return torch.sum(x, axes, keepdims, dtype=x.dtype)


def _prod(x: torch.Tensor, axis: int, keepdims: bool) -> torch.Tensor:
    return torch.prod(x, axis, keepdims, dtype=x.dtype)


def _variance(op: Any, x: torch.Tensor) -> torch.Tensor:
    if not op.axes:
        return x - x  # torch would reduce every axis
    return torch.var(x, op.axes, correction=op.correction, keepdim=op.keepdims)


def _end_of(dtype: torch.dtype, limit: float) -> float:
    """The infinity, or the end of the dtype's range on its side."""
    if dtype.is_floating_point:
        return limit
    if dtype is torch.bool:
        return limit > 0
    return torch.iinfo(dtype).max if limit > 0 else torch.iinfo(dtype).min


def _extremum(function: Any, limit: float) -> Any:
    """torch refuses an empty axis; one more element, that any other replaces, stands for it."""

    def reference(op: Any, x: torch.Tensor) -> torch.Tensor:
        if op.may_be_empty:
            (axis,) = op.axes
            shape = [1 if k == axis % x.ndim else n for k, n in enumerate(x.shape)]
            extra = torch.full(shape, _end_of(x.dtype, limit), dtype=x.dtype)
            x = torch.cat([x, extra], axis)
        return _over_axes(function)(op, x)

    return reference


def _first_extremum(function: Any) -> Any:
    """torch's arg functions, made to choose the first of several equal elements."""

    def reference(op: Any, x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.bool:
            x = x.to(torch.int8)
        extreme = function(x, op.axis, True)
        found = (x == extreme) | (x != x)
        return found.to(torch.int8).argmax(op.axis, op.keepdims)

    return reference


def _scan(function: Any, identity: int) -> Any:
    def reference(op: Any, x: torch.Tensor) -> torch.Tensor:
        ordered = x.flip(op.axis) if op.reverse else x
        if getattr(op, "exclusive", False) and x.shape[op.axis]:
            first = torch.full_like(ordered.narrow(op.axis, 0, 1), identity)
            rest = ordered.narrow(op.axis, 0, x.shape[op.axis] - 1)
            ordered = torch.cat([first, rest], op.axis)
        running = function(ordered, op.axis).to(x.dtype)
        return running.flip(op.axis) if op.reverse else running

    return reference


def _cummax(x: torch.Tensor, axis: int) -> torch.Tensor:
    return torch.cummax(x, axis).values if x.numel() else x


def _sort(op: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.sort(x, dim=op.axis, descending=op.descending, stable=True).values


def _argsort(op: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.argsort(x, dim=op.axis, descending=op.descending, stable=True)


def _top_k(op: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """By a stable sort: torch.topk leaves the order of equal elements open."""
    order = torch.argsort(x, dim=op.axis, descending=op.largest, stable=True)
    chosen = order.narrow(op.axis, 0, op.k)
    if not op.sorted:
        chosen = chosen.sort(op.axis).values
    return torch.gather(x, op.axis, chosen), chosen


TORCH = {
    "sum": _over_axes(_sum),
    "prod": _one_axis_at_a_time(_prod),
    "max": _extremum(torch.amax, -torch.inf),
    "min": _extremum(torch.amin, torch.inf),
    "mean": _over_axes(torch.mean),
    "variance": _variance,
    "logsumexp": _over_axes(torch.logsumexp),
    "any": _one_axis_at_a_time(torch.any),
    "all": _one_axis_at_a_time(torch.all),
    "argmax": _first_extremum(torch.amax),
    "argmin": _first_extremum(torch.amin),
    "cumsum": _scan(torch.cumsum, 0),
    "cumprod": _scan(torch.cumprod, 1),
    "cummax": _scan(_cummax, 0),
    "logcumsumexp": _scan(torch.logcumsumexp, 0),
    "sort": _sort,
    "argsort": _argsort,
    "top_k": _top_k,
}
