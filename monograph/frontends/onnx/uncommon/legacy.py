"""Experimental ops that ONNX dropped, which old models still hold and ONNX Runtime runs."""

from __future__ import annotations

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.converters.shape import slice_
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import Results, converter
from monograph.ir.graph import Value


@converter("Affine")
def affine(node: OnnxNode) -> Value:
    """alpha * x + beta."""
    x = node.input(0)
    return F.add(F.multiply(x, node.number("alpha", 1.0)), node.number("beta", 0.0))


@converter("Scale")
def scale(node: OnnxNode) -> Value:
    """A tensor times a number."""
    return F.multiply(node.input(0), node.number("scale", 1.0))


@converter("ScaledTanh")
def scaled_tanh(node: OnnxNode) -> Value:
    """alpha * tanh(beta * x)."""
    inner = F.tanh(F.multiply(node.input(0), node.number("beta", 1.0)))
    return F.multiply(inner, node.number("alpha", 1.0))


@converter("ParametricSoftplus")
def parametric_softplus(node: OnnxNode) -> Value:
    """alpha * softplus(beta * x)."""
    inner = F.softplus(F.multiply(node.input(0), node.number("beta", 1.0)))
    return F.multiply(inner, node.number("alpha", 1.0))


@converter("ImageScaler")
def image_scaler(node: OnnxNode) -> Value:
    """An image times a number, plus a number for each channel."""
    x = node.input(0)
    bias = np.array(node.floats("bias", ()), x.dtype.numpy).reshape(-1, 1, 1)
    scaled = F.multiply(x, node.number("scale", 1.0))
    return F.add(scaled, bias) if bias.size else scaled


@converter("Crop")
def crop(node: OnnxNode) -> Value:
    """An image without its borders (left, top, right, bottom), or a part of a given size."""
    x = node.input(0)
    left, top, right, bottom = node.ints("border")
    sizes = node.ints("scale", ())
    ends = [x.shape[2] - bottom, x.shape[3] - right]
    if sizes:
        ends = [top + sizes[0], left + sizes[1]]
    return F.slice(x, (top, left), ends, axes=(2, 3))


@converter("DynamicSlice")
def dynamic_slice(node: OnnxNode) -> Results:
    """``Slice`` with operands, before ``Slice`` had them."""
    return slice_(node)
