"""The interpreter: what it accepts, how it names what is wrong, what it computes in."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import EvaluationError, InputError
from monograph.ir.dims import Symbol
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, f32


def doubled() -> monograph.Graph:
    return monograph.trace(lambda x, y: (x * 2.0, x + y), "f32[n, 2]", "f32[2]")


def message(*inputs: object, graph: monograph.Graph | None = None) -> str:
    with pytest.raises(InputError) as caught:
        interpret(graph or doubled(), inputs)
    return str(caught.value)


X = np.ones((3, 2), np.float32)
Y = np.ones(2, np.float32)


def test_outputs_come_as_a_list_in_order() -> None:
    first, second = interpret(doubled(), [X, Y])
    np.testing.assert_array_equal(first, X * 2)
    np.testing.assert_array_equal(second, X + Y)


def test_inputs_may_be_given_by_name() -> None:
    by_name = interpret(doubled(), {"y": Y, "x": X})
    np.testing.assert_array_equal(by_name[0], X * 2)


def test_inputs_may_be_of_the_other_byte_order() -> None:
    other = X.astype(X.dtype.newbyteorder())
    (total,) = interpret(monograph.trace(lambda x: F.sum(x), "f32[3, 2]"), [other])
    assert total == 6.0


def test_a_wrong_name_is_named() -> None:
    with pytest.raises(InputError, match="no input is called 'z'"):
        interpret(doubled(), {"x": X, "z": Y})
    with pytest.raises(InputError, match="input 'y' is missing"):
        interpret(doubled(), {"x": X})


def test_a_wrong_count_lists_the_inputs() -> None:
    text = message(X)
    assert text.startswith("@main takes 2 inputs; 1 were given")
    assert "%x: f32[n, 2], %y: f32[2]" in text


def test_a_wrong_dtype_names_the_input_and_the_conversion() -> None:
    text = message(X, Y.astype(np.float64))
    assert "input %y has the wrong dtype" in text
    assert "f64[2]" in text
    assert "convert it to float32" in text


def test_a_wrong_rank_or_size_names_the_input() -> None:
    assert "input %y has the wrong rank" in message(X, X)
    assert "input %y has the wrong size in dimension 0" in message(X, np.ones(3, np.float32))


def test_one_symbol_means_one_size() -> None:
    graph = monograph.trace(lambda x, y: x + y, "f32[n]", "f32[n]")
    text = message(np.ones(3, np.float32), np.ones(4, np.float32), graph=graph)
    assert "n is 4 here, but 3 elsewhere" in text


def test_a_size_outside_the_declared_range_names_the_range() -> None:
    batch = Symbol("batch", 1, 8)
    graph = monograph.trace(lambda x: x + 1.0, TensorType(f32, (batch,)))
    text = message(np.ones(9, np.float32), graph=graph)
    assert "batch is outside its declared range" in text
    assert "1 <= batch <= 8" in text


def test_a_bare_array_is_refused_with_a_hint() -> None:
    with pytest.raises(InputError, match="inputs must be a list of arrays"):
        interpret(monograph.trace(F.exp, "f32[2]"), X)


def test_an_expression_is_solved_for_its_symbol() -> None:
    graph = monograph.trace(lambda x: F.reshape(x, (-1, 2)), "f32[2*n]")
    assert interpret(graph, [np.zeros(6, np.float32)])[0].shape == (3, 2)
    with pytest.raises(InputError, match="no size makes"):
        interpret(graph, [np.zeros(5, np.float32)])


def test_narrow_floats_are_computed_wide_and_rounded_once() -> None:
    x = np.array([1.0, 2.0**-8], ml_dtypes.bfloat16)
    graph = monograph.trace(lambda x: F.sum(x), "bf16[2]")
    (result,) = interpret(graph, [x])
    assert result.dtype == ml_dtypes.bfloat16
    assert float(result) == float(np.float32(1.0 + 2.0**-8).astype(ml_dtypes.bfloat16))


def test_a_failure_inside_an_op_names_the_node_and_the_line() -> None:
    graph = monograph.trace(lambda x, i: F.take(x, i, axis=0), "f32[4]", "i64[1]")
    with pytest.raises(EvaluationError) as caught:
        interpret(graph, [np.zeros(4, np.float32), np.array([9])])
    assert "%take = take(%x, %i)" in str(caught.value)
    assert "test_interpret.py" in str(caught.value)


def test_a_symbolic_result_is_held_against_its_type() -> None:
    graph = monograph.trace(lambda x, y: x + y, "f32[a]", "f32[b]")
    with pytest.raises((InputError, EvaluationError)):
        interpret(graph, [np.ones(3, np.float32), np.ones(4, np.float32)])


def test_running_out_of_memory_is_an_error_that_names_the_node() -> None:
    graph = monograph.trace(lambda: F.iota((1 << 56,)))
    with pytest.raises(EvaluationError, match="iota failed"):
        interpret(graph)


def test_a_mask_is_not_dropped() -> None:
    mask = np.zeros((3, 2), bool)
    assert interpret(doubled(), [np.ma.array(X, mask=mask), Y])[0].shape == (3, 2)
    mask[1, 0] = True
    assert "is masked" in message(np.ma.array(X, mask=mask), Y)
    compiled = monograph.compile(lambda x: x + 1, "f32[3, 2]")
    with pytest.raises(InputError, match="is masked"):
        compiled(np.ma.array(X, mask=mask))
