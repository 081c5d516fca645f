"""Small functions as groups: traced, their composites lowered, and fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import monograph
from monograph.fusion.fuse import fuse
from monograph.fusion.group import Fusion, Group
from monograph.kernel.lower import is_lowerable
from monograph.passes.lower_composites import LowerComposites
from monograph.targets.cpu.target import FORMULAS


def fused(function: Callable[..., Any], *types: str, enabled: bool = True) -> Fusion:
    """The groups of a traced function."""
    graph = monograph.trace(function, *types)
    LowerComposites(keep=FORMULAS, keep_lowerable=True).run(graph)
    return fuse(graph, {node: is_lowerable(node) for node in graph.nodes}, enabled=enabled)


def ops(group: Group) -> list[str]:
    """The names of a group's ops, in order."""
    return [node.op.name for node in group.nodes]


def grouped(function: Callable[..., Any], *types: str, enabled: bool = True) -> list[list[str]]:
    """The names of the ops of each group."""
    return [ops(group) for group in fused(function, *types, enabled=enabled).groups]


def outputs(group: Group) -> list[str]:
    """The names of what a group writes."""
    return [value.name for value in group.outputs()]


def apart(fusion: Fusion) -> list[str]:
    """Why values are read from memory, without their names."""
    reasons = [reason for group in fusion.groups for reason in group.apart]
    return [reason.split(" is read from memory: ")[1] for reason in reasons]
