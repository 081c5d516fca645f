"""Collectives on a simulated mesh: meaning, gradients against the unsharded computation, errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from monograph.autodiff.vjp import grad
from monograph.errors import EvaluationError, InputError, TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.mesh import Mesh, interpret_on_mesh
from monograph.ir.text.parser import parse
from monograph.ir.verify import verify
from monograph.ops import elementwise, linalg, math, reduce, slicing
from monograph.ops.collective import (
    all_gather,
    all_reduce,
    all_to_all,
    axis_index,
    permute,
    reduce_scatter,
)
from monograph.ops.control import cond, scan, while_loop

SIZE = 4
MESH = Mesh({"d": SIZE})
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
}


def shards(*shape: int, seed: int = 0, count: int = SIZE) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) for _ in range(count)]


def on_mesh(
    function: Callable[..., Any], *operands: Sequence[np.ndarray], mesh: Mesh = MESH
) -> list[list[Any]]:
    """Run on every device; each operand is a list of one array a device."""
    graph = trace(function, *(operand[0] for operand in operands))
    verify(graph)
    assert str(parse(str(graph))) == str(graph)
    return interpret_on_mesh(graph, list(zip(*operands, strict=True)), mesh)


def firsts(results: list[list[Any]]) -> list[Any]:
    return [outputs[0] for outputs in results]


# The mesh.


def test_devices_are_numbered_with_the_last_axis_fastest() -> None:
    mesh = Mesh({"a": 2, "b": 3})
    assert mesh.size == 6
    assert mesh.coordinates(4) == {"a": 1, "b": 1}
    assert mesh.groups("a") == [[0, 3], [1, 4], [2, 5]]
    assert mesh.groups("b") == [[0, 1, 2], [3, 4, 5]]


def test_a_mesh_without_axes_is_one_device() -> None:
    assert Mesh({}).size == 1
    assert on_mesh(lambda x: x * 2.0, [np.ones(2)], mesh=Mesh({}))[0][0].tolist() == [2, 2]


def test_mesh_axes_have_devices() -> None:
    with pytest.raises(InputError, match="no devices"):
        Mesh({"d": 0})


# Meaning.


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_all_reduce(reduction: Any) -> None:
    x = shards(2, 3)
    expected = REDUCTIONS[reduction](np.stack(x), axis=0)
    for got in firsts(on_mesh(lambda x: all_reduce(x, "d", SIZE, reduction), x)):
        np.testing.assert_allclose(got, expected)


def test_all_reduce_runs_within_groups_along_its_axis() -> None:
    mesh = Mesh({"a": 2, "b": 3})
    x = [np.array(10.0**device) for device in range(6)]
    along_a = firsts(on_mesh(lambda x: all_reduce(x, "a", 2), x, mesh=mesh))
    along_b = firsts(on_mesh(lambda x: all_reduce(x, "b", 3), x, mesh=mesh))
    assert along_a == [1001, 10010, 100100, 1001, 10010, 100100]
    assert along_b == [111] * 3 + [111000] * 3


def test_all_reduce_of_narrow_floats_rounds_once() -> None:
    x = [np.array([value], ml_dtypes.bfloat16) for value in (256.0, 1.0, 1.0, 1.0)]
    got = firsts(on_mesh(lambda x: all_reduce(x, "d", SIZE), x))
    assert got[0].dtype == ml_dtypes.bfloat16
    assert float(got[0][0]) == float(np.float32(259).astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("axis", [0, 1])
def test_all_gather(axis: int) -> None:
    x = shards(2, 3)
    for got in firsts(on_mesh(lambda x: all_gather(x, "d", SIZE, axis), x)):
        np.testing.assert_array_equal(got, np.concatenate(x, axis))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reduce_scatter(reduction: Any) -> None:
    x = shards(2, 8)
    whole = REDUCTIONS[reduction](np.stack(x), axis=0)
    results = firsts(on_mesh(lambda x: reduce_scatter(x, "d", SIZE, 1, reduction), x))
    for got, expected in zip(results, np.split(whole, SIZE, 1), strict=True):
        np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize(("split", "concat"), [(0, 1), (1, 0), (1, 1)])
def test_all_to_all_trades_one_cut_for_another(split: int, concat: int) -> None:
    x = shards(4, 8)
    results = firsts(on_mesh(lambda x: all_to_all(x, "d", SIZE, split, concat), x))
    for device, got in enumerate(results):
        sent = [np.split(shard, SIZE, split)[device] for shard in x]
        np.testing.assert_array_equal(got, np.concatenate(sent, concat))


def test_all_to_all_there_and_back_changes_nothing() -> None:
    def function(x: Value) -> Value:
        return all_to_all(all_to_all(x, "d", SIZE, 0, 1), "d", SIZE, 1, 0)

    x = shards(4, 8)
    for got, expected in zip(firsts(on_mesh(function, x)), x, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_permute_moves_and_fills_with_zeros() -> None:
    x = shards(3)
    got = firsts(on_mesh(lambda x: permute(x, "d", SIZE, [(0, 1), (1, 3)]), x))
    for result, expected in zip(got, [0 * x[0], x[0], 0 * x[0], x[1]], strict=True):
        np.testing.assert_array_equal(result, expected)


def test_axis_index_is_the_coordinate() -> None:
    mesh = Mesh({"a": 2, "b": 3})
    x = [np.array(0)] * 6
    assert firsts(on_mesh(lambda x: x + axis_index("a", 2), x, mesh=mesh)) == [0, 0, 0, 1, 1, 1]
    assert firsts(on_mesh(lambda x: x + axis_index("b", 3), x, mesh=mesh)) == [0, 1, 2, 0, 1, 2]


def test_symbolic_shapes() -> None:
    graph = trace(
        lambda x: (all_gather(x, "d", 4), reduce_scatter(x, "d", 4), all_to_all(x, "d", 4, 0, 1)),
        "f32[4*n, m]",
    )
    types = [str(value.type) for value in graph.outputs]
    assert types == ["f32[16*n, m]", "f32[n, m]", "f32[n, 4*m]"]
    inputs = [[np.ones((8, 3), np.float32)]] * 4
    shapes = [array.shape for array in interpret_on_mesh(graph, inputs, MESH)[0]]
    assert shapes == [(32, 3), (2, 3), (2, 12)]


# Gradients. The loss is the sum of what every device computes.


def gradients_on_mesh(
    graph: Graph, inputs: list[list[np.ndarray]], wrt: Sequence[int], mesh: Mesh = MESH
) -> list[list[np.ndarray]]:
    gradient = grad(graph, wrt)
    verify(gradient)
    return interpret_on_mesh(gradient, inputs, mesh)


CALLS: dict[str, Callable[[Value], Value]] = {
    **{f"all_reduce {r}": lambda x, r=r: all_reduce(x, "d", SIZE, r) for r in REDUCTIONS},
    **{
        f"reduce_scatter {r}": lambda x, r=r: reduce_scatter(x, "d", SIZE, 1, r) for r in REDUCTIONS
    },
    "all_gather": lambda x: all_gather(x, "d", SIZE, 1),
    "all_to_all": lambda x: all_to_all(x, "d", SIZE, 0, 1),
    "permute": lambda x: permute(x, "d", SIZE, [(0, 2), (2, 1), (3, 3)]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_gradient_agrees_with_finite_differences(call: Callable[[Value], Value]) -> None:
    x = shards(4, 8)
    shape = trace(call, x[0]).outputs[0].tensor.static_shape()
    weights = shards(*shape, seed=1)
    graph = trace(lambda x, w: reduce.sum(math.sin(call(x)) * w), x[0], weights[0])
    inputs = [list(pair) for pair in zip(x, weights, strict=True)]

    def total(moved: Sequence[np.ndarray]) -> float:
        given = list(zip(moved, weights, strict=True))
        return sum(float(outputs[0]) for outputs in interpret_on_mesh(graph, given, MESH))

    found = gradients_on_mesh(graph, inputs, [0])
    for device in range(SIZE):
        direction = np.random.default_rng(device).normal(size=x[0].shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = list(x)
            moved[device] = x[device] + step * direction
            ends.append(total(moved))
        numeric = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(
            np.sum(found[device][0] * direction), numeric, rtol=1e-5, atol=1e-7
        )


def test_a_tie_of_all_reduce_max_shares_the_gradient() -> None:
    x = [np.array([value, value]) for value in (1.0, 3.0, 3.0, 2.0)]
    graph = trace(lambda x: reduce.sum(all_reduce(x, "d", SIZE, "max")), x[0])
    found = firsts(gradients_on_mesh(graph, [[shard] for shard in x], [0]))
    assert [gradient.tolist() for gradient in found] == [[0, 0], [2, 2], [2, 2], [0, 0]]


def test_the_gradient_of_a_product_survives_a_zero() -> None:
    x = [np.array([value]) for value in (2.0, 0.0, 3.0, 5.0)]
    graph = trace(lambda x: reduce.sum(all_reduce(x, "d", SIZE, "prod")) / float(SIZE), x[0])
    found = firsts(gradients_on_mesh(graph, [[shard] for shard in x], [0]))
    assert [float(gradient[0]) for gradient in found] == [0, 30, 0, 0]


def test_data_parallel_training_is_training_on_the_whole_batch() -> None:
    """Each device has a part of the batch; averaging their gradients gives the whole's."""

    def loss(w: Value, x: Value, y: Value) -> Value:
        error = math.tanh(linalg.matmul(x, w)) - y
        return reduce.mean(error * error)

    generator = np.random.default_rng(0)
    w, x, y = (generator.normal(size=shape) for shape in ((5, 3), (8, 5), (8, 3)))
    (expected,) = interpret(grad(trace(loss, w, x, y), ["w"]), [w, x, y])
    local = grad(trace(loss, w, x[:2], y[:2]), ["w"])
    with local.inserting_before(None):
        local.set_outputs([all_reduce(local.outputs[0], "d", SIZE, "mean")])
    parts = list(zip([w] * SIZE, np.split(x, SIZE), np.split(y, SIZE), strict=True))
    for (got,) in interpret_on_mesh(local, parts, MESH):
        np.testing.assert_allclose(got, expected)


