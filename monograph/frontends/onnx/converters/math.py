"""Functions of one number: exponentials, trigonometry and their relatives."""

from __future__ import annotations

from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply
from monograph.ir.graph import Value
from monograph.ir.op import Op
from monograph.ops import math, rectifier, trigonometry

_UNARY: dict[str, Op] = {
    "Exp": math.Exp(),
    "Log": math.Log(),
    "Sqrt": math.Sqrt(),
    "Reciprocal": math.Reciprocal(),
    "Sin": math.Sin(),
    "Cos": math.Cos(),
    "Tanh": math.Tanh(),
    "Sigmoid": math.Sigmoid(),
    "Erf": math.Erf(),
    "Tan": trigonometry.Tan(),
    "Asin": trigonometry.Asin(),
    "Acos": trigonometry.Acos(),
    "Atan": trigonometry.Atan(),
    "Sinh": trigonometry.Sinh(),
    "Cosh": trigonometry.Cosh(),
    "Asinh": trigonometry.Asinh(),
    "Acosh": trigonometry.Acosh(),
    "Atanh": trigonometry.Atanh(),
    "Relu": rectifier.Relu(),
}


@converter(*_UNARY)
def unary(node: OnnxNode) -> Value:
    """A function of one number that means the same here."""
    return apply(_UNARY[node.op_type], node.input(0))
