"""Which inputs a program may read in place with their own strides."""

from __future__ import annotations

from collections.abc import Mapping

from monograph.ir.graph import Graph, Value
from monograph.ir.types import TensorType
from monograph.targets.base import Target


def usable_strides(
    graph: Graph, target: Target, strides: Mapping[int, tuple[int, ...]]
) -> dict[Value, tuple[int, ...]]:
    """The strided inputs that only kernels read; one that is copied or interpreted is not.

    Nor is one whose strides would be others for other sizes of its symbolic dimensions.
    """
    usable = {}
    for number, each in strides.items():
        value = graph.inputs[number]
        in_kernels = all(target.computes(use.node) for use in value.uses)
        if in_kernels and value not in graph.outputs and _holds(value.tensor, each):
            usable[value] = each
    return usable


def _holds(type_: TensorType, strides: tuple[int, ...]) -> bool:
    """Whether elements have places of their own whatever the symbolic sizes are."""
    pairs = list(zip(type_.shape, strides, strict=True))
    symbolic = [stride for dim, stride in pairs if not isinstance(dim, int)]
    inside = sum((dim - 1) * stride for dim, stride in pairs if isinstance(dim, int))
    return len(symbolic) == 0 or (len(symbolic) == 1 and symbolic[0] > inside)
