"""Whole models after ONNX Runtime's quantizers and optimizers, against ONNX Runtime itself.

Quantized results must be equal up to the rounding of floats: what is quantized is exact.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto

pytest.importorskip("torch")

import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from torch import nn

import monograph
from monograph.frontends.onnx import find_unsupported, from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import compare, one_node, run_ort


class Images(nn.Module):
    """Convolutions of every kind, and what stands between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.last = nn.Conv2d(8, 16, 1, stride=2)
        self.classes = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.norm(self.first(x)))
        y = nn.functional.leaky_relu(self.depthwise(x), 0.1)
        x = torch.cat([x + y, torch.sigmoid(y)], 1)[:, :8] * y
        x = nn.functional.max_pool2d(nn.functional.hardswish(self.last(x)), 2)
        x = nn.functional.avg_pool2d(x, 2)
        return torch.softmax(self.classes(x.mean((2, 3))), -1)


class Sequences(nn.Module):
    """Embeddings and an LSTM in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.layer = nn.LSTM(8, 6, bidirectional=True)
        self.classes = nn.Linear(12, 4)

    def forward(self, x: Any) -> Any:
        return self.classes(self.layer(self.table(x))[0])


class Encoder(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(
            16, 4, 32, dropout=0.0, activation="gelu", batch_first=True
        )
        self.classes = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        return self.classes(self.layer(self.table(x)))


def image(generator: np.random.Generator) -> Any:
    return generator.normal(size=(1, 3, 16, 16)).astype(np.float32)


def tokens(*shape: int) -> Callable[[np.random.Generator], Any]:
    return lambda generator: generator.integers(0, 20, shape)


MODELS: dict[str, tuple[type[nn.Module], Callable[[np.random.Generator], Any]]] = {
    "images": (Images, image),
    "sequences": (Sequences, tokens(5, 1)),
    "encoder": (Encoder, tokens(1, 6)),
}


def exported(name: str, folder: Path) -> tuple[Path, list[Any]]:
    """The model in a file, and inputs for it."""
    torch.manual_seed(0)
    kind, make = MODELS[name]
    generator = np.random.default_rng(0)
    inputs = [make(generator) for _ in range(4)]
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            kind().eval(), (torch.from_numpy(inputs[0]),), content, dynamo=False,
            input_names=["x"], output_names=["y"], opset_version=17,
        )  # fmt: skip
    path = folder / f"{name}.onnx"
    path.write_bytes(content.getvalue())
    return path, inputs


def agree(model: ModelProto, x: Any, *, native: bool) -> None:
    expected = run_ort(model, {"x": x})
    graph = from_onnx(model)
    results = [interpret(graph, {"x": x})]
    if native:
        results.append(list(monograph.compile(graph)(x)))
    for found in results:
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def domains(model: ModelProto) -> set[str]:
    return {f"{node.domain}.{node.op_type}" for node in model.graph.node if node.domain}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_quantization(name: str, per_channel: bool, tmp_path: Path) -> None:
    path, inputs = exported(name, tmp_path)
    quantize_dynamic(
        path, tmp_path / "q.onnx", weight_type=QuantType.QInt8, per_channel=per_channel
    )
    model = onnx.load(tmp_path / "q.onnx")
    agree(model, inputs[0], native=per_channel)
    if name == "sequences":
        assert "com.microsoft.DynamicQuantizeLSTM" in domains(model)


class Inputs(CalibrationDataReader):  # type: ignore[misc]  # of a package without types
    """The inputs that ranges are measured with."""

    def __init__(self, inputs: list[Any]) -> None:
        self.items = iter(inputs)

    def get_next(self) -> dict[str, Any] | None:
        found = next(self.items, None)
        return None if found is None else {"x": found}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize(
    "dtypes", [(QuantType.QUInt8, QuantType.QInt8), (QuantType.QInt8, QuantType.QInt8)]
)
def test_static_quantization(
    name: str, form: QuantFormat, dtypes: tuple[QuantType, QuantType], tmp_path: Path
) -> None:
    path, inputs = exported(name, tmp_path)
    quantize_static(
        path, tmp_path / "q.onnx", Inputs(inputs), quant_format=form, activation_type=dtypes[0],
        weight_type=dtypes[1], per_channel=name == "images",
    )  # fmt: skip
    model = onnx.load(tmp_path / "q.onnx")
    native = form is QuantFormat.QOperator and dtypes[0] is QuantType.QUInt8
    agree(model, inputs[0], native=native)
    if form is QuantFormat.QOperator:
        assert "com.microsoft.QLinearAdd" in domains(model)


def optimized(path: Path, level: onnxruntime.GraphOptimizationLevel) -> ModelProto:
    """The model as ONNX Runtime saves it after its own passes."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(path.with_suffix(".optimized"))
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(path.with_suffix(".optimized"))


