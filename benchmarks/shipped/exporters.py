"""Writers of ONNX files: torch's two exporters, and ONNX Runtime's quantizers and optimizer.

What they have in common is that sizes stay free where a name is given for them.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import ModelProto
from torch import Tensor, nn

from benchmarks.shipped.model import Feed

Axes = Mapping[str, Mapping[int, str]]


def by_torchscript(
    module: nn.Module,
    examples: tuple[Tensor, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: Axes,
    opset: int,
) -> ModelProto:
    """Through ``torch.onnx.export(dynamo=False)``, which most files that exist came from."""
    file = io.BytesIO()
    with quiet():
        torch.onnx.export(
            module.eval(),
            examples,
            file,
            dynamo=False,
            opset_version=opset,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: dict(each) for name, each in axes.items()},
        )
    return onnx.load_model_from_string(file.getvalue())


def by_dynamo(
    module: nn.Module,
    examples: tuple[Tensor, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: Sequence[Mapping[int, str] | None],
    opset: int,
    *,
    variadic: bool = False,
) -> ModelProto:
    """Through ``torch.onnx.export(dynamo=True)``: an exported program, its sizes by name.

    ``axes`` names the free sizes of each input; ``variadic`` says that the module takes the inputs
    from the second on as ``*arguments``.
    """
    names = sorted({name for each in axes if each for name in each.values()})
    dims = {name: torch.export.Dim.DYNAMIC for name in names}
    shapes: list[Any] = [
        None if each is None else {axis: dims[name] for axis, name in each.items()} for each in axes
    ]
    dynamic: Any = (shapes[0], tuple(shapes[1:])) if variadic else tuple(shapes)
    with quiet():
        program = torch.onnx.export(
            module.eval(),
            examples,
            dynamo=True,
            opset_version=opset,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=dynamic,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch's exporter gave no ONNX file")
    return renamed_sizes(program.model_proto, inputs, axes)


def renamed_sizes(
    model: ModelProto, inputs: Sequence[str], axes: Sequence[Mapping[int, str] | None]
) -> ModelProto:
    """The model with the sizes that torch called ``s77`` by the names that were given for them."""
    declared = {value.name: value for value in model.graph.input}
    names: dict[str, str] = {}
    for name, each in zip(inputs, axes, strict=True):
        for axis, wanted in (each or {}).items():
            names[declared[name].type.tensor_type.shape.dim[axis].dim_param] = wanted
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in names:
                dim.dim_param = names[dim.dim_param]
    return model


def quantized_dynamically(model: ModelProto) -> ModelProto:
    """Through ``onnxruntime.quantization.quantize_dynamic``: weights by bytes, scales per call."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _as_file(model) as (path, result):
        quantize_dynamic(path, result, weight_type=QuantType.QUInt8)
        return onnx.load_model(result)


def quantized_statically(model: ModelProto, feeds: Sequence[Feed], *, separate: bool) -> ModelProto:
    """Through ``quantize_static``; ``separate`` writes QuantizeLinear pairs, else QLinear ops."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with _as_file(model) as (path, result):
        prepared = path.with_name("prepared.onnx")
        quant_pre_process(path, prepared)
        quantize_static(
            prepared,
            result,
            _reader(feeds),
            quant_format=QuantFormat.QDQ if separate else QuantFormat.QOperator,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=separate,
        )
        return onnx.load_model(result)


def optimized(model: ModelProto, kind: str, heads: int, hidden: int) -> ModelProto:
    """Through ``onnxruntime.transformers.optimizer``: com.microsoft's fused ops."""
    from onnxruntime.transformers import optimizer

    with _as_file(model) as (path, _):
        made = optimizer.optimize_model(
            str(path), model_type=kind, num_heads=heads, hidden_size=hidden, opt_level=0
        )
    result: ModelProto = made.model
    return result


def _reader(feeds: Sequence[Feed]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        """The calls that scales are measured on."""

        def __init__(self) -> None:
            self.left = iter(feeds)

        def get_next(self) -> Feed | None:
            return next(self.left, None)

    return Reader()


@contextlib.contextmanager
def _as_file(model: ModelProto) -> Iterator[tuple[Path, Path]]:
    """A path with the model, and one for the result."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder) / "model.onnx"
        onnx.save_model(model, path)
        yield path, Path(folder) / "result.onnx"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what exporters print and warn of."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
