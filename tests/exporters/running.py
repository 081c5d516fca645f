"""Runs exported models: in ONNX Runtime, or in ONNX's reference evaluator where that cannot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from monograph.exporters.onnx import to_onnx
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret

CARRIERS = {
    "BFLOAT16": "FLOAT", "FLOAT8E4M3FN": "FLOAT", "FLOAT8E5M2": "FLOAT", "FLOAT8E4M3FNUZ": "FLOAT",
    "FLOAT8E5M2FNUZ": "FLOAT", "FLOAT8E8M0": "FLOAT", "FLOAT4E2M1": "FLOAT", "INT4": "INT8",
    "INT2": "INT8", "UINT4": "UINT8", "UINT2": "UINT8",
}  # fmt: skip
"""Dtypes that ONNX Runtime's Python API cannot pass, and those in which they are passed."""


def check(model: ModelProto) -> None:
    """ONNX's own checker, with type and shape inference."""
    onnx.checker.check_model(model, full_check=True)


def assert_exports(graph: Graph, arrays: Sequence[Any], **options: Any) -> ModelProto:
    """The graph's model is accepted, and ONNX Runtime gives what the interpreter gives."""
    model = to_onnx(graph, **options)
    check(model)
    got = run_in_onnx_runtime(model, [as_pairs(np.asarray(array)) for array in arrays])
    assert_equal(got, interpret(graph, list(arrays)))
    return model


def run_in_onnx_runtime(
    model: ModelProto, arrays: Sequence[Any], without: Sequence[str] = ()
) -> list[np.ndarray]:
    """The model's outputs, for inputs in order; ``without`` these of its optimizations."""
    wrapped, dtypes = _with_passable_types(model)
    session = new_session(wrapped.SerializeToString(), without)
    feeds = {
        value.name: _passable(np.asarray(array), value)
        for value, array in zip(wrapped.graph.input, arrays, strict=True)
    }
    outputs = session.run([value.name for value in wrapped.graph.output], feeds)
    return [
        array if dtype is None else array.astype(dtype)
        for array, dtype in zip(outputs, dtypes, strict=True)
    ]


def new_session(model: bytes | Path, without: Sequence[str] = ()) -> onnxruntime.InferenceSession:
    """A session of one thread, ``without`` these of ONNX Runtime's optimizations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    source = str(model) if isinstance(model, Path) else model
    return onnxruntime.InferenceSession(
        source,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=list(without),
    )


def run_in_reference(model: ModelProto, arrays: Sequence[Any]) -> list[np.ndarray]:
    """The model's outputs by ONNX's own, slow, evaluator."""
    values = zip(model.graph.input, arrays, strict=True)
    feeds = {value.name: np.asarray(array) for value, array in values}
    with np.errstate(all="ignore"):
        outputs = ReferenceEvaluator(model).run(None, feeds)
    strings = [np.asarray(array) for array in outputs]
    return [array.astype(object) if array.dtype.kind in "UT" else array for array in strings]


def assert_equal(
    got: Sequence[np.ndarray], expected: Sequence[np.ndarray], rounding: float = 1e-5
) -> None:
    """Equal dtypes and shapes, exactly equal whole numbers, and floats equal within rounding.

    NaN and infinities stand in the same places. Floats may differ by so much of themselves, or by a
    tenth of that of the largest number in the tensor.
    """
    assert len(got) == len(expected)
    for ours, complex_or_real in zip(got, expected, strict=True):
        wanted = as_pairs(complex_or_real)
        assert ours.dtype == wanted.dtype
        assert ours.shape == wanted.shape
        if wanted.dtype.kind in "biuOUS" or not wanted.size:
            np.testing.assert_array_equal(ours, wanted)
            continue
        exact = wanted.astype(np.float64)
        finite = np.abs(exact[np.isfinite(exact)])
        largest = max(1.0, float(finite.max(initial=0.0)))
        np.testing.assert_allclose(
            ours.astype(np.float64), exact, rtol=rounding, atol=rounding * largest / 10
        )


def same_zeros(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    """Whether zeros have the same signs."""
    for ours, complex_or_real in zip(got, expected, strict=True):
        wanted = as_pairs(complex_or_real)
        if wanted.dtype.kind != "f":
            continue
        zero = wanted == 0
        if not np.array_equal(np.signbit(ours[zero]), np.signbit(wanted[zero])):
            return False
    return True


def as_pairs(array: np.ndarray) -> np.ndarray:
    """A complex array as ONNX has it: real numbers with a last dimension of 2."""
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def _with_passable_types(model: ModelProto) -> tuple[ModelProto, list[Any]]:
    """The model with casts from and to dtypes that can be passed, and the outputs' own dtypes."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    before, after, dtypes = [], [], []
    for value in graph.input:
        carrier, own = _carrier(value), value.type.tensor_type.elem_type
        if carrier is not None:
            name = value.name
            before.append(helper.make_node("Cast", [f"{name}#"], [name], to=own, **_exactly(own)))
            value.name += "#"
            value.type.tensor_type.elem_type = carrier
    for value in graph.output:
        carrier, own = _carrier(value), value.type.tensor_type.elem_type
        dtypes.append(None if carrier is None else helper.tensor_dtype_to_np_dtype(own))
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
