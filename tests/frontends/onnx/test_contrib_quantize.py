"""More quantized ops of ``com.microsoft``, and those that are made for GPUs alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import monograph
from monograph.errors import MonographError
from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import compare, model_of, one_node, run_ort


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def whole(low: int, high: int, shape: tuple[int, ...], dtype: str) -> Any:
    return np.random.default_rng(shape).integers(low, high, shape).astype(dtype)


def contrib(op: str, operands: list[Any], outputs: int = 1, **options: Any) -> None:
    compare(op, operands, outputs, domain="com.microsoft", **options)


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_quantized_embeddings(segments: bool, masked: bool) -> None:
    def given(array: Any) -> Any:
        return array if segments else None

    mask = np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)
    tables = [whole(0, 255, shape, "uint8") for shape in ((9, 8), (6, 8), (2, 8), (8,), (8, 1))]
    operands = [
        whole(0, 9, (2, 5), "int32"), given(whole(0, 2, (2, 5), "int32")), *tables[:2],
        given(tables[2]), tables[3], tables[4].reshape(8), mask if masked else None,
        np.float32(0.02), np.float32(0.03), given(np.float32(0.01)), np.float32(0.02),
        np.float32(0.01), np.uint8(120), np.uint8(3), given(np.uint8(5)), np.uint8(7), np.uint8(8),
    ]  # fmt: skip
    contrib("QEmbedLayerNormalization", operands, 2, rtol=1e-4, atol=1e-4)


def test_products_of_16_bits() -> None:
    operands = [whole(-300, 300, (3, 4), "int16"), whole(-300, 300, (4, 5), "int16")]
    contrib("MatMulInteger16", operands)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("inputs", [32, 48])
def test_weights_in_codes_of_four_bits(kind: int, inputs: int) -> None:
    packed = whole(0, 256, (inputs * 6 // 2,), "uint8")
    operands = [draw(3, inputs), packed, np.abs(draw(inputs * 6 // 16))]
    options = {"K": inputs, "N": 6, "block_size": 16, "quant_type": kind, "constant": [1, 2]}
    contrib("MatMulBnb4", operands, rtol=1e-4, atol=1e-4, **options)


def test_weights_whose_rows_name_their_block() -> None:
    groups = np.random.default_rng(0).integers(0, 2, 32).astype(np.int32)
    operands = [draw(3, 32), whole(0, 256, (6, 2, 8), "uint8"), np.abs(draw(6, 2)), None, groups]
    options = {"K": 32, "N": 6, "bits": 4, "block_size": 16, "constant": [1, 2, 4]}
    contrib("MatMulNBits", operands, rtol=1e-4, atol=1e-3, **options)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", [False, True])
def test_activations_are_rounded_as_the_accuracy_level_allows(bits: int, points: bool) -> None:
    packed = whole(0, 256, (40, 2, 32 * bits // 8), "uint8")
    zero = [whole(0, 256, (40, -(-2 * bits // 8)), "uint8")] if points else []
    operands = [draw(3, 64), packed, np.abs(draw(40, 2)), *zero]
    options = {"K": 64, "N": 40, "bits": bits, "block_size": 32, "accuracy_level": 4}
    model, feeds = one_node(
        "MatMulNBits", operands, 1, domain="com.microsoft", constant=[1, 2, 3], **options
    )
    graph = from_onnx(model)
    assert [node.op.name for node in graph.nodes].count("blocked_linear") == 1
    (got,), (want,) = monograph.compile(graph, strict=True)(feeds["x0"]), run_ort(model, feeds)
    assert np.linalg.norm(got - want) < 1e-4 * np.linalg.norm(want)


# Against models of ordinary ops, as ONNX Runtime has no kernels for these on a CPU.


def same(op: str, operands: list[Any], reference: list[Any], outputs: int = 1, **options: Any) -> None:  # fmt: skip # noqa: E501
    """A node gives what a model of ordinary nodes gives; its operands are x0, x1 and so on."""
    model, feeds = one_node(op, operands, outputs, domain="com.microsoft", **options)
    results = [f"y{index}" for index in range(outputs)]
    plain, _ = model_of(reference, feeds, results, 21)
    for got, want in zip(interpret(from_onnx(model), feeds), run_ort(plain, feeds), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def test_mean_of_quantized_numbers() -> None:
    stored, scale, zero = whole(0, 255, (2, 3, 4), "uint8"), np.float32(0.05), np.uint8(3)
    reference = [
        node("DequantizeLinear", "x0 x1 x2", "a"),
        node("Constant", "", "axes", value_ints=[1]),
        node("ReduceMean", "a axes", "b", keepdims=0),
        node("QuantizeLinear", "b x3 x4", "y0"),
    ]
    operands = [stored, scale, zero, np.float32(0.04), np.uint8(7)]
    same("QLinearReduceMean", operands, reference, axes=[1], keepdims=0)


def test_sums_and_gelus() -> None:
    x = draw(2, 3, 8)
    added = [node("Add", "x0 x1", "a"), node("Add", "a x2", "y0")]
    same("BiasAdd", [x, draw(8), x + 1], added)
    split = [
        node("Add", "x0 x1", "a"), node("Split", "a", "l r", axis=2, num_outputs=2),
        node("Gelu", "r", "g"), node("Mul", "l g", "y0"),
    ]  # fmt: skip
    same("BiasSplitGelu", [x, draw(8)], split)
    product = [node("MatMul", "x0 x1", "a"), node("Gelu", "a", "y0", approximate="tanh")]
    same("GemmFastGelu", [x, draw(8, 4)], product)


@pytest.mark.parametrize("activation", [0, 1])
def test_group_norms_with_channels_last(activation: int) -> None:
    ending = [
        node("Transpose", "s", "t", perm=[0, 3, 1, 2]),
        node("GroupNormalization", "t x1 x2", "n", num_groups=2),
        *([node("Sigmoid", "n", "g"), node("Mul", "n g", "a")] if activation else []),
        node("Transpose", "a" if activation else "n", "y0", perm=[0, 2, 3, 1]),
    ]
    x, scale, bias = draw(2, 3, 3, 4), draw(4), draw(4, seed=1)
    options = {"groups": 2, "activation": activation}
    same("GroupNorm", [x, scale, bias], [node("Identity", "x0", "s"), *ending], **options)
    joined = [node("Add", "x0 x3", "d"), node("Add", "d x4", "s"), *ending]
    joined.append(node("Identity", "s", "y1"))
    operands = [x, scale, bias, x * 2, draw(4, seed=2)]
    same("SkipGroupNorm", operands, joined, 2, **options)


@pytest.mark.parametrize("wrong", [None, np.inf, np.nan])
def test_whether_all_is_finite(wrong: float | None) -> None:
    x = draw(3, 4)
    if wrong is not None:
        x[1, 2] = wrong
    model, feeds = one_node("IsAllFinite", [draw(2), x], domain="com.microsoft")
    (found,) = interpret(from_onnx(model), feeds)
    assert found.dtype == bool and bool(found) == (wrong is None)


def test_fourier_transforms() -> None:
    x = draw(2, 3, 8)
    forward, feeds = one_node("Rfft", [x], domain="com.microsoft", signal_ndim=1)
    (parts,) = interpret(from_onnx(forward), feeds)
    spectrum = np.fft.rfft(x)
    np.testing.assert_allclose(parts[..., 0] + 1j * parts[..., 1], spectrum, rtol=1e-4, atol=1e-5)
    back, feeds = one_node("Irfft", [parts], domain="com.microsoft", signal_ndim=1)
    np.testing.assert_allclose(interpret(from_onnx(back), feeds)[0], x, rtol=1e-4, atol=1e-5)
    assert back.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT


def test_softmax_and_dropout_after_a_bias() -> None:
    x, bias = draw(2, 3, 4, 5), draw(2, 1, 1, 5)
    reference = [node("Add", "x0 x1", "a"), node("Softmax", "a", "y0", axis=-1)]
    same("BiasSoftmax", [x, bias], reference, axis=3, is_inner_broadcast=1)
    same("BiasSoftmax", [x, draw(4, 5)], reference, axis=3, is_inner_broadcast=0)
    kept = [
        node("Add", "x0 x1", "a"), node("Add", "a x2", "y0"), node("Equal", "y0 y0", "y1"),
    ]  # fmt: skip
    operands = [x, draw(5), x * 2, np.float32(0.5), np.array(False)]
    same("BiasDropout", operands, kept, 2, constant=[4])


def test_dropout_in_training_is_refused() -> None:
    operands = [draw(2, 4), draw(4), None, np.float32(0.5), np.array(True)]
    model, _ = one_node("BiasDropout", operands, domain="com.microsoft", constant=[4])
    with pytest.raises(MonographError, match="dropout in training"):
        from_onnx(model)


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 7), (40, 40)])
def test_biases_of_relative_positions_are_t5s(both_ways: bool, queries: int, keys: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention
    table = draw(32, 4)
    distance = torch.arange(keys)[None] - torch.arange(queries)[:, None]
    bucket = t5._relative_position_bucket(distance, both_ways, num_buckets=32, max_distance=20)
    model, feeds = one_node(
        "RelativePositionBias", [table, np.array([queries]), np.array([keys])],
        domain="com.microsoft", is_bidirectional=int(both_ways), max_distance=20,
        constant=[1, 2],
    )  # fmt: skip
    (got,) = interpret(from_onnx(model), feeds)
    np.testing.assert_array_equal(got, table[bucket.numpy()].transpose(2, 0, 1)[None])


def test_a_gate_of_relative_positions() -> None:
    length, heads, depth = 5, 4, 8
    reference = [
        node("Add", "x0 x1", "q"),
        node("Constant", "", "by_head", value_ints=[0, 0, heads, depth]),
        node("Reshape", "q by_head", "r"), node("Transpose", "r", "t", perm=[0, 2, 1, 3]),
        node("MatMul", "t x3", "m"), node("Add", "m x4", "g"),
        node("Constant", "", "pairs", value_ints=[0, 0, 0, 2, 3]),
        node("Reshape", "g pairs", "p"), node("Constant", "", "last", value_ints=[-1]),
        node("ReduceSum", "p last", "s", keepdims=0), node("Sigmoid", "s", "z"),
        node("Split", "z", "u v", axis=3, num_outputs=2),
        node("Constant", "", "one", value_float=1.0), node("Constant", "", "two", value_float=2.0),
        node("Mul", "v x5", "a"), node("Sub", "a one", "b"), node("Mul", "u b", "c"),
        node("Add", "c two", "d"), node("Mul", "d x2", "y0"),
    ]  # fmt: skip
    operands = [
        draw(2, length, heads * depth), draw(heads * depth), draw(1, heads, length, length),
        draw(depth, 6), draw(6), draw(1, heads, 1, 1),
    ]  # fmt: skip
    same("GatedRelativePositionBias", operands, reference, num_heads=heads)
