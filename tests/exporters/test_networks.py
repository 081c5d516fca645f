"""Whole graphs: layers, gradients, training steps, optimised graphs, many dtypes in one."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import monograph
import monograph.functional as F
from monograph.autodiff.vjp import grad, value_and_grad
from monograph.exporters.onnx import to_onnx
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from tests.exporters.running import assert_equal, assert_exports, check, run_in_onnx_runtime

GENERATOR = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return (GENERATOR.normal(size=shape) / 4).astype(np.float32)


def transformer_block(width: int = 16, heads: int = 2) -> Any:
    """A block as GPT-2 has it, with its weights as constants."""
    ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
    into, out = draw(3 * width, width), draw(width, width)
    up, down = draw(4 * width, width), draw(width, 4 * width)

    def block(x: Any) -> Any:
        batch, length, _ = x.shape
        normal = F.layer_norm(x, ones, zeros)
        parts = F.split(F.linear(normal, into), (width,) * 3, 2)
        q, k, v = (
            F.transpose(F.reshape(part, (batch, length, heads, width // heads)), (0, 2, 1, 3))
            for part in parts
        )
        seen = F.transpose(F.attention(q, k, v, causal=True), (0, 2, 1, 3))
        x = x + F.linear(F.reshape(seen, (batch, length, width)), out)
        hidden = F.gelu(F.linear(F.layer_norm(x, ones, zeros), up), "tanh")
        return x + F.linear(hidden, down)

    return block


def test_a_transformer_block_at_several_sizes() -> None:
    graph = trace(transformer_block(), "f32[batch, seq, 16]")
    for batch, length in ((1, 1), (2, 7)):
        model = assert_exports(graph, [draw(batch, length, 16)])
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("LayerNormalization") == 2
    assert kinds.count("Attention") == 1
    assert kinds.count("Gelu") == 1


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_an_optimised_graph(level: str) -> None:
    graph = trace(transformer_block(), "f32[batch, seq, 16]")
    assert_exports(monograph.optimize(graph, level), [draw(2, 3, 16)])


def test_a_decomposed_graph() -> None:
    graph = trace(transformer_block(), "f32[batch, seq, 16]")
    assert_exports(monograph.optimize(graph, passes="lower_composites"), [draw(2, 3, 16)])


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_a_block_in_other_floats(dtype: str) -> None:
    def program(x: Any, w: Any) -> Any:
        return F.softmax(F.rms_norm(x) @ w) + F.silu(x @ w)

    graph = trace(program, f"{dtype}[n, 8]", f"{dtype}[8, 8]")
    arrays = [draw(rows, 8).astype(graph.inputs[0].dtype.numpy) for rows in (3, 8)]
    model = to_onnx(graph)
    check(model)
    rounding = {"f64": 1e-7, "f16": 1e-2, "bf16": 5e-2}[dtype]
    assert_equal(run_in_onnx_runtime(model, arrays), interpret(graph, arrays), rounding)


def convolutional(x: Any, w1: Any, w2: Any, scale: Any, bias: Any) -> Any:
    y = F.max_pool(F.relu(F.conv(x, w1, padding=1)), 2)
    y, _, _ = F.batch_norm_training(y, scale, bias)
    y = F.avg_pool(F.hardswish(F.conv(y, w2, stride=2, groups=2)), 2)
    return F.mean(F.log_softmax(F.flatten(y, 1), -1))


CONVOLUTIONAL = ("f32[n, 3, 8, 8]", "f32[4, 3, 3, 3]", "f32[6, 2, 1, 1]", "f32[4]", "f32[4]")


def convolutional_inputs(batch: int) -> list[np.ndarray]:
    shapes = ((batch, 3, 8, 8), (4, 3, 3, 3), (6, 2, 1, 1), (4,), (4,))
    return [draw(*shape) for shape in shapes]


def test_a_convolutional_network() -> None:
    graph = trace(convolutional, *CONVOLUTIONAL)
    for batch in (1, 3):
        assert_exports(graph, convolutional_inputs(batch))


def test_gradients_of_a_convolutional_network() -> None:
    graph = value_and_grad(trace(convolutional, *CONVOLUTIONAL), [1, 2, 3, 4])
    assert_exports(graph, convolutional_inputs(2))


def test_gradients_of_a_transformer_block() -> None:
    block = transformer_block()
    graph = grad(trace(lambda x: F.sum(F.square(block(x))), "f32[batch, seq, 16]"))
    assert_exports(graph, [draw(2, 3, 16)])


def test_a_second_derivative() -> None:
    graph = grad(grad(trace(lambda x: F.sum(F.tanh(x) * F.silu(x)), "f32[]")))
    assert_exports(graph, [np.asarray(0.3, np.float32)])


def test_gradients_of_an_embedding_and_of_cross_entropy() -> None:
    def loss(table: Any, tokens: Any, targets: Any) -> Any:
        logits = F.embedding(table, tokens) @ F.transpose(table)
        return F.cross_entropy(F.reshape(logits, (-1, 10)), F.reshape(targets, (-1,)))

    graph = value_and_grad(trace(loss, "f32[10, 4]", "i64[n, 3]", "i64[n, 3]"), [0])
    tokens = np.array([[1, 9, 3], [0, 1, 1]])
    assert_exports(graph, [draw(10, 4), tokens, tokens[::-1]])


def test_a_training_step_with_state() -> None:
    """Weights and momentum go in, and come out again: a step of stochastic gradient descent."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        return F.mse(F.tanh(x @ w), y)

    step = Graph("step")
    w = step.add_input("w", "f32[3, 2]")
    momentum = step.add_input("momentum", "f32[3, 2]", donate=True)
    x, y = step.add_input("x", "f32[n, 3]"), step.add_input("y", "f32[n, 2]")
    inner = value_and_grad(trace(loss, "f32[3, 2]", "f32[n, 3]", "f32[n, 2]"), [0])
    value, gradient = inner.copy_into(step, [w, x, y])
    with step.as_current():
        speed = momentum * 0.9 + gradient
        step.set_outputs([value, w - speed * 0.1, speed])
    step.updates = {1: 0, 2: 1}
    assert_exports(step, [draw(3, 2), draw(3, 2), draw(5, 3), draw(5, 2)])


