"""Activations are found in every order of operands, mean the same, and are not found elsewhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

import monograph.functional as F
from monograph.frontends.trace import trace
from monograph.ir.graph import Value
from monograph.ir.interpret import interpret
from monograph.passes.recognize import RULES, Recognize
from tests.passes.recognize_cases import (
    Orders,
    Program,
    assert_near,
    check,
    draw,
    every_order,
    names,
)

SQRT_2_OVER_PI = 0.7978845608


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


def test_every_rule_states_its_floats_and_is_exercised():
    assert all(rule.floats for rule in RULES)
    covered = {*ACTIVATIONS, "relu6_minimum"}
    activations = {rule.name for rule in RULES[: len(ACTIVATIONS) + 1]}
    assert activations == covered
