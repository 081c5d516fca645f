"""Segment reductions: runs of elements, given by their lengths or offsets."""

from __future__ import annotations

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
from monograph.ir.types import i64

_JOINS = {
    "sum": ("add", 0.0),
    "mean": ("add", 0.0),
    "prod": ("multiply", 1.0),
    "max": ("max", float("-inf")),
    "min": ("min", float("inf")),
}
"""How elements are joined, and what a segment without any is."""


@converter("aten.segment_reduce.default")
def _segment_reduce(node: TorchNode) -> Value:
    data, kind, axis = node["data"], str(node["reduce"]), int(node["axis"])
    if kind not in _JOINS or node["indices"] is not None:
        raise UnsupportedError(f"segment_reduce {kind} by indices")
    offsets = _offsets(node)
    if offsets.rank != axis + 1:
        raise UnsupportedError("segment_reduce along an axis that is not the last of its lengths")
    join, neutral = _JOINS[kind]
    initial = node["initial"]
    first = neutral if initial is None else float(initial)
    leading, size, rest = data.shape[:axis], data.shape[axis], data.shape[axis + 1 :]
    segments = offsets.shape[-1] - 1
    places = F.broadcast_to(F.arange(size, dtype=i64), (*leading, size))
    # Bucket 0 is for elements before the first segment, the last one for those after the last.
    bucket = F.cast(F.searchsorted(offsets, places, right=True), i64)
    spread = F.expand(
        F.reshape(bucket, (*leading, size, *(1 for _ in rest))), (*leading, size, *rest)
    )
    start = F.full((*leading, segments + 2, *rest), first, data.dtype)
    joined = F.put_along_axis(start, spread, data, axis, join)
    result = F.slice(joined, [1], [segments + 1], axes=[axis])
    if kind != "mean":
        return result
    ends = F.slice(offsets, [1], [segments + 1], axes=[axis])
    counts = ends - F.slice(offsets, [0], [segments], axes=[axis])
    counts = F.cast(F.reshape(counts, (*leading, segments, *(1 for _ in rest))), data.dtype)
    none = F.equal(counts, 0)
    empty = float("nan") if initial is None else first
    return F.where(none, empty, result / F.where(none, 1, counts))


def _offsets(node: TorchNode) -> Value:
    """Where each segment starts, and at the end where the last one stops."""
    if node["offsets"] is not None:
        return F.cast(node["offsets"], i64)
    if node["lengths"] is None:
        raise UnsupportedError("segment_reduce without lengths or offsets")
    lengths = F.cast(node["lengths"], i64)
    zero = F.zeros((*lengths.shape[:-1], 1), i64)
    return F.concat([zero, F.cumsum(lengths, -1)], -1)
