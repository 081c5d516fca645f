"""Constants, weights, counts and fills."""

from __future__ import annotations

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.ir.dims import Dim
from monograph.ops.data import Constant, DimValue, Full, Iota, Weight

MAX_INLINE_ELEMENTS = 1024
"""Elements of a constant that are written out; a larger one of one element is made at run time."""


@exports(Constant)
def constant(node: ExportContext[Constant]) -> Exported:
    """A constant of the model, or one number stretched."""
    data = node.op.data
    if data.size > MAX_INLINE_ELEMENTS and data.splat is not None:
        element = node.scope.constant(data.array().reshape(-1)[:1].reshape(()), data.dtype)
        return node.expand(element, (), data.shape)
    if node.scope.root.is_function or (
        data.size <= MAX_INLINE_ELEMENTS and node.scope is not node.writer.main
    ):
        return node.scope.constant(data.array(), data.dtype)
    return node.weight(data, "constant")


@exports(Weight)
def weight(node: ExportContext[Weight]) -> Exported:
    """weight → an initializer."""
    return node.weight(node.op.data, node.op.label)


@exports(Iota)
def iota(node: ExportContext[Iota]) -> Exported:
    """iota → Range, along its axis, stretched."""
    shape = node.op.shape
    axis = node.op.axis % len(shape)
    counts = node.counted(shape[axis], node.op.dtype)
    column: tuple[Dim, ...] = (shape[axis], *(1,) * (len(shape) - 1 - axis))
    return node.expand(node.reshape(counts, (shape[axis],), column), column, shape)


@exports(DimValue)
def dim(node: ExportContext[DimValue]) -> Exported:
    """A size, worked out when the model runs."""
    return node.scalar_size(node.op.value)


@exports(Full)
def full(node: ExportContext[Full]) -> Exported:
    """full → ConstantOfShape."""
    return node.filled(node.op.shape, node.op.value, node.op.dtype)
