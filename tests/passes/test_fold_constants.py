"""Constant folding: what folds, what stays, and that the program never grows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import EvaluationError
from monograph.ir.data import MissingData
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, f32
from monograph.ops.data import Weight
from monograph.passes.fold_constants import FoldConstants


def ops(graph: monograph.Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def folded(graph: monograph.Graph, **options: int) -> monograph.Graph:
    return monograph.optimize(graph, passes=[FoldConstants(**options), "dce"])


def test_chains_fold_in_one_run() -> None:
    graph = monograph.trace(lambda x: x * (x.graph.add_constant(2.0, "f32") * 3.0 + 1.0), "f32[4]")
    result = folded(graph)
    assert ops(result) == ["constant", "multiply"]
    assert float(interpret(result, [np.ones(4, np.float32)])[0][0]) == 7.0


def test_the_result_takes_over_the_name() -> None:
    graph = monograph.trace(lambda x: x + F.exp(x.graph.add_constant(0.0, "f32")), "f32[4]")
    assert folded(graph).nodes[0].result.name == "exp"


def test_what_would_grow_the_program_stays() -> None:
    graph = monograph.trace(
        lambda x: x + F.expand(x.graph.add_constant(1.0, "f32"), (1000,)), "f32[1000]"
    )
    result = graph.clone()
    outcome = FoldConstants().run(result)
    assert not outcome.changed
    assert outcome.counters["would_grow"] == 1
    assert "expand" in ops(result)


def test_results_that_nobody_reads_do_not_make_a_program_grow() -> None:
    array = np.arange(600, dtype=np.float32).reshape(2, 3, 100)

    def standardized(x: Any) -> Any:
        weight = x.graph.add_weight("w", array)
        return x * F.batch_norm_training(weight, np.ones(3), np.zeros(3))[0]

    assert ops(folded(monograph.trace(standardized, "f32[2, 3, 100]"))) == ["weight", "multiply"]


def test_a_transposed_weight_folds_if_nothing_else_needs_it() -> None:
    array = np.arange(200, dtype=np.float32).reshape(10, 20)

    def once(x: Any) -> Any:
        return x @ F.transpose(x.graph.add_weight("w", array))

    def twice(x: Any) -> Any:
        weight = x.graph.add_weight("w", array)
        return x @ F.transpose(weight) @ weight

    alone = folded(monograph.trace(once, "f32[3, 20]"))
    assert ops(alone) == ["weight", "matmul"]
    kept = alone.nodes[0].op
    assert isinstance(kept, Weight)
    assert kept.label == "w.transpose"
    assert ops(folded(monograph.trace(twice, "f32[3, 20]"))).count("transpose") == 1


def test_a_weight_of_which_only_slices_are_read_is_taken_apart() -> None:
    array = np.arange(400, dtype=np.float32).reshape(2, 200)

    def row(weight: Any, k: int) -> Any:
        return F.slice(weight, [k], [k + 1], axes=[0])

    def halves(x: Any) -> Any:
        weight = x.graph.add_weight("w", array)
        return x * row(weight, 0) + row(weight, 1)

    def overlapping(x: Any) -> Any:
        weight = x.graph.add_weight("w", array)
        return x * row(weight, 0) + row(weight, 1) + row(weight, 0)

    taken = folded(monograph.trace(halves, "f32[1, 200]"))
    assert sorted(ops(taken)) == ["add", "multiply", "weight", "weight"]
    (result,) = interpret(taken, [np.ones((1, 200), np.float32)])
    np.testing.assert_array_equal(result, array[:1] + array[1:])
    assert ops(folded(monograph.trace(overlapping, "f32[1, 200]"))).count("slice") == 3


def test_a_large_weight_is_not_read_to_turn_or_scale_it() -> None:
    unread = MissingData(TensorType(f32, (200, 300)), "0" * 32)

    def program(x: Any) -> Any:
        graph = x.graph
        factor = graph.add_constant(np.float32([[0.5]]))
        return x @ F.transpose(graph.add_weight("w", unread) * factor)

    result = folded(monograph.trace(program, "f32[3, 300]"))
    assert ops(result) == ["weight", "matmul"]
    kept = result.nodes[0].op
    assert isinstance(kept, Weight) and str(kept.data.type) == "f32[300, 200]"
    with pytest.raises(EvaluationError, match="not loaded"):
        kept.data.array()


def test_what_is_made_of_a_large_weight_is_what_folding_makes() -> None:
    """To the bit; a product with it is not, since NumPy adds up in an order that layouts change."""
    array = np.sin(np.arange(60_000, dtype=np.float32)).reshape(200, 300)

    def made(x: Any) -> Any:
        return F.transpose(F.exp(x.graph.add_weight("w", array)))

    graph = monograph.trace(lambda x: x @ made(x), "f32[2, 300]")
    result = folded(graph)
    assert ops(result) == ["weight", "matmul"]
    kept = result.nodes[0].op
    assert isinstance(kept, Weight)
    x = np.ones((2, 300), np.float32)
    (expected,) = interpret(monograph.trace(made, "f32[2, 300]"), [x])
    np.testing.assert_array_equal(kept.data.array(), expected)
    np.testing.assert_allclose(
        interpret(result, [x])[0], interpret(graph, [x])[0], rtol=300 * np.finfo(np.float32).eps
    )


@pytest.mark.parametrize(("depth", "stays"), [(24, 0), (4, 1)])
def test_a_product_of_weights_folds_unless_it_is_larger_than_they_are(
    depth: int, stays: int
) -> None:
    def shared(x: Any) -> Any:
        rows = x.graph.add_weight("rows", np.ones((30, depth), np.float32))
        layers = [x.graph.add_weight(f"w{k}", np.ones((20, depth), np.float32)) for k in range(2)]
        return x @ F.linear(rows, layers[0]), rows, layers

    result = folded(monograph.trace(shared, "f32[3, 30]"))
    assert ops(result).count("linear") == stays
    assert "weight" in ops(result) and interpret(result, [np.ones((3, 30), np.float32)])


def test_large_products_and_parts_of_them_are_not_computed_yet() -> None:
    unread = [MissingData(TensorType(f32, shape), "0" * 32) for shape in ((400, 200), (300, 200))]

    def program(x: Any) -> Any:
        rows, layer = (x.graph.add_weight(f"w{k}", data) for k, data in enumerate(unread))
        heads = F.reshape(F.linear(rows, layer), (400, 3, 100))
        return x @ F.reshape(heads[:200], (200, 300))

    result = folded(monograph.trace(program, "f32[3, 200]"))
    assert ops(result) == ["weight", "matmul"]


def test_what_is_made_of_filled_values_is_filled() -> None:
    def masked(x: Any) -> Any:
        seen = F.full((1, 64), 1.0, "f32") * F.full((64, 1), 1.0, "f32")
        return F.where(F.logical_not(F.cast(seen, "bool")), -1e9, x)

    graph = monograph.trace(masked, "f32[64, 64]")
    result = monograph.optimize(graph)
    assert ops(result) == []
    assert "constant(splat false) : bool[64, 64]" in str(folded(graph))


def test_the_size_limit_holds() -> None:
    weight = np.ones((30, 10), np.float32) * np.arange(10, dtype=np.float32)

    def program(x: Any) -> Any:
        return x + F.exp(x.graph.add_weight("w", weight))

    graph = monograph.trace(program, "f32[10]")
    assert "exp" in ops(folded(graph, limit=299))
    assert "exp" not in ops(folded(graph, limit=300))


def test_a_failing_evaluation_is_left_for_run_time() -> None:
    def program(x: Any) -> Any:
        table = x.graph.add_constant(np.arange(3.0, dtype=np.float32))
        return x + F.take(table, x.graph.add_constant(np.array(7)), axis=0)

    graph = monograph.trace(program, "f32[2]")
    outcome = FoldConstants().run(graph)
    assert outcome.counters["failed"] == 1
    assert "take" in ops(graph)


def test_effects_and_symbolic_results_stay() -> None:
    graph = monograph.trace(
        lambda x: F.expand(x.graph.add_constant(1.0, "f32") + 1.0, x.shape) + x, "f32[n]"
    )
    assert ops(folded(graph)) == ["constant", "expand", "add"]


def test_regions_fold_too() -> None:
    def then(v: Any) -> Any:
        return v * (v.graph.add_constant(2.0, "f32") * v.graph.add_constant(3.0, "f32"))

    graph = monograph.trace(lambda x: F.cond(F.sum(x) > 0.0, then, lambda v: v, x), "f32[2]")
    result = folded(graph)
    (region, _) = next(node for node in result.nodes if node.regions).regions
    assert ops(region) == ["constant", "multiply"]
    x = np.array([1.0, 2.0], np.float32)
    np.testing.assert_array_equal(interpret(result, [x])[0], 6 * x)
