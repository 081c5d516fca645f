"""Layers against ONNX Runtime, where ONNX's own suite does not look."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import compare, one_node, op_names, run_ort


def draw(*shape: int, seed: int = 0) -> Any:
    generator = np.random.default_rng((seed, *shape))
    return generator.normal(size=shape).astype(np.float32)


def whole(*shape: int, dtype: str, seed: int = 0, limit: int | None = None) -> Any:
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if limit is None else (max(info.min, -limit), limit)
    return np.random.default_rng((seed, *shape)).integers(low, high, shape).astype(dtype)


# Products -----------------------------------------------------------------------------------------


def test_gemm_with_weights_by_rows_is_a_linear() -> None:
    operands = [draw(3, 4), draw(5, 4), draw(5)]
    assert op_names(compare("Gemm", operands, transB=1)) == ["linear"]


@pytest.mark.parametrize("bias", [(5,), (1, 5), (3, 1), (3, 5), (1,), ()])
def test_gemm_broadcasts_what_it_adds(bias: tuple[int, ...]) -> None:
    compare("Gemm", [draw(4, 3), draw(4, 5), draw(*bias)], transA=1, alpha=0.5, beta=2.0)


def test_qlinear_matmul_by_rows_and_columns() -> None:
    a, b = whole(3, 8, dtype="uint8"), whole(8, 5, dtype="int8", limit=63)
    b_scale, b_zero = np.linspace(0.01, 0.03, 5, dtype=np.float32), np.arange(5, dtype=np.int8)
    left = [a, np.float32(0.02), np.uint8(120)]
    compare("QLinearMatMul", [*left, b, b_scale, b_zero, np.float32(0.1), np.uint8(9)], steps=1)


def test_matmul_integer_by_columns() -> None:
    a, b = whole(3, 8, dtype="uint8"), whole(8, 5, dtype="int8", limit=63)
    compare("MatMulInteger", [a, b, np.uint8(7), np.arange(5, dtype=np.int8)], onnx=10)


# Convolutions -------------------------------------------------------------------------------------

STRIDED = {"strides": [2, 1], "dilations": [1, 2], "kernel_shape": [3, 2]}


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
def test_conv_auto_pad(mode: str) -> None:
    options = {"auto_pad": mode, "group": 2, "strides": [2, 1]}
    compare("Conv", [draw(2, 4, 7, 8), draw(6, 2, 3, 2), draw(6)], **options, atol=1e-5)


def test_conv_of_one_and_three_dimensions() -> None:
    compare("Conv", [draw(2, 3, 9), draw(4, 3, 3)], pads=[1, 2], strides=[2], atol=1e-5)
    compare("Conv", [draw(1, 2, 4, 5, 6), draw(3, 2, 2, 3, 2)], pads=[0, 1, 0, 1, 0, 1], atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"strides": [2, 3], "output_padding": [1, 2]},
        {"strides": [2, 2], "pads": [1, 0, 2, 1]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 2], "output_shape": [8, 9]},
        {"strides": [3, 3], "output_shape": [12, 14]},
        {"dilations": [2, 1], "group": 2},
    ],
)
def test_conv_transpose(options: dict[str, Any]) -> None:
    group = options.get("group", 1)
    operands = [draw(1, 4, 4, 4), draw(4, 2, 3, 3), draw(2 * group)]
    compare("ConvTranspose", operands, **options, atol=1e-5)


def test_integer_convolutions_by_channel() -> None:
    x, weight = whole(1, 2, 6, 6, dtype="uint8"), whole(4, 2, 3, 3, dtype="int8", limit=63)
    compare("ConvInteger", [x, weight, np.uint8(100)], onnx=10, pads=[1, 1, 1, 1])
    scale = np.linspace(0.01, 0.04, 4, dtype=np.float32)
    zero, bias = np.zeros(4, np.int8), whole(4, dtype="int32", limit=999)
    left = [x, np.float32(0.02), np.uint8(100)]
    right = [weight, scale, zero, np.float32(0.3), np.uint8(110), bias]
    compare("QLinearConv", [*left, *right], steps=1, pads=[1, 1, 1, 1])


# Pools --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("order", [0, 1])
def test_max_pool_places(order: int, ceil: int) -> None:
    options = {"kernel_shape": [3, 2], "strides": [2, 2], "storage_order": order}
    compare("MaxPool", [draw(2, 3, 7, 8)], 2, ceil_mode=ceil, pads=[1, 0, 0, 1], **options)


def test_max_pool_of_small_integers_and_dilated_windows() -> None:
    compare("MaxPool", [whole(1, 2, 6, 6, dtype="int8")], kernel_shape=[2, 2], onnx=12)
    options = {"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 1, 0, 1]}
    compare("MaxPool", [draw(1, 2, 9, 8)], **options)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
def test_average_pool(dilation: int, ceil: int, include: int) -> None:
    options = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 0]}
    options["dilations"] = [dilation, dilation]
    extra = {"ceil_mode": ceil, "count_include_pad": include}
    compare("AveragePool", [draw(2, 3, 8, 9)], **options, **extra)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_lp_pools(order: int) -> None:
    options = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    compare("LpPool", [draw(2, 3, 7, 8)], p=order, **options, rtol=1e-4)
    compare("GlobalLpPool", [draw(2, 3, 4, 5)], p=order, rtol=1e-4)


def test_global_pools() -> None:
    compare("GlobalAveragePool", [draw(2, 3, 4, 5)])
    compare("GlobalMaxPool", [draw(2, 3, 4, 5)])


def test_max_roi_pool() -> None:
    regions = np.array(
        [[0, 0, 0, 5, 5], [1, 2, 1, 7, 4], [0, 3, 3, 3, 3], [1, 6, 6, 9, 9]], np.float32
    )
    options = {"pooled_shape": [2, 3], "spatial_scale": 0.75}
    compare("MaxRoiPool", [draw(2, 3, 8, 8), regions], **options)


def test_max_unpool_undoes_max_pool() -> None:
    x = draw(1, 2, 6, 6)
    model, feeds = one_node("MaxPool", [x], 2, kernel_shape=[2, 2], strides=[2, 2])
    values, places = run_ort(model, feeds)
    compare("MaxUnpool", [values, places], kernel_shape=[2, 2], strides=[2, 2])
    shape = np.array([1, 2, 7, 7], np.int64)
    model, feeds = one_node(
        "MaxUnpool", [values, places, shape], kernel_shape=[2, 2], strides=[2, 2], constant=(2,)
    )
    assert interpret(from_onnx(model), feeds)[0].shape == (1, 2, 7, 7)


# Norms --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization(opset: int) -> None:
    parameters = [draw(3), draw(3, seed=1), draw(3, seed=2), np.abs(draw(3, seed=3)) + 0.5]
    graph = compare("BatchNormalization", [draw(2, 3, 4, 5), *parameters], onnx=opset)
    assert op_names(graph) == ["batch_norm"]


def test_batch_normalization_in_training() -> None:
    parameters = [draw(3), draw(3, seed=1), draw(3, seed=2), np.abs(draw(3, seed=3)) + 0.5]
    operands = [draw(2, 3, 4, 5), *parameters]
    compare("BatchNormalization", operands, 3, training_mode=1, momentum=0.7, onnx=15)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_rows_before_opset_13_are_all_that_follows(op: str, axis: int) -> None:
    compare(op, [draw(2, 3, 4)], axis=axis, onnx=11)
    compare(op, [draw(2, 3, 4)], axis=axis, onnx=13)


def test_layer_normalization_with_statistics() -> None:
    operands = [draw(2, 3, 4), draw(3, 4), draw(3, 4, seed=1)]
    compare("LayerNormalization", operands, 3, axis=1)


def test_layer_normalization_with_a_scale_that_broadcasts() -> None:
    compare("LayerNormalization", [draw(2, 3, 4), draw(4)], axis=1)
    compare("LayerNormalization", [draw(2, 3, 4), draw(2, 3, 1), draw(4)], axis=2)


def test_other_norms() -> None:
    compare("InstanceNormalization", [draw(2, 3, 4, 5), draw(3), draw(3, seed=1)], atol=1e-5)
    compare("LpNormalization", [draw(2, 3, 4)], axis=1, p=1)
    compare("LpNormalization", [draw(2, 3, 4)], axis=-1, p=2)
    compare("LRN", [draw(2, 7, 4, 5)], size=5, alpha=0.1, beta=0.6, bias=1.5)
    compare("MeanVarianceNormalization", [draw(2, 3, 4, 5)], axes=[0, 2, 3], atol=1e-5)
    operands = [draw(2, 6, 4), draw(6), draw(6, seed=1)]
    compare("GroupNormalization", operands, num_groups=3, onnx=21, atol=1e-5)


# Recurrent layers ---------------------------------------------------------------------------------

TIME, BATCH, INPUTS, HIDDEN = 4, 3, 5, 6


def recurrent(gates: int, directions: int, states: int, peepholes: bool = False) -> list[Any]:
    """Operands of a recurrent layer; examples have lengths of their own."""
    weights = [
        draw(TIME, BATCH, INPUTS),
        draw(directions, gates * HIDDEN, INPUTS) * 0.5,
        draw(directions, gates * HIDDEN, HIDDEN) * 0.5,
        draw(directions, 2 * gates * HIDDEN),
        np.array([4, 2, 3], np.int32),
    ]
    initial = [draw(directions, BATCH, HIDDEN, seed=seed) for seed in range(states)]
    return [*weights, *initial, *([draw(directions, 3 * HIDDEN)] if peepholes else [])]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("clip", [None, 0.4])
def test_lstm(direction: str, clip: float | None) -> None:
    count = 2 if direction == "bidirectional" else 1
    options: dict[str, Any] = {} if clip is None else {"clip": clip}
    operands = recurrent(4, count, 2, peepholes=True)
    graph = compare("LSTM", operands, 3, hidden_size=HIDDEN, direction=direction, **options)
    assert op_names(graph).count("scan") == count


def test_lstm_with_other_functions_and_coupled_gates() -> None:
    operands = recurrent(4, 1, 2)
    names = ["HardSigmoid", "Softsign", "ScaledTanh"]
    options = {"activations": names, "activation_alpha": [0.3, 1.5], "activation_beta": [0.4, 0.7]}
    compare("LSTM", operands, 3, hidden_size=HIDDEN, **options)
    compare("LSTM", operands, 3, hidden_size=HIDDEN, input_forget=1)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("linear_before_reset", [0, 1])
def test_gru(direction: str, linear_before_reset: int) -> None:
    count = 2 if direction == "bidirectional" else 1
    options = {"linear_before_reset": linear_before_reset, "direction": direction}
    compare("GRU", recurrent(3, count, 1), 2, hidden_size=HIDDEN, **options)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_rnn(direction: str) -> None:
    count = 2 if direction == "bidirectional" else 1
    options = {"activations": ["LeakyRelu"] * count, "activation_alpha": [0.2] * count}
    compare("RNN", recurrent(1, count, 1), 2, hidden_size=HIDDEN, direction=direction, **options)
    compare("RNN", recurrent(1, count, 1), 2, hidden_size=HIDDEN, direction=direction, clip=0.5)


# Quantization -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_quantize_and_dequantize(dtype: str) -> None:
    scale, zero = np.linspace(0.01, 0.1, 4, dtype=np.float32), np.arange(4).astype(dtype)
    compare("QuantizeLinear", [draw(3, 4) * 9, scale, zero], axis=1)
    compare("DequantizeLinear", [whole(3, 4, dtype=dtype), scale, zero], axis=1)


def test_dequantize_blocks() -> None:
    scale = np.abs(draw(3, 2, 4)) + 0.1
    compare("DequantizeLinear", [whole(3, 6, 4, dtype="int8"), scale], axis=1, block_size=3)
    compare("QuantizeLinear", [draw(3, 6, 4), scale], axis=1, block_size=3)


def test_dynamic_quantize_linear() -> None:
    compare("DynamicQuantizeLinear", [draw(5, 6)], 3)
    compare("DynamicQuantizeLinear", [np.abs(draw(5, 6)) + 1], 3)


# Attention ----------------------------------------------------------------------------------------


def test_attention_keeps_its_shape_in_the_graph() -> None:
    operands = [draw(2, 3, 5, 8), draw(2, 3, 5, 8, seed=1), draw(2, 3, 5, 8, seed=2)]
    model, feeds = one_node("Attention", operands, onnx=23, is_causal=1)
    assert op_names(from_onnx(model)) == ["attention"]
    assert interpret(from_onnx(model), feeds)[0].shape == (2, 3, 5, 8)


# Symbolic sizes -----------------------------------------------------------------------------------


def symbolic(op: str, shapes: list[list[str | int]], outputs: int = 1, **attributes: Any) -> Any:
    """The graph of a node whose operands have sizes that only the run knows."""
    names = [f"x{index}" for index in range(len(shapes))]
    results = [f"y{index}" for index in range(outputs)]
    domain = attributes.pop("domain", "")
    opset = attributes.pop("onnx", 21)
    graph = helper.make_graph(
        [helper.make_node(op, names, results, domain=domain, **attributes)],
        "symbolic",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip(names, shapes, strict=True)
        ],
        [helper.make_empty_tensor_value_info(name) for name in results],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return from_onnx(helper.make_model(graph, opset_imports=imports, ir_version=10))


@pytest.mark.parametrize(
    ("op", "shapes", "options", "ours"),
    [
        ("MatMul", [["batch", "length", 8], [8, 4]], {}, "matmul"),
        ("Conv", [["batch", 3, "height", "width"], [4, 3, 3, 3]], {"pads": [1] * 4}, "conv"),
        ("Conv", [["batch", 3, "height"], [4, 3, 3]], {"auto_pad": "SAME_UPPER"}, "conv"),
        ("MaxPool", [["batch", 3, "h", "w"]], {"kernel_shape": [2, 2]}, "max_pool"),
        ("AveragePool", [["batch", 3, "h", "w"]], {"kernel_shape": [2, 2]}, "avg_pool"),
        ("LayerNormalization", [["batch", "length", 8], [8], [8]], {}, "layer_norm"),
        ("Softmax", [["batch", "length"]], {"axis": -1}, "softmax"),
        ("Softmax", [["batch", "length", 4]], {"axis": 1, "onnx": 11}, "softmax"),
        ("LRN", [["batch", 3, "h", "w"]], {"size": 3}, "avg_pool"),
        ("LSTM", [["time", "batch", 4], [1, 24, 4], [1, 24, 6]], {"hidden_size": 6}, "scan"),
        (
            "Attention",
            [["batch", "length", 32], ["batch", "keys", 32], ["batch", "keys", 32]],
            {"q_num_heads": 4, "kv_num_heads": 4, "is_causal": 1, "onnx": 23},
            "attention",
        ),
        (
            "MultiHeadAttention",
            [["batch", "length", 32], ["batch", "keys", 32], ["batch", "keys", 32]],
            {"num_heads": 4, "domain": "com.microsoft"},
            "attention",
        ),
    ],
)
def test_symbolic_sizes_stay_in_the_graph(
    op: str, shapes: list[list[str | int]], options: dict[str, Any], ours: str
) -> None:
    names = op_names(symbolic(op, shapes, **options))
    assert ours in names and "onnx.deferred" not in names


@pytest.mark.parametrize("opset", [23, 24])
def test_attention_with_a_past_of_symbolic_length(opset: int) -> None:
    head: list[str | int] = ["batch", 4, "length", 8]
    past: list[str | int] = ["batch", 4, "past", 8]
    mask: list[str | int] = ["batch", 1, "length", "total"]
    shapes = [head, head, head, mask, past, past]
    graph = symbolic("Attention", shapes, 3, onnx=opset, is_causal=1)
    assert "past" in str(graph.outputs[1].type)


def test_padding_that_depends_on_a_symbolic_size_is_worked_out_when_it_runs() -> None:
    options = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    graph = symbolic("Conv", [["batch", 3, "height", "width"], [4, 3, 3, 3]], **options)
    operands = [draw(2, 3, 7, 8), draw(4, 3, 3, 3)]
    model, feeds = one_node("Conv", operands, **options)
    (expected,) = run_ort(model, feeds)
    np.testing.assert_allclose(interpret(graph, operands)[0], expected, rtol=1e-4, atol=1e-5)


# Gradients ----------------------------------------------------------------------------------------


def test_gradient_goes_through_composites() -> None:
    """d sum(w * attention(q, k, v)) / d q, against finite differences."""
    shapes = {"q": (1, 2, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 4), "w": (1, 2, 3, 4)}
    nodes = [
        helper.make_node("Attention", ["q", "k", "v"], ["a"]),
        helper.make_node("Mul", ["a", "w"], ["y"]),
        helper.make_node(
            "Gradient", ["q", "v", "k", "w"], ["dq", "dv"], domain="ai.onnx.preview.training",
            xs=["q", "v"], zs=["k", "w"], y="y",
        ),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "gradient",
        [helper.make_tensor_value_info(*pair) for pair in _typed(shapes)],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "dq", "dv")],
    )
    imports = [helper.make_opsetid("", 23), helper.make_opsetid("ai.onnx.preview.training", 1)]
    ours = from_onnx(helper.make_model(graph, opset_imports=imports, ir_version=10))
    feeds = {
        name: draw(*shape, seed=seed).astype(np.float64)
        for seed, (name, shape) in enumerate(shapes.items())
    }
    results = interpret(ours, feeds)
    for name, gradient in zip(("q", "v"), results[1:], strict=True):
        step = draw(*shapes[name], seed=9) * 1e-6
        moved = interpret(ours, {**feeds, name: feeds[name] + step})[0]
        slope = (moved - results[0]).sum()
        np.testing.assert_allclose((gradient * step).sum(), slope, rtol=1e-4)


def _typed(shapes: dict[str, tuple[int, ...]]) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(name, TensorProto.DOUBLE, shape) for name, shape in shapes.items()]
