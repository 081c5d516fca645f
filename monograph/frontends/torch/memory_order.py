"""Results that torch lays out in another order than row by row: channels-last images, transposes.

A graph gives rows. So that a result need not be turned twice, the graph is let give it as it lies
in torch's memory (a transposition at its end is part of where a kernel stores), and the caller gets
a view of that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from monograph.ops.shape import transpose

if TYPE_CHECKING:
    from monograph.frontends.torch.program import ImportedModel, Output
    from monograph.ir.graph import Value

Order: TypeAlias = tuple[int, ...]
"""The dimensions of a tensor from the outermost to the innermost in memory."""


def order_of(tensor: Any) -> Order | None:
    """The order of a tensor's dimensions in memory; None for row by row."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    strides = [_hint(stride) for stride in tensor.stride()]
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: -strides[axis]))
    return None if order == tuple(range(tensor.dim())) else order


def _hint(stride: Any) -> int:
    return stride if isinstance(stride, int) else int(stride.node.hint or 0)


def turn_outputs(model: ImportedModel, given: Collection[Order] | None = None) -> ImportedModel:
    """Let the graph give results as they lie in torch's memory.

    With ``given``, the orders of the arguments that are not rows either, only results of as many
    dimensions as one of those, and transposes: a factor that LAPACK happened to leave column by
    column is as good in rows. Results that are given twice, or written back, stay as they are.
    """
    places = [each.position for each in model.outputs]
    outputs = []
    for each in model.outputs:
        is_once = places.count(each.position) == 1 and each.position not in model.graph.updates
        outputs.append(_transpose_output(model, each, given) if is_once else each)
    return replace(model, outputs=tuple(outputs))


def _transpose_output(
    model: ImportedModel, output: Output, given: Collection[Order] | None
) -> Output:
    place, order, graph = output.position, output.order, model.graph
    if place is None or order is None or output.is_number:
        return output
    value = graph.outputs[place]
    is_wanted = given is None or any(len(each) == len(order) for each in given)
    if not is_wanted and not _is_transpose(value, order):
        return output
    with graph.inserting_before(None):
        graph.output_node.set_operand(place, transpose(value, order))
    return replace(output, is_turned=True)


def _is_transpose(value: Value, order: Order) -> bool:
    """Whether turning the value into this order is to undo what made it."""
    node = value.producer
    if node is None or node.op.name != "transpose":
        return False
    permutation = node.op.attributes()["permutation"]
    return tuple(permutation[axis] for axis in order) == tuple(range(len(order)))


def transpose_back(tensor: Any, output: Output) -> Any:
    """What the graph gives for an output, as a view in its own order."""
    if not output.is_turned or output.order is None:
        return tensor
    order = output.order
    inverse = [order.index(axis) for axis in range(len(order))]
    return tensor.permute(inverse)
