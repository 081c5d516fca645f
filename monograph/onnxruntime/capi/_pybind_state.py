"""The other name of ``onnxruntime_pybind11_state``."""

from monograph.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
