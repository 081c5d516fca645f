"""Graphs in the formats of others: ``to_onnx``."""

from monograph.exporters.onnx import to_onnx

__all__ = ["to_onnx"]