def test_tensor_parallel_layers_compute_the_whole_and_its_gradients() -> None:
    """The first weight is cut by columns, the second by rows; one all_reduce joins them.

    Every device computes the same loss, so each contributes its share of it.
    """

    def whole(x: Value, a: Value, b: Value) -> Value:
        return reduce.sum(math.sin(linalg.matmul(math.tanh(linalg.matmul(x, a)), b)))

    def part(x: Value, a: Value, b: Value) -> Value:
        partial = linalg.matmul(math.tanh(linalg.matmul(x, a)), b)
        return reduce.sum(math.sin(all_reduce(partial, "d", SIZE))) / float(SIZE)

    generator = np.random.default_rng(0)
    x, a, b = (generator.normal(size=shape) for shape in ((2, 3), (3, 8), (8, 5)))
    inputs = [
        list(shard)
        for shard in zip([x] * SIZE, np.split(a, SIZE, 1), np.split(b, SIZE), strict=True)
    ]
    graph = trace(part, *inputs[0])
    reference = trace(whole, x, a, b)
    total = sum(outputs[0] for outputs in interpret_on_mesh(graph, inputs, MESH))
    np.testing.assert_allclose(total, interpret(reference, [x, a, b])[0])
    by_x, by_a, by_b = interpret(grad(reference), [x, a, b])
    found = gradients_on_mesh(graph, inputs, [0, 1, 2])
    np.testing.assert_allclose(sum(gradients[0] for gradients in found), by_x)
    np.testing.assert_allclose(np.concatenate([g[1] for g in found], 1), by_a)
    np.testing.assert_allclose(np.concatenate([g[2] for g in found]), by_b)


