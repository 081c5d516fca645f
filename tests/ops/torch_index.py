"""What torch computes for ops on indices, once those are ``int64`` and not negative."""

from __future__ import annotations

from typing import Any

import torch


def _wrapped(indices: torch.Tensor, size: int) -> torch.Tensor:
    wide = indices.to(torch.int64)
    return torch.where(wide < 0, wide + size, wide)


def _gather(op: Any, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    batch, places = op.batch_dims, indices.shape[:-1]
    if not indices.shape[-1]:
        return x.expand(*places, *x.shape).clone()
    key = [
        torch.arange(places[axis]).reshape([-1 if n == axis else 1 for n in range(len(places))])
        for axis in range(batch)
    ]
    key += list(indices.to(torch.int64).unbind(-1))
    return x[tuple(key)]


def _take(op: Any, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    axis = op.axis % x.ndim
    flat = torch.index_select(x, axis, _wrapped(indices, x.shape[axis]).reshape(-1))
    return flat.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _take_along_axis(op: Any, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return torch.gather(x, op.axis, _wrapped(indices, x.shape[op.axis]))


_REDUCE = {"add": "sum", "multiply": "prod", "max": "amax", "min": "amin"}


def _put(op: Any, x: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return _write(op.mode, x, op.axis, _wrapped(indices, x.shape[op.axis]), values)


def _scatter(
    op: Any, x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor
) -> torch.Tensor:
    """Along the one axis that the indexed ones flatten to."""
    depth = indices.shape[-1]
    flat = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for position in range(depth):
        flat = flat * x.shape[position] + _wrapped(indices[..., position], x.shape[position])
    rest = x.shape[depth:]
    rows = x.reshape(-1, *rest)
    given = updates.reshape(-1, *rest)
    where = flat.reshape(-1, *[1] * len(rest)).expand_as(given)
    return _write(op.mode, rows, 0, where, given).reshape(x.shape)


def _write(
    mode: str, x: torch.Tensor, axis: int, where: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    if mode != "set":
        return torch.scatter_reduce(x, axis, where, values, _REDUCE[mode])
    # torch.scatter leaves open which of several updates stays: number them, the last one wins.
    numbers = torch.arange(values.numel()).reshape(values.shape)
    nobody = torch.full(x.shape, -1)
    last = torch.scatter_reduce(nobody, axis, where, numbers, "amax")
    flat = torch.cat([values.reshape(-1), values.new_zeros(1)])
    return torch.where(last < 0, x, flat[last])


def _embedding(op: Any, table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    rows = _wrapped(indices, table.shape[0])
    return torch.nn.functional.embedding(rows, table, padding_idx=op.padding_index)


TORCH = {
    "gather": _gather,
    "take": _take,
    "take_along_axis": _take_along_axis,
    "put_along_axis": _put,
    "scatter": _scatter,
    "embedding": _embedding,
    "nonzero": lambda op, x: torch.nonzero(x),
}
