"""Softmax, norms, attention and linear layers are found in the usual spellings, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import monograph.functional as F
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.passes.recognize import Recognize
from tests.passes.recognize_cases import Orders, assert_near, check, draw, every_order, names

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


def test_attention_with_masks_of_both_kinds():
    def added(q, k, v, m, a):
        return F.softmax(F.where(m, q @ transposed(k) * 0.25, -1e30) + a, -1) @ v

    def chosen(q, k, v, m, a):
        return F.softmax(F.where(m, q @ transposed(k) * 0.25 + a, -np.inf), -1) @ v

    for program, expected in ((added, ["where", "add"]), (chosen, ["where"])):
        graph = trace(program, *QKV, "bool[2, 1, 1, 6]", "f32[5, 6]")
        inputs = draw(graph)
        inputs[3][..., 0] = True
        before = interpret(graph, inputs)
        Recognize().run(graph)
        assert names(graph) == [*expected, "attention"]
        assert_near(before, interpret(graph, inputs), 1e-5)


FILLS = [-np.inf, -1e30, np.finfo(np.float32).min, -2.0]


def triangle() -> Value:
    return F.less_equal(F.iota((5, 6), 1), F.iota((5, 6), 0))


def filled(scores: Value, seen: Value, number: float) -> Value:
    return F.where(seen, scores, np.float32(number))


MASKS: dict[str, Callable[..., Value]] = {
    "chosen": lambda s, m, a, b, x, y: filled(s, m, x),
    "added": lambda s, m, a, b, x, y: s + F.where(m, 0.0, np.float32(x)),
    "chosen twice": lambda s, m, a, b, x, y: filled(filled(s, m, x), b, y),
    "chosen and added": lambda s, m, a, b, x, y: filled(s, m, x) + a,
    "added and chosen": lambda s, m, a, b, x, y: filled(s + a, m, x),
    "causal": lambda s, m, a, b, x, y: filled(s, triangle(), x),
    "causal and chosen": lambda s, m, a, b, x, y: filled(filled(s, triangle(), x), m, y),
    "chosen and causal": lambda s, m, a, b, x, y: filled(filled(s, m, x), triangle(), y),
    "causal and added": lambda s, m, a, b, x, y: filled(s, triangle(), x) + a,
    "all": lambda s, m, a, b, x, y: filled(filled(filled(s, m, x) + a, triangle(), y), b, x),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("first", FILLS)
@pytest.mark.parametrize("second", FILLS)
def test_queries_that_see_nothing_give_what_softmax_gives(name, first, second):
    def program(q, k, v, m, a, b):
        scores = q @ transposed(k) * 0.25
        return F.softmax(MASKS[name](scores, m, a, b, first, second), -1) @ v

    graph = trace(program, *QKV, "bool[2, 1, 5, 6]", "f32[5, 6]", "bool[5, 6]")
    inputs = draw(graph)
    inputs[3][..., 1, :] = False
    inputs[3][..., 2, :3] = False  # nothing that is not later
    inputs[5][3] = False
    inputs[4][0] = -np.inf
    inputs[4][1, 1:] = np.finfo(np.float32).min
    before = interpret(graph, inputs)
    Recognize().run(graph)
    np.testing.assert_allclose(interpret(graph, inputs)[0], before[0], rtol=1e-4, atol=1e-5)
    if first in FILLS[:3] and second in FILLS[:3]:
        assert "softmax" not in names(graph)


def test_masks_of_narrow_numbers_that_leave_nothing_of_a_score():
    def program(q, k, v, m):
        return F.softmax(q @ transposed(k) * 0.25 + m, -1) @ v

    narrow = tuple(type_.replace("f32", "f16") for type_ in QKV)
    graph = trace(program, *narrow, "f16[5, 6]")
    inputs = draw(graph)
    inputs[3][2], inputs[3][3], inputs[3][4, :3] = -65504, -np.inf, -65504
    before = interpret(graph, inputs)
    Recognize().run(graph)
    assert names(graph)[-1] == "attention"
    np.testing.assert_allclose(interpret(graph, inputs)[0], before[0], rtol=0, atol=5e-3)


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


def test_attention_whose_nan_shares_are_made_zeros():
    def guarded(q, k, v, m):
        shares = F.softmax(q @ transposed(k) * 0.25 + m, -1)
        return F.where(F.is_nan(shares), 0.0, shares) @ v

    graph = trace(guarded, *QKV, "f32[5, 6]")
    inputs = draw(graph)
    inputs[3][2] = -np.inf  # a query that sees nothing
    before = interpret(graph, inputs)
    Recognize().run(graph)
    assert names(graph) == ["attention"]
    assert_near(before, interpret(graph, inputs), 1e-5)


def test_attention_with_a_key_that_is_transposed_in_batches():
    def program(q, k, v):
        matrices = F.transpose(F.reshape(k, (6, 6, 8)), (0, 2, 1))
        return F.softmax(q @ F.reshape(matrices, (2, 3, 8, 6)) * 0.25, -1) @ v

    graph = trace(program, *QKV)
    inputs = draw(graph)
    before = interpret(graph, inputs)
    Recognize().run(graph)
    assert names(graph) == ["reshape", "reshape", "attention"]
    assert_near(before, interpret(graph, inputs), 1e-5)


def test_heads_that_were_repeated_are_shared():
    def repeated(x):
        batch, heads, length, depth = x.shape
        wide = F.expand(F.unsqueeze(x, 2), (batch, heads, 2, length, depth))
        return F.reshape(wide, (batch, 2 * heads, length, depth))

    def program(q, k, v):
        return F.attention(q, repeated(k), repeated(v))

    graph = trace(program, "f32[2, 6, 5, 4]", "f32[2, 3, 7, 4]", "f32[2, 3, 7, 5]")
    inputs = draw(graph)
    before = interpret(graph, inputs)
    Recognize().run(graph)
    (made,) = (node for node in graph.nodes if node.op.name == "attention")
    assert [operand.shape[1] for operand in made.operands] == [6, 3, 3]
    assert_near(before, interpret(graph, inputs), 1e-5)


def test_what_is_not_attention_stays():
    programs = (
        lambda q, k, v: F.softmax(q @ transposed(k) * 0.25, -2) @ v,
        lambda q, k, v: F.tanh(q @ transposed(k) * 0.25) @ v,
        lambda q, k, v: F.softmax((q @ transposed(k) + np.ones(6, np.float32)) * 0.25, -1) @ v,
        lambda q, k, v: F.softmax(F.where(F.iota((5, 6)) > 1, q @ transposed(k), np.inf), -1) @ v,
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