def test_sequence_parallel_layers_compute_the_whole_and_its_gradients() -> None:
    """Activations are cut by rows between layers: gathered before, reduced and scattered after."""

    def whole(x: Value, a: Value, b: Value) -> Value:
        return reduce.sum(math.sin(linalg.matmul(math.tanh(linalg.matmul(x, a)), b)))

    def part(x: Value, a: Value, b: Value) -> Value:
        hidden = math.tanh(linalg.matmul(all_gather(x, "d", SIZE), a))
        return reduce.sum(math.sin(reduce_scatter(linalg.matmul(hidden, b), "d", SIZE)))

    generator = np.random.default_rng(0)
    x, a, b = (generator.normal(size=shape) for shape in ((4, 3), (3, 8), (8, 5)))
    pieces = np.split(x, SIZE), np.split(a, SIZE, 1), np.split(b, SIZE)
    inputs = [list(shard) for shard in zip(*pieces, strict=True)]
    by_x, by_a, by_b = interpret(grad(trace(whole, x, a, b)), [x, a, b])
    found = gradients_on_mesh(trace(part, *inputs[0]), inputs, [0, 1, 2])
    np.testing.assert_allclose(np.concatenate([g[0] for g in found]), by_x)
    np.testing.assert_allclose(np.concatenate([g[1] for g in found], 1), by_a)
    np.testing.assert_allclose(np.concatenate([g[2] for g in found]), by_b)


