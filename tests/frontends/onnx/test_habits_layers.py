"""Habits of exporters: attributes of layers, old and new, as ONNX Runtime takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import monograph
from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.models import assert_equal, graph_of, model, op_names, run
from tests.frontends.onnx.ort import agree, compare, model_of, run_ort


def draw(*shape: int) -> Any:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


IMAGE = draw(1, 1, 4, 5)
COORDINATES = [
    "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("by", ["sizes", "scales"])
def test_resize_in_every_coordinate_mode(coordinates: str, mode: str, by: str) -> None:
    """Scales that make broken sizes are left out for align_corners.

    There ONNX's own tests count the corner at the broken size, and ONNX Runtime at the whole one.
    """
    sizes, scales = np.array([1, 1, 7, 3]), np.float32([1, 1, 1.7, 0.6])
    if coordinates == "align_corners":
        scales = np.float32([1, 1, 2, 3])
    operands = [IMAGE, None, None, sizes] if by == "sizes" else [IMAGE, None, scales]
    options: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    compare("Resize", operands, onnx=19, constant=[2, 3], rtol=1e-4, atol=1e-5, **options)


def test_resize_in_the_coordinate_modes_of_tensorflow() -> None:
    none, twice = np.array([], np.float32), np.float32([1, 1, 2, 2])
    mode = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": "nearest"}
    compare("Resize", [IMAGE, none, twice], onnx=11, constant=[1, 2], **mode)
    region = np.float32([0, 0, 0.1, 0.2, 1, 1, 0.9, 0.8])
    mode = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"}
    operands = [IMAGE, region, None, np.array([1, 1, 3, 3])]
    compare("Resize", operands, onnx=13, constant=[1, 3], **mode)


STATISTICS = [draw(3), draw(3) + 1, draw(3) + 2, np.abs(draw(3)) + 0.5]


def test_batch_normalization_with_outputs_of_training() -> None:
    """Before opset 14, outputs that are named ask for training, though nothing reads them."""
    operands = dict(zip("xabmv", [draw(2, 3, 4), *STATISTICS], strict=True))
    results = ["y", "mean", "variance", "saved_mean", "saved_variance"]
    node = helper.make_node("BatchNormalization", list("xabmv"), results)
    model, feeds = model_of([node], operands, ["y"], 9, [1, 2, 3, 4])
    agree(model, feeds)


@pytest.mark.parametrize(
    ("opset", "outputs", "attributes"),
    [
        (9, 1, {"momentum": 0.8}), (8, 1, {"spatial": 1}), (15, 3, {"training_mode": 1}),
        (15, 1, {"epsilon": 0.01}),
    ],
)  # fmt: skip
def test_batch_normalization(opset: int, outputs: int, attributes: dict[str, Any]) -> None:
    compare("BatchNormalization", [draw(2, 3, 4), *STATISTICS], outputs, onnx=opset, **attributes)


def test_batch_normalization_of_every_element() -> None:
    statistics = [draw(3, 4), draw(3, 4), draw(3, 4), np.abs(draw(3, 4))]
    compare("BatchNormalization", [draw(2, 3, 4), *statistics], onnx=7, spatial=0, rtol=1e-4)


def gates(count: int, directions: int = 1) -> list[Any]:
    """Weights of both products for a hidden size of 5."""
    return [draw(directions, count * 5, 3), draw(directions, count * 5, 5)]


LENGTHS = np.array([4, 2], np.int32)


@pytest.mark.parametrize("linear", [0, 1])
@pytest.mark.parametrize("clip", [{}, {"clip": 0.5}])
def test_gru(linear: int, clip: dict[str, float]) -> None:
    operands = [draw(4, 2, 3), *gates(3), draw(1, 30), LENGTHS]
    compare("GRU", operands, 2, onnx=14, hidden_size=5, linear_before_reset=linear, **clip)


FREE_PADDINGS = """m (float[n, 4, h, w] x, float[6, 4, 5, 2] k) =>
        (float[a, b, c, d] y0, float[a1, b1, c1, d1] y1, float[a2, b2, c2, d2] y2,
         float[a3, b3, c3, d3] y3, float[a4, b4, c4, d4] y4) {
    y0 = Conv <auto_pad="PADDING", strides=[2, 3]> (x, k)
    y1 = MaxPool <auto_pad="PADDING", kernel_shape=[3, 2], strides=[2, 2]> (x)
    y2 = AveragePool <auto_pad="PADDING", kernel_shape=[3, 3], strides=[2, 2]> (x)
    y3 = AveragePool <auto_pad="PADDING", kernel_shape=[3, 3], strides=[2, 3],
                      count_include_pad=1> (x)
    y4 = LpPool <auto_pad="PADDING", kernel_shape=[3, 3], strides=[2, 2]> (x)
}"""


@pytest.mark.parametrize("padding", ["SAME_UPPER", "SAME_LOWER"])
def test_paddings_by_name_of_symbolic_sizes(padding: str) -> None:
    proto = model(FREE_PADDINGS.replace("PADDING", padding), opset=19)
    graph = from_onnx(proto)
    assert "onnx.deferred" not in op_names(graph)
    assert str(graph.outputs[0].shape[2]) == "(h+1)//2"
    executable = monograph.compile(proto, cache=False, variants=0)
    for sizes in ((2, 4, 7, 9), (1, 4, 8, 6), (1, 4, 1, 1)):
        feeds = {"x": draw(*sizes), "k": draw(6, 4, 5, 2)}
        for found, expected in zip(executable(*feeds.values()), run_ort(proto, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_quantized_convolution_padded_by_name_of_symbolic_sizes() -> None:
    proto = model(
        """m (uint8[n, 2, h, w] x, int8[3, 2, 3, 3] k) => (uint8[a, b, c, d] y) {
            scale = Constant <value_float: float = 0.02> ()
            zero = Constant <value = uint8 {7}> ()
            none = Constant <value = int8 {0}> ()
            more = Constant <value_float: float = 8.0> ()
            y = QLinearConv <auto_pad="SAME_UPPER", strides=[2, 2]>
                (x, scale, zero, k, scale, none, more, zero)
        }"""
    )
    graph = from_onnx(proto)
    assert "onnx.deferred" not in op_names(graph)
    random = np.random.default_rng(0)
    for sizes in ((1, 2, 6, 5), (2, 2, 3, 4)):
        x = random.integers(0, 255, sizes).astype(np.uint8)
        k = random.integers(-100, 100, (3, 2, 3, 3)).astype(np.int8)
        (expected,) = run_ort(proto, {"x": x, "k": k})
        (found,) = interpret(graph, [x, k])
        assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize(
    "attributes",
    [
        {"clip": 0.5}, {"input_forget": 1},
        {"activations": ["HardSigmoid", "Tanh", "ScaledTanh"],
         "activation_alpha": [0.3, 0.0, 1.2], "activation_beta": [0.4, 0.0, 0.7]},
    ],
)  # fmt: skip
def test_lstm_attributes(attributes: dict[str, Any]) -> None:
    compare("LSTM", [draw(4, 2, 3), *gates(4)], 3, onnx=14, hidden_size=5, **attributes)


def test_lstm_in_both_directions_with_lengths_states_and_peepholes() -> None:
    state = draw(2, 2, 5)
    operands = [draw(4, 2, 3), *gates(4, 2), draw(2, 40), LENGTHS, state, state, draw(2, 15)]
    compare("LSTM", operands, 3, onnx=14, hidden_size=5, direction="bidirectional")


@pytest.mark.parametrize(("op", "count"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_with_the_batch_first(op: str, count: int) -> None:
    """ONNX Runtime refuses this layout; it is compared with the other one."""
    x = draw(2, 4, 3)
    results = []
    for layout in (0, 1):
        operands = [x if layout else np.ascontiguousarray(x.swapaxes(0, 1)), *gates(count)]
        given = dict(zip("xwr", operands, strict=True))
        node = helper.make_node(op, list("xwr"), ["y", "h"], hidden_size=5, layout=layout)
        model, feeds = model_of([node], given, ["y", "h"], 14)
        results.append(interpret(from_onnx(model), feeds))
    np.testing.assert_allclose(results[1][0], np.moveaxis(results[0][0], 2, 0), rtol=1e-5)
    np.testing.assert_allclose(results[1][1], np.moveaxis(results[0][1], 1, 0), rtol=1e-5)


def test_lstm_without_a_hidden_size() -> None:
    """ONNX Runtime refuses it; the weights say it."""
    given = dict(zip("xwr", [draw(4, 2, 3), *gates(4)], strict=True))
    found = []
    for options in ({}, {"hidden_size": 5}):
        node = helper.make_node("LSTM", list("xwr"), ["y"], **options)
        model, feeds = model_of([node], given, ["y"], 14)
        found.append(interpret(from_onnx(model), feeds)[0])
    np.testing.assert_array_equal(*found)


PADDINGS = ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"]


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("stride", [1, 2])
def test_paddings_by_name(padding: str, stride: int) -> None:
    options: dict[str, Any] = {"auto_pad": padding, "strides": [stride, stride], "onnx": 17}
    image = draw(1, 2, 5, 4)
    close = {"rtol": 1e-4, "atol": 1e-5}
    compare("Conv", [image, draw(3, 2, 3, 3)], **close, **options)
    compare("MaxPool", [image], kernel_shape=[3, 3], **options)
    compare("ConvTranspose", [image, draw(2, 3, 3, 3)], **close, **options)


@pytest.mark.parametrize(
    "attributes",
    [
        {"output_shape": [9, 8]}, {"output_padding": [1, 1]}, {"pads": [1, 0, 0, 1]},
        {"output_shape": [10, 10], "auto_pad": "SAME_UPPER"},
    ],
)  # fmt: skip
def test_transposed_convolutions_to_a_size(attributes: dict[str, Any]) -> None:
    operands = [draw(1, 2, 4, 4), draw(2, 3, 3, 3)]
    compare("ConvTranspose", operands, onnx=17, strides=[2, 2], rtol=1e-4, atol=1e-5, **attributes)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("ceil", [0, 1])
@pytest.mark.parametrize("opset", [11, 19])
def test_average_pools(include: int, ceil: int, opset: int) -> None:
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    options: dict[str, Any] = {"count_include_pad": include, "ceil_mode": ceil, **window}
    compare("AveragePool", [draw(1, 2, 6, 6)], onnx=opset, **options)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, None])
def test_rows_of_softmax_before_opset_13(op: str, axis: int | None) -> None:
    options = {} if axis is None else {"axis": axis}
    compare(op, [draw(2, 3, 4)], onnx=11, **options)


@pytest.mark.parametrize("slope", [(3, 1, 1), (1, 3, 1, 1), (1,), ()])
def test_slopes_of_prelu(slope: tuple[int, ...]) -> None:
    compare("PRelu", [draw(1, 3, 2, 2), draw(*slope)], onnx=17)


@pytest.mark.parametrize("added", [(), (1,), (4,), (1, 4), (2, 1), (2, 4)])
def test_what_gemm_adds(added: tuple[int, ...]) -> None:
    compare("Gemm", [draw(2, 3), draw(3, 4), draw(*added)], onnx=17)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize(("name", "dtype"), [("float", "f4"), ("int32", "i4"), ("uint8", "u1")])
@pytest.mark.parametrize("rows", [0, 3])
def test_extremes_of_rows_that_may_be_none(op: str, name: str, dtype: str, rows: int) -> None:
    body = f"a = Constant <value_ints = [0]> () y = {op} (x, a)"
    text = f"g ({name}[N, M] x) => ({name}[1, M] y) {{ {body} }}"
    x = np.arange(rows * 4).reshape(rows, 4).astype(dtype)
    (expected,) = run_ort(model(text, 20), {"x": x})
    assert_equal(run(text, x, opset=20), expected)
    assert_equal(monograph.compile(graph_of(text, opset=20)).run([x]), expected)


def test_extremes_of_extremes_of_what_may_be_nothing() -> None:
    body = "a = Constant <value_ints = [0]> () k = ReduceMax (x, a) y = ReduceMax (k)"
    text = f"g (float[N, M] x) => (float[1, 1] y) {{ {body} }}"
    x = np.zeros((0, 4), np.float32)
    (expected,) = run_ort(model(text, 20), {"x": x})
    assert_equal(monograph.compile(graph_of(text, opset=20)).run([x]), expected)
