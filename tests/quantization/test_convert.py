"""Quantized graphs: accurate, native, the same in ONNX Runtime, with few conversions."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.ops.data import Constant
from monograph.quantization.profile import Profile
from monograph.quantization.scheme import SCHEMES, Scheme
from tests.quantization.models import (
    batches,
    draw,
    encoder,
    images,
    perceptron,
    profile_of,
    relative_error,
)

MODELS = {"images": images, "perceptron": perceptron, "encoder": encoder}
STATIC = [name for name, scheme in SCHEMES.items() if not scheme.weight_only]


def counted(graph: Graph) -> Counter[str]:
    return Counter(node.op.name for node in graph.nodes)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scheme", STATIC)
def test_every_scheme_is_near_the_float_model(name: str, scheme: str) -> None:
    graph = MODELS[name]()
    quantized = monograph.quantize(graph, profile_of(MODELS[name]), scheme)
    monograph.verify(quantized)
    (x,) = batches(graph, 1)
    (expected,), (got,) = monograph.interpret(graph, [x]), monograph.interpret(quantized, [x])
    assert 0 < relative_error(got, expected) < (0.12 if scheme in ("f8", "int8-entropy") else 0.05)


@pytest.mark.parametrize("name", MODELS)
def test_native_code_is_what_the_interpreter_says(name: str) -> None:
    graph = MODELS[name]()
    quantized = monograph.quantize(graph, profile_of(MODELS[name]))
    (x,) = batches(graph, 1)
    (expected,), (got,) = (
        monograph.interpret(quantized, [x]),
        monograph.compile(quantized, strict=True)(x),
    )
    # A number between two steps may round to either: sums of floats come in another order.
    assert relative_error(got, expected) < 5e-3


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scheme", ["int8", "int8-symmetric", "int8-per-tensor"])
def test_onnx_runtime_agrees_within_a_step(name: str, scheme: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    graph, taken = MODELS[name](), profile_of(MODELS[name])
    quantized = monograph.quantize(graph, taken, scheme)
    model = monograph.quantize.to_onnx(quantized)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (x,) = batches(graph, 1)
    (got,) = session.run(None, {"x": x})
    (expected,) = monograph.compile(quantized)(x)
    (output,) = graph.outputs
    span = max(abs(float(expected.min())), abs(float(expected.max())))
    assert np.abs(got - expected).max() <= span / 64, output


@pytest.mark.parametrize("scheme", ["int8", "int8-symmetric", "int8-per-tensor", "w8"])
def test_onnx_runtime_multiplies_stacks_of_matrices(scheme: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    first, second = draw(3, 8, 6), draw(6, 5, seed=1)

    def model(x: Any) -> Any:
        x = F.relu(F.matmul(x, x.graph.add_weight("a", first)))
        return F.matmul(x, x.graph.add_weight("b", second))

    graph = monograph.trace(model, "f32[3, 4, 8]")
    x = draw(3, 4, 8, seed=2)
    quantized = monograph.quantize(graph, monograph.quantize.profile(graph, [x]), scheme)
    written = monograph.quantize.to_onnx(quantized).SerializeToString()
    (got,) = onnxruntime.InferenceSession(written).run(None, {"x": x})
    (expected,) = monograph.interpret(quantized, [x])
    assert relative_error(got, expected) < 5e-3


@pytest.mark.parametrize("scheme", ["int8", "int16", "f8"])
@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (4, 16)])
def test_onnx_runtime_keeps_biases_and_relus(scheme: str, shape: tuple[int, ...]) -> None:
    # The weights of one channel are so small that its bias is no 32-bit integer in their scale.
    onnxruntime = pytest.importorskip("onnxruntime")
    taps = shape[2:] and (3, 3)
    first, second = draw(8, shape[1], *taps), draw(4, 8, *taps, seed=1)
    first[2] *= 1e-12

    def model(x: Any) -> Any:
        layer = F.conv if taps else F.linear
        x = layer(x, x.graph.add_weight("a", first), np.full(8, 0.5, np.float32))
        return layer(F.relu(x), x.graph.add_weight("b", second))

    graph = monograph.trace(model, f"f32[{', '.join(map(str, shape))}]")
    x = draw(*shape, seed=2)
    quantized = monograph.quantize(graph, monograph.quantize.profile(graph, [x]), scheme)
    written = monograph.quantize.to_onnx(quantized).SerializeToString()
    (got,) = onnxruntime.InferenceSession(written).run(None, {"x": x})
    (expected,) = monograph.interpret(quantized, [x])
    assert relative_error(got, expected) < 5e-3
    (again,) = monograph.interpret(monograph.from_onnx(written), [x])
    assert relative_error(again, expected) < 1e-5


def test_layers_multiply_integers() -> None:
    graph = images()
    compiled = monograph.compile(monograph.quantize(graph, profile_of(images)), strict=True)
    names = ("conv", "integer_conv", "dot_general")
    products = [n for n in compiled.lowered.nodes if n.op.name in names]
    assert len(products) == 3 and all(n.operands[0].dtype.is_integer for n in products)


def test_pools_concatenations_and_reshapes_move_integers() -> None:
    graph = images()
    quantized, report = monograph.quantize.with_report(graph, profile_of(images))
    for node in quantized.nodes:
        if node.op.name in ("max_pool", "concat", "reshape"):
            assert str(node.result.dtype) == "u8", node
    # The input, what the first layer made, and the sum: nothing is converted twice.
    assert counted(quantized)["quantize"] == report.quantizes == 3
    assert report.dequantizes == 3 and report.alone == 1
    assert "3 of 3 layers quantized" in str(report)
    assert "3 quantize and 3 dequantize nodes are left" in str(report)


def test_attention_and_residual_sums_stay_in_float() -> None:
    graph = encoder()
    quantized, report = monograph.quantize.with_report(graph, profile_of(encoder))
    assert report.quantizes == 4 and len(report.quantized) == 4
    (attention,) = (node for node in quantized.nodes if node.op.name == "attention")
    assert all(str(operand.dtype) == "f32" for operand in attention.operands)


def test_sums_of_floats_can_be_asked_for() -> None:
    graph = images()
    taken = profile_of(images)
    (added,) = (
        n
        for n in monograph.quantize(graph, taken, Scheme(elementwise=False)).nodes
        if n.op.name == "add"
    )
    assert "dequantize" not in {v.op.name for v in added.operands if v.op is not None}


def test_a_skipped_layer_stays_in_float() -> None:
    graph = perceptron()
    taken = profile_of(perceptron)
    _, report = monograph.quantize.with_report(graph, taken)
    name = report.layers[1].name
    _, report = monograph.quantize.with_report(graph, taken, Scheme(skip=(name,)))
    assert [layer.precision for layer in report.layers] == ["u8 × i8", "float", "u8 × i8"]
    with pytest.raises(InputError, match="no layer is called"):
        monograph.quantize(graph, taken, Scheme(skip=("nobody",)))


def test_bias_correction_removes_the_mean_error() -> None:
    graph, taken = perceptron(), profile_of(perceptron, per_channel=True)
    errors = []
    for corrected in (False, True):
        scheme = Scheme("i16", "i4", symmetric=True, bias_correction=corrected)
        quantized = monograph.quantize(graph, taken, scheme)
        differences = [
            monograph.interpret(quantized, [x])[0] - monograph.interpret(graph, [x])[0]
            for x in batches(graph, 8)
        ]
        errors.append(float(np.abs(np.concatenate(differences).mean(0)).mean()))
    assert errors[1] < errors[0] / 2
    with pytest.raises(InputError, match="per_channel=True"):
        monograph.quantize(graph, profile_of(perceptron), Scheme(bias_correction=True))


def test_a_free_batch_stays_free() -> None:
    graph = images("batch")
    taken = monograph.quantize.profile(graph, [draw(4, 3, 8, 8), draw(2, 3, 8, 8, seed=1)])
    compiled = monograph.compile(monograph.quantize(graph, taken))
    assert compiled(draw(7, 3, 8, 8))[0].shape == (7, 10)


# Bad input.


def test_a_profile_of_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="another model"):
        monograph.quantize(images(), profile_of(perceptron))


def test_other_weights_are_another_model() -> None:
    other = perceptron()
    (first,) = (n for n in other.nodes if n.op.name == "weight" and n.op.label == "a")
    with other.inserting_before(first.next):
        doubled = F.multiply(first.result, 2.0)
    (layer,) = (u for u in first.result.users if u is not doubled.producer)
    layer.set_operand(1, doubled)
    with pytest.raises(InputError, match="another model"):
        monograph.quantize(other, profile_of(perceptron))


def test_an_empty_profile_is_refused() -> None:
    graph = perceptron()
    taken = profile_of(perceptron)
    with pytest.raises(InputError, match="empty"):
        monograph.quantize(graph, Profile(taken.model, 0, {}))
    with pytest.raises(InputError, match="lacks the activation"):
        monograph.quantize(graph, Profile(taken.model, 1, {"x": taken.activations["x"]}))
    with pytest.raises(InputError, match="needs a profile"):
        monograph.quantize(graph)


@pytest.mark.parametrize("number", [0.0, 3.0, -2.0, 1e-30])
def test_constant_activations_have_a_scale(number: float) -> None:
    graph = perceptron()
    x = np.full((4, 16), number, np.float32)
    taken = monograph.quantize.profile(graph, [x])
    (expected,) = monograph.interpret(graph, [x])
    for scheme in STATIC:
        (got,) = monograph.interpret(monograph.quantize(graph, taken, scheme), [x])
        assert np.isfinite(got).all() and relative_error(got, expected) < 0.1, scheme


def test_a_channel_of_zeros_has_a_scale() -> None:
    def model(x: Any) -> Any:
        rows = draw(4, 8)
        rows[2] = 0
        return F.linear(x, rows)

    graph = monograph.trace(model, "f32[2, 8]")
    x = draw(2, 8, seed=1)
    (got,) = monograph.compile(monograph.quantize(graph, monograph.quantize.profile(graph, [x])))(x)
    assert (got[:, 2] == 0).all() and np.isfinite(got).all()


def test_sums_that_may_overflow_stay_in_float() -> None:
    depth = 70_000
    ones = np.ones((2, depth), np.float32)
    graph = monograph.trace(
        lambda x: F.linear(x, x.graph.add_weight("w", ones)), f"f32[1, {depth}]"
    )
    x = np.full((1, depth), 255.0, np.float32)
    taken = monograph.quantize.profile(graph, [x])
    quantized, report = monograph.quantize.with_report(graph, taken)
    assert report.layers[0].precision == "float" and "overflow" in report.layers[0].reason
    np.testing.assert_allclose(monograph.compile(quantized)(x)[0], 255.0 * depth, rtol=1e-5)


def test_a_bias_that_may_overflow_with_its_sum_stays_in_float() -> None:
    depth, bias = 65_000, 8e6
    ones, biases = np.ones((2, depth), np.float32), np.full(2, bias, np.float32)
    graph = monograph.trace(
        lambda x: F.linear(x, x.graph.add_weight("w", ones), x.graph.add_weight("b", biases)),
        f"f32[1, {depth}]",
    )
    x = np.full((1, depth), 255.0, np.float32)
    quantized, report = monograph.quantize.with_report(
        graph, monograph.quantize.profile(graph, [x])
    )
    assert report.layers[0].precision == "u8 × i8"
    (layer,) = (node for node in quantized.nodes if node.op.name == "linear")
    assert layer.operands[2].op is not None and layer.operands[2].op.name != "dequantize"
    np.testing.assert_allclose(monograph.compile(quantized)(x)[0], 255.0 * depth + bias, rtol=1e-5)


def test_infinite_activations_stay_in_float() -> None:
    graph = monograph.trace(lambda x: F.linear(F.exp(x), draw(3, 4)), "f32[2, 4]")
    x = np.array([[0, 1, 2, 1000], [0, 0, 0, 0]], np.float32)
    _, report = monograph.quantize.with_report(graph, monograph.quantize.profile(graph, [x]))
    assert report.layers[0].reason == "%exp was infinite"


def test_weights_that_are_not_finite_are_named() -> None:
    wrong = draw(3, 4)
    wrong[0, 0] = np.inf
    graph = monograph.trace(lambda x: F.linear(x, x.graph.add_weight("w", wrong)), "f32[2, 4]")
    taken = monograph.quantize.profile(graph, [np.ones((2, 4), np.float32)])
    with pytest.raises(InputError, match="%w is not finite"):
        monograph.quantize(graph, taken)


def test_channels_that_are_not_the_models_are_refused() -> None:
    described = json.loads(profile_of(perceptron, per_channel=True).to_json())
    channels = described["activations"]["x"]["channels"]
    for key in ("min", "max", "mean"):
        channels[key] = channels[key][:3]
    with pytest.raises(InputError, match="channels of %x do not fit"):
        monograph.quantize(perceptron(), Profile.from_json(json.dumps(described)))
    channels["axis"] = 7
    with pytest.raises(InputError, match="channels of %x do not fit"):
        monograph.quantize(perceptron(), Profile.from_json(json.dumps(described)))


KINDS = [("u8", "i8"), ("i16", "i16"), ("f8e4m3fn", "f8e4m3fn")]


@pytest.mark.parametrize("kinds", KINDS)
def test_calibration_is_made_for_what_is_stored(kinds: tuple[str, str]) -> None:
    graph = perceptron("batch")
    x = np.random.default_rng(0).standard_t(3, (4096, 16)).astype(np.float32)
    taken = monograph.quantize.profile(graph, [x])
    largest = float(np.abs(x).max())

    def kept(calibration: str) -> float:
        """The share of the range that is stored."""
        scheme = Scheme(*kinds, symmetric=True, calibration=calibration)
        quantized = monograph.quantize(graph, taken, scheme)
        first = next(node for node in quantized.nodes if node.op.name == "quantize")
        op = first.operands[1].op
        assert isinstance(op, Constant)
        most = {"u8": 127, "i16": 32767, "f8e4m3fn": 448}[kinds[0]]
        return float(op.data.array()) * most / largest

    assert kept("minmax") == pytest.approx(1.0, rel=1e-3)
    assert kept("percentile") < 0.95
    # Few even steps are worth saturation; many, or those that grow with the number, are not.
    assert kept("mse") < 0.95 if kinds[0] == "u8" else kept("mse") > 0.95
    if kinds[0] == "f8e4m3fn":
        with pytest.raises(InputError, match="even steps"):
            kept("entropy")
    else:
        assert kept("entropy") < 0.95 if kinds[0] == "u8" else kept("entropy") > 0.95


def test_a_quantized_model_is_not_quantized_again() -> None:
    graph = perceptron()
    quantized = monograph.quantize(graph, profile_of(perceptron))
    with pytest.raises(InputError, match="quantized already"):
        monograph.quantize.profile(quantized, batches(graph, 1))


@pytest.mark.parametrize(
    "options",
    [
        {"calibration": "best"},
        {"activations": "i4"},
        {"weights": "u8"},
        {"percentile": 10.0},
        {"group": 1},
        {"weight_bits": 5},
        {"skip": "conv"},
        {"percentile": "99"},
        # What would change nothing is refused, too.
        {"percentile": 99.0},
        {"calibration": "mse", "percentile": 99.0},
        {"group": 32},
        {"weight_bits": 4},
        {"symmetric_weights": False},
        {"activations": None, "calibration": "mse"},
        {"activations": None, "bias_correction": True},
        {"activations": None, "per_channel": False},
        {"activations": "f8e4m3fn", "calibration": "entropy"},
    ],
)
def test_schemes_that_there_are_not_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Scheme(**options)


def test_a_name_of_no_scheme_and_no_model_are_refused() -> None:
    with pytest.raises(InputError, match="scheme"):
        monograph.quantize(perceptron(), None, "int7")
    with pytest.raises(InputError, match="not a model"):
        monograph.quantize.profile(3, [])


def test_products_of_two_activations_are_quantized() -> None:
    graph = monograph.trace(
        lambda x: F.matmul(F.tanh(x), F.sigmoid(F.transpose(x, (0, 2, 1)))), "f32[2, 8, 8]"
    )
    x = draw(2, 8, 8)
    quantized, report = monograph.quantize.with_report(
        graph, monograph.quantize.profile(graph, [x])
    )
    assert report.layers[0].precision == "u8 × u8"
    (expected,), (got,) = monograph.interpret(graph, [x]), monograph.compile(quantized)(x)
    assert relative_error(got, expected) < 0.03