def test_a_ring_of_permutes_is_an_all_reduce() -> None:
    """With its gradient: the ring runs backwards through the scan."""
    ring = [(device, (device + 1) % SIZE) for device in range(SIZE)]

    def function(x: Value) -> Value:
        def body(carry: Any, _: Any) -> Any:
            total, moving = carry
            moving = permute(moving, "d", SIZE, ring)
            return (total + moving, moving), ()

        (total, _), _ = scan(body, (x, x), length=SIZE - 1)
        return total

    x = shards(3)
    for got in firsts(on_mesh(function, x)):
        np.testing.assert_allclose(got, sum(x))
    graph = trace(lambda x: reduce.sum(math.sin(function(x))), x[0])
    for got in firsts(gradients_on_mesh(graph, [[shard] for shard in x], [0])):
        np.testing.assert_allclose(got, SIZE * np.cos(sum(x)))


# Control flow.


def test_devices_that_agree_reduce_inside_a_loop() -> None:
    def function(x: Value) -> Value:
        def goes_on(x: Value) -> Value:
            return all_reduce(x, "d", SIZE, "max") < 100.0

        return while_loop(goes_on, lambda x: x + all_reduce(x, "d", SIZE), x)

    x = [np.array(float(device)) for device in range(SIZE)]
    expected = np.array(x)
    while expected.max() < 100:
        expected = expected + expected.sum()
    assert firsts(on_mesh(function, x)) == expected.tolist()


def test_devices_may_take_different_branches_without_collectives() -> None:
    def function(x: Value) -> Value:
        first = elementwise.equal(axis_index("d", SIZE), 0)
        return cond(first, lambda: x * 10.0, lambda: x + 1.0)

    assert firsts(on_mesh(function, [np.array(2.0)] * SIZE)) == [20, 3, 3, 3]


def test_devices_may_loop_for_different_times_without_collectives() -> None:
    def function(x: Value) -> Value:
        return while_loop(lambda x: x < 10.0, lambda x: x * 2.0, x)

    x = [np.array(value) for value in (1.0, 5.0, 20.0, 9.0)]
    assert firsts(on_mesh(function, x)) == [16, 10, 20, 18]


def test_groups_may_differ_as_long_as_each_agrees() -> None:
    mesh = Mesh({"a": 2, "b": 2})

    def function(x: Value) -> Value:
        first = elementwise.equal(axis_index("a", 2), 0)
        return cond(first, lambda: all_reduce(x, "b", 2), lambda: all_reduce(x, "b", 2, "max"))

    x = [np.array(value) for value in (1.0, 2.0, 3.0, 4.0)]
    assert firsts(on_mesh(function, x, mesh=mesh)) == [3, 3, 4, 4]


@pytest.mark.parametrize("kind", ["if", "while"])
def test_devices_that_disagree_before_a_collective_are_an_error(kind: str) -> None:
    def function(x: Value) -> Value:
        if kind == "if":
            return cond(x > 2.0, lambda: all_reduce(x, "d", SIZE), lambda: x)
        return while_loop(lambda x: x < 3.0, lambda x: x + all_reduce(x, "d", SIZE, "max"), x)

    x = [np.array(value) for value in (1.0, 2.0, 3.0, 4.0)]
    with pytest.raises(EvaluationError, match="not every device of its group") as caught:
        on_mesh(function, x)
    assert "took another way" in (caught.value.found or "")
    assert "all_reduce" in (caught.value.where or "")


