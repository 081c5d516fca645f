"""Wrong ONNX models, made in code: ``CASES`` holds every one of them by name."""

from tests.frontends.onnx.hostile import external, files, functions, graphs, running, tensors
from tests.frontends.onnx.hostile.case import CASES, Case

__all__ = ["CASES", "Case", "external", "files", "functions", "graphs", "running", "tensors"]
