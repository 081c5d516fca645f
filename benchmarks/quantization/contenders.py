"""Contenders of the speed benchmark: whole models in small integers, by us and by others.

Each quantizes the same float model on the same batches in the way that its users do, and is then
called as its float form is (``benchmarks.peers``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import torch

import monograph
from benchmarks import peers
from benchmarks.contender import Peer, Prepared
from benchmarks.peers import Monograph, OnnxRuntime, OpenVino, exported
from benchmarks.quantization.peers import conversions, executed_conversions
from benchmarks.workloads import Case, Inputs

OPSET = 18
"""The one that ONNX Runtime's quantizer is made for."""
BLOCK = 32
"""Weights that share a scale where weights alone are stored."""


class QuantizedMonograph(Peer):
    """This project: a profile of the batches, then a scheme; weights alone need no profile."""

    def __init__(self, scheme: str, batches: Sequence[Inputs], **profiling: Any) -> None:
        self.name = f"monograph {scheme}"
        self.form = f"monograph.quantize(graph, profile, {scheme!r})"
        self.scheme, self.batches, self.profiling = scheme, batches, profiling

    def prepare(self, case: Case) -> Prepared:
        graph = monograph.from_torch(case.module, *case.inputs)
        profile = None
        if not monograph.quantize.schemes[self.scheme].weight_only:
            arrays = [tuple(each.numpy() for each in batch) for batch in self.batches]
            profile = monograph.quantize.profile(graph, arrays, progress=False, **self.profiling)
        quantized, report = monograph.quantize.with_report(graph, profile, self.scheme)
        compiled: Any = monograph.compile(quantized, threads=peers.THREADS)
        arrays_in = [each.numpy() for each in case.inputs]
        interpreted = len(compiled.report.fallbacks)
        remark = f"{report.quantizes + report.dequantizes} conversions, {report.alone} executed"
        remark += f", {interpreted} nodes in the interpreter" if interpreted else ""
        return Prepared(lambda: compiled(*arrays_in), _from_arrays, remark=remark)


class QuantizedOnnxRuntime(OnnxRuntime):
    """ONNX Runtime: its static quantizer (QDQ, weights by channel), or 4-bit weights in blocks."""

    def __init__(self, bits: int, batches: Sequence[Inputs]) -> None:
        self.name = "ort int8" if bits == 8 else "ort w4"
        self.form = "quantize_static, QDQ" if bits == 8 else "MatMulNBitsQuantizer"
        self.bits, self.batches = bits, batches

    def prepare(self, case: Case) -> Prepared:
        model = exported(case, OPSET)
        if self.bits == 8:
            made = _quantize_statically(model, self.batches)
            remark = f"{conversions(made)} conversions, {executed_conversions(made)} executed"
        else:
            made, remark = _store_four_bits(model), None
        quantized = replace(case, exports={OPSET: made.SerializeToString()})
        return replace(self.session(quantized, OPSET), remark=remark)


class QuantizedOpenVino(OpenVino):
    """OpenVINO: NNCF's post-training quantization, or its compression of weights to 4 bits."""

    needs = ("openvino", "nncf", "onnxscript")

    def __init__(self, bits: int, batches: Sequence[Inputs]) -> None:
        self.name = "openvino int8" if bits == 8 else "openvino w4"
        self.form = "nncf.quantize" if bits == 8 else "nncf.compress_weights, INT4_SYM"
        self.bits, self.batches = bits, batches

    def prepare(self, case: Case) -> Prepared:
        import nncf
        import openvino

        model = openvino.Core().read_model(exported(case, OPSET))
        if self.bits == 8:
            batches = [[each.numpy() for each in batch] for batch in self.batches]
            # Tables of embeddings stay floats: its correction of biases fails on them (KeyError).
            tables = nncf.IgnoredScope(types=["Gather"], validate=False)
            data = nncf.Dataset(batches)
            made = nncf.quantize(model, data, subset_size=len(batches), ignored_scope=tables)
        else:
            mode = nncf.CompressWeightsMode.INT4_SYM
            made = nncf.compress_weights(model, mode=mode, group_size=BLOCK, ratio=1.0)
        kinds = [op.get_type_name() for op in made.get_ops()]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "quantized.xml")
            openvino.save_model(made, path, compress_to_fp16=False)
            prepared = self.compiled(case, path)
            runs = openvino.Core().compile_model(path, "CPU").get_runtime_model().get_ops()
        layers = [op.get_rt_info()["layerType"] for op in runs]
        executed = sum(layers.count(kind) for kind in ("FakeQuantize", "Quantize", "Convert"))
        remark = f"{kinds.count('FakeQuantize')} fake quantizations, {executed} executed"
        return replace(prepared, remark=remark)


def contenders(case: Case, batches: Sequence[Inputs], decode: bool) -> Iterator[Peer]:
    """Who takes part: on decoders of one token weights alone are stored, and all else in bytes."""
    yield Monograph()
    if decode:
        yield from (QuantizedMonograph(scheme, batches) for scheme in ("w8", "w4", "w4a8"))
    else:
        yield QuantizedMonograph("int8", batches)
    yield OnnxRuntime()
    yield QuantizedOnnxRuntime(4 if decode else 8, batches)
    yield OpenVino()
    yield QuantizedOpenVino(4 if decode else 8, batches)


def _from_arrays(results: Sequence[Any]) -> Inputs:
    return tuple(torch.from_numpy(each) for each in results)


def _quantize_statically(model: bytes, batches: Sequence[Inputs]) -> onnx.ModelProto:
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    names = [each.name for each in onnx.load_from_string(model).graph.input]

    class Batches(CalibrationDataReader):
        rest = iter(batches)

        def get_next(self) -> Any:
            batch = next(self.rest, None)
            if batch is None:
                return None
            return {name: each.numpy() for name, each in zip(names, batch, strict=True)}

    with tempfile.TemporaryDirectory() as folder:
        source, ready, target = (Path(folder, f"{name}.onnx") for name in ("a", "b", "c"))
        source.write_bytes(model)
        quant_pre_process(source, ready, skip_symbolic_shape=True)
        quantize_static(
            ready,
            target,
            Batches(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(target)


def _store_four_bits(model: bytes) -> onnx.ModelProto:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        onnx.load_from_string(model), block_size=BLOCK, is_symmetric=True, accuracy_level=4
    )
    quantizer.process()
    made: onnx.ModelProto = quantizer.model.model
    return made
