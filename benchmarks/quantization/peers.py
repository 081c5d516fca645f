"""The same float model, quantized by ONNX Runtime on the same batches."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import CalibrationMethod

from benchmarks.quantization.tasks import Task


class Batches(CalibrationDataReader):
    """Calibration batches, one after the other."""

    def __init__(self, batches: list[np.ndarray]) -> None:
        self.batches = iter(batches)

    def get_next(self) -> dict[str, np.ndarray] | None:
        batch = next(self.batches, None)
        return None if batch is None else {"x": batch}


METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}


def quantize_by_onnxruntime(task: Task, method: str = "minmax") -> onnx.ModelProto:
    """QDQ, unsigned activations, signed weights by channel: the form that is ours, too."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "quantized.onnx")
        source.write_bytes(task.onnx())
        quantize_static(
            source,
            target,
            Batches(task.calibration),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=METHODS[method],
        )
        return onnx.load(target)


def session(model: Any) -> Callable[[np.ndarray], np.ndarray]:
    """A function of one batch that ONNX Runtime computes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    made = onnxruntime.InferenceSession(model.SerializeToString(), options)
    name = made.get_inputs()[0].name
    return lambda batch: np.asarray(made.run(None, {name: batch})[0])


def executed_conversions(model: onnx.ModelProto) -> int:
    """Conversions that are nodes of their own in what ONNX Runtime makes of a model and runs."""
    with tempfile.TemporaryDirectory() as folder:
        source, optimized = Path(folder, "given.onnx"), Path(folder, "optimized.onnx")
        onnx.save(model, source)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(optimized)
        onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])
        return conversions(onnx.load(optimized))


def conversions(model: onnx.ModelProto) -> int:
    """QuantizeLinear nodes, and DequantizeLinear nodes of activations."""
    stored = {each.name for each in model.graph.initializer}
    names = [
        node.op_type
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
        or (node.op_type == "DequantizeLinear" and node.input[0] not in stored)
    ]
    return len(names)
