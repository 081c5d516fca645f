"""Converters of ``com.microsoft``, ONNX Runtime's own ops: imported when a model holds one."""