def test_devices_scan_together() -> None:
    def function(xs: Value) -> Any:
        return scan(lambda c, x: (all_reduce(c + x, "d", SIZE, "mean"), c), np.asarray(0.0), xs)[0]

    xs = shards(5)
    for got in firsts(on_mesh(function, xs)):
        np.testing.assert_allclose(got, np.mean([x.sum() for x in xs]))


# Errors.


def test_plain_interpretation_points_to_the_mesh() -> None:
    graph = trace(lambda x: all_reduce(x, "d", 2), "f32[3]")
    with pytest.raises(EvaluationError, match="2 devices take part") as caught:
        interpret(graph, [np.ones(3, np.float32)])
    assert "interpret_on_mesh" in (caught.value.hint or "")


def test_a_group_of_one_needs_no_mesh() -> None:
    (result,) = interpret(
        trace(lambda x: all_reduce(x, "d", 1), "f32[3]"), [np.ones(3, np.float32)]
    )
    np.testing.assert_array_equal(result, np.ones(3))


@pytest.mark.parametrize(
    ("message", "mesh"),
    [("no axis 'd'", Mesh({"e": 4})), ("another number of devices", Mesh({"d": 2}))],
)
def test_the_mesh_must_fit(message: str, mesh: Mesh) -> None:
    x = shards(3, count=mesh.size)
    with pytest.raises(EvaluationError, match=message):
        on_mesh(lambda x: all_reduce(x, "d", SIZE), x, mesh=mesh)


def test_every_device_needs_inputs() -> None:
    graph = trace(lambda x: x * 2.0, "f64[3]")
    with pytest.raises(InputError, match="every device"):
        interpret_on_mesh(graph, [[np.ones(3)]], MESH)


def test_shapes_must_agree_across_devices() -> None:
    graph = trace(lambda x: all_reduce(x, "d", 2), "f64[n]")
    with pytest.raises(EvaluationError, match="different shapes"):
        interpret_on_mesh(graph, [[np.ones(3)], [np.ones(1)]], Mesh({"d": 2}))


TYPE_ERRORS: list[tuple[str, Callable[..., Any]]] = [
    ("at least one device", lambda x: all_reduce(x, "d", 0)),
    ("no such reduction", lambda x: all_reduce(x, "d", 2, "median")),  # type: ignore[arg-type]
    ("no mean of this dtype", lambda x: all_reduce(np.arange(4), "d", 2, "mean")),
    ("no max of this dtype", lambda x: all_reduce(x > 0, "d", 2, "max")),
    ("no sum of this dtype", lambda x: reduce_scatter(x > 0, "d", 2)),
    ("parts are not equal", lambda x: reduce_scatter(x, "d", 3)),
    ("parts are not equal", lambda x: all_to_all(x, "d", 3, 0, 1)),
    ("axis 2 is out of range", lambda x: all_gather(x, "d", 2, 2)),
    ("axis -3 is out of range", lambda x: all_to_all(x, "d", 2, 0, -3)),
    ("source is not a device", lambda x: permute(x, "d", 2, [(2, 0)])),
    ("target is not a device", lambda x: permute(x, "d", 2, [(0, -1)])),
    ("target is named twice", lambda x: permute(x, "d", 2, [(0, 1), (1, 1)])),
]


@pytest.mark.parametrize(("message", "function"), TYPE_ERRORS)
def test_refused(message: str, function: Callable[..., Any]) -> None:
    with pytest.raises(TypeRuleError, match=message):
        trace(function, "f32[4, 6]")


def test_negative_axes_are_normalised() -> None:
    graph = trace(lambda x: all_to_all(x, "d", 2, -1, -2), "f32[4, 6]")
    assert "split_axis = 1, concat_axis = 0" in str(graph)


def test_a_shard_of_a_slice_is_a_slice_of_the_gathered() -> None:
    def function(x: Value) -> Value:
        return slicing.slice(all_gather(x, "d", SIZE), (0,), (2,), axes=(0,))

    x = shards(3, 2)
    for got in firsts(on_mesh(function, x)):
        np.testing.assert_array_equal(got, x[0][:2])
