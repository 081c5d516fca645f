"""Fusion of a whole program: the graph, and the regions of its branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from monograph.fusion.fuse import fuse
from monograph.fusion.group import Fusion
from monograph.fusion.limits import FusionLimits
from monograph.ir.graph import Graph, Node

Fusions: TypeAlias = Mapping[Graph, Fusion]
"""The groups of a graph and of each region in it, outermost first."""


def fuse_regions(
    graph: Graph, computes: Callable[[Node], bool], limits: FusionLimits, *, enabled: bool = True
) -> Fusions:
    """Group the nodes of a graph and of all its regions.

    A target says which nodes its kernels can compute, the others stay alone; and what its
    memory costs. Without ``enabled`` every node is a group of its own.
    """
    found: dict[Graph, Fusion] = {}
    pending = [graph]
    while pending:
        each = pending.pop()
        can_lower = {node: computes(node) for node in each.nodes}
        found[each] = fuse(each, can_lower, limits, enabled=enabled)
        pending += [region for node in each.nodes for region in node.regions]
    return found
