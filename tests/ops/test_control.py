"""if, while and scan: captures, meaning, type rules and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from monograph.autodiff.vjp import grad
from monograph.errors import (
    DifferentiationError,
    EvaluationError,
    GraphError,
    MonographError,
    TypeRuleError,
)
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.text.parser import parse
from monograph.ir.verify import verify
from monograph.ops import data, elementwise, index, linalg, math, reduce
from monograph.ops.control import If, Scan, While, cond, for_loop, scan, while_loop

TRUE, FALSE = np.array(True), np.array(False)


def run(function: Callable[..., Any], *arrays: Any) -> list[Any]:
    operands = [np.asarray(array) for array in arrays]
    graph = trace(function, *operands)
    verify(graph)
    return interpret(graph, operands)


def f32(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


# Captures.


def test_captured_values_become_operands_of_the_node() -> None:
    def function(p: Value, x: Value, y: Value) -> Any:
        return cond(p, lambda a: a + x, lambda a: a * y, x)

    graph = trace(function, "bool[]", "f32[3]", "f32[3]", name="main")
    assert str(graph).rstrip() == (
        """\
graph @main(%p: bool[], %x: f32[3], %y: f32[3]) -> (f32[3]) {
  %if = if(%p, %x, %x, %y) : f32[3] {
    graph @then(%x: f32[3], %x_1: f32[3], %y: f32[3]) -> (f32[3]) {
      %add = add(%x, %x_1) : f32[3]
      return %add
    }
    graph @else(%x: f32[3], %x_1: f32[3], %y: f32[3]) -> (f32[3]) {
      %multiply = multiply(%x, %y) : f32[3]
      return %multiply
    }
  }
  return %if
}"""
    )
    verify(graph)


def test_a_value_is_captured_once() -> None:
    def function(x: Value) -> Any:
        return cond(True, lambda: x + x * x, lambda: x * x)

    graph = trace(function, "f32[3]")
    node = graph.outputs[0].producer
    assert node is not None
    assert node.operands[1:] == graph.inputs
    assert [len(region.inputs) for region in node.regions] == [1, 1]


def test_a_captured_value_may_be_returned_as_it_is() -> None:
    (result,) = run(lambda x: cond(FALSE, lambda: x + 1.0, lambda: x), f32(1, 2))
    np.testing.assert_array_equal(result, f32(1, 2))


def test_nested_regions_capture_through_every_level() -> None:
    def function(x: Value, w: Value, b: Value) -> Any:
        def outer(total: Value, row: Value) -> Any:
            def inner(part: Value, element: Value) -> Any:
                return part * w + element * total, b

            part, stacked = scan(inner, 0.0, row)
            return part, (stacked, cond(part < b, lambda: part * w, lambda: b))

        return scan(outer, 1.0, x)

    x, w, b = np.arange(6, dtype=np.float32).reshape(2, 3) / 4, f32(0.5)[0], f32(0.75)[0]
    total, (stacked, chosen) = 1.0, ([], [])
    for row in x:
        part = 0.0
        for element in row:
            part = part * w + element * total
        stacked.append([b] * 3)
        chosen.append(part * w if part < b else b)
        total = part
    results = run(function, x, w, b)
    for got, expected in zip(results, (total, stacked, chosen), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_captures_of_the_condition_and_the_body_of_a_loop_are_carried_unchanged() -> None:
    def function(n: Value, x: Value) -> Any:
        return while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + x), (0, x))[1]

    graph = trace(function, "i64[]", "f32[2]")
    node = graph.outputs[0].producer
    assert node is not None
    body = node.regions[1]
    assert node.operands[2:] == graph.inputs
    assert body.outputs[2:] == body.inputs[2:]
    np.testing.assert_array_equal(interpret(graph, [np.array(3), f32(1, 2)])[0], f32(4, 8))


def test_a_trace_inside_a_body_is_a_graph_of_its_own() -> None:
    inner: list[Graph] = []

    def function(x: Value) -> Any:
        def body() -> Value:
            inner.append(trace(lambda y: cond(True, lambda: y * 2.0, lambda: y), "f32[3]"))
            return x + 1.0

        return cond(True, body, lambda: x)

    graph = trace(function, "f32[3]")
    verify(graph)
    verify(inner[0])
    assert len(inner[0].inputs) == 1


def test_a_value_of_an_unrelated_graph_is_refused() -> None:
    (stranger,) = trace(lambda x: x * 2.0, "f32[3]").outputs
    with pytest.raises(GraphError, match="belongs to another graph"):
        trace(lambda x: cond(True, lambda: x + stranger, lambda: x), "f32[3]")


def test_an_error_in_a_body_leaves_no_region_open() -> None:
    def function(x: Value) -> Any:
        with pytest.raises(ZeroDivisionError):
            cond(True, lambda: 1 / 0, lambda: x)
        return x * 2.0

    np.testing.assert_array_equal(run(function, f32(1, 2))[0], f32(2, 4))


def test_a_graph_built_by_hand_captures_too() -> None:
    graph = Graph()
    x = graph.add_input("x", "f32[n]")
    with graph.inserting_before(None):
        carry, _ = scan(lambda carry, _: (carry + x, ()), x, length=3)
    graph.set_outputs([carry])
    verify(graph)
    np.testing.assert_array_equal(interpret(graph, [f32(1, 2)])[0], f32(4, 8))


# if.


@pytest.mark.parametrize(("predicate", "expected"), [(TRUE, [2, 4]), (FALSE, [1, 4])])
def test_if_runs_the_chosen_branch(predicate: np.ndarray, expected: list[float]) -> None:
    (got,) = run(lambda p, x: cond(p, lambda x: x * 2.0, lambda x: x * x, x), predicate, f32(1, 2))
    np.testing.assert_array_equal(got, expected)


def test_if_does_not_run_the_other_branch() -> None:
    def endless() -> Value:
        return while_loop(lambda _: TRUE, lambda x: x, 0, limit=3)

    assert run(lambda p: cond(p, lambda: 1, endless), TRUE) == [1]
    with pytest.raises(EvaluationError, match="still going after 3"):
        run(lambda p: cond(p, lambda: 1, endless), FALSE)


def test_if_returns_structures() -> None:
    def function(p: Value, x: Value) -> Any:
        result = cond(
            p,
            lambda point: {"sum": point["a"] + point["b"], "none": None, "pair": (x, 1)},
            lambda point: {"sum": point["a"], "none": None, "pair": (x * 2.0, 2)},
            {"a": x, "b": x},
        )
        assert result["none"] is None
        return result["sum"], result["pair"]

    total, left, right = run(function, FALSE, f32(3))
    assert (total, left, right) == (3, 6, 2)


def test_if_takes_the_shapes_of_symbols() -> None:
    graph = trace(
        lambda p, x: cond(p, lambda: x * 2.0, lambda: data.zeros(x.shape)), "bool[]", "f32[n, 2]"
    )
    assert str(graph.outputs[0].type) == "f32[n, 2]"
    assert interpret(graph, [FALSE, np.ones((3, 2), np.float32)])[0].shape == (3, 2)


def test_if_holds_unproven_dimensions_against_the_sizes_when_it_runs() -> None:
    graph = trace(lambda p, x, y: cond(p, lambda: x, lambda: y), "bool[]", "f32[n]", "f32[m]")
    assert interpret(graph, [TRUE, f32(1, 2), f32(3)])[0].shape == (2,)
    with pytest.raises(MonographError, match="elsewhere"):
        interpret(graph, [FALSE, f32(1, 2), f32(3)])


def test_if_passes_sequences_through() -> None:
    graph = trace(
        lambda p, s, t: cond(p, lambda: s, lambda: t),
        "bool[]",
        "sequence<f32[*]>",
        "sequence<f32[*]>",
    )
    assert interpret(graph, [FALSE, [f32(1)], [f32(2), f32(3)]])[0] == [f32(2), f32(3)]


IF_ERRORS: list[tuple[str, Callable[..., Any], Sequence[str]]] = [
    ("must be one bool", lambda p: cond(p, lambda: 1, lambda: 2), ["i32[]"]),
    ("must be one bool", lambda p: cond(p, lambda: 1, lambda: 2), ["bool[1]"]),
    ("different structures", lambda p: cond(p, lambda: 1, lambda: (1, 2)), ["bool[]"]),
    ("result 0 differs", lambda p: cond(p, lambda: 1, lambda: 1.0), ["bool[]"]),
    (
        "result 0 differs",
        lambda p, x: cond(p, lambda: x, lambda: x + f32(1, 2)),
        ["bool[]", "f32[1]"],
    ),
]


@pytest.mark.parametrize(("message", "function", "types"), IF_ERRORS)
def test_if_refuses(message: str, function: Callable[..., Any], types: Sequence[str]) -> None:
    with pytest.raises(TypeRuleError, match=message):
        trace(function, *types)


def test_if_refuses_regions_that_do_not_fit_its_operands() -> None:
    graph = Graph()
    predicate = graph.add_input("p", "bool[]")
    x = graph.add_input("x", "f32[3]")
    takes_none, takes_other = Graph("then"), Graph("else")
    takes_other.add_input("x", "f32[4]")
    with pytest.raises(TypeRuleError, match="then has the wrong number of inputs"):
        graph.create(If(), (predicate, x), regions=(takes_none, takes_other))
    with pytest.raises(TypeRuleError, match="wrong type"):
        graph.create(If(), (predicate, x), regions=(takes_other, takes_other))
    with pytest.raises(TypeRuleError, match="number of regions"):
        graph.create(If(), (predicate, x), regions=())
    with pytest.raises(TypeRuleError, match="different numbers of results"):
        one = Graph("else")
        one.set_outputs([one.add_input("x", "f32[3]")])
        none = Graph("then")
        none.add_input("x", "f32[3]")
        graph.create(If(), (predicate, x), regions=(none, one))


@pytest.mark.parametrize("predicate", [TRUE, FALSE])
def test_if_gradient(predicate: np.ndarray) -> None:
    def loss(p: Value, x: Value, w: Value) -> Value:
        y, _ = cond(p, lambda x: (math.exp(x) * w, 1), lambda x: (x * x, 2), x)
        return reduce.sum(y)

    graph = grad(trace(loss, "bool[]", "f32[3]", "f32[]"))
    verify(graph)
    x, w = f32(0.5, 1, 2), f32(3)[0]
    by_x, by_w = interpret(graph, [predicate, x, w])
    np.testing.assert_allclose(by_x, np.exp(x) * w if predicate else 2 * x, rtol=1e-6)
    np.testing.assert_allclose(by_w, np.exp(x).sum() if predicate else 0, rtol=1e-6)


# while.


def test_while_counts() -> None:
    def collatz(n: Value) -> Any:
        def body(carry: Any) -> Any:
            n, steps = carry
            even = elementwise.equal(n % 2, 0)
            return elementwise.where(even, n // 2, 3 * n + 1), steps + 1

        return while_loop(lambda c: elementwise.not_equal(c[0], 1), body, (n, 0))

    assert run(collatz, np.array(27)) == [1, 111]


def test_while_may_not_run_at_all() -> None:
    assert run(lambda x: while_loop(lambda _: FALSE, lambda x: x * 2.0, x), f32(3)) == [3]


def test_while_stops_at_its_limit() -> None:
    def function(n: Value) -> Value:
        return while_loop(lambda i: i < n, lambda i: i + 1, 0, limit=5)

    assert run(function, np.array(5)) == [5]
    with pytest.raises(EvaluationError, match="still going after 5 iterations"):
        run(function, np.array(6))


WHILE_ERRORS: list[tuple[str, Callable[..., Any]]] = [
    ("must give one bool", lambda x: while_loop(lambda x: x, lambda x: x, x)),
    ("must give one bool", lambda x: while_loop(lambda x: (), lambda x: x, x)),
    (
        "changes its type",
        lambda x: while_loop(lambda _: True, lambda x: elementwise.cast(x, "f64"), x),
    ),
    ("changes its type", lambda x: while_loop(lambda _: True, lambda x: reduce.sum(x), x)),
    ("structure", lambda x: while_loop(lambda _: True, lambda x: (x, x), x)),
    ("limit is negative", lambda x: while_loop(lambda _: True, lambda x: x, x, limit=-1)),
]


@pytest.mark.parametrize(("message", "function"), WHILE_ERRORS)
def test_while_refuses(message: str, function: Callable[..., Any]) -> None:
    with pytest.raises(TypeRuleError, match=message):
        trace(function, "f32[3]")


def test_while_has_no_gradient_and_says_what_has() -> None:
    def loss(x: Value) -> Value:
        return reduce.sum(while_loop(lambda c: reduce.sum(c) < 9.0, lambda c: c * 2.0, x))

    with pytest.raises(DifferentiationError, match="while has no gradient") as caught:
        grad(trace(loss, "f32[2]"))
    assert "scan" in (caught.value.hint or "")


def test_while_checks_the_sizes_that_the_body_hands_on() -> None:
    def function(x: Value, y: Value) -> Any:
        return while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, y), (0, x))[1]

    graph = trace(function, "f32[n]", "f32[m]")
    assert interpret(graph, [f32(1), f32(2)])[0] == [2]
    with pytest.raises(MonographError, match="elsewhere"):
        interpret(graph, [f32(1), f32(2, 3)])


# scan.


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_a_loop(reverse: bool) -> None:
    def body(carry: Any, x: Any) -> Any:
        return carry * 0.5 + x["a"], (carry, x["b"] * 2)

    xs = {"a": f32(1, 2, 3), "b": np.array([10, 20, 30])}
    last, (carries, doubled) = 1.0, ([0.0] * 3, [0] * 3)
    for i in (2, 1, 0) if reverse else (0, 1, 2):
        carries[i], doubled[i] = last, int(xs["b"][i]) * 2
        last = last * 0.5 + float(xs["a"][i])
    got = run(lambda a, b: scan(body, 1.0, {"a": a, "b": b}, reverse=reverse), xs["a"], xs["b"])
    for result, expected in zip(got, (last, carries, doubled), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_scan_of_no_steps_has_the_inferred_shapes() -> None:
    def function(start: Value, xs: Value) -> Any:
        return scan(lambda c, x: (c + x, (c * 2.0, 1)), start, xs)

    graph = trace(function, "f32[m]", "f32[n, m]")
    assert [str(value.type) for value in graph.outputs] == ["f32[m]", "f32[n, m]", "i64[n]"]
    empty = trace(function, "f32[m]", "f32[0, m]")
    carry, doubled, ones = interpret(empty, [f32(1, 2), np.zeros((0, 2), np.float32)])
    np.testing.assert_array_equal(carry, f32(1, 2))
    assert (doubled.shape, doubled.dtype) == ((0, 2), np.float32)
    assert (ones.shape, ones.dtype) == ((0,), np.int64)


def test_scan_of_no_steps_cannot_know_a_size_that_only_a_step_could_tell() -> None:
    graph = trace(lambda xs: scan(lambda c, x: (c, index.nonzero(x)), 0, xs)[1], "f32[0, 3]")
    with pytest.raises(EvaluationError, match="size is not known"):
        interpret(graph, [np.zeros((0, 3), np.float32)])


def test_scan_may_have_a_symbolic_length_alone() -> None:
    def function(x: Value) -> Any:
        return scan(lambda c, _: (c + 1, c), 0, length=x.shape[0] * 2)

    graph = trace(function, "f32[n]")
    total, counts = interpret(parse(str(graph)), [f32(1, 2)])
    assert total == 4
    np.testing.assert_array_equal(counts, [0, 1, 2, 3])


SCAN_ERRORS: list[tuple[str, Callable[..., Any]]] = [
    ("nothing says how many", lambda x: scan(lambda c, _: (c, ()), x)),
    ("length is negative", lambda x: scan(lambda c, _: (c, ()), x, length=-1)),
    ("lengths differ", lambda x: scan(lambda c, x: (c, x), 0.0, x, length=4)),
    ("lengths differ", lambda x: scan(lambda c, x: (c, ()), 0.0, (x, f32(1, 2)))),
    ("no axis", lambda x: scan(lambda c, x: (c, x), 0.0, 1.0)),
    ("must return a pair", lambda x: scan(lambda c, x: c, 0.0, x)),
    ("structure", lambda x: scan(lambda c, x: ((c, c), x), 0.0, x)),
    ("carry 0 changes its type", lambda x: scan(lambda c, x: (x > c, x), 0.0, x)),
    ("carry 0 changes its type", lambda xs: scan(lambda c, x: (c + xs, x), 0.0, xs)),
]


@pytest.mark.parametrize(("message", "function"), SCAN_ERRORS)
def test_scan_refuses(message: str, function: Callable[..., Any]) -> None:
    with pytest.raises(TypeRuleError, match=message):
        trace(function, "f32[3]")


@pytest.mark.parametrize(
    ("message", "op"),
    [
        ("too few operands", Scan(1, 2)),
        ("count is negative", Scan(-1, 2)),
        ("wrong type", Scan(2, 0, 3)),
        ("too few carries", Scan(1, 1)),
    ],
)
def test_scan_refuses_counts_that_do_not_fit(message: str, op: Scan) -> None:
    graph, body = Graph(), Graph("body")
    operands = [graph.add_input("c", "f32[3]"), graph.add_input("x", "f32[3]")]
    body.add_input("c", "f32[3]")
    body.add_input("x", "f32[]")
    with pytest.raises(TypeRuleError, match=message):
        graph.create(op, operands, regions=(body,))


def test_scan_checks_lengths_when_it_runs() -> None:
    graph = trace(lambda x, y: scan(lambda c, xy: (c, xy), 0.0, (x, y)), "f32[n]", "f32[m]")
    with pytest.raises(MonographError, match="no number of steps fits"):
        interpret(graph, [f32(1, 2), f32(3)])


def recurrent(h: Value, xs: Value, w: Value, u: Value, steps: Value) -> Value:
    """A recurrent network with an integer carry and an integer sequence along the way."""

    def body(carry: Any, x: Any) -> Any:
        h, count = carry
        mask = elementwise.cast(x[1] % 2, "f64")
        h = math.tanh(linalg.matmul(h, w) + linalg.matmul(x[0], u)) * (mask + 0.5)
        return (h, count + 1), (h * h, count)

    (h, _), (squares, _) = scan(body, (h, 0), (xs, steps))
    return reduce.sum(squares * 0.5) + reduce.sum(h)


def recurrent_in_torch(h: Any, xs: Any, w: Any, u: Any, steps: Any) -> Any:
    total = 0.0
    for x, step in zip(xs, steps, strict=True):
        h = torch.tanh(h @ w + x @ u) * (step % 2 + 0.5)
        total = total + (h * h).sum() * 0.5
    return total + h.sum()


def test_gradient_of_a_recurrent_network_agrees_with_torch() -> None:
    generator = np.random.default_rng(0)
    shapes = ((2, 3), (5, 2, 4), (3, 3), (4, 3))
    arrays = [generator.normal(size=shape) for shape in shapes]
    steps = np.arange(5)
    graph = grad(trace(recurrent, *arrays, steps))
    verify(graph)
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    loss = recurrent_in_torch(*tensors, torch.tensor(steps))
    expected = torch.autograd.grad(loss, tensors)
    for got, want in zip(interpret(graph, [*arrays, steps]), expected, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-10)


def test_gradient_through_a_symbolic_number_of_steps() -> None:
    def loss(w: Value, xs: Value) -> Value:
        return reduce.sum(
            scan(lambda c, x: (c * w + x, ()), data.zeros(xs.shape[1:], "f64"), xs)[0]
        )

    graph = grad(trace(loss, "f64[]", "f64[n, m]"), ["w", "xs"])
    xs = np.arange(6.0).reshape(3, 2)
    by_w, by_xs = interpret(graph, [np.asarray(0.5), xs])
    np.testing.assert_allclose(by_w, (xs[1] + 2 * 0.5 * xs[0]).sum())
    np.testing.assert_allclose(by_xs, [[0.25] * 2, [0.5] * 2, [1.0] * 2])


def test_second_derivative_of_a_scan_with_a_branch_inside() -> None:
    def loss(w: Value, xs: Value) -> Value:
        def body(c: Value, x: Value) -> Any:
            c = cond(x > 0.3, lambda: c * w * w, lambda: c * w + x)
            return c, c * c

        last, squares = scan(body, np.asarray(1.0), xs)
        return last + reduce.sum(squares)

    def in_torch(w: Any, xs: Any) -> Any:
        c, total = torch.tensor(1.0, dtype=torch.float64), 0.0
        for x in xs:
            c = c * w * w if x > 0.3 else c * w + x
            total = total + c * c
        return c + total

    w, xs = np.asarray(0.7), np.linspace(0, 1, 5)
    first = grad(trace(loss, w, xs), ["w"])
    second = grad(first, ["w"])
    verify(second)
    weight = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(in_torch(weight, torch.tensor(xs)), weight, create_graph=True)[0]
    curvature = torch.autograd.grad(slope, weight)[0]
    np.testing.assert_allclose(interpret(first, [w, xs])[0], slope.item(), rtol=1e-12)
    np.testing.assert_allclose(interpret(second, [w, xs])[0], curvature.item(), rtol=1e-12)


def test_gradient_of_what_a_scan_ignores_is_zero() -> None:
    def loss(x: Value, unused: Value) -> Value:
        def body(carry: Any, _: Any) -> Any:
            return (carry[0] * 2.0, carry[1]), ()

        return reduce.sum(scan(body, (x, unused), length=2)[0][0])

    by_x, by_unused = interpret(grad(trace(loss, "f32[2]", "f32[2]")), [f32(1, 2), f32(3, 4)])
    np.testing.assert_array_equal(by_x, [4, 4])
    np.testing.assert_array_equal(by_unused, [0, 0])


# for_loop.


def test_for_loop_over_known_bounds_is_a_scan_with_a_gradient() -> None:
    def function(x: Value) -> Value:
        return for_loop(1, 4, lambda i, c: c * x + elementwise.cast(i, "f64"), x)

    graph = trace(function, "f64[]")
    assert any(isinstance(node.op, Scan) for node in graph.nodes)
    x = 0.5
    assert interpret(graph, [x])[0] == ((x * x + 1) * x + 2) * x + 3
    slope = interpret(grad(graph), [x])[0]
    np.testing.assert_allclose(slope, 4 * x**3 + 2 * x + 2)


def test_for_loop_over_dimensions() -> None:
    graph = trace(
        lambda x: for_loop(0, x.shape[0], lambda i, c: c + index.take(x, i, 0), 0.0), "f32[n]"
    )
    assert interpret(graph, [f32(1, 2, 4)])[0] == 7


def test_for_loop_over_values_is_a_while() -> None:
    graph = trace(lambda n: for_loop(2, n, lambda i, c: c * i, 1), "i64[]")
    assert any(isinstance(node.op, While) for node in graph.nodes)
    assert interpret(graph, [np.array(6)])[0] == 120
    assert interpret(graph, [np.array(1)])[0] == 1


def test_for_loop_that_goes_nowhere_keeps_the_carry() -> None:
    assert run(lambda x: for_loop(5, 2, lambda i, c: c * 2.0, x), f32(3)) == [3]
