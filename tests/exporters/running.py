"""Runs exported models: in ONNX Runtime, or in ONNX's reference evaluator where that cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper

from monograph.ir.types import DTYPES

CARRIERS = {
    "BFLOAT16": "FLOAT", "FLOAT8E4M3FN": "FLOAT", "FLOAT8E5M2": "FLOAT", "FLOAT8E4M3FNUZ": "FLOAT",
    "FLOAT8E5M2FNUZ": "FLOAT", "FLOAT8E8M0": "FLOAT", "FLOAT4E2M1": "FLOAT", "INT4": "INT8",
    "INT2": "INT8", "UINT4": "UINT8", "UINT2": "UINT8",
}  # fmt: skip
"""Dtypes that ONNX Runtime's Python API cannot pass, and those in which they are passed."""


def check(model: ModelProto) -> None:
    """ONNX's own checker, with type and shape inference."""
    onnx.checker.check_model(model, full_check=True)


def run_in_onnx_runtime(model: ModelProto, arrays: Sequence[Any]) -> list[np.ndarray]:
    """The model's outputs; floats narrower than f16 and packed integers come back as they are."""
    wrapped, dtypes = _with_passable_types(model)
    session = new_session(wrapped.SerializeToString())
    feeds = {
        value.name: _passable(np.asarray(array), value)
        for value, array in zip(wrapped.graph.input, arrays, strict=True)
    }
    outputs = session.run([value.name for value in wrapped.graph.output], feeds)
    return [
        array if dtype is None else array.astype(dtype)
        for array, dtype in zip(outputs, dtypes, strict=True)
    ]


def new_session(model: str | bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_in_reference(model: ModelProto, arrays: Sequence[Any]) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    feeds = {
        value.name: np.asarray(array)
        for value, array in zip(model.graph.input, arrays, strict=True)
    }
    with np.errstate(all="ignore"):
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, feeds)]


def _with_passable_types(model: ModelProto) -> tuple[ModelProto, list[Any]]:
    """The model with casts from and to dtypes that can be passed, and the outputs' own dtypes."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    before, after, dtypes = [], [], []
    for value in graph.input:
        carrier = _carrier(value)
        if carrier is not None:
            own = value.type.tensor_type.elem_type
            before.append(helper.make_node("Cast", [f"{value.name}#"], [value.name], to=own, **_exactly(own)))
            value.name += "#"
            value.type.tensor_type.elem_type = carrier
    for value in graph.output:
        carrier = _carrier(value)
        dtypes.append(None if carrier is None else _numpy(value.type.tensor_type.elem_type))
        if carrier is not None:
            after.append(helper.make_node("Cast", [value.name], [f"{value.name}#"], to=carrier))
            value.name += "#"
            value.type.tensor_type.elem_type = carrier
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    return copy, dtypes


def _exactly(code: int) -> dict[str, int]:
    """Infinities stay what they are on the way to an 8-bit float."""
    return {"saturate": 0} if TensorProto.DataType.Name(code).startswith("FLOAT8") else {}


def _carrier(value: Any) -> int | None:
    name = TensorProto.DataType.Name(value.type.tensor_type.elem_type)
    carrier = CARRIERS.get(name)
    return None if carrier is None else TensorProto.DataType.Value(carrier)


def _passable(array: np.ndarray, value: Any) -> np.ndarray:
    wanted = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    return np.ascontiguousarray(array.astype(wanted)).reshape(array.shape)


def _numpy(code: int) -> Any:
    return helper.tensor_dtype_to_np_dtype(code)


def as_pairs(array: np.ndarray) -> np.ndarray:
    """A complex array as ONNX has it: real numbers with a last dimension of 2."""
    if array.dtype.kind != "c":
        return array
    return np.stack([array.real, array.imag], -1)


assert ml_dtypes and DTYPES
