"""A product that only a gather reads is computed where it is gathered, if that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.interpret import interpret
from monograph.passes.slice_gathered_products import SliceGatheredProducts

TABLE = "f32[2, 4, 40]"


def distances(start: int, count: int = 5) -> Any:
    """Of each pair of positions, from ``start`` on: spread over two heads."""
    places = F.iota((count,))
    apart = F.reshape(places, (count, 1)) - F.reshape(places, (1, count))
    return F.expand(F.reshape(apart + start, (1, count, count)), (2, count, count))


def narrowed(function: Callable[..., Any], *types: str) -> list[tuple[str, tuple[Any, ...]]]:
    """The ops and shapes of what is computed after the pass, which must not change the result."""
    graph = monograph.trace(function, *types)
    generator = np.random.default_rng(0)
    inputs = [
        generator.normal(size=value.tensor.static_shape()).astype(np.float32)
        for value in graph.inputs
    ]
    expected = interpret(graph, inputs)[0]
    outcome = SliceGatheredProducts().run(graph)
    np.testing.assert_allclose(interpret(graph, inputs)[0], expected, rtol=1e-5, atol=1e-6)
    assert not SliceGatheredProducts().run(graph).changed
    graph = monograph.optimize(graph, passes="dce")
    products = [node for node in graph.nodes if node.op.name in ("matmul", "linear", "dot_general")]
    assert outcome.changed == any(node.op.name == "slice" for node in graph.nodes)
    return [(node.op.name, node.result.shape) for node in products]


def test_known_distances_narrow_a_product() -> None:
    def scores(q: Any, table: Any) -> Any:
        return F.take_along_axis(q @ table, distances(20), 2)

    assert narrowed(scores, "f32[2, 5, 4]", TABLE) == [("matmul", (2, 5, 9))]


def test_rows_are_narrowed_like_columns() -> None:
    def scores(table: Any, k: Any) -> Any:
        return F.take_along_axis(F.transpose(table, (0, 2, 1)) @ k, distances(20), 1)

    assert narrowed(scores, TABLE, "f32[2, 4, 5]") == [("matmul", (2, 9, 5))]


def test_a_general_product_is_narrowed_on_either_side() -> None:
    def right(q: Any, table: Any) -> Any:
        product = F.dot_general(q, table, (2,), (1,), (0,), (0,))
        return F.take_along_axis(product, distances(20), 2)

    def left(table: Any, k: Any) -> Any:
        product = F.dot_general(table, k, (1,), (1,), (0,), (0,))
        return F.take_along_axis(product, distances(20), 1)

    assert narrowed(right, "f32[2, 5, 4]", TABLE) == [("dot_general", (2, 5, 9))]
    assert narrowed(left, TABLE, "f32[2, 4, 5]") == [("dot_general", (2, 9, 5))]


def test_a_layer_gives_the_outputs_that_are_gathered() -> None:
    def layer(x: Any, weight: Any, bias: Any, shift: Any) -> Any:
        made = F.relu(F.linear(x, weight, bias)) + shift
        return F.take_along_axis(made, distances(20), 2)

    types = ("f32[2, 5, 4]", "f32[40, 4]", "f32[40]", "f32[5, 1]")
    assert narrowed(layer, *types) == [("linear", (2, 5, 9))]


@pytest.mark.parametrize("start", [2, 36])
def test_positions_from_the_end_or_beyond_it_stay(start: int) -> None:
    """A negative one counts from the end; one beyond it is an error, when the program runs."""
    graph = monograph.trace(
        lambda q, table: F.take_along_axis(q @ table, distances(start), 2), "f32[2, 5, 4]", TABLE
    )
    assert not SliceGatheredProducts().run(graph).changed


@pytest.mark.parametrize(
    "read",
    [
        lambda q, table: F.take_along_axis(F.exp(table), distances(20, 4), 2),
        lambda q, table: F.take_along_axis(q @ table, distances(0) * 4 + 20, 2),
        lambda q, table: F.take_along_axis(F.softmax(q @ table, axis=2), distances(20), 2),
    ],
    ids=["no product", "most of it", "a row is needed whole"],
)
def test_what_gains_nothing_stays(read: Callable[..., Any]) -> None:
    graph = monograph.trace(read, "f32[2, 5, 4]", TABLE)
    assert not SliceGatheredProducts().run(graph).changed


def test_a_compiled_model_reads_the_table_where_it_is_gathered() -> None:
    """Weights are multiplied when the program is loaded, and distances are subscripts."""
    generator = np.random.default_rng(1)
    rows, weight = (generator.normal(size=s).astype(np.float32) for s in ((64, 32), (16, 32)))

    def model(q: Any) -> Any:
        table = F.linear(q.graph.add_weight("rows", rows), q.graph.add_weight("weight", weight))
        places = F.iota((12,))
        apart = F.reshape(places, (12, 1)) - F.reshape(places, (1, 12))
        at = F.minimum(F.maximum(apart + 32, 0), 63)
        return F.take_along_axis(q @ F.transpose(table), at, 1)

    compiled = monograph.compile(model, "f32[12, 16]", cache=False)
    q = generator.normal(size=(12, 16)).astype(np.float32)
    at = np.arange(12)[:, None] - np.arange(12) + 32
    exact = q.astype(np.float64) @ (rows.astype(np.float64) @ weight.T.astype(np.float64)).T
    np.testing.assert_allclose(compiled(q), np.take_along_axis(exact, at, 1), rtol=1e-4, atol=1e-4)
    assert [kernel.space for kernel in monograph.explain(compiled).kernels][-1] == "12×12"
    assert not any("linear" in str(node) for node in compiled.executable.lowered.nodes)
