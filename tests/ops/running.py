"""Short ways to run a function on values, to ask for its types, to differentiate it, and to compare
to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monograph.autodiff.vjp import grad
from monograph.errors import TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ir.op import Op
from monograph.ir.types import TensorType
from monograph.ops import elementwise, reduce


def run(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    """The one result of a function (or op) on arrays."""
    (result,) = interpret(trace(function, *arrays, name="test"), list(arrays))
    return result


def shape_of(function: Callable[..., Any], *types: str) -> list[str]:
    """The inferred shape, as text, of a function of operands of these types."""
    (value,) = trace(function, *types).outputs
    assert isinstance(value.type, TensorType)
    return [str(dim) for dim in value.type.shape]


def refuses(message: str, function: Callable[..., Any], *types: str) -> None:
    """The type rule refuses, and says what was expected and what was found."""
    with pytest.raises(TypeRuleError, match=message) as caught:
        trace(function, *types)
    assert caught.value.expected is not None
    assert caught.value.found is not None


def run_decomposed(op: Op, *arrays: Any) -> np.ndarray:
    """The result of an op's decomposition."""
    return run(op.decompose, *arrays)


def gradients(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    """The gradients of the sum of a real function's results."""

    def total(*values: Any) -> Any:
        return reduce.sum(function(*values))

    return interpret(grad(trace(total, *arrays, name="test")), list(arrays))


def complex_gradients(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    """The gradients of the sum of real part plus twice the imaginary part of the results."""

    def total(*values: Any) -> Any:
        result = function(*values)
        real, imag = elementwise.real(result), elementwise.imag(result)
        return reduce.sum(real + imag * 2.0)

    return interpret(grad(trace(total, *arrays, name="test")), list(arrays))


def assert_same(got: np.ndarray, expected: Any) -> None:
    """Equal to the bit, but for the payload of NaNs: 0.0 is not -0.0."""
    expected = np.asarray(expected, got.dtype)
    assert got.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_array_equal(got, expected)
    numbers = ~np.isnan(got)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(expected[numbers]))


def worst_ulp(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest error in units in the last place of ``got``'s dtype; ``expected`` is wider."""
    assert got.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    kind = got.dtype.type
    with np.errstate(all="ignore"):
        rounded = expected.astype(kind)
        infinite = np.isinf(got) | np.isinf(rounded) | np.isnan(got)
        np.testing.assert_array_equal(got[infinite], rounded[infinite])
        unit = np.spacing(np.abs(rounded[~infinite])).astype(np.longdouble)
        error = np.abs(got[~infinite].astype(np.longdouble) - expected[~infinite]) / unit
    return float(error.max(initial=0.0))
