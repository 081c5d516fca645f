"""Sorts and running results by torch."""

from __future__ import annotations

from collections.abc import Callable

from monograph.ir.graph import Node
from monograph.targets.gpu.libraries.library import Given, LibraryTask, Tensor


def argsort(task: LibraryTask) -> Given:
    """The indices that sort; of equal elements the lower index comes first."""
    import torch

    op, (x,) = task.op, task.operands
    return [torch.sort(x, dim=op.axis, descending=op.descending, stable=True)[1]]


def top_k(task: LibraryTask) -> Given:
    """By a stable sort: of equal elements the lower index comes first."""
    import torch

    op, (x,) = task.op, task.operands
    order = torch.sort(x, dim=op.axis, descending=op.largest, stable=True)[1]
    return [order.narrow(op.axis, 0, op.k)]


def is_sortable(node: Node) -> bool:
    """Whether torch sorts such elements."""
    dtype = node.operands[0].dtype
    return not dtype.is_complex and dtype.bits >= 8


def _running(task: LibraryTask, run: Callable[[Tensor], Tensor], first: int) -> Given:
    """A running result in the op's own dtype, forwards or backwards, with or without the own."""
    import torch

    op, (x,), (out,) = task.op, task.operands, task.results
    axis = op.axis % x.ndim
    ordered = x.flip(axis) if op.reverse else x
    found = run(ordered).to(out.dtype)
    if getattr(op, "exclusive", False):
        before = torch.full_like(found.narrow(axis, 0, min(1, x.shape[axis])), first)
        found = torch.cat([before, found.narrow(axis, 0, max(0, x.shape[axis] - 1))], axis)
    return [found.flip(axis) if op.reverse else found]


def cumsum(task: LibraryTask) -> Given:
    """Running sums."""
    dtype = task.results[0].dtype
    return _running(task, lambda x: x.cumsum(task.op.axis, dtype=dtype), 0)


def cumprod(task: LibraryTask) -> Given:
    """Running products."""
    dtype = task.results[0].dtype
    return _running(task, lambda x: x.cumprod(task.op.axis, dtype=dtype), 1)


def cummax(task: LibraryTask) -> Given:
    """Running maxima."""
    return _running(task, lambda x: x.cummax(task.op.axis).values, 0)


def is_running(node: Node) -> bool:
    """Whether torch runs through such elements."""
    dtype = node.operands[0].dtype
    return node.operands[0].rank > 0 and dtype.bits >= 8 and not dtype.is_complex
