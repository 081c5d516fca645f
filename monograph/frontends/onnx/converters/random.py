"""Random numbers, and dropout.

ONNX leaves the generator open. Here numbers come from a key, and a node's key is its seed, or its
own name where it has none: a model draws the same numbers each time that it runs. Only a dropout
that trains with a seed draws the mask that ONNX's reference draws, NumPy's of that seed.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.data import ArrayData
from monograph.ir.dims import Shape, is_static
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import DType, bool_, f32, i32, wide

LARGEST_MASK = 2**24
"""Elements that a mask drawn while importing may have; a larger one is drawn from a key."""


def key_of(node: OnnxNode) -> Value:
    """The key of a node: of its seed, or of the name of its result."""
    seed = node.attribute("seed")
    if seed is None:
        label = f"{node.scope.prefix}{next(iter(node.proto.output), '')}"
        return F.random_key(zlib.crc32(label.encode()))
    if isinstance(seed, float):
        return F.random_key(struct.unpack("<Q", struct.pack("<d", seed))[0])
    return F.random_key(node.integer("seed"))


@converter("RandomNormal", "RandomUniform")
def random(node: OnnxNode) -> Value:
    """Numbers of a shape that is an attribute."""
    return _draw(node, node.ints("shape"), node.dtype("dtype", f32))


@converter("RandomNormalLike", "RandomUniformLike")
def random_like(node: OnnxNode) -> Value:
    """Numbers of the shape, and by default the dtype, of an operand."""
    x = node.input(0)
    return _draw(node, x.shape, node.dtype("dtype", x.dtype))


def _draw(node: OnnxNode, shape: Shape, dtype: DType) -> Value:
    if node.op_type.startswith("RandomNormal"):
        mean, scale = node.number("mean", 0.0), node.number("scale", 1.0)
        return F.normal(key_of(node), shape, mean, scale, dtype)
    low, high = node.number("low", 0.0), node.number("high", 1.0)
    return F.uniform(key_of(node), shape, low, high, dtype)


@converter("Bernoulli")
def bernoulli(node: OnnxNode) -> Value:
    """Ones with the probabilities that the operand holds, zeros otherwise."""
    chance = node.input(0)
    return cast_to(F.bernoulli(key_of(node), chance), node.dtype("dtype", chance.dtype))


@converter("Multinomial")
def multinomial(node: OnnxNode) -> Value:
    """Classes drawn with given log-probabilities: the largest of them after Gumbel's noise."""
    scores, count = node.input(0), node.integer("sample_size", 1)
    if scores.rank != 2 or count < 0:
        raise node.error(
            "a matrix and a number of samples are needed", found=f"{count} of {scores.type}"
        )
    batch, classes = scores.shape
    noise = F.uniform(key_of(node), (batch, count, classes))
    gumbel = F.negate(F.log(F.negate(F.log(noise))))
    noisy = F.add(F.unsqueeze(cast_to(scores, wide(scores.dtype)), 1), gumbel)
    return cast_to(F.argmax(noisy, -1), node.dtype("dtype", i32))


@converter("Dropout")
def dropout_attributes(node: OnnxNode) -> tuple[Value, Value]:
    """Dropout of models before opset 12; since opset 7 it does nothing."""
    x = node.input(0)
    training = node.opset < 7 and not node.integer("is_test", 0)
    ratio = node.number("ratio", 0.5) if training else 0.0
    y, mask = _dropout(node, x, ratio)
    return y, mask if node.opset >= 10 else cast_to(mask, x.dtype)


@converter("Dropout", since=12)
def dropout(node: OnnxNode) -> tuple[Value, Value]:
    """Elements zeroed at random while training, the others scaled up; nothing otherwise."""
    training = node.optional(2) is not None and bool(node.need_constant(2).reshape(()))
    if not training:
        return _dropout(node, node.input(0), 0.0)
    ratio = 0.5 if node.optional(1) is None else float(node.need_constant(1).reshape(()))
    return _dropout(node, node.input(0), ratio)


def _dropout(node: OnnxNode, x: Value, ratio: float) -> tuple[Value, Value]:
    if not 0 <= ratio < 1:
        raise node.error("the ratio is not below 1", expected="0 to 1", found=str(ratio))
    if ratio == 0:
        return x, F.full(x.shape, True, bool_)
    mask = _mask(node, x.shape, ratio)
    exact = cast_to(x, wide(x.dtype))
    kept = F.where(mask, exact * (1.0 / (1.0 - ratio)), 0.0)
    return cast_to(kept, x.dtype), mask


def _mask(node: OnnxNode, shape: Shape, ratio: float) -> Value:
    """Which elements stay."""
    if not node.has("seed") or not is_static(shape) or np.prod(shape) > LARGEST_MASK:
        return F.greater_equal(F.uniform(key_of(node), shape), ratio)
    generator = np.random.RandomState(node.integer("seed") % 2**32)
    kept = np.asarray(generator.uniform(0.0, 1.0, shape) >= ratio)
    label = f"{node.scope.prefix}{node.proto.output[0]}_mask"
    return current_graph().add_weight(label, ArrayData(kept, bool_))
