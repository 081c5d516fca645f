"""Casts. ONNX leaves open what a float outside an integer's range becomes; ours saturates."""

from __future__ import annotations

import numpy as np

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.emitter import computing
from monograph.exporters.onnx.protos import CODES
from monograph.exporters.onnx.registry import Exported, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.graph import Node
from monograph.ir.types import DType, bool_, f64, i8, string
from monograph.ops.elementwise import Cast, StopGradient
from monograph.ops.elementwise.base import limits


@exports(StopGradient)
def stop_gradient(node: ExportContext[StopGradient]) -> Exported:
    """Nothing: it is its operand."""
    return node.inputs[0]


def _saturates(node: Node) -> bool:
    """Whether a cast goes from a float to an integer."""
    assert isinstance(node.op, Cast)
    return node.operands[0].dtype.is_float and node.op.dtype.is_integer


@exports(Cast, function=_saturates)
def cast(node: ExportContext[Cast]) -> Exported:
    """cast → Cast; from floats to integers a function that saturates."""
    target = node.op.dtype
    if target is string and node.dtype.is_float:
        return None  # ONNX Runtime prints other digits
    if node.dtype.is_float and target.is_integer:
        return _saturate(node, target)
    return node.cast(node.inputs[0], target)


def _saturate(node: ExportContext[Cast], target: DType) -> Term:
    """NaN as 0, then held within the range; what lies beyond it has to be put in afterwards.

    (The largest i64 is no float: the largest float below it is what can be held on to.)
    """
    low, high = (int(bound) for bound in limits(target))
    exact = f64 if target.bits == 32 else computing(node.dtype)  # in which the bounds are numbers
    x = node.cast(node.inputs[0], exact)
    number = node.where(node.is_nan(x), node.number(0, exact), x)
    highest = _largest_at_most(high, exact)
    held = node.emit("Clip", number, node.number(low, exact), node.number(highest, exact))
    if target.is_packed:
        return node.cast(node.write("Cast", [held], [i8], {"to": CODES[i8]})[0], target)
    whole = node.write("Cast", [held], [target], {"to": CODES[target]})[0]
    if highest == high:
        return whole
    beyond = node.emit("Greater", x, node.number(highest, exact), dtype=bool_)
    return node.where(beyond, node.number(high, target), whole)


def _largest_at_most(bound: int, dtype: DType) -> int:
    """The largest number of a float dtype that is not above the bound."""
    nearest = np.asarray(bound).astype(dtype.numpy)
    below = nearest if int(nearest) <= bound else np.nextafter(nearest, dtype.numpy.type(0))
    return int(below)
