"""Models as people ship them: ONNX files with free sizes, made by several exporters.

``python -m benchmarks.shipped`` measures each as it is, and with its sizes fixed, beside ONNX
Runtime and OpenVINO; ``python -m benchmarks.shipped.stream`` sends requests of changing sizes.
"""

from benchmarks.shipped import converters, images, speech, texts
from benchmarks.shipped.model import Feed, Shipped, Sizes, select

__all__ = ["Feed", "Shipped", "Sizes", "converters", "images", "select", "speech", "texts"]
