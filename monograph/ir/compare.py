"""Whether two graphs are the same."""

from __future__ import annotations

from collections.abc import Sequence

from monograph.ir.graph import Graph, Value


def structurally_equal(a: Graph, b: Graph, *, names: bool = False) -> bool:
    """Whether two graphs are the same node for node; names count only if asked for."""
    if len(a.inputs) != len(b.inputs) or len(a) != len(b) or len(a.outputs) != len(b.outputs):
        return False
    if a.updates != b.updates or a.donated != b.donated:
        return False
    mapping: dict[Value, Value] = {}
    if not _values_match(a.inputs, b.inputs, mapping, names):
        return False
    for left, right in zip(a.nodes, b.nodes, strict=True):
        if left.op != right.op or len(left.regions) != len(right.regions):
            return False
        if tuple(mapping.get(value) for value in left.operands) != right.operands:
            return False
        if not _values_match(left.results, right.results, mapping, names):
            return False
        pairs = zip(left.regions, right.regions, strict=True)
        if not all(structurally_equal(x, y, names=names) for x, y in pairs):
            return False
    return tuple(mapping.get(value) for value in a.outputs) == b.outputs


def _values_match(
    left: Sequence[Value], right: Sequence[Value], mapping: dict[Value, Value], names: bool
) -> bool:
    if len(left) != len(right):
        return False
    for x, y in zip(left, right, strict=True):
        if x.type != y.type or (names and x.name != y.name):
            return False
        mapping[x] = y
    return True
