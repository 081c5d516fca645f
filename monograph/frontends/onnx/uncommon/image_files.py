"""Converter of ``ImageDecoder``: pixels from the bytes of an image file."""

from __future__ import annotations

from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply
from monograph.ir.graph import Value
from monograph.ops.image import DecodeImage


@converter("ImageDecoder")
def image_decoder(node: OnnxNode) -> Value:
    """The image that the bytes of a file hold."""
    height, width = node.fresh("height"), node.fresh("width")
    pixel_format = node.string("pixel_format", "RGB")
    return apply(DecodeImage(height, width, pixel_format), node.input(0))  # type: ignore[arg-type]
