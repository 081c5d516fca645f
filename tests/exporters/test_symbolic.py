"""Sizes that are symbols: named in the model, and right at every size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import monograph.functional as F
from monograph.exporters.onnx import to_onnx
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, f32, i64
from tests.exporters.running import assert_equal, assert_exports, check, new_session

SIZES = ({"n": 3, "m": 2, "b": 2}, {"n": 5, "m": 4, "b": 1}, {"n": 8, "m": 1, "b": 3})


def at_sizes(graph: Graph, sizes: Sequence[dict[str, int]] = SIZES) -> ModelProto:
    """One model, run with several numbers in the place of its symbols."""
    model = to_onnx(graph)
    check(model)
    session = new_session(model.SerializeToString())
    generator = np.random.default_rng(0)
    for numbers in sizes:
        bindings = {s: numbers[name] for name, s in graph.symbols().items() if name in numbers}
        feeds = {}
        for value in graph.inputs:
            shape = [evaluate_dim(dim, bindings) for dim in value.shape]
            feeds[value.name] = generator.normal(size=shape).astype(value.dtype.numpy)
        assert_equal(session.run(None, feeds), interpret(graph, feeds))
    return model


HALF = np.full((2, 3, 3), 0.5, np.float32)

CASES: dict[str, tuple[Callable[..., Any], str]] = {
    "reshape to -1": (lambda x: F.reshape(x, (x.shape[0], 6)), "f32[n, 2, 3]"),
    "merge two symbols": (lambda x: F.flatten(x, 0, 1), "f32[n, m, 3]"),
    "split heads": (lambda x: F.reshape(x, (*x.shape[:2], 2, 4)), "f32[n, m, 8]"),
    "new sizes": (lambda x: F.reshape(x, (x.shape[1], 3, x.shape[0])), "f32[n, m, 3]"),
    "expand": (lambda x, y: F.expand(x, y.shape) * y, "f32[1, 3] f32[n, 3]"),
    "zeros like": (lambda x: F.zeros_like(x) + 1.0, "f32[n, m]"),
    "arange": (lambda x: x + F.arange(x.shape[0], dtype="f32"), "f32[n]"),
    "a long arange": (lambda x: F.arange(x.shape[0] * 9, dtype="u8"), "f32[n]"),
    "a size as a number": (lambda x: x / F.cast(F.dim(x.shape[0] * 2 + 1), "f32"), "f32[n]"),
    "mean over a symbol": (lambda x: F.mean(x, 0), "f32[n, 3]"),
    "variance": (lambda x: F.variance(x, 0, correction=1), "f32[n, 3]"),
    "slice to the middle": (lambda x: x[: x.shape[0] // 2], "f32[n]"),
    "slice from the end": (lambda x: x[-2:], "f32[n]"),
    "slice by a step": (lambda x: x[1::2], "f32[n]"),
    "backwards": (lambda x: x[::-1], "f32[n, m]"),
    "roll": (lambda x: F.roll(x, x.shape[0] - 1, 0), "f32[n]"),
    "pad by a size": (lambda x: F.pad(x, (x.shape[0],), (1,)), "f32[n]"),
    "pad between": (lambda x: F.pad(x, (1,), (-1,), 2.0, interior=(2,)), "f32[n]"),
    "reflect": (lambda x: F.pad(x, (1,), (2,), mode="reflect"), "f32[n]"),
    "concat": (lambda x, y: F.concat([x, y]), "f32[n, 2] f32[m, 2]"),
    "tile": (lambda x, y: F.tile(x, (y.shape[0], 1)), "f32[n, 2] f32[m]"),
    "triangle": (lambda x: F.tril(x, x.shape[0] - 2), "f32[n, n]"),
    "one hot": (lambda x, y: F.one_hot(F.cast(x, "i64"), y.shape[0]), "f32[n] f32[m]"),
    "sum of integers": (lambda x: F.sum(F.cast(x * 1e6, "i64") * 10**12, 0), "f32[n, 2]"),
    "any": (lambda x: F.any(x > 1.0, 0), "f32[n, 2]"),
    "conv": (lambda x: F.conv(x, HALF, stride=2, padding=1), "f32[b, 3, n]"),
    "f64 conv": (lambda x: F.conv(x, HALF.astype(np.float64), stride=2), "f64[b, 3, n]"),
    "max pool": (lambda x: F.max_pool(x, 2), "f32[b, 3, n]"),
    "average pool": (lambda x: F.avg_pool(x, 3, 2, 1, ceil_mode=True), "f32[b, 3, n]"),
    "adaptive pool": (lambda x: F.adaptive_avg_pool(x, 2), "f32[b, 3, n]"),
    "einsum": (lambda x, y: F.einsum("bij,bkj->bik", x, y), "f32[b, n, 4] f32[b, m, 4]"),
    "cumprod": (lambda x: F.cumprod(x, 0), "f32[n, 2]"),
    "cummax": (lambda x: F.cummax(x, 0), "f32[n, 2]"),
    "sort": (lambda x: F.sort(x, 0), "f32[n, 2]"),
    "top k": (lambda x: F.top_k(x, 2, 0), "f64[n, 2]"),
    "attention": (lambda q, k: F.attention(q, k, k), "f32[b, 2, n, 4] f32[b, 2, m, 4]"),
    "random": (lambda x, k: F.uniform(F.cast(k * 0.0, "u32"), x.shape), "f32[n, 2] f32[2]"),
    "group norm": (lambda x: F.group_norm(x, 2), "f32[b, 4, n]"),
    "layer norm": (lambda x: F.layer_norm(x), "f32[n, m]"),
    "log softmax": (lambda x: F.log_softmax(x, 1), "f64[n, m]"),
    "resize": (lambda x: F.resize(x, scales=(2.0,)), "f32[b, n]"),
    "fft": (lambda x: F.abs(F.rfft(x)), "f64[b, n]"),
    "gather by size": (lambda x: F.take(x, F.dim(x.shape[0] - 1)), "f32[n, 2]"),
}


@pytest.mark.parametrize(("function", "types"), CASES.values(), ids=CASES)
def test_one_model_serves_every_size(function: Callable[..., Any], types: str) -> None:
    at_sizes(trace(function, *types.replace("] ", "]|").split("|")))


def test_dimensions_keep_their_names() -> None:
    model = at_sizes(
        trace(lambda x: F.pad(F.concat([x, x], 1), (0, 1), (0, 0)), "f32[batch, seq]"),
        [{"batch": 2, "seq": 3}, {"batch": 1, "seq": 4}],
    )
    (x,), (y,) = model.graph.input, model.graph.output
    assert [dim.dim_param for dim in x.type.tensor_type.shape.dim] == ["batch", "seq"]
    assert [dim.dim_param for dim in y.type.tensor_type.shape.dim] == ["batch", "2*seq+1"]


def test_a_symbol_that_only_an_expression_tells_is_solved_for() -> None:
    graph = trace(lambda x: F.zeros((x.shape[0] // 2, 3)) + 1.0, "f32[2*n+4]")
    at_sizes(graph)


def test_a_symbol_that_takes_another_to_solve() -> None:
    n, m = Symbol("n"), Symbol("m")
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (n + 2 * m,)))
    y = graph.add_input("y", TensorType(f32, (m,)))
    with graph.as_current():
        graph.set_outputs([F.sum(x) + F.sum(y) + F.ones((n,))])
    at_sizes(graph)


def test_sizes_that_data_decides() -> None:
    def program(x: Any) -> Any:
        places = F.nonzero(x > 0.0)
        return F.zeros((places.shape[0], 2)) + 1.0, places

    at_sizes(trace(program, "f32[n, m]"))


def test_a_size_inside_a_function_is_passed_to_it() -> None:
    """Random numbers are made from a key, which does not tell how many are wanted."""
    graph = trace(
        lambda k, x: F.uniform(F.cast(k * 0.0, "u32"), (x.shape[0], 3)), "f32[2]", "f32[n]"
    )
    at_sizes(graph)


def test_reshapes_are_constants_where_they_can_be() -> None:
    graph = trace(lambda x: F.reshape(x, (x.shape[0], 2, 4)), "f32[n, 8]")
    model = to_onnx(graph)
    assert [node.op_type for node in model.graph.node] == ["Reshape"]


def test_sizes_may_be_zero_where_they_are_declared_to_be() -> None:
    n = Symbol("n", 0)
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (n, 3)))
    with graph.as_current():
        graph.set_outputs([F.mean(x, 0), F.sum(x, 0), F.reshape(x, (3, n)), F.any(x > 0.0, 0)])
    at_sizes(graph, [{"n": 0}, {"n": 2}])


def test_logsumexp_keeps_a_nan_beside_an_infinity_and_is_minus_infinity_of_nothing() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (2, Symbol("n", 0))))
    with graph.as_current():
        graph.set_outputs([F.logsumexp(x, 1)])
    special = np.array([[np.nan, np.inf, 1.0], [-np.inf, np.inf, 2.0]], np.float32)
    for opset in (19, 26):
        for array in (special, special[:, :0]):
            assert_exports(graph, [array], opset=opset)


def test_an_index_type_other_than_i64() -> None:
    graph = trace(lambda x, i: F.take(x, i), "f32[n]", TensorType(i64, (3,)))
    assert_exports(graph, [np.arange(4, dtype=np.float32), np.array([0, -1, 2])])
