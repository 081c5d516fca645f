"""Graphs in the formats of others: ``onnx``, ``fx`` and TorchScript, ``stablehlo`` and ``hlo``.

Each format has a table that says what an op is there (``writers``). An op that it lacks becomes
others that it has, or is named in an error.
"""

from monograph.exporters.onnx import to_onnx

__all__ = ["to_onnx"]
