"""Where ONNX Runtime keeps its exceptions, for programs that import them from there."""
