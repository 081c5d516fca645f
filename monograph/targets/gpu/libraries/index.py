"""Scatters by torch, in a form that gives the same bits in every run.

Where several updates meet at one place, the last one stays (``set``), found as the largest number
of an update there; sums are added in the order of a sort. An index that is out of range is told to
the flag, and writes nothing.
"""

from __future__ import annotations

from monograph.ir.graph import Node
from monograph.ir.types import bool_
from monograph.ops.index.writing import PutAlongAxis, Scatter
from monograph.targets.gpu.libraries.library import Given, LibraryTask, Tensor

EXTREMES = {"min": "amin", "max": "amax"}


def scatter(task: LibraryTask) -> Given:
    """Rows of updates at places that vectors of indices say."""
    import torch

    x, indices, updates = task.operands
    depth = indices.shape[-1]
    rows = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
    for axis in range(depth):
        size = x.shape[axis]
        rows = rows * size + _check_indices(task, indices[..., axis], size)
    count = 1
    for axis in range(depth):
        count *= x.shape[axis]
    width = x.numel() // count if count else 0
    found = _write(
        task.op.mode,
        x.reshape(count, width),
        rows.reshape(-1),
        updates.reshape(-1, width) if width else updates.reshape(rows.numel(), 0),
    )
    return [found.view(x.shape)]


def put_along_axis(task: LibraryTask) -> Given:
    """Values at the places that indices along one axis say; elements are rows of one."""
    import torch

    x, indices, values = task.operands
    axis = task.op.axis % x.ndim
    place = torch.zeros(indices.shape, dtype=torch.int64, device=x.device)
    for k in range(x.ndim):
        along = torch.arange(indices.shape[k], device=x.device)
        shape = [-1 if j == k else 1 for j in range(x.ndim)]
        position = _check_indices(task, indices, x.shape[k]) if k == axis else along.view(shape)
        place = place * x.shape[k] + position
    found = _write(task.op.mode, x.reshape(-1, 1), place.reshape(-1), values.reshape(-1, 1))
    return [found.view(x.shape)]


def _check_indices(task: LibraryTask, index: Tensor, size: int) -> Tensor:
    """Indices from 0 on; those out of range are told, and are 0."""
    import torch

    wide = index.to(torch.int64)
    wide = torch.where(wide < 0, wide + size, wide)
    bad = (wide < 0) | (wide >= size)
    if task.flag is not None and index.numel():
        task.flag.copy_(torch.maximum(task.flag, bad.any().to(torch.int32).view(1)))
    return torch.where(bad, 0, wide)


def _write(mode: str, rows: Tensor, places: Tensor, updates: Tensor) -> Tensor:
    import torch

    if mode == "add":
        return rows.index_put((places,), updates, accumulate=True)
    if mode in EXTREMES:
        wide = places[:, None].expand(updates.shape)
        return rows.scatter_reduce(0, wide, updates, EXTREMES[mode], include_self=True)
    numbers = torch.arange(len(places), device=rows.device)
    last = torch.full((len(rows),), -1, device=rows.device)
    last = last.scatter_reduce(0, places, numbers, "amax", include_self=True)
    if not len(places):
        return rows
    return torch.where((last >= 0)[:, None], updates[last.clamp(min=0)], rows)


def is_writable(node: Node) -> bool:
    """Whether torch joins updates of such elements in this mode."""
    op = node.op
    assert isinstance(op, Scatter | PutAlongAxis)
    dtype = node.operands[0].dtype
    if dtype.bits < 8 and dtype is not bool_:
        return False
    if op.mode == "add":
        return dtype is not bool_
    return op.mode == "set" or (op.mode in EXTREMES and not dtype.is_complex)
