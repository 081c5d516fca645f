"""The names that programs import from ONNX Runtime's compiled module."""

from monograph.onnxruntime.binding import IOBinding as SessionIOBinding
from monograph.onnxruntime.environment import get_available_providers, get_device
from monograph.onnxruntime.exceptions import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoaded,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    RuntimeException,
)
from monograph.onnxruntime.model_facts import ModelMetadata, NodeArg
from monograph.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from monograph.onnxruntime.values import OrtDevice, OrtMemoryInfo, OrtValue, OrtValueVector

__all__ = [
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoaded",
    "ModelMetadata",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtDevice",
    "OrtMemoryInfo",
    "OrtValue",
    "OrtValueVector",
    "RunOptions",
    "RuntimeException",
    "SessionIOBinding",
    "SessionOptions",
    "get_available_providers",
    "get_device",
]
