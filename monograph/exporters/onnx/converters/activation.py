"""Activations and softmax, most of which ONNX has under another name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from monograph.dataclass import dataclass
from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.op import Op
from monograph.ops import activation as a
from monograph.ops import rectifier as r
from monograph.ops import softmax as s
from monograph.ops.elementwise.base import float_facts


@dataclass(frozen=True)
class Native:
    """An op that ONNX has: its name there, its attributes, and since which opset.

    ``lifted``: at -inf ONNX's is -inf * 0, a NaN, where ours has its limit; -inf is raised to the
    lowest number first.
    """

    name: str
    attributes: Callable[[Any], dict[str, Any]] = lambda op: {}
    since: int = 1
    lifted: bool = False


NATIVE: Mapping[type[Op], Native] = {
    r.Relu: Native("Relu"),
    r.LeakyRelu: Native("LeakyRelu", lambda op: {"alpha": op.slope}),
    r.Hardsigmoid: Native("HardSigmoid", lambda op: {"alpha": 1 / 6, "beta": 0.5}),
    r.Hardswish: Native("HardSwish", lifted=True),
    a.Elu: Native("Elu", lambda op: {"alpha": op.alpha}),
    a.Selu: Native("Selu", lambda op: {"alpha": a.SELU_ALPHA, "gamma": a.SELU_SCALE}),
    a.Celu: Native("Celu", lambda op: {"alpha": op.alpha}),
    a.Gelu: Native("Gelu", lambda op: {"approximate": op.approximate}, since=20, lifted=True),
    a.Mish: Native("Mish", lifted=True),
    s.Softmax: Native("Softmax", lambda op: {"axis": op.axis}),
    s.LogSoftmax: Native("LogSoftmax", lambda op: {"axis": op.axis}),
}


@exports(*NATIVE)
def activation(node: ExportContext[Any]) -> Exported:
    """ONNX's own op, if ONNX Runtime has it for the dtype."""
    native = NATIVE[type(node.op)]
    if node.opset < native.since or not node.runs(native.name, node.dtype):
        return None
    if isinstance(node.op, s.Softmax) and node.op.fully_masked != "nan":
        return None
    x = _lift_negative_infinity(node) if native.lifted and node.special_values else node.inputs[0]
    return node.emit(native.name, x, **native.attributes(node.op))


def _lift_negative_infinity(node: ExportContext[Any]) -> Term:
    """The operand with -inf replaced by the lowest number, so that times 0 it is -0.0."""
    lowest = node.number(-float(float_facts(node.dtype).max), node.dtype)
    return node.emit("Max", node.inputs[0], lowest)


@exports(r.Prelu)
def prelu(node: ExportContext[r.Prelu]) -> Exported:
    """ONNX stretches the slope to the operand's shape, not the other way round."""
    fits = node.result.shape == node.shape()
    return node.emit("PRelu", *node.inputs) if fits and node.runs("PRelu", node.dtype) else None


@exports(a.Softplus)
def softplus(node: ExportContext[a.Softplus]) -> Exported:
    """ONNX's has no threshold; above 20 it is its operand in f32, to the last bit."""
    plain = node.op.beta == 1.0 and node.op.threshold >= 20.0
    if not plain or not node.runs("Softplus", node.dtype):
        return None
    return node.emit("Softplus", *node.inputs)
