"""Quantization: profile a model's activations, convert it to small integers, measure what it costs.

``monograph.quantize`` is the public surface (``interface``). A profile (``profile``) is taken by
compiled code with observers in it (``observers``, ``profiling``); ranges come from it
(``calibrate``); a min-cut decides which tensors are stored as integers (``placement``); and the
graph is rewritten (``convert``), in the form that quantized ONNX models have here, too: integers
between ``quantize`` and ``dequantize``, which compile to products of integers.
"""
