"""if → If, while → Loop, scan → Scan or Loop; nested, captured, symbolic, of no steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph.functional as F
from monograph.autodiff.vjp import grad
from monograph.exporters.onnx import to_onnx
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol
from monograph.ir.types import TensorType, f32
from tests.exporters.running import assert_exports

X = np.linspace(0.5, 1.5, 6, dtype=np.float32).reshape(2, 3)
TRUE, FALSE = np.array(True), np.array(False)


def kinds(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("predicate", [TRUE, FALSE])
def test_if(predicate: np.ndarray) -> None:
    def program(p: Any, x: Any) -> Any:
        y = x * 3.0
        return F.cond(p, lambda: (x + y, y), lambda: (x, F.silu(y)))

    model = assert_exports(trace(program, "bool[]", "f32[n, 3]"), [predicate, X])
    assert "If" in kinds(model)


def test_branches_that_return_outer_values_and_the_same_twice() -> None:
    def program(p: Any, x: Any) -> Any:
        return F.cond(p, lambda: (x, x), lambda: (x * 2.0, x))

    for predicate in (TRUE, FALSE):
        assert_exports(trace(program, "bool[]", "f32[3]"), [predicate, X[0]])


def test_an_if_in_a_while_in_an_if() -> None:
    def program(p: Any, x: Any) -> Any:
        def body(carry: Any) -> Any:
            count, value = carry
            grown = F.cond(count > 1, lambda: value * 2.0, lambda: value + x)
            return count - 1, grown

        def looped() -> Any:
            return F.while_loop(lambda carry: carry[0] > 0, body, (3, x))[1]

        return F.cond(p, looped, lambda: x)

    for predicate in (TRUE, FALSE):
        assert_exports(trace(program, "bool[]", "f32[n]"), [predicate, X[0]])


@pytest.mark.parametrize("count", [0, 1, 5])
def test_while_with_captured_values(count: int) -> None:
    def program(n: Any, x: Any, w: Any) -> Any:
        def body(carry: Any) -> Any:
            step, value = carry
            return step + 1, F.tanh(value @ w)

        return F.while_loop(lambda carry: carry[0] < n, body, (0, x))

    model = assert_exports(
        trace(program, "i64[]", "f32[2, 3]", "f32[3, 3]"),
        [np.array(count), X, np.eye(3, dtype=np.float32)],
    )
    (loop,) = [node for node in model.graph.node if node.op_type == "Loop"]
    assert len(loop.input) == 4  # the weight is read from around the loop, and not carried


def test_a_while_with_a_limit_stops_by_its_condition() -> None:
    def program(x: Any) -> Any:
        return F.while_loop(lambda v: F.sum(v) < 100.0, lambda v: v * 2.0, x, limit=50)

    assert_exports(trace(program, "f32[3]"), [X[0]])


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse: bool) -> None:
    def program(start: Any, xs: Any, w: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            after = F.tanh(carry @ w + x)
            return after, (after * 2.0, F.sum(after))

        return F.scan(body, start, xs, reverse=reverse)

    w = np.eye(3, dtype=np.float32) * 0.5
    graph = trace(program, "f32[3]", "f32[t, 3]", "f32[3, 3]")
    for length in (1, 4):
        xs = np.linspace(-1, 1, length * 3, dtype=np.float32).reshape(length, 3)
        model = assert_exports(graph, [X[0], xs, w])
    assert "Scan" in kinds(model)


def test_a_scan_that_keeps_its_last_carry_alone() -> None:
    graph = trace(lambda start, xs: F.scan(lambda c, x: (c * 2.0 + x, ()), start, xs)[0],
                  "f32[3]", "f32[4, 3]")  # fmt: skip
    model = assert_exports(graph, [X[0], np.ones((4, 3), np.float32)])
    assert "Scan" in kinds(model)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_scan_that_may_have_no_step(reverse: bool, length: int) -> None:
    t, n = Symbol("t", 0), Symbol("n")

    def program(start: Any, xs: Any) -> Any:
        return F.scan(lambda c, x: (c + x, c * x), start, xs, reverse=reverse)

    graph = trace(program, TensorType(f32, (n,)), TensorType(f32, (t, n)))
    xs = np.linspace(-1, 1, length * 3, dtype=np.float32).reshape(length, 3)
    model = assert_exports(graph, [X[0], xs])
    assert "Loop" in kinds(model)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_without_a_sequence(reverse: bool) -> None:
    def program(x: Any) -> Any:
        return F.scan(lambda c, _: (c * 2.0, c + 1.0), x, length=4, reverse=reverse)

    assert_exports(trace(program, "f32[n]"), [X[0]])


def test_the_gradient_of_a_scan() -> None:
    def loss(start: Any, xs: Any, w: Any) -> Any:
        last, ys = F.scan(lambda c, x: (F.tanh(c @ w + x), c), start, xs)
        return F.sum(last) + F.sum(ys * ys)

    graph = grad(trace(loss, "f32[3]", "f32[4, 3]", "f32[3, 3]"))
    xs = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    assert_exports(graph, [X[0], xs, np.eye(3, dtype=np.float32)])


def test_weights_inside_a_region_become_initializers_of_the_model() -> None:
    table = np.linspace(0, 1, 5000, dtype=np.float32)

    def program(p: Any, x: Any) -> Any:
        return F.cond(p, lambda: x + table, lambda: x)

    model = assert_exports(trace(program, "bool[]", "f32[5000]"), [TRUE, np.ones(5000, np.float32)])
    assert any(tensor.dims == [5000] for tensor in model.graph.initializer)


def test_complex_numbers_go_through_control_flow() -> None:
    def program(p: Any, x: Any) -> Any:
        z = F.complex(x, x * 2.0)
        branch = F.cond(p, lambda: z * z, lambda: F.conj(z))
        last, ys = F.scan(lambda c, v: (c * v, F.abs(c)), branch[0], branch)
        return last, ys

    for predicate in (TRUE, FALSE):
        assert_exports(trace(program, "bool[]", "f32[3]"), [predicate, X[0]])


def test_names_are_distinct_across_bodies() -> None:
    def program(p: Any, x: Any) -> Any:
        y = F.exp(x)
        first = F.cond(p, lambda: F.exp(y), lambda: F.exp(F.exp(y)))
        return F.cond(p, lambda: F.exp(first), lambda: F.exp(y))

    model = to_onnx(trace(program, "bool[]", "f32[3]"))
    seen: list[str] = []

    def collect(nodes: Any) -> None:
        for node in nodes:
            seen.extend(node.output)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    collect(attribute.g.node)

    collect(model.graph.node)
    assert len(seen) == len(set(seen))
