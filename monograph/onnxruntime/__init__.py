"""ONNX Runtime's Python API on this compiler: ``import monograph.onnxruntime as ort``.

    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})

The calls that programs written for ONNX Runtime make, with the same names, arguments, results and
exceptions: sessions, their options, ``OrtValue`` and ``IOBinding``. An option that changes nothing
here is accepted, with an ``OptionWarning`` that names it; what cannot be done (another device,
libraries of custom ops) is an error. There is one provider, ``CPUExecutionProvider``.
"""

from __future__ import annotations

from monograph.onnxruntime.assignment import OrtEpAssignedNode, OrtEpAssignedSubgraph
from monograph.onnxruntime.binding import IOBinding
from monograph.onnxruntime.environment import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from monograph.onnxruntime.memory import (
    OrtAllocatorType,
    OrtArenaCfg,
    OrtDevice,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtMemoryInfo,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    create_and_register_allocator,
    create_and_register_allocator_v2,
)
from monograph.onnxruntime.model_facts import ModelMetadata, NodeArg
from monograph.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OptionWarning,
    RunOptions,
    SessionOptions,
    set_global_thread_pool_sizes,
)
from monograph.onnxruntime.session import InferenceSession
from monograph.onnxruntime.values import OrtValue, copy_tensors

__version__ = get_version_string()

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OptionWarning",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]
