"""Converters of ``ai.onnx.ml``, classical machine learning: imported when a model holds one."""
