"""The names that programs import from where ONNX Runtime defines its classes."""

from monograph.onnxruntime.binding import IOBinding
from monograph.onnxruntime.memory import OrtDevice, OrtDeviceVendorId
from monograph.onnxruntime.providers import check_and_normalize_provider_args
from monograph.onnxruntime.session import InferenceSession
from monograph.onnxruntime.values import OrtValue, copy_tensors

__all__ = [
    "IOBinding",
    "InferenceSession",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "check_and_normalize_provider_args",
    "copy_tensors",
]
