"""One compilation serves every size of a symbolic dimension; sizes that cannot be are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError, MonographError
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, f32
from monograph.ops import control, data, elementwise, joining, linalg, math, reduce, shape, slicing
from monograph.ops.softmax import softmax
from monograph.runtime.compiled import Executable

N = Symbol("n", 0, 5000)
SIZES = (0, 1, 2, 7, 64, 127, 4099)


def _pointwise(x: Any) -> Any:
    return math.exp(x) * 0.5 + x


def _rows(x: Any) -> Any:
    return softmax(x, axis=-1)


def _columns(x: Any) -> Any:
    return x - reduce.sum(x, axis=0, keepdims=True)


def _sums(x: Any) -> Any:
    return [reduce.sum(x), reduce.sum(x, axis=0), reduce.sum(x, axis=1), reduce.prod(x, axis=0)]


def _moves(x: Any) -> Any:
    joined = joining.concat([x, slicing.flip(x, 0)], 0)
    return [joined, shape.transpose(joined, (1, 0)), shape.reshape(joined, (2 * N * 6,))]


def _products(x: Any) -> Any:
    return linalg.matmul(shape.transpose(x, (1, 0)), x)


WORK = (_pointwise, _rows, _columns, _sums, _moves, _products)


def _compiled(function: Callable[..., Any], *types: Any) -> Executable:
    return compile_graph(trace(function, *types), Options(cache=False))


@pytest.mark.parametrize("function", WORK, ids=lambda function: function.__name__)
def test_every_size_gives_what_the_interpreter_gives(function: Callable[..., Any]) -> None:
    run = _compiled(function, TensorType(f32, (N, 6)))
    for n in SIZES:
        x = np.random.default_rng(n).normal(size=(n, 6)).astype(np.float32)
        for got, expected in zip(run(x), interpret(run.graph, [x]), strict=True):
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


def test_what_turns_out_to_have_one_element_is_stretched_to_the_result() -> None:
    x = np.arange(40, dtype=np.float32)
    run = _compiled(
        lambda x, y: x * 10.0 + y, TensorType(f32, (N,)), TensorType(f32, (Symbol("m", 0),))
    )
    np.testing.assert_array_equal(run(x, x[5:6])[0], x * 10 + 5)
    with pytest.raises(MonographError, match=r"compiled to have n elements .* repeat what has one"):
        run(x[:1], x)


def test_two_symbols_may_take_any_sizes() -> None:
    m = Symbol("m", 0)
    run = _compiled(
        lambda a, b: linalg.matmul(a, b) + 1.0,
        TensorType(f32, (N, 5)),
        TensorType(f32, (5, m)),
    )
    for rows, columns in ((0, 3), (3, 0), (1, 1), (17, 31), (130, 9)):
        a, b = np.ones((rows, 5), np.float32), np.full((5, columns), 2, np.float32)
        np.testing.assert_array_equal(run(a, b)[0], np.full((rows, columns), 11, np.float32))


def test_a_size_outside_the_declared_range_is_an_error_that_names_it() -> None:
    run = _compiled(_pointwise, TensorType(f32, (Symbol("batch", 2, 8),)))
    assert run(np.ones(8, np.float32))[0].shape == (8,)
    for size in (1, 9):
        with pytest.raises(InputError, match="batch") as caught:
            run(np.ones(size, np.float32))
        assert "2 <= batch <= 8" in str(caught.value)


def test_one_symbol_cannot_be_two_sizes() -> None:
    run = _compiled(lambda a, b: a + b, TensorType(f32, (N,)), TensorType(f32, (N,)))
    with pytest.raises(InputError):
        run(np.ones(3, np.float32), np.ones(4, np.float32))


@pytest.mark.parametrize("mode", ["reflect", "wrap"])
def test_sizes_that_an_op_cannot_take_are_refused_before_anything_is_read(mode: Any) -> None:
    run = _compiled(lambda x: slicing.PadBorder((2,), (0,), mode)(x), TensorType(f32, (N,)))
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(run(x)[0], interpret(run.graph, [x])[0])
    for size in (0, 1):
        with pytest.raises(MonographError, match="border"):
            run(x[:size])
    np.testing.assert_array_equal(run(x)[0], interpret(run.graph, [x])[0])


def test_a_scan_that_takes_no_step_is_not_asked_about_its_body(tmp_path: Path) -> None:
    def lowest_so_far(x: Any) -> Any:
        def step(low: Any, row: Any) -> Any:
            return (elementwise.minimum(low, reduce.min(row)),) * 2

        return control.scan(step, data.full((), 9.0, f32), x)

    run = _compiled(lowest_so_far, TensorType(f32, (N, N)))
    run.save(tmp_path / "lowest.mono")
    loaded = monograph.load(tmp_path / "lowest.mono")
    assert isinstance(loaded, Executable)
    for each in (run, loaded):
        assert [float(low.sum()) for low in each(np.ones((2, 2), np.float32))] == [1, 2]
        assert [float(low.sum()) for low in each(np.ones((0, 0), np.float32))] == [9, 0]


def test_a_scan_that_takes_steps_is_asked_about_its_body() -> None:
    def lowest(x: Any) -> Any:
        return control.scan(lambda _, row: (reduce.min(row), row), data.full((), 9.0, f32), x)

    run = _compiled(lowest, TensorType(f32, (3, N)))
    with pytest.raises(MonographError, match="no elements"):
        run(np.ones((3, 0), np.float32))