@pytest.mark.parametrize("name", MODELS)
def test_models_as_onnx_runtime_saves_them(name: str, tmp_path: Path) -> None:
    path, inputs = exported(name, tmp_path)
    levels = onnxruntime.GraphOptimizationLevel
    agree(optimized(path, levels.ORT_ENABLE_EXTENDED), inputs[0], native=False)
    quantize_dynamic(path, tmp_path / "q.onnx", weight_type=QuantType.QInt8)
    model = optimized(tmp_path / "q.onnx", levels.ORT_ENABLE_EXTENDED)
    agree(model, inputs[0], native=False)


def test_models_saved_for_one_processor_are_refused_with_advice() -> None:
    model, _ = one_node("Conv", [np.zeros((1, 8, 4, 4), np.float32)], domain="com.microsoft.nchwc")
    (problem,) = find_unsupported(model)
    assert "ORT_ENABLE_EXTENDED" in problem.reason


@pytest.mark.slow
def test_a_bert_through_the_optimizer_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32, attn_implementation="eager",
    )  # fmt: skip

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = transformers.BertModel(config)

        def forward(self, ids: Any, mask: Any, kinds: Any) -> Any:
            return self.model(input_ids=ids, attention_mask=mask, token_type_ids=kinds)[0]

    ids = torch.randint(0, 50, (2, 7))
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[0, 5:] = 0
    names = ["input_ids", "attention_mask", "token_type_ids"]
    path = tmp_path / "bert.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Bert().eval(), (ids, mask, torch.zeros_like(ids)), str(path), dynamo=False,
            input_names=names, output_names=["y"], opset_version=17,
            dynamic_axes={name: {0: "batch", 1: "length"} for name in names},
        )  # fmt: skip
    made = optimizer.optimize_model(str(path), "bert", num_heads=4, hidden_size=32, opt_level=0)
    feeds = dict(zip(names, (ids.numpy(), mask.numpy(), 0 * ids.numpy()), strict=True))
    expected = run_ort(made.model, feeds)
    assert "com.microsoft.Attention" in domains(made.model)
    graph = from_onnx(made.model)
    compiled = monograph.compile(graph)(*(feeds[value.name] for value in graph.inputs))
    for found in (interpret(graph, feeds), compiled):
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)


def test_a_quantized_convolution_rounds_as_onnx_runtime_does() -> None:
    draw = np.random.default_rng(0)
    channels = 16
    operands = [
        draw.integers(0, 255, (1, channels, 9, 9)).astype(np.uint8),
        np.float32(0.02),
        np.uint8(110),
        draw.integers(-127, 127, (channels, 1, 3, 3)).astype(np.int8),
        draw.uniform(0.005, 0.02, channels).astype(np.float32),
        np.zeros(channels, np.int8),
        np.float32(0.3),
        np.uint8(3),
        draw.integers(-100, 100, channels).astype(np.int32),
    ]
    compare("QLinearConv", operands, group=channels, pads=[1, 1, 1, 1], steps=0)
