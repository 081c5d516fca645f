"""Borders around a tensor: of one value, or of its own elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply
from monograph.ir.dims import Dim, dim_max, dim_min, provably_at_least
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import bool_, string
from monograph.ops.index import Take
from monograph.ops.rules import normalize_axis
from monograph.ops.slicing import BORDERS, Border


@converter("Pad")
def pad_attributes(node: OnnxNode) -> Value:
    """Borders whose widths and value are attributes."""
    widths = node.ints("paddings" if node.opset < 2 else "pads")
    return _pad(node, widths, None, node.number("value", 0.0))


@converter("Pad", since=11)
def pad(node: OnnxNode) -> Value:
    """Borders whose widths, value and axes are operands."""
    axes = None if node.optional(3) is None else node.need_ints(3)
    return _pad(node, node.need_dims(1), axes, _fill(node))


def _fill(node: OnnxNode) -> bool | int | float | Value:
    """What to fill with: a number if it is known, otherwise a scalar of the graph."""
    x, given, known = node.input(0), node.optional(2), node.constant(2)
    if given is None and x.dtype is string:
        return current_graph().add_constant(np.array("", object), string)
    if given is None:
        return False if x.dtype is bool_ else 0
    if given.dtype is not x.dtype:
        raise node.error("one dtype is needed", found=f"{x.type} and {given.type}")
    if known is None or known.size != 1 or x.dtype is string or x.dtype.is_complex:
        return F.reshape(given, ())
    number = known.reshape(())
    if x.dtype is bool_:
        return bool(number)
    return int(number) if x.dtype.is_integer else float(number)


def _pad(
    node: OnnxNode,
    widths: Sequence[Dim],
    axes: Sequence[int] | None,
    fill: bool | int | float | Value,
) -> Value:
    x, mode = node.input(0), node.string("mode", "constant")
    named = range(x.rank) if axes is None else axes
    chosen = [normalize_axis("Pad", axis, x.rank) for axis in named]
    if len(widths) != 2 * len(chosen) or len(set(chosen)) != len(chosen):
        raise node.error("two widths are needed for each axis", found=f"{widths} for {x.type}")
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    for position, axis in enumerate(chosen):
        low[axis], high[axis] = widths[position], widths[len(chosen) + position]
    if mode in BORDERS:
        return _add_borders(node, x, low, high, mode)
    if mode != "constant":
        expected = ", ".join(("constant", *BORDERS))
        raise node.error("an unknown mode", expected=expected, found=mode)
    if isinstance(fill, Value):
        return _fill_borders(x, low, high, fill)
    return F.pad(x, low, high, fill)


def _add_borders(
    node: OnnxNode, x: Value, low: Sequence[Dim], high: Sequence[Dim], mode: Border
) -> Value:
    """Borders of the tensor's own elements, once what is to be cropped is.

    They go on where they are wider than the tensor.
    """
    x = F.pad(x, [dim_min(each, 0) for each in low], [dim_min(each, 0) for each in high])
    below, above = ([dim_max(each, 0) for each in side] for side in (low, high))
    for axis, size in enumerate(x.shape):
        before, after = below[axis], above[axis]
        if isinstance(size, int) and isinstance(before, int) and isinstance(after, int):
            if mode != "edge" and 0 < size <= max(before, after):
                places = np.pad(np.arange(size), (before, after), mode=mode)
                x = apply(Take(axis), x, places)
                below[axis] = above[axis] = 0
        elif mode == "wrap" and not provably_at_least(size, dim_max(before, after)):
            raise NotStatic(f"{node.name}: how often to go round is not known before it runs")
    return F.pad(x, below, above, mode=mode)


def _fill_borders(x: Value, low: Sequence[Dim], high: Sequence[Dim], fill: Value) -> Value:
    """Borders of a value that only the run knows, or that is no number."""
    if x.dtype is string:
        grown = F.pad(x, low, high, mode="edge")
    else:
        grown = F.pad(x, low, high, False if x.dtype is bool_ else 0)
    inside = F.pad(F.full(x.shape, True, bool_), low, high, False)
    return F.where(inside, grown, fill)
