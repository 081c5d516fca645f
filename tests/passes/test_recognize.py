"""Composites are found in every order of operands, mean the same, and are not found elsewhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import monograph.functional as F
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.types import Array
from monograph.passes.canonicalize import Canonicalize
from monograph.passes.recognize import RULES, Recognize
from monograph.passes.simplify import Simplify

SQRT_2_OVER_PI = 0.7978845608


class Orders:
    """Sums and products whose operands swap as the bits say; counts how many there are."""

    def __init__(self, bits: int = 0) -> None:
        self.bits = bits
        self.count = 0

    def _swap(self) -> bool:
        self.count += 1
        return bool(self.bits >> (self.count - 1) & 1)

    def add(self, a: Any, b: Any) -> Value:
        return F.add(b, a) if self._swap() else F.add(a, b)

    def mul(self, *items: Any) -> Value:
        total = items[0]
        for item in items[1:]:
            total = F.multiply(item, total) if self._swap() else F.multiply(total, item)
        return total

    def maximum(self, a: Any, b: Any) -> Value:
        return F.maximum(b, a) if self._swap() else F.maximum(a, b)


Program = Callable[..., Any]


def every_order(program: Program, *types: str) -> Iterator[Graph]:
    """The program with the operands of its commutative ops in every order."""
    first = Orders()
    yield trace(lambda *values: program(first, *values), *types)
    for bits in range(1, 2**first.count):
        yield trace(lambda *values, bits=bits: program(Orders(bits), *values), *types)


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.op.name not in ("constant", "full")]


def draw(graph: Graph, sizes: dict[str, int] | None = None) -> list[Array]:
    generator = np.random.default_rng(0)
    arrays = []
    for value in graph.inputs:
        shape = [dim if isinstance(dim, int) else (sizes or {})[str(dim)] for dim in value.shape]
        array = generator.normal(size=shape)
        numpy = value.dtype.numpy
        arrays.append(array > 0 if numpy == np.bool_ else array.astype(numpy))
    return arrays


def assert_near(before: list[Array], after: list[Array], tolerance: float = 2e-6) -> None:
    for left, right in zip(before, after, strict=True):
        assert left.dtype == right.dtype and left.shape == right.shape
        wide, other = left.astype(np.float64), right.astype(np.float64)
        scale = max(float(np.abs(wide).max(initial=0.0)), 1.0)
        np.testing.assert_allclose(other, wide, rtol=tolerance, atol=tolerance * scale)


def check(graph: Graph, expected: list[str], tolerance: float = 2e-6, **sizes: int) -> Graph:
    """Recognise, see what is left, compare; then again from the canonical, simplified graph."""
    inputs = draw(graph, sizes)
    before = interpret(graph, inputs)
    other = graph.clone()
    result = Recognize().run(graph)
    assert names(graph) == expected, f"{result.counters}\n{graph}"
    assert_near(before, interpret(graph, inputs), tolerance)
    assert not Recognize().run(graph).changed
    Canonicalize().run(other)
    Simplify().run(other)
    Recognize().run(other)
    Simplify().run(other)
    assert set(expected) <= set(names(other)), str(other)
    assert len(names(other)) <= len(expected) + 1, str(other)
    assert_near(before, interpret(other, inputs), tolerance)
    return graph


# Activations.


def text_book_gelu(o: Orders, x: Value) -> Value:
    """0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)))."""
    cubic = o.mul(0.044715, x, x, x)
    inner = F.tanh(o.mul(SQRT_2_OVER_PI, o.add(x, cubic)))
    return o.mul(o.mul(0.5, x), o.add(1.0, inner))


def test_the_text_book_gelu_in_all_256_orders():
    count = 0
    inputs = [np.linspace(-6, 6, 25, dtype=np.float32)]
    for graph in every_order(text_book_gelu, "f32[25]"):
        before = interpret(graph, inputs)
        Recognize().run(graph)
        assert names(graph) == ["gelu"], str(graph)
        assert graph.nodes[0].op.approximate == "tanh"
        assert_near(before, interpret(graph, inputs))
        count += 1
    assert count == 256


def halved(o: Orders, x: Value, inner: Value) -> Value:
    """0.5 * x * (1 + inner)."""
    return o.mul(0.5 * x, o.add(1, inner))


ACTIVATIONS: dict[str, list[Program]] = {
    "gelu_tanh": [
        lambda o, x: o.mul(
            o.mul(x, o.add(F.tanh(o.mul(o.add(x, o.mul(F.power(x, 3.0), 0.044715)), 0.79788)), 1)),
            0.5,
        ),
        lambda o, x: (
            o.mul(x, o.add(1, F.tanh(o.mul(o.add(x, o.mul(0.044715, x, F.square(x))), 0.7979)))) / 2
        ),
        lambda o, x: o.mul(
            x / 2.0,
            o.add(1, F.tanh(o.mul(o.add(x, o.mul(0.044715, x, x * x)), math.sqrt(2 / math.pi)))),
        ),
    ],
    "gelu_tanh_factored": [
        lambda o, x: halved(
            o, x, F.tanh(o.mul(x, 0.7978845608, o.add(1, o.mul(0.044715, x, x))))
        ),
    ],
    "gelu_tanh_expanded": [
        lambda o, x: halved(
            o, x, F.tanh(o.add(o.mul(0.7978845608, x), o.mul(0.0356774081, x, x, x)))
        ),
    ],
    "gelu_tanh_halved": [
        lambda o, x: o.mul(
            x, o.add(0.5, o.mul(0.5, F.tanh(0.7978845608 * o.add(x, 0.044715 * x**3))))
        ),
    ],
    "gelu_sigmoid": [
        lambda o, x: o.mul(x, F.sigmoid(o.mul(1.595769122, o.add(x, o.mul(0.044715, x**3))))),
    ],
    "gelu_erf": [
        lambda o, x: o.mul(o.mul(0.5, x), o.add(1.0, F.erf(o.mul(x, 0.70710678)))),
        lambda o, x: o.mul(0.5, x, o.add(1.0, F.erf(x / math.sqrt(2.0)))),
        lambda o, x: o.mul(0.5, o.mul(x, o.add(1.0, F.erf(x / 1.4142)))),
        lambda o, x: o.mul(x, o.mul(0.5, o.add(1.0, F.erf(x / 1.41421356)))),
        lambda o, x: o.mul(x, o.add(F.erf(x / 1.41421356), 1.0)) / 2.0,
    ],
    "gelu_erf_halved": [
        lambda o, x: o.mul(x, o.add(0.5, o.mul(0.5, F.erf(o.mul(x, 0.70710678))))),
        lambda o, x: o.mul(x, o.add(0.5, F.erf(x / math.sqrt(2.0)) / 2.0)),
    ],
    "gelu_erfc": [lambda o, x: o.mul(0.5, x, F.erfc(o.mul(x, -0.70710678)))],
    "gelu_erfc_negated": [
        lambda o, x: o.mul(0.5, x, F.erfc(-x / math.sqrt(2.0))),
        lambda o, x: o.mul(0.5, x, F.erfc(-(x / math.sqrt(2.0)))),
    ],
    "sigmoid_quotient": [lambda o, x: 1.0 / o.add(1.0, F.exp(-x))],
    "sigmoid_reciprocal": [lambda o, x: F.reciprocal(o.add(1.0, F.exp(-x)))],
    "sigmoid_of_exp": [lambda o, x: (e := F.exp(x)) / o.add(1.0, e)],
    "sigmoid_tanh": [lambda o, x: o.mul(0.5, o.add(1.0, F.tanh(o.mul(0.5, x))))],
    "sigmoid_tanh_halved": [lambda o, x: o.add(0.5, o.mul(0.5, F.tanh(x / 2.0)))],
    "silu_product": [lambda o, x: o.mul(x, F.sigmoid(x))],
    "silu_quotient": [lambda o, x: x / o.add(1.0, F.exp(-x))],
    "softplus_log": [lambda o, x: F.log(o.add(1.0, F.exp(x)))],
    "softplus_log1p": [lambda o, x: F.log1p(F.exp(x))],
    "log_of_sigmoid": [lambda o, x: F.log(F.sigmoid(x))],
    "mish_product": [lambda o, x: o.mul(x, F.tanh(F.log1p(F.exp(x))))],
    "mish_product_of_threshold": [lambda o, x: o.mul(x, F.tanh(F.softplus(x)))],
    "relu_maximum": [lambda o, x: o.maximum(x, 0.0)],
    "relu_clip": [lambda o, x: F.clip(x, 0.0)],
    "relu6_clip": [lambda o, x: F.clip(x, 0.0, 6.0)],
    "relu6_of_relu": [lambda o, x: F.minimum(o.maximum(x, 0.0), 6.0)],
    "leaky_relu_greater": [lambda o, x: F.where(x > 0, x, o.mul(x, 0.1))],
    "leaky_relu_less": [lambda o, x: F.where(F.less(0, x), x, o.mul(x, 0.1))],
    "hardsigmoid_quotient": [lambda o, x: F.relu6(o.add(x, 3.0)) / 6.0],
    "hardswish_product": [lambda o, x: o.mul(x, F.relu6(o.add(x, 3.0)) * (1 / 6))],
    "hardswish_of_hardsigmoid": [lambda o, x: o.mul(x, F.hardsigmoid(x))],
}  # fmt: skip

RESULTS = {
    **{name: "gelu" for name in ACTIVATIONS if name.startswith("gelu")},
    **{name: "sigmoid" for name in ACTIVATIONS if name.startswith("sigmoid")},
    **{name: "silu" for name in ACTIVATIONS if name.startswith("silu")},
    **{name: "softplus" for name in ACTIVATIONS if name.startswith("softplus")},
    "log_of_sigmoid": "log_sigmoid",
    "mish_product": "mish",
    "mish_product_of_threshold": "mish",
    "relu_maximum": "relu",
    "relu_clip": "relu",
    "relu6_clip": "relu6",
    "relu6_of_relu": "relu6",
    "leaky_relu_greater": "leaky_relu",
    "leaky_relu_less": "leaky_relu",
    "hardsigmoid_quotient": "hardsigmoid",
    "hardswish_product": "hardswish",
    "hardswish_of_hardsigmoid": "hardswish",
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_in_every_order(name):
    for program in ACTIVATIONS[name]:
        # A constant may be off in its fifth digit, and so may the result.
        tolerance = 3e-4 if name.startswith("gelu") else 2e-6
        for graph in itertools.islice(every_order(program, "f32[40]"), 64):
            check(graph, [RESULTS[name]], tolerance)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_activations_in_other_dtypes(dtype):
    tolerance = {"f64": 1e-9, "f16": 2e-3, "bf16": 2e-2}[dtype]
    for program in (text_book_gelu, *ACTIVATIONS["sigmoid_quotient"], *ACTIVATIONS["silu_product"]):
        graph = trace(lambda x, p=program: p(Orders(), x), f"{dtype}[40]")
        inputs = draw(graph)
        before = interpret(graph, inputs)
        Recognize().run(graph)
        assert len(names(graph)) == 1, str(graph)
        assert_near(before, interpret(graph, inputs), tolerance)


def test_a_symbolic_shape_and_a_shared_inner_value():
    def program(x):
        inner = F.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3))
        return 0.5 * x * (1 + inner), inner

    graph = trace(program, "f32[batch, 4]")
    Recognize().run(graph)
    assert graph.outputs[0].producer.op.name == "gelu"
    assert graph.outputs[1].producer.op.name == "tanh"


def near_misses() -> Iterator[Program]:
    yield lambda x, y: 0.5 * x * (1 + F.tanh(0.8 * (x + 0.044715 * x**3)))
    yield lambda x, y: 0.5 * x * (1 + F.tanh(SQRT_2_OVER_PI * (x + 0.05 * x**3)))
    yield lambda x, y: 0.5 * x * (1 + F.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**4)))
    yield lambda x, y: 0.5 * y * (1 + F.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3)))
    yield lambda x, y: 0.5 * x * (1 + F.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * y)))
    yield lambda x, y: 0.5 * x * (1.001 + F.erf(x / math.sqrt(2)))
    yield lambda x, y: 0.51 * x * (1 + F.erf(x / math.sqrt(2)))
    yield lambda x, y: 0.5 * x * (1 - F.erf(x / math.sqrt(2)))
    yield lambda x, y: x * F.sigmoid(y)
    yield lambda x, y: 1.0 / (1.0 + F.exp(x))
    yield lambda x, y: 2.0 / (1.0 + F.exp(-x))
    yield lambda x, y: y / (1.0 + F.exp(-x))
    yield lambda x, y: F.maximum(x, 1.0)
    yield lambda x, y: F.maximum(x, -0.0)
    yield lambda x, y: F.where(x > 0, x, y * 0.1)
    yield lambda x, y: F.exp(x) / F.sum(F.exp(y), 1, keepdims=True)
    yield lambda x, y: F.exp(x) / F.sum(F.exp(x))
    yield lambda x, y: x - F.log(F.sum(F.exp(y), 1, keepdims=True))
    yield lambda x, y: (x - F.mean(y, 1, True)) * F.rsqrt(F.variance(x, 1, True) + 1e-5)
    yield lambda x, y: (x - F.mean(x, 1, True)) * F.rsqrt(F.variance(y, 1, True) + 1e-5)
    yield lambda x, y: (x - F.mean(x, 1, True)) * F.rsqrt(F.variance(x, 1, True, 1) + 1e-5)
    yield lambda x, y: (x - F.mean(x, 0, True)) * F.rsqrt(F.variance(x, 0, True) + 1e-5)
    yield lambda x, y: (x - F.mean(x, 0, True)) * F.rsqrt(F.variance(x, 1, True) + 1e-5)
    yield lambda x, y: x * F.rsqrt(F.mean(y * y, 1, True) + 1e-5)
    yield lambda x, y: x * F.rsqrt(F.mean(x * y, 1, True) + 1e-5)
    yield lambda x, y: x * F.rsqrt(F.sum(x * x, 1, True) + 1e-5)
    yield lambda x, y: x * F.sqrt(F.mean(x * x, 1, True) + 1e-5)


@pytest.mark.parametrize("program", list(near_misses()))
def test_what_is_almost_a_composite_stays(program):
    graph = trace(program, "f32[3, 4]", "f32[3, 4]")
    result = Recognize().run(graph)
    made = {rule for rule in result.counters if rule not in ("logsumexp_log", "refused")}
    assert not made, str(graph)


# Softmax.


def shifted(x: Value, axis: int = -1) -> Value:
    return x - F.max(x, axis, keepdims=True)


SOFTMAXES: dict[str, tuple[Callable[[Value], Value], str]] = {
    "plain": (lambda x: (e := F.exp(x)) / F.sum(e, -1, keepdims=True), "softmax"),
    "shifted": (lambda x: (e := F.exp(shifted(x))) / F.sum(e, -1, keepdims=True), "softmax"),
    "first axis": (lambda x: (e := F.exp(shifted(x, 0))) / F.sum(e, 0, keepdims=True), "softmax"),
    "axes put back": (
        lambda x: (e := F.exp(x - F.unsqueeze(F.max(x, 1), 1))) / F.reshape(F.sum(e, 1), (5, 1)),
        "softmax",
    ),
    "expanded": (
        lambda x: (e := F.exp(x)) / F.expand(F.sum(e, 1, keepdims=True), (5, 7)),
        "softmax",
    ),
    "stop gradient": (
        lambda x: (
            (e := F.exp(x - F.stop_gradient(F.max(x, 1, keepdims=True))))
            / F.sum(e, 1, keepdims=True)
        ),
        "softmax",
    ),
    "times reciprocal": (
        lambda x: (e := F.exp(shifted(x))) * F.reciprocal(F.sum(e, 1, keepdims=True)),
        "softmax",
    ),
    "quotient first": (
        lambda x: (1.0 / F.sum(e := F.exp(x), 1, keepdims=True)) * e,
        "softmax",
    ),
    "exp of log": (lambda x: F.exp(x - F.logsumexp(x, 1, keepdims=True)), "softmax"),
    "log": (lambda x: F.log(F.softmax(x, 1)), "log_softmax"),
    "log of quotient": (
        lambda x: F.log((e := F.exp(shifted(x))) / F.sum(e, -1, keepdims=True)),
        "log_softmax",
    ),
    "difference": (
        lambda x: (d := shifted(x)) - F.log(F.sum(F.exp(d), -1, keepdims=True)),
        "log_softmax",
    ),
    "plain difference": (lambda x: x - F.log(F.sum(F.exp(x), 1, keepdims=True)), "log_softmax"),
    "logsumexp": (lambda x: F.log(F.sum(F.exp(x), 1)), "logsumexp"),
    "logsumexp of two axes": (lambda x: F.log(F.sum(F.exp(x), (0, 1))), "logsumexp"),
    "logsumexp shifted": (
        lambda x: (m := F.max(x, 1, keepdims=True)) + F.log(F.sum(F.exp(x - m), 1, keepdims=True)),
        "logsumexp",
    ),
}


@pytest.mark.parametrize("name", SOFTMAXES)
def test_softmax(name):
    program, expected = SOFTMAXES[name]
    check(trace(program, "f32[5, 7]"), [expected])


def test_softmax_of_a_vector_whose_sum_is_a_scalar():
    check(trace(lambda x: (e := F.exp(x)) / F.sum(e), "f32[7]"), ["softmax"])


def test_softmax_no_longer_overflows():
    graph = trace(lambda x: (e := F.exp(x)) / F.sum(e, -1, keepdims=True), "f32[2]")
    x = np.array([1000.0, 0.0], np.float32)
    assert np.isnan(interpret(graph, [x])[0]).any()
    Recognize().run(graph)
    assert interpret(graph, [x])[0].tolist() == [1.0, 0.0]


# Norms.


def variances() -> Iterator[Callable[[Orders, Value, Value], Value]]:
    yield lambda o, x, c: F.mean(o.mul(c, c), -1, keepdims=True)
    yield lambda o, x, c: F.mean(F.square(x - F.mean(x, -1, True)), -1, keepdims=True)
    yield lambda o, x, c: F.mean(c**2.0, -1, keepdims=True)
    yield lambda o, x, c: F.variance(x, -1, keepdims=True)
    yield lambda o, x, c: F.sum(c * c, -1, keepdims=True) / 8.0
    yield lambda o, x, c: o.mul(F.sum(c * c, -1, keepdims=True), 1 / 8)
    yield lambda o, x, c: F.mean(x * x, -1, True) - F.square(F.mean(x, -1, True))
    yield lambda o, x, c: F.maximum(F.mean(x * x, -1, True) - F.mean(x, -1, True) ** 2.0, 0.0)


def normals() -> Iterator[Callable[[Orders, Value, Value], Value]]:
    yield lambda o, c, v: o.mul(c, F.rsqrt(v))
    yield lambda o, c, v: c / F.sqrt(v)
    yield lambda o, c, v: c / v**0.5
    yield lambda o, c, v: o.mul(c, 1.0 / F.sqrt(v))
    yield lambda o, c, v: o.mul(c, v**-0.5)


@pytest.mark.parametrize("variance", list(variances()))
@pytest.mark.parametrize("normal", list(normals()))
def test_layer_norm_without_parameters(variance, normal):
    def program(o, x):
        c = x - F.mean(x, -1, keepdims=True)
        return normal(o, c, o.add(variance(o, x, c), 1e-5))

    for graph in every_order(program, "f32[5, 8]"):
        made = check(graph, ["layer_norm"])
        assert made.nodes[0].op.epsilon == 1e-5


def scaled(o, c, r, scale, bias):
    return o.add(o.mul(o.mul(c, r), scale), bias)


def scaled_early(o, c, r, scale, bias):
    return o.add(o.mul(c, o.mul(r, scale)), bias)


@pytest.mark.parametrize("grouping", [scaled, scaled_early])
def test_layer_norm_with_scale_and_bias_in_every_order(grouping):
    def program(o, x, scale, bias):
        c = x - F.mean(x, -1, keepdims=True)
        r = F.rsqrt(o.add(F.mean(c * c, -1, keepdims=True), 1e-5))
        return grouping(o, c, r, scale, bias)

    for graph in every_order(program, "f32[2, 5, 8]", "f32[8]", "f32[8]"):
        made = check(graph, ["layer_norm"])
        assert made.nodes[-1].operands == made.inputs


def test_layer_norm_of_several_axes_and_broadcast_parameters():
    def program(x, scale):
        c = x - F.mean(x, (1, 2), keepdims=True)
        return c / F.sqrt(F.variance(x, (1, 2), keepdims=True) + 1e-5) * scale

    graph = check(trace(program, "f32[2, 5, 8]", "f32[1, 5, 8]"), ["reshape", "layer_norm"])
    assert graph.nodes[-1].op.axis == 1
    kept = trace(program, "f32[2, 5, 8]", "f32[8]")
    check(kept, ["layer_norm", "multiply"])


def test_layer_norm_of_a_symbolic_batch():
    def program(x, scale, bias):
        c = x - F.mean(x, -1, keepdims=True)
        return c * F.rsqrt(F.mean(c * c, -1, keepdims=True) + 1e-6) * scale + bias

    check(trace(program, "f32[batch, 8]", "f32[8]", "f32[8]"), ["layer_norm"], batch=3)


def test_rms_norm_in_every_order():
    def program(o, x, scale):
        r = F.rsqrt(o.add(F.mean(o.mul(x, x), -1, keepdims=True), 1e-6))
        return o.mul(o.mul(x, r), scale)

    for graph in every_order(program, "f32[5, 8]", "f32[8]"):
        check(graph, ["rms_norm"])


@pytest.mark.parametrize("normal", list(normals()))
def test_rms_norm_spellings(normal):
    def program(x):
        return normal(Orders(), x, F.mean(x**2.0, -1, keepdims=True) + 1e-6)

    check(trace(program, "f32[5, 8]"), ["rms_norm"])


def test_a_product_with_x_beside_its_norm_keeps_both():
    def program(x):
        return x * x / F.sqrt(F.mean(x * x, -1, keepdims=True) + 1e-6)

    check(trace(program, "f32[5, 8]"), ["rms_norm", "multiply"])


# Attention.


def transposed(k: Value) -> Value:
    return F.swapaxes(k, -1, -2)


SCALES: dict[str, Callable[[Orders, Value, Value], Value]] = {
    "multiplied": lambda o, q, k: o.mul(q @ transposed(k), 0.25),
    "divided": lambda o, q, k: (q @ transposed(k)) / 4.0,
    "on the query": lambda o, q, k: o.mul(q, 0.25) @ transposed(k),
    "on the key": lambda o, q, k: q @ transposed(o.mul(k, 0.25)),
    "on the transposed key": lambda o, q, k: q @ o.mul(transposed(k), 0.25),
    "on both": lambda o, q, k: (q / 2.0) @ transposed(o.mul(k, 0.5)),
    "none": lambda o, q, k: q @ transposed(k),
}
QKV = ("f32[2, 3, 5, 8]", "f32[2, 3, 6, 8]", "f32[2, 3, 6, 4]")


@pytest.mark.parametrize("name", SCALES)
def test_attention_scales(name):
    def program(o, q, k, v):
        return F.softmax(SCALES[name](o, q, k), -1) @ v

    for graph in every_order(program, *QKV):
        made = check(graph, ["attention"], 1e-5)
        assert made.nodes[-1].op.scale == (1.0 if name == "none" else 0.25)


@pytest.mark.parametrize("mask", ["f32[5, 6]", "f32[2, 1, 5, 6]", "f32[6]"])
def test_attention_with_an_added_mask_in_every_order(mask):
    def program(o, q, k, v, m):
        return F.softmax(o.add(o.mul(q @ transposed(k), 0.25), m), -1) @ v

    for graph in every_order(program, *QKV, mask):
        check(graph, ["attention"], 1e-5)


def test_attention_with_a_bool_mask():
    def kept(q, k, v, m):
        return F.softmax(F.where(m, q @ transposed(k) * 0.25, -np.inf), -1) @ v

    def filled(q, k, v, m):
        return F.softmax(F.where(m, -1e30, q @ transposed(k) / 4.0), -1) @ v

    for program, expected in ((kept, ["attention"]), (filled, ["logical_not", "attention"])):
        graph = trace(program, *QKV, "bool[2, 1, 1, 6]")
        inputs = draw(graph)
        inputs[3][..., 0], inputs[3][..., 1] = True, False  # so that each query sees some key
        before = interpret(graph, inputs)
        Recognize().run(graph)
        assert names(graph) == expected
        assert_near(before, interpret(graph, inputs), 1e-5)


def test_causal_attention():
    def counted(q, k, v):
        seen = F.less_equal(F.iota((5, 6), 1), F.iota((5, 6), 0))
        return F.softmax(F.where(seen, q @ transposed(k) * 0.25, -np.inf), -1) @ v

    def constant(q, k, v):
        seen = np.tri(5, 6, dtype=np.bool_)
        return F.softmax(F.where(seen, q @ transposed(k) * 0.25, -np.inf), -1) @ v

    def added(q, k, v):
        seen = np.where(np.tri(5, 6), 0, -np.inf).astype(np.float32)
        return F.softmax(q @ transposed(k) * 0.25 + seen, -1) @ v

    for program in (counted, constant, added):
        made = check(trace(program, *QKV), ["attention"], 1e-5)
        assert made.nodes[-1].op.causal and len(made.nodes[-1].operands) == 3


def test_attention_of_two_masks_adds_them():
    def program(q, k, v, a, b):
        return F.softmax(q @ transposed(k) * 0.25 + a + b, -1) @ v

    graph = trace(program, *QKV, "f32[5, 6]", "f32[2, 1, 1, 6]")
    check(graph, ["add", "attention"], 1e-5)


def test_attention_through_other_transposes_and_casts():
    def heads(q, k, v):
        query, value = (F.transpose(x, (0, 2, 1, 3)) for x in (q, v))
        return F.softmax(query @ F.transpose(k, (0, 2, 3, 1)) * 0.25, -1) @ value

    graph = trace(heads, "f32[2, 5, 3, 8]", "f32[2, 6, 3, 8]", "f32[2, 6, 3, 4]")
    check(graph, ["transpose", "transpose", "transpose", "attention"], 1e-5)

    def mixed(q, k, v):
        scores = F.cast(q @ transposed(k) * 0.25, "f32")
        return F.cast(F.softmax(scores, -1), "f16") @ v

    narrow = tuple(type_.replace("f32", "f16") for type_ in QKV)
    check(trace(mixed, *narrow), ["attention"], 5e-3)


def test_what_is_not_attention_stays():
    programs = (
        lambda q, k, v: F.softmax(q @ transposed(k) * 0.25, -2) @ v,
        lambda q, k, v: F.tanh(q @ transposed(k) * 0.25) @ v,
        lambda q, k, v: F.softmax((q @ transposed(k) + np.ones(6, np.float32)) * 0.25, -1) @ v,
        lambda q, k, v: F.softmax(F.where(F.iota((5, 6)) > 1, q @ transposed(k), -5.0), -1) @ v,
    )
    for program in programs:
        graph = trace(program, *QKV)
        Recognize().run(graph)
        assert "attention" not in names(graph)


def test_attention_of_matrices_stays():
    graph = trace(
        lambda q, k, v: F.softmax(q @ transposed(k), -1) @ v, "f32[5, 8]", "f32[6, 8]", "f32[6, 4]"
    )
    Recognize().run(graph)
    assert "attention" not in names(graph)


# Linear.


def layer(bias: bool, transposed_weight: bool, swap: bool) -> Graph:
    graph = Graph()
    x = graph.add_input("x", "f32[batch, 4]")
    shape = (3, 4) if transposed_weight else (4, 3)
    weight = graph.add_weight("weight", np.arange(12, dtype=np.float32).reshape(shape))
    y = x @ (F.transpose(weight) if transposed_weight else weight)
    if bias:
        b = graph.add_weight("bias", np.arange(3, dtype=np.float32))
        y = b + y if swap else y + b
    graph.set_outputs([y])
    return graph


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("transposed_weight", [False, True])
def test_linear_with_bias(transposed_weight, swap):
    graph = layer(True, transposed_weight, swap)
    inputs = draw(graph, {"batch": 2})
    before = interpret(graph, inputs)
    Recognize().run(graph)
    extra = [] if transposed_weight else ["transpose"]
    assert names(graph) == ["weight", "weight", *extra, "linear"]
    assert_near(before, interpret(graph, inputs))


def test_linear_without_bias():
    graph = layer(False, True, False)
    Recognize().run(graph)
    assert names(graph) == ["weight", "linear"]
    plain = layer(False, False, False)
    assert not Recognize().run(plain).changed


def test_a_product_that_others_read_keeps_its_bias_apart():
    def program(x, w, b):
        product = x @ F.transpose(w)
        return product + b, product

    graph = trace(program, "f32[2, 4]", "f32[3, 4]", "f32[3]")
    Recognize().run(graph)
    assert names(graph) == ["linear", "add"]


def test_a_bias_of_another_shape_stays_added():
    for bias in ("f32[2, 3]", "f32[1]", "f32[]", "f32[1, 3]"):
        graph = trace(lambda x, w, b: x @ F.transpose(w) + b, "f32[2, 4]", "f32[3, 4]", bias)
        Recognize().run(graph)
        assert names(graph) == ["linear", "add"]


def test_every_rule_states_its_floats_and_is_exercised():
    assert all(rule.floats for rule in RULES)
    covered = {*ACTIVATIONS, "relu6_minimum"}
    activations = {rule.name for rule in RULES[: len(ACTIVATIONS) + 1]}
    assert activations == covered