def test_a_quantized_layer() -> None:
    def program(x: Any, w: Any) -> Any:
        stored = F.quantize(x, 0.05, 3, "u8")
        back = F.dequantize(stored, np.float32(0.05), np.array(3, np.uint8))
        weights = F.dequantize(w, np.linspace(0.01, 0.02, 4, dtype=np.float32), axis=0)
        return F.linear(back, weights)

    graph = trace(program, "f32[n, 3]", "i8[4, 3]")
    weights = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
    model = assert_exports(graph, [draw(2, 3), weights])
    kinds = [node.op_type for node in model.graph.node]
    assert "QuantizeLinear" in kinds and kinds.count("DequantizeLinear") == 2


def test_a_recurrent_network() -> None:
    def program(xs: Any, h: Any, w: Any, u: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            gate = F.sigmoid(x @ w)
            after = gate * state + (1.0 - gate) * F.tanh(state @ u)
            return after, after

        return F.scan(step, h, xs)

    graph = trace(program, "f32[t, b, 3]", "f32[b, 4]", "f32[3, 4]", "f32[4, 4]")
    assert_exports(graph, [draw(5, 2, 3), draw(2, 4), draw(3, 4), draw(4, 4)])


def test_a_large_graph_is_written_quickly() -> None:
    graph = Graph()
    value = graph.add_input("x", "f32[n, 4]")
    for _ in range(5000):
        value = graph.add("tanh", graph.add("add", value, value))
    graph.set_outputs([value])
    start = time.perf_counter()
    model = to_onnx(graph)
    assert time.perf_counter() - start < 10
    assert len(model.graph.node) == 10_000


@pytest.mark.parametrize("pool", [F.avg_pool, F.max_pool])
def test_a_kernel_larger_than_its_plane_takes_no_more_taps_than_the_plane_has(pool: Any) -> None:
    """ "As large as it comes" is often spelled so."""
    graph = trace(lambda x: pool(x, 1000, ceil_mode=True), "f32[1, 2, 3, 4]")
    model = assert_exports(graph, [draw(1, 2, 3, 4)])
    assert sum(len(function.node) for function in model.functions) + len(model.graph.node) < 100
