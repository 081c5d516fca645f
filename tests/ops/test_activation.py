"""Activations at infinities, in their tails and at their kinks."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import scipy.special

from monograph.errors import TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.op import make, registry
from monograph.ir.types import dtype_of
from monograph.ops import activation as A
from monograph.ops import rectifier as R
from tests.ops.running import assert_same, gradients, run, run_decomposed, worst_ulp

INF, NAN = math.inf, math.nan
LONG = np.longdouble
SMOOTH = ["elu", "selu", "celu", "silu", "gelu", "softplus", "softsign", "mish", "log_sigmoid"]
STRAIGHT = ["relu", "relu6", "leaky_relu", "hardswish", "hardsigmoid", "hardtanh"]
EVERY = [*SMOOTH, *STRAIGHT]

# The value at -inf, -0.0, inf, and the slope at both infinities.
LIMITS: dict[str, tuple[float, float, float, float, float]] = {
    "elu": (-1.0, -0.0, INF, 0.0, 1.0),
    "selu": (-A.SELU_SCALE * A.SELU_ALPHA, -0.0, INF, 0.0, A.SELU_SCALE),
    "celu": (-1.0, -0.0, INF, 0.0, 1.0),
    "silu": (-0.0, -0.0, INF, 0.0, 1.0),
    "gelu": (-0.0, -0.0, INF, 0.0, 1.0),
    "softplus": (0.0, math.log(2), INF, 0.0, 1.0),
    "softsign": (-1.0, -0.0, 1.0, 0.0, 0.0),
    "mish": (-0.0, -0.0, INF, 0.0, 1.0),
    "log_sigmoid": (-INF, -math.log(2), 0.0, 1.0, 0.0),
    "relu": (0.0, 0.0, INF, 0.0, 1.0),
    "relu6": (0.0, 0.0, 6.0, 0.0, 0.0),
    "leaky_relu": (-INF, -0.0, INF, 0.01, 1.0),
    "hardswish": (-0.0, -0.0, INF, 0.0, 1.0),
    "hardsigmoid": (0.0, 0.5, 1.0, 0.0, 0.0),
    "hardtanh": (-1.0, -0.0, 1.0, 0.0, 0.0),
}


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("name", EVERY)
def test_limits(name: str, dtype: str) -> None:
    below, at_zero, above, *_ = LIMITS[name]
    x = np.array([-INF, -0.0, INF, NAN]).astype(dtype_of(dtype).numpy)
    expected = np.array([below, at_zero, above, NAN]).astype(x.dtype)
    for got in (run(make(name), x), run_decomposed(make(name), x)):
        np.testing.assert_array_equal(np.signbit(got[:3]), np.signbit(expected[:3]))
        np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(x.dtype).eps)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
@pytest.mark.parametrize("name", EVERY)
def test_slopes_at_the_infinities_are_numbers(name: str, dtype: str) -> None:
    *_, left, right = LIMITS[name]
    largest = np.finfo(dtype_of(dtype).numpy).max
    x = np.array([-INF, INF, -largest, largest]).astype(dtype_of(dtype).numpy)
    (got,) = gradients(make(name), x)
    np.testing.assert_allclose(got, [left, right, left, right], rtol=1e-3)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_has_its_limits_in_both_forms(approximate: str) -> None:
    x = np.array([-INF, -1e30, INF, NAN], np.float32)
    op = A.Gelu(approximate)
    for got in (run(op, x), run_decomposed(op, x)):
        assert_same(got, [-0.0, -0.0, INF, NAN])
    (slope,) = gradients(op, x[:3])
    assert slope.tolist() == [0.0, 0.0, 1.0]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="no float is wider than f64 here")
def test_gelu_in_f64_is_accurate_in_its_tail() -> None:
    x = np.concatenate([np.linspace(-36.0, -1.0, 300), np.linspace(-1.0, 9.0, 100)])
    near = x[x > -20.0]
    with mpmath.workdps(40):
        wide = [mpmath.mpf(number) for number in x]
        exact = [float(each * mpmath.ncdf(each)) for each in wide]
        root, cubic = mpmath.sqrt(8 / mpmath.pi), mpmath.mpf(A.GELU_CUBIC)
        wide = [mpmath.mpf(number) for number in near]
        by_tanh = [
            float(each / (1 + mpmath.exp(-root * (each + cubic * each**3)))) for each in wide
        ]
    np.testing.assert_allclose(run(A.gelu, x), exact, rtol=2e-15)
    np.testing.assert_allclose(run(A.Gelu("tanh"), near), by_tanh, rtol=2e-15)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * scipy.special.ndtr(x)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    doubled = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * scipy.special.expit(doubled)


SMOOTH_MEANING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "silu": lambda x: x * scipy.special.expit(x),
    "gelu": gelu,
    "softplus": lambda x: np.where(x > 20, x, np.logaddexp(0, x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
}


@pytest.mark.parametrize("name", SMOOTH_MEANING)
def test_f32_keeps_relative_accuracy_in_the_tails(name: str) -> None:
    """From -80 (or -12, where gelu nears underflow) on, to the last place."""
    x = np.linspace(-12 if name == "gelu" else -80, 80, 4001).astype(np.float32)
    with np.errstate(all="ignore"):
        exact = SMOOTH_MEANING[name](x.astype(np.float64))
    assert worst_ulp(run(make(name), x), exact) <= 0.501
    # A decomposition rounds at every step, and gelu magnifies the rounding of x/√2 by x².
    allowed = 200 if name == "gelu" else 6
    assert worst_ulp(run_decomposed(make(name), x), exact) <= allowed


def test_gelu_by_tanh_keeps_relative_accuracy_in_the_negative_tail() -> None:
    x = np.linspace(-8, 8, 4001).astype(np.float32)
    exact = gelu_tanh(x.astype(np.float64))
    assert worst_ulp(run(A.Gelu("tanh"), x), exact) <= 0.501
    np.testing.assert_allclose(run_decomposed(A.Gelu("tanh"), x), exact, rtol=2e-5)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("name", EVERY)
def test_every_float_type_keeps_its_dtype(name: str, dtype: str) -> None:
    kind = dtype_of(dtype).numpy
    x = np.random.default_rng(0).normal(size=50).astype(kind)
    got = run(make(name), x)
    assert got.dtype == kind
    exact = run(make(name), x.astype(np.float64))
    tolerance = {"f64": 1e-15, "f32": 1e-6, "f16": 1e-3, "bf16": 1e-2}[dtype]
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=tolerance, atol=tolerance)


def test_relu_of_zeros_and_nan() -> None:
    x = np.array([-0.0, 0.0, NAN, -1.0, 2.0], np.float32)
    assert_same(run(R.relu, x), [0.0, 0.0, NAN, 0.0, 2.0])
    assert_same(run_decomposed(R.Relu(), x), [0.0, 0.0, NAN, 0.0, 2.0])


def test_relu_of_integers() -> None:
    assert run(R.relu, np.array([-3, 0, 5], np.int8)).tolist() == [0, 0, 5]
    assert run(R.relu, np.array([3, 200], np.uint8)).tolist() == [3, 200]


@pytest.mark.parametrize(
    ("name", "at", "slope"),
    [
        ("relu", 0.0, 0.0),
        ("relu6", 0.0, 0.0),
        ("relu6", 6.0, 0.0),
        ("hardtanh", 1.0, 0.0),
        ("hardtanh", -1.0, 0.0),
        ("leaky_relu", 0.0, 0.01),
        ("hardsigmoid", 3.0, 0.0),
        ("hardswish", -3.0, 0.0),
        ("hardswish", 3.0, 1.0),
        ("elu", 0.0, 1.0),
        ("celu", 0.0, 1.0),
    ],
)
def test_slopes_at_kinks(name: str, at: float, slope: float) -> None:
    assert gradients(make(name), np.array([at]))[0].tolist() == [slope]


def test_softplus_is_linear_above_its_threshold() -> None:
    x = np.array([19.0, 21.0, 1e4])
    got = run(lambda x: A.softplus(x, 1.0, 20.0), x)
    assert got[0] > 19.0
    assert got[1:].tolist() == [21.0, 1e4]
    assert run(lambda x: A.softplus(x, 1.0, INF), x)[1] > 21.0


def test_softplus_takes_a_negative_beta() -> None:
    x = np.array([-2.0, 0.0, 2.0])
    got = run(lambda x: A.softplus(x, -1.0), x)
    np.testing.assert_allclose(got, -np.logaddexp(0, -x), rtol=1e-14)


def test_prelu_broadcasts_its_slope() -> None:
    x = np.array([[-1.0, -2.0], [3.0, -4.0]], np.float32)
    slope = np.array([[0.5], [0.25]], np.float32)
    assert run(R.prelu, x, slope).tolist() == [[-0.5, -1.0], [3.0, -1.0]]
    by_x, by_slope = gradients(R.prelu, x, slope)
    assert by_x.tolist() == [[0.5, 0.5], [1.0, 0.25]]
    assert by_slope.tolist() == [[-3.0], [-4.0]]


@pytest.mark.parametrize("name", [*EVERY, "prelu"])
def test_every_activation_decomposes(name: str) -> None:
    assert registry()[name].is_composite()


@pytest.mark.parametrize("name", [name for name in EVERY if name != "relu"])
def test_functions_take_integers_as_f32(name: str) -> None:
    function = getattr(A if name in SMOOTH else R, name)
    assert run(function, np.array([-1, 0, 2])).dtype == np.float32


@pytest.mark.parametrize(
    ("name", "attributes", "types", "message"),
    [
        *((name, {}, ["c64[2]"], "no meaning") for name in EVERY),
        *((name, {}, ["i32[2]"], "no meaning") for name in EVERY if name != "relu"),
        ("relu", {}, ["bool[2]"], "no meaning"),
        ("gelu", {"approximate": "sigmoid"}, ["f32[2]"], "no such approximation"),
        ("celu", {"alpha": 0.0}, ["f32[2]"], "alpha is a divisor"),
        ("softplus", {"beta": 0.0}, ["f32[2]"], "beta is a divisor"),
        ("hardtanh", {"low": 1.0, "high": -1.0}, ["f32[2]"], "out of order"),
        ("hardtanh", {"low": NAN}, ["f32[2]"], "out of order"),
        ("prelu", {}, ["f32[2]", "f64[2]"], "different dtypes"),
        ("prelu", {}, ["f32[2]", "f32[3]"], "do not broadcast"),
        ("prelu", {}, ["i32[2]", "i32[2]"], "no meaning"),
    ],
)
def test_type_rules_refuse(
    name: str, attributes: dict[str, float], types: list[str], message: str
) -> None:
    with pytest.raises(TypeRuleError, match=message):
        trace(make(name, **attributes), *types, name="test")
