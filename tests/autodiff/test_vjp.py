"""Gradients of whole graphs; the rule of each op is tested with its samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import monograph
from monograph import functional as F
from monograph.errors import DifferentiationError, InputError
from monograph.ir.interpret import interpret
from monograph.ir.verify import verify

X = np.random.default_rng(0).normal(size=(3, 4))
W = np.random.default_rng(1).normal(size=(4, 2))


def test_value_and_grad_puts_outputs_before_gradients() -> None:
    graph = monograph.trace(lambda x: F.sum(x * x), "f64[3, 4]")
    both = monograph.value_and_grad(graph)
    verify(both)
    value, gradient = interpret(both, [X])
    np.testing.assert_allclose(value, np.sum(X * X))
    np.testing.assert_allclose(gradient, 2 * X)


def test_several_uses_accumulate() -> None:
    graph = monograph.trace(lambda x: F.sum(x * x * x + F.exp(x) - x), "f64[3, 4]")
    (gradient,) = interpret(monograph.grad(graph), [X])
    np.testing.assert_allclose(gradient, 3 * X**2 + np.exp(X) - 1)


def test_integer_inputs_have_no_gradient() -> None:
    graph = monograph.trace(lambda x, i: F.sum(F.take(x, i, axis=0)), "f64[3, 4]", "i64[2]")
    gradients = interpret(monograph.grad(graph), [X, np.array([0, 0])])
    assert len(gradients) == 1
    np.testing.assert_array_equal(gradients[0], np.array([[2.0] * 4, [0.0] * 4, [0.0] * 4]))
    with pytest.raises(DifferentiationError, match="input %i has no gradient"):
        monograph.grad(graph, ["i"])


def test_inputs_are_chosen_by_name_or_position() -> None:
    graph = monograph.trace(lambda x, w: F.mean(F.tanh(x @ w)), "f64[3, 4]", "f64[4, 2]")
    (by_name,) = interpret(monograph.grad(graph, ["w"]), [X, W])
    (by_position,) = interpret(monograph.grad(graph, [1]), [X, W])
    np.testing.assert_array_equal(by_name, by_position)
    with pytest.raises(InputError, match="there is no input 'v'"):
        monograph.grad(graph, ["v"])


def test_an_input_that_does_not_matter_has_a_gradient_of_zeros() -> None:
    graph = monograph.trace(lambda x, w: F.sum(x), "f64[3, 4]", "f64[4, 2]")
    _, gradient = interpret(monograph.grad(graph), [X, W])
    np.testing.assert_array_equal(gradient, np.zeros_like(W))


def test_the_loss_must_be_one_float() -> None:
    with pytest.raises(DifferentiationError, match="the loss must be one float"):
        monograph.grad(monograph.trace(lambda x: x * 2.0, "f64[3]"))
    with pytest.raises(DifferentiationError, match="the loss must be one float"):
        monograph.grad(monograph.trace(lambda x: F.argmax(x, axis=0), "f64[3]"))
    with pytest.raises(InputError, match="there is no output 3"):
        monograph.grad(monograph.trace(lambda x: F.sum(x), "f64[3]"), loss=3)


def test_the_argument_is_left_alone() -> None:
    graph = monograph.trace(lambda x: F.sum(F.gelu(x)), "f64[3, 4]")
    before = str(graph)
    monograph.grad(graph)
    assert str(graph) == before


def test_stop_gradient_cuts_the_path() -> None:
    graph = monograph.trace(lambda x: F.sum(x * F.stop_gradient(x)), "f64[3, 4]")
    (gradient,) = interpret(monograph.grad(graph), [X])
    np.testing.assert_allclose(gradient, X)


def test_symbolic_shapes_differentiate() -> None:
    graph = monograph.trace(lambda x, w: F.mean(F.relu(x @ w)), "f64[n, 4]", "f64[4, 2]")
    gradient = monograph.grad(graph, ["w"])
    for rows in (1, 5):
        x = np.random.default_rng(rows).normal(size=(rows, 4))
        (ours,) = interpret(gradient, [x, W])
        weight = torch.tensor(W, requires_grad=True)
        torch.relu(torch.tensor(x) @ weight).mean().backward()
        np.testing.assert_allclose(ours, weight.grad.numpy())


def test_gradients_flow_through_cond() -> None:
    def loss(x):  # type: ignore[no-untyped-def]
        return F.cond(F.sum(x) > 0.0, lambda: F.sum(x * x), lambda: F.sum(F.exp(x)))

    gradient = monograph.grad(monograph.trace(loss, "f64[3]"))
    verify(gradient)
    up, down = np.array([1.0, 2.0, 3.0]), np.array([-1.0, -2.0, 0.5])
    np.testing.assert_allclose(interpret(gradient, [up])[0], 2 * up)
    np.testing.assert_allclose(interpret(gradient, [down])[0], np.exp(down))


def test_gradients_flow_through_scan_as_through_a_loop() -> None:
    def step(carry, x):  # type: ignore[no-untyped-def]
        new = F.tanh(carry * 0.5 + x)
        return new, new * 2.0

    def loss(start, xs):  # type: ignore[no-untyped-def]
        last, outputs = F.scan(step, start, xs)
        return F.sum(last) + F.mean(outputs)

    graph = monograph.trace(loss, "f64[2]", "f64[5, 2]")
    start, xs = np.array([0.1, -0.2]), np.random.default_rng(3).normal(size=(5, 2))
    ours = interpret(monograph.grad(graph), [start, xs])
    leaves = [torch.tensor(start, requires_grad=True), torch.tensor(xs, requires_grad=True)]
    carry, outputs = leaves[0], []
    for row in leaves[1]:
        carry = torch.tanh(carry * 0.5 + row)
        outputs.append(carry * 2.0)
    (carry.sum() + torch.stack(outputs).mean()).backward()
    for got, leaf in zip(ours, leaves, strict=True):
        np.testing.assert_allclose(got, leaf.grad.numpy())


def test_while_has_no_gradient_and_says_what_to_use() -> None:
    def loss(x):  # type: ignore[no-untyped-def]
        return F.sum(F.while_loop(lambda c: F.sum(c) < 10.0, lambda c: c * 2.0, x))

    with pytest.raises(DifferentiationError, match="scan"):
        monograph.grad(monograph.trace(loss, "f64[2]"))


def test_gradients_of_gradients() -> None:
    graph = monograph.trace(lambda x: F.sum(F.sin(x)), "f64[3]")
    first = monograph.grad(graph)
    total = monograph.trace(lambda x: F.sum(first.copy_into(x.graph, [x])[0]), "f64[3]")
    x = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(interpret(monograph.grad(total), [x])[0], -np.sin(x))


def test_a_training_step_equals_torch() -> None:
    generator = np.random.default_rng(5)
    shapes = {"x": (8, 4), "w1": (4, 16), "b1": (16,), "w2": (16, 3), "b2": (3,)}
    arrays = {name: generator.normal(size=shape) for name, shape in shapes.items()}
    targets = generator.integers(0, 3, size=8)

    def loss(x, w1, b1, w2, b2, t):  # type: ignore[no-untyped-def]
        return F.cross_entropy(F.gelu(x @ w1 + b1) @ w2 + b2, t)

    specs = [f"f64[{', '.join(map(str, shape))}]" for shape in shapes.values()]
    graph = monograph.value_and_grad(monograph.trace(loss, *specs, "i64[8]"))
    value, *gradients = interpret(graph, [*arrays.values(), targets])
    leaves = [torch.tensor(array, requires_grad=True) for array in arrays.values()]
    x, w1, b1, w2, b2 = leaves
    logits = torch.nn.functional.gelu(x @ w1 + b1) @ w2 + b2
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(targets))
    expected.backward()
    np.testing.assert_allclose(value, expected.item())
    for got, leaf in zip(gradients, leaves, strict=True):
        np.testing.assert_allclose(got, leaf.grad.numpy(), rtol=1e-9, atol=1e-12)
