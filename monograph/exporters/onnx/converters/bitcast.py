"""Bits as elements of another dtype: ONNX's BitCast where the width stays, shifts where not."""

from __future__ import annotations

from functools import reduce as fold

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.protos import CODES
from monograph.exporters.onnx.registry import Exported, expands, exports
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import Kind, dtype_of
from monograph.ops import elementwise as e
from monograph.ops import joining
from monograph.ops import shape as shape_ops
from monograph.ops.bitcast import Bitcast


@exports(Bitcast)
def bitcast(node: ExportContext[Bitcast]) -> Exported:
    """bitcast → BitCast, and Cast between integers, where the width stays."""
    source, target = node.dtype, node.op.dtype
    if source.is_integer and target.is_integer and source.bits == target.bits:
        return node.cast(node.inputs[0], target)
    known = all(node.runs("BitCast", dtype) and dtype.bits > 8 for dtype in (source, target))
    if node.opset < 26 or source.bits != target.bits or not known:
        return None
    return node.emit("BitCast", *node.inputs, dtype=target, to=CODES[target])


@expands(Bitcast)
def bitcast_by_shifts(op: Bitcast, x: Value) -> Value:
    """The bits as unsigned integers; their parts, or what they are parts of; and as the target."""
    source, target = x.dtype, op.dtype
    if source.bits == target.bits or Kind.COMPLEX in (source.kind, target.kind):
        raise NotImplementedError
    narrow, wide = (dtype_of(f"u{bits}") for bits in sorted((source.bits, target.bits)))
    count = wide.bits // narrow.bits
    own = apply(Bitcast(dtype_of(f"u{source.bits}")), x)
    last: Dim = x.shape[-1]
    if source.bits > target.bits:
        parts = [cast_to(e.shift_right(own, narrow.bits * n), narrow) for n in range(count)]
        made = shape_ops.reshape(joining.stack(parts, -1), (*x.shape[:-1], last * count))
    else:
        groups = shape_ops.reshape(own, (*x.shape[:-1], last // count, count))
        parts = [shape_ops.squeeze(part, -1) for part in joining.split(groups, (1,) * count, -1)]
        moved = [e.shift_left(cast_to(part, wide), narrow.bits * n) for n, part in enumerate(parts)]
        made = fold(e.bitwise_or, moved)
    return made if made.dtype is target else apply(Bitcast(target), made)
