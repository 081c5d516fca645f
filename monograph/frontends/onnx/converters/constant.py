"""Constants, and tensors filled with one element."""

from __future__ import annotations

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.data import ArrayData, Data
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import f32, i64, string

MAX_INLINE_ELEMENTS = 64
"""Constants of at most so many elements print in full."""


@converter("Constant")
def constant(node: OnnxNode) -> Value:
    """A tensor that is an attribute of the node."""
    data = constant_data(node)
    label = next((name for name in node.proto.output if name), "constant")
    if data.size <= MAX_INLINE_ELEMENTS or data.dtype is string:
        return current_graph().add_constant(data, name=label)
    return current_graph().add_weight(f"{node.scope.prefix}{label}", data)


def constant_data(node: OnnxNode) -> Data:
    """The contents that one of the attributes of a ``Constant`` gives."""
    given = [attribute.name for attribute in node.proto.attribute]
    if len(given) != 1:
        raise node.error("one value is needed", found=", ".join(given) or "none")
    (name,) = given
    value = node.attribute(name)
    if isinstance(value, Data):
        return value
    if name in ("value_float", "value_floats"):
        return ArrayData(np.array(value, np.float32), f32)
    if name in ("value_int", "value_ints"):
        return ArrayData(np.array(value, np.int64), i64)
    if name in ("value_string", "value_strings"):
        return ArrayData(np.array(value, object), string)
    raise node.error(f"there is no attribute {name!r}")


@converter("ConstantOfShape")
def constant_of_shape(node: OnnxNode) -> Value:
    """A shape filled with the one element of a tensor, a float zero if there is none."""
    shape = node.need_dims(0)
    if not node.has("value"):
        return F.zeros(shape, f32)
    data = node.tensor("value")
    if data.size != 1:
        raise node.error("one element is needed", found=str(data.type))
    element = data.array().reshape(())
    if data.dtype.is_complex or data.dtype is string or not data.dtype.is_float:
        return F.full(shape, current_graph().add_constant(element, data.dtype))
    return F.full(shape, float(element), data.dtype)


@converter("EyeLike")
def eye_like(node: OnnxNode) -> Value:
    """Ones on a diagonal, in the shape of a matrix."""
    like = node.input(0)
    if like.rank != 2:
        raise node.error("a matrix is needed", found=str(like.type))
    dtype = node.dtype("dtype", like.dtype)
    return F.eye(like.shape[0], like.shape[1], node.integer("k", 0), dtype)


@converter("Identity", any_types=True)
def identity(node: OnnxNode) -> Value:
    """The operand itself."""
    return node.input(0)
