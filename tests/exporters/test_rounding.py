"""The bound that random graphs are held to lets roundings pass, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

import monograph.functional as F
from monograph.frontends.trace import trace
from monograph.ir.interpret import evaluate_node
from tests.exporters.rounding import is_close, scatter


def accepts(function: Any, types: list[str], operands: list[np.ndarray], error: Any) -> bool:
    """Whether a result that is wrong by so much passes for that of the last node of a function."""
    (*_, node) = trace(function, *types).nodes
    (result,) = results = evaluate_node(node, operands, {})
    wrong = np.asarray(result + np.asarray(error, result.dtype))
    return is_close(wrong, result, scatter(node, operands, results, {})[0])


def test_a_product_that_cancels_is_held_to_what_cancelled() -> None:
    """3000 * 3000 - 3000 * 3000: a rounding of 9e6 is about 1."""
    operands = [np.array([[3e3, 3e3]], np.float32), np.array([[3e3], [-3e3]], np.float32)]
    types = ["f32[1, 2]", "f32[2, 1]"]
    assert accepts(F.matmul, types, operands, 0.5)
    assert not accepts(F.matmul, types, operands, 100.0)


def test_each_element_is_held_to_its_own_bound() -> None:
    """A row of large numbers does not excuse an error in a row of small ones."""
    operands = [np.array([[1e6, 1e6], [1.0, 1.0]], np.float32), np.ones((2, 1), np.float32)]
    types = ["f32[2, 2]", "f32[2, 1]"]
    assert accepts(F.matmul, types, operands, [[0.2], [0.0]])
    assert not accepts(F.matmul, types, operands, [[0.0], [1e-4]])


def test_a_steep_function_is_held_to_its_slope() -> None:
    operands = [np.array([80.0], np.float32)]  # exp moves by 80 roundings with one of its operand
    result = float(np.exp(np.float32(80.0)))
    assert accepts(F.exp, ["f32[1]"], operands, 1e-5 * result)
    assert not accepts(F.exp, ["f32[1]"], operands, 1e-3 * result)


def test_the_steps_of_a_composite_round_too() -> None:
    """A layer norm subtracts a mean of 1000 from numbers that differ by 1."""
    operands = [np.array([[1000.0, 1001.0]], np.float32)]
    assert accepts(lambda x: F.layer_norm(x), ["f32[1, 2]"], operands, 1e-4)
    assert not accepts(lambda x: F.layer_norm(x), ["f32[1, 2]"], operands, 1e-1)
    operands[0] -= 1000
    assert not accepts(lambda x: F.layer_norm(x), ["f32[1, 2]"], operands, 1e-4)


def test_a_polynomial_of_onnx_runtime_is_held_to_the_size_of_its_values() -> None:
    operands = [np.array([-12.0], np.float32)]  # sigmoid is 6e-6
    assert accepts(F.sigmoid, ["f32[1]"], operands, 1e-8)
    assert not accepts(F.sigmoid, ["f32[1]"], operands, 1e-6)
    operands = [operands[0].astype(np.float64)]
    assert not accepts(F.sigmoid, ["f64[1]"], operands, 1e-12)


def test_a_step_is_not_excused_by_where_it_lies() -> None:
    """2 lies on an edge of floor, but is not rounded on the way there."""
    operands = [np.array([2.0], np.float32)]
    assert not accepts(F.floor, ["f32[1]"], operands, -1.0)


def test_whole_numbers_and_special_ones_are_exact() -> None:
    assert not is_close(np.array([3]), np.array([4]))
    nan, one = np.array([np.nan], np.float32), np.array([1], np.float32)
    assert is_close(nan, nan)
    assert not is_close(nan, one)
    assert not is_close(one, nan)
    infinite = np.array([np.inf], np.float32)
    assert not is_close(infinite, one)
    assert not is_close(infinite, -infinite)
    assert not is_close(one, np.array([1, 1], np.float32))
