"""Histograms in one dimension and in several, with edges that are given or spread evenly."""

from __future__ import annotations

from typing import Any

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, static
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value


@converter("aten.histogram.bins_tensor")
def _histogram(node: TorchNode) -> tuple[Value, Value]:
    return _count_between(node, node["bins"]), node["bins"]


@converter("aten.histogram.bin_ct")
def _histogram_evenly(node: TorchNode) -> tuple[Value, Value]:
    edges = _even_edges(F.reshape(node["self"], (-1,)), node["bins"], node["range"])
    return _count_between(node, edges), edges


@converter("aten._histogramdd_from_bin_tensors.default")
def _histogram_of_points(node: TorchNode) -> Value:
    return _count_between(node, node["bins"])


@converter("aten._histogramdd_bin_edges.default")
def _edges_of_points(node: TorchNode) -> tuple[Value, ...]:
    x, given = node["self"], node["range"]
    points = F.reshape(x, (-1, x.shape[-1]))
    edges = []
    for axis, bins in enumerate(node["bins"]):
        bounds = None if given is None else given[2 * axis : 2 * axis + 2]
        edges.append(_even_edges(F.take(points, axis, axis=1), bins, bounds))
    return tuple(edges)


@converter("aten._histogramdd_from_bin_cts.default")
def _histogram_of_points_evenly(node: TorchNode) -> Value:
    return _count_between(node, list(_edges_of_points(node)))


def _count_between(node: TorchNode, edges: Any) -> Value:
    return F.histogram(node["self"], edges, node["weight"], bool(node["density"]))


def _even_edges(x: Value, bins: Any, bounds: list[float] | None) -> Value:
    """The edges of equal bins, from the first bound (or the least element) to the last.

    They are computed from both ends towards the middle, as torch does.
    """
    count = static(bins, "the number of bins") + 1
    if bounds is not None or x.shape[0] == 0:
        low, high = (F.full((), float(bound), x.dtype) for bound in bounds or (0.0, 1.0))
    else:
        low, high = F.min(x), F.max(x)
    apart = F.where(F.equal(low, high), F.full((), 0.5, x.dtype), 0)
    low, high = low - apart, high + apart
    step = (high - low) / float(count - 1)
    place = F.arange(count, dtype=x.dtype)
    rising = low + step * place
    falling = high - step * (float(count - 1) - place)
    return F.where(F.less(place, float(count // 2)), rising, falling)
