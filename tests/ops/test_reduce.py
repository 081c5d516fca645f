"""What is special about reductions: dtypes, empty axes, ties, zeros, infinities, symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from scipy import special

import monograph
from monograph.compiler import Options, compile_graph
from monograph.errors import EvaluationError
from monograph.frontends.trace import trace
from monograph.ir.decompose import decompose_node
from monograph.ir.dims import Symbol
from monograph.ir.interpret import interpret
from monograph.ir.types import DTYPES, TensorType, f32, f64, i64
from monograph.ops import cumulative, reduce
from tests.ops.running import (
    assert_same,
    complex_gradients,
    gradients,
    refuses,
    run,
    run_decomposed,
)

FLOATS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
INTEGERS = [name for name, dtype in DTYPES.items() if dtype.is_integer]
NAN, INF = np.nan, np.inf


def run_symbolic(function: Callable[..., Any], type_: TensorType, array: Any) -> np.ndarray:
    """The result with every composite decomposed while the sizes are still symbols."""
    graph = trace(function, type_, name="test")
    while composites := [node for node in graph.nodes if node.op.is_composite()]:
        for node in composites:
            decompose_node(node)
    return interpret(graph, [array])[0]


# Dtypes.


@pytest.mark.parametrize("name", INTEGERS)
def test_sums_and_products_of_integers_keep_the_dtype_and_wrap(name: str) -> None:
    dtype = DTYPES[name]
    values = np.array([1, 3, 3, 2, 1, 3], np.int64)
    array = (values % 2 if dtype.bits == 2 else values).astype(dtype.numpy)
    modulus, exact = 2**dtype.bits, array.astype(object)
    for function, total in [(reduce.sum, exact.sum()), (reduce.prod, exact.prod())]:
        got = run(function, np.tile(array, (5, 1)) if function is reduce.sum else array)
        expected = total * 5 if function is reduce.sum else total
        assert got.dtype == dtype.numpy
        assert (int(got) - int(expected)) % modulus == 0


def test_bools_are_counted_in_i64() -> None:
    array = np.array([[True, True, False]] * 100)
    assert run(reduce.sum, array) == 200
    assert run(reduce.sum, array).dtype == np.int64
    assert_array(run(lambda x: reduce.prod(x, 0), array), np.array([1, 1, 0], np.int64))
    assert_array(run(lambda x: cumulative.cumsum(x, 1), array[:1]), np.array([[1, 2, 2]]))


def assert_array(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "op",
    [
        reduce.Sum((1,)),
        reduce.Prod((1,)),
        reduce.Max((1,)),
        reduce.Mean((1,)),
        reduce.Variance((1,), False, 1),
        reduce.Logsumexp((1,)),
        cumulative.Cumsum(1),
        cumulative.Cumprod(1),
        cumulative.Cummax(1),
    ],
    ids=lambda op: op.name,
)
def test_floats_of_every_width_are_rounded_once(op: Any, dtype: Any) -> None:
    array = np.random.default_rng(0).normal(size=(3, 50)).astype(dtype)
    got = run(op, array)
    assert got.dtype == array.dtype
    wide = run(op, array.astype(np.float64))
    bits = {2: 11 if dtype is np.float16 else 8, 4: 18, 8: 50}[array.dtype.itemsize]
    np.testing.assert_allclose(got.astype(np.float64), wide, rtol=2.0**-bits, atol=2.0**-bits)
    if op.is_composite():
        np.testing.assert_array_equal(run_decomposed(op, array), got)


def test_integers_have_a_mean_in_f32() -> None:
    array = np.array([[1, 2], [3, 5]], np.int8)
    for function in (reduce.mean, reduce.variance, reduce.std, reduce.logsumexp):
        got = run(function, array)
        assert got.dtype == np.float32
    assert run(reduce.mean, array) == 2.75
    assert run(reduce.mean, np.array([True, False, True, True])) == 0.75


def test_narrow_floats_accumulate_wide() -> None:
    array = np.full(5000, 60000, np.float16)
    assert run(reduce.mean, array) == 60000
    assert np.isinf(run(reduce.sum, array))
    small = np.full(4096, 1, ml_dtypes.bfloat16)
    assert run(reduce.sum, small) == 4096  # in bf16 itself it would stop at 256
    assert run(reduce.std, np.array([600, -600], np.float16)) == 600


# Axes.


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (-1, 0), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_axes_are_what_numpy_takes(axis: Any, keepdims: bool) -> None:
    array = np.random.default_rng(0).normal(size=(2, 3, 4))
    pairs = [(reduce.sum, np.sum), (reduce.max, np.max), (reduce.mean, np.mean)]
    for ours, theirs in [*pairs, (reduce.any, np.any), (reduce.variance, np.var)]:
        got = run(lambda x, f=ours: f(x, axis, keepdims), array)
        expected = np.asarray(theirs(array, axis=axis, keepdims=keepdims))
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)


def test_the_graph_holds_sorted_non_negative_axes() -> None:
    graph = trace(lambda x: reduce.sum(x, (-1, 0)), "f32[2, 3, 4]")
    assert graph.outputs[0].op == reduce.Sum((0, 2))


def test_a_numpy_integer_is_an_axis() -> None:
    graph = trace(lambda x: reduce.sum(x, np.int64(-1)), "f32[2, 3]")  # type: ignore[arg-type]
    assert graph.outputs[0].op == reduce.Sum((1,))
    assert type(graph.nodes[0].op.attributes()["axes"][0]) is int


def test_argmax_of_all_axes_is_a_flat_place() -> None:
    array = np.array([[1, 7, 3], [7, 0, -2]])
    assert run(reduce.argmax, array) == 1
    assert run(reduce.argmin, array) == 5
    assert_array(run(lambda x: reduce.argmax(x, keepdims=True), array), np.array([[1]]))
    assert run(reduce.argmax, np.array(3.0)) == 0


@pytest.mark.parametrize(
    ("message", "function", "type_"),
    [
        ("axis 2 is out of range", lambda x: reduce.sum(x, 2), "f32[2, 3]"),
        ("axis 0 is out of range", lambda x: reduce.sum(x, 0), "f32[]"),
        ("axis is named twice", lambda x: reduce.mean(x, (1, -1)), "f32[2, 3]"),
        ("axis -3 is out of range", reduce.Max((-3,)), "f32[2, 3]"),
        ("axis 1 is out of range", reduce.Argmax(1), "f32[2]"),
        ("numbers are needed", reduce.Sum((0,)), "bool[2]"),
        ("numbers are needed", reduce.Prod((0,)), "string[2]"),
        ("have no order", reduce.max, "c64[2]"),
        ("have no order", reduce.Argmin(0), "string[2]"),
        ("no elements along axis 0", reduce.max, "f32[0]"),
        ("no elements along axis 1", lambda x: reduce.min(x, 1), "f32[2, 0]"),
        ("no elements along axis 0", lambda x: reduce.argmax(x, 0), "i32[0, 2]"),
        ("no elements", lambda x: reduce.argmin(x), "i32[0, 2]"),
        ("a float operand", reduce.Mean((0,)), "i32[2]"),
        ("a real float operand", reduce.Variance((0,)), "i32[2]"),
        ("a real float operand", reduce.logsumexp, "c64[2]"),
        ("truth values are needed", reduce.Any((0,)), "i32[2]"),
        ("truth values are needed", reduce.All((0,)), "f32[2]"),
    ],
)
def test_what_the_type_rules_refuse(message: str, function: Any, type_: str) -> None:
    refuses(message, function, type_)


# No elements.


def test_reductions_of_nothing() -> None:
    nothing = np.zeros((2, 0), np.float32)
    for function, expected in [
        (reduce.sum, 0),
        (reduce.prod, 1),
        (reduce.mean, NAN),
        (reduce.variance, NAN),
        (reduce.logsumexp, -INF),
    ]:
        assert_same(run(lambda x, f=function: f(x, 1), nothing), [expected] * 2)
    assert_array(run(lambda x: reduce.any(x, 1), nothing), np.array([False, False]))
    assert_array(run(lambda x: reduce.all(x, 1), nothing), np.array([True, True]))
    assert run(lambda x: reduce.max(x, 0), nothing).shape == (0,)


@pytest.mark.parametrize("function", [reduce.max, reduce.min, reduce.argmax, reduce.argmin])
def test_an_axis_that_turns_out_empty_has_no_extremum(function: Any) -> None:
    n = Symbol("n", 0)
    graph = trace(lambda x: function(x, 0), TensorType(f32, (n, 2)))
    assert interpret(graph, [np.ones((3, 2), np.float32)])[0].shape == (2,)
    with pytest.raises(EvaluationError, match="no elements along axis 0"):
        interpret(graph, [np.ones((0, 2), np.float32)])


# Special values.


def test_nan_wins_every_extremum() -> None:
    array = np.array([[1, NAN, 2], [NAN, INF, NAN], [-INF, -INF, -INF]], np.float32)
    assert_same(run(lambda x: reduce.max(x, 1), array), [NAN, NAN, -INF])
    assert_same(run(lambda x: reduce.min(x, 1), array), [NAN, NAN, -INF])
    assert_array(run(lambda x: reduce.argmax(x, 1), array), np.array([1, 0, 0]))
    assert_array(run(lambda x: reduce.argmin(x, 1), array), np.array([1, 0, 0]))


def test_the_first_of_equal_elements_is_the_place() -> None:
    assert run(reduce.argmax, np.array([1, 3, 3, 1])) == 1
    assert run(reduce.argmin, np.array([3, 1, 1, 3])) == 1
    assert run(reduce.argmax, np.array([-0.0, 0.0])) == 0
    assert run(reduce.argmax, np.array([False, True, True])) == 1


def test_any_and_all_take_numbers() -> None:
    assert run(reduce.any, np.array([0.0, -0.0])) == np.False_
    assert run(reduce.any, np.array([0.0, NAN])) == np.True_
    assert run(reduce.all, np.array([1, -2], np.int8)) == np.True_
    assert run(reduce.count_nonzero, np.array([0.0, 2.0, NAN, -0.0])) == 2
    assert run(reduce.count_nonzero, np.array([0.0])).dtype == np.int64


@pytest.mark.parametrize(
    "row",
    [
        [-INF, -INF],
        [INF, 0],
        [INF, INF],
        [INF, -INF],
        [1e30, 1e30],
        [-1e30, -1e30],
        [NAN, INF],
        [-INF, 3],
        [88.0, 89.0],
        [-110.0, -111.0],
    ],
)
def test_logsumexp_never_overflows(row: list[float]) -> None:
    array = np.array(row, np.float32)
    expected = np.float32(special.logsumexp(array.astype(np.float64)))
    for got in (run(reduce.logsumexp, array), run_decomposed(reduce.Logsumexp((0,)), array)):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_the_gradient_of_logsumexp_is_a_softmax() -> None:
    array = np.array([[1.0, 2.0, 3.0], [-INF, -INF, -INF], [-INF, 0.0, 0.0]])
    (got,) = gradients(lambda x: reduce.logsumexp(x, 1), array)
    expected = np.vstack([special.softmax(array[0]), [0, 0, 0], [0, 0.5, 0.5]])
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_the_gradient_of_a_narrow_logsumexp_does_not_use_the_rounded_result() -> None:
    (got,) = gradients(lambda x: reduce.logsumexp(x), np.array([1000.3, 1000.3], np.float16))
    np.testing.assert_array_equal(got, np.array([0.5, 0.5], np.float16))


def test_variance_takes_two_passes() -> None:
    array = np.array([1e6, 1e6 + 1, 1e6 + 2], np.float32)
    assert run(reduce.variance, array) == np.float32(2 / 3)
    assert run(lambda x: reduce.variance(x, correction=1), array) == 1
    assert run(lambda x: reduce.std(x, correction=1), array) == 1


def test_variance_of_too_few_elements() -> None:
    one = np.array([3.0], np.float32)
    assert run(reduce.variance, one) == 0
    assert np.isnan(run(lambda x: reduce.variance(x, correction=1), one))
    pair = np.array([1.0, 2.0], np.float32)
    assert np.isposinf(run(lambda x: reduce.variance(x, correction=3), pair))


# Gradients.


def test_ties_share_the_gradient_evenly() -> None:
    array = np.array([[3.0, 1.0, 3.0, 3.0], [2.0, 2.0, 1.0, 0.0]])
    (largest,) = gradients(lambda x: reduce.max(x, 1) * 6.0, array)
    np.testing.assert_array_equal(largest, [[2, 0, 2, 2], [3, 3, 0, 0]])
    (least,) = gradients(lambda x: reduce.min(x, 1, keepdims=True), -array)
    np.testing.assert_allclose(least, [[1 / 3, 0, 1 / 3, 1 / 3], [0.5, 0.5, 0, 0]])


def test_the_gradient_of_a_product_stands_zeros() -> None:
    array = np.array([[2.0, 0.0, 3.0], [0.0, 5.0, 0.0], [1.0, 2.0, 4.0]])
    (got,) = gradients(lambda x: reduce.prod(x, 1), array)
    np.testing.assert_array_equal(got, [[0, 6, 0], [0, 0, 0], [8, 4, 2]])
    (whole,) = gradients(lambda x: reduce.prod(x), array[:1])
    np.testing.assert_array_equal(whole, [[0, 6, 0]])


def test_gradients_of_complex_products_are_torchs() -> None:
    generator = np.random.default_rng(0)
    array = generator.normal(size=(2, 3)) + 1j * generator.normal(size=(2, 3))
    for ours, theirs in [
        (lambda x: reduce.prod(x, 1), lambda x: torch.prod(x, 1)),
        (lambda x: cumulative.cumprod(x, 1), lambda x: torch.cumprod(x, 1)),
        (lambda x: reduce.mean(x, 0), lambda x: torch.mean(x, 0)),
    ]:
        leaf = torch.tensor(array, requires_grad=True)
        result = theirs(leaf)
        (result.real + 2 * result.imag).sum().backward()
        assert leaf.grad is not None
        np.testing.assert_allclose(complex_gradients(ours, array)[0], leaf.grad.numpy(), rtol=1e-9)


# Symbolic sizes.


@pytest.mark.parametrize("size", [1, 4])
def test_composites_decompose_with_symbolic_sizes(size: int) -> None:
    type_ = TensorType(f64, (Symbol("n"), 3, Symbol("m")))
    array = np.random.default_rng(0).normal(size=(size, 3, 2))
    for function, expected in [
        (lambda x: reduce.mean(x, (0, 2)), array.mean((0, 2))),
        (lambda x: reduce.variance(x, 0), array.var(0)),
        (lambda x: reduce.variance(x, correction=1), array.var(ddof=1)),
        (lambda x: reduce.logsumexp(x, (0, 1)), special.logsumexp(array, (0, 1))),
    ]:
        got = run_symbolic(function, type_, array)
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_a_decomposed_logsumexp_stands_an_axis_that_turns_out_empty() -> None:
    type_ = TensorType(f32, (Symbol("n", 0), 2))
    got = run_symbolic(lambda x: reduce.logsumexp(x, 0), type_, np.zeros((0, 2), np.float32))
    assert_same(got, [-INF, -INF])


def test_types_of_symbolic_operands() -> None:
    def type_of(function: Any) -> str:
        return str(trace(function, "f32[batch, seq, 8]").outputs[0].type)

    assert type_of(lambda x: reduce.sum(x, 1)) == "f32[batch, 8]"
    assert type_of(lambda x: reduce.mean(x, (0, -1), keepdims=True)) == "f32[1, seq, 1]"
    assert type_of(lambda x: reduce.argmax(x, -1)) == f"{i64}[batch, seq]"
    assert type_of(reduce.argmax) == "i64[]"
    assert type_of(lambda x: reduce.any(x, 0)) == "bool[seq, 8]"


# Rounding.


@pytest.mark.parametrize("function", [reduce.sum, reduce.mean, reduce.variance, reduce.logsumexp])
def test_rounding_does_not_depend_on_how_the_operand_lies_in_memory(function: Any) -> None:
    """Nor is it that of adding one after the other, which would lose two digits here."""
    x = (np.random.default_rng(0).normal(size=(20_000, 3)) + 100).astype(np.float32)
    rows = run(lambda x: function(x, 0), np.ascontiguousarray(x))
    columns = run(lambda x: function(x, 0), np.asfortranarray(x))
    assert rows.tobytes() == columns.tobytes()
    exact = run(lambda x: function(x, 0), x.astype(np.float64))
    np.testing.assert_allclose(rows, exact, rtol=1e-6)


def test_the_mean_of_one_number_is_that_number_unrounded() -> None:
    """Fused with what made it, which is not rounded in between either."""
    graph = monograph.trace(
        lambda x: (y := x - reduce.sum(x * x, 1, True)) - reduce.mean(y, 1, True), "bf16[31, 1]"
    )
    x = np.random.default_rng(0).normal(size=(31, 1)).astype(ml_dtypes.bfloat16)
    (found,) = compile_graph(graph, Options(cache=False, level="O1"))(x)
    assert not np.asarray(found, np.float32).any()
