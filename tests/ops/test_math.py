"""Exponentials, logarithms, roots, trigonometry and erf: accuracy, domains, exact values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch

from monograph.errors import TypeRuleError
from monograph.frontends.trace import trace
from monograph.ir.op import make, registry
from monograph.ir.types import dtype_of
from monograph.ops import erf_reference
from monograph.ops import math as M
from monograph.ops import trigonometry as T
from tests.ops.running import assert_same, complex_gradients, run, run_decomposed, worst_ulp

INF, NAN = math.inf, math.nan

# Wider than float64 where the machine has it: what accuracy is measured against.
LONG = np.longdouble

REFERENCE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def arguments(name: str, dtype: Any) -> np.ndarray:
    """Numbers of every size on which the function is finite or overflows, both signs."""
    generator = np.random.default_rng(4)
    small = 10.0 ** generator.uniform(-30, 0, 300)
    middle = generator.uniform(0, 10, 300)
    large = 10.0 ** generator.uniform(1, 30, 100) if name not in ("sin", "cos", "tan") else middle
    if name in ("exp", "exp2", "expm1", "sinh", "cosh", "sigmoid"):
        large = generator.uniform(0, 80 if dtype is np.float32 else 700, 300)
    if name in ("asin", "acos", "atanh"):
        middle, large = generator.uniform(0, 1, 300), 1 - 10.0 ** generator.uniform(-7, -1, 50)
    if name == "acosh":
        small, middle = 1 + small, 1 + middle
    both = np.concatenate([small, middle, large])
    signed = name not in ("log", "log2", "log10", "sqrt", "rsqrt", "acosh")
    if name == "log1p":
        both = np.concatenate([both, -small, -generator.uniform(0, 1, 200)])
        signed = False
    return np.concatenate([both, -both] if signed else [both]).astype(dtype)


@pytest.mark.parametrize("name", REFERENCE)
def test_f32_is_correctly_rounded(name: str) -> None:
    x = arguments(name, np.float32)
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](x.astype(np.float64))
    assert worst_ulp(run(make(name), x), expected) <= 0.5001


@pytest.mark.parametrize("name", REFERENCE)
def test_f64_is_within_two_ulp(name: str) -> None:
    x = arguments(name, np.float64)
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](x.astype(LONG))
    assert worst_ulp(run(make(name), x), expected) <= 2.0


# The tangent loses most, where the cosine is near 0; every step of the others rounds once.
DECOMPOSED_ULP = {"log10": 3, "tan": 3, "asin": 3, "acos": 3, "sinh": 4, "cosh": 4, "asinh": 4}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", [n for n in REFERENCE if registry()[n].is_composite()])
def test_decompositions_lose_little(name: str, dtype: Any) -> None:
    x = arguments(name, dtype)
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](x.astype(LONG))
    assert worst_ulp(run_decomposed(make(name), x), expected) <= DECOMPOSED_ULP.get(name, 4)


@pytest.mark.parametrize("name", [n for n in REFERENCE if registry()[n].is_composite()])
def test_decompositions_agree_at_the_edges(name: str) -> None:
    x = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 89.2, -89.2, 3e38, -3e38, 1e-45])
    x = x.astype(np.float32)
    whole, parts = run(make(name), x), run_decomposed(make(name), x)
    np.testing.assert_array_equal(np.isnan(whole), np.isnan(parts))
    if name not in ("tan", "sinh", "cosh", "asinh", "acosh"):  # zeros keep their signs in all
        assert_same(parts[3:5], whole[3:5])
    np.testing.assert_allclose(parts, whole, rtol=1e-6)


def libm(function: Callable[[float], float], x: np.ndarray) -> np.ndarray:
    return np.array([function(float(value)) for value in x])


def test_erf_agrees_with_libm_everywhere() -> None:
    x = np.concatenate([np.linspace(-6.5, 6.5, 20001), 10.0 ** np.linspace(-300, 0, 600)])
    assert worst_ulp(erf_reference.erf(x), libm(math.erf, x).astype(LONG)) <= 3.0
    assert worst_ulp(erf_reference.erf(x), scipy.special.erf(x).astype(LONG)) <= 4.0


def test_erfc_keeps_relative_accuracy_in_the_tail() -> None:
    x = np.concatenate([np.linspace(-6.0, 26.5, 30001), -(10.0 ** np.linspace(-300, 0, 600))])
    assert worst_ulp(erf_reference.erfc(x), libm(math.erfc, x).astype(LONG)) <= 5.0
    # scipy rounds x² before it takes the exponential, and is 100 times less accurate out there.
    np.testing.assert_allclose(erf_reference.erfc(x), scipy.special.erfc(x), rtol=1e-13)


def test_erfc_underflows_gradually() -> None:
    x = np.array([26.6, 26.9, 27.2, 28.0, 1e300, INF])
    np.testing.assert_allclose(erf_reference.erfc(x), libm(math.erfc, x), rtol=1e-13, atol=1e-323)


def test_erf_coefficients_have_not_been_mistyped() -> None:
    """The series reproduces exp(x²) erfc(x) (1 + 2x), which scipy knows as erfcx."""
    x = np.linspace(0, 30, 2001)
    t = (x - 4) / (x + 4)
    smooth = np.polynomial.chebyshev.chebval(t, erf_reference._TAIL)
    np.testing.assert_allclose(smooth, scipy.special.erfcx(x) * (1 + 2 * x), rtol=2e-15)


def test_erf_and_erfc_at_the_edges() -> None:
    x = np.array([NAN, INF, -INF, 0.0, -0.0, 5e-324])
    assert_same(run(M.erf, x), [NAN, 1.0, -1.0, 0.0, -0.0, 5e-324])
    assert_same(run(M.erfc, x), [NAN, 0.0, 2.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_functions_in_each_width(dtype: Any) -> None:
    x = np.linspace(-9, 9, 2001).astype(dtype)
    for name in ("erf", "erfc"):
        exact = libm(getattr(math, name), x).astype(LONG)
        assert worst_ulp(run(make(name), x), exact) <= (0.5001 if dtype is np.float32 else 5)


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("exp", [0.0, -INF, INF, 1000.0, -1000.0], [1.0, 0.0, INF, INF, 0.0]),
        ("exp2", [3.0, -1.0, 1024.0, -INF], [8.0, 0.5, INF, 0.0]),
        ("expm1", [-0.0, 0.0, -INF], [-0.0, 0.0, -1.0]),
        ("log", [1.0, 0.0, -0.0, -1.0, INF], [0.0, -INF, -INF, NAN, INF]),
        ("log2", [8.0, 0.5, 0.0], [3.0, -1.0, -INF]),
        ("log10", [1000.0, 0.0, -1.0], [3.0, -INF, NAN]),
        ("log1p", [-0.0, -1.0, -2.0, INF], [-0.0, -INF, NAN, INF]),
        ("sqrt", [4.0, -0.0, -1.0, INF], [2.0, -0.0, NAN, INF]),
        ("rsqrt", [4.0, 0.0, -0.0, -1.0, INF], [0.5, INF, -INF, NAN, 0.0]),
        ("reciprocal", [0.0, -0.0, INF, -INF, 4.0], [INF, -INF, 0.0, -0.0, 0.25]),
        ("square", [-0.0, -INF, -3.0], [0.0, INF, 9.0]),
        ("sin", [0.0, -0.0, INF], [0.0, -0.0, NAN]),
        ("cos", [0.0, INF], [1.0, NAN]),
        ("asin", [-0.0, 1.5], [-0.0, NAN]),
        ("acos", [1.0, -1.5], [0.0, NAN]),
        ("atan", [-0.0, INF], [-0.0, math.pi / 2]),
        ("tanh", [-0.0, INF, -INF, 1e3], [-0.0, 1.0, -1.0, 1.0]),
        ("sinh", [-0.0, INF, -INF], [-0.0, INF, -INF]),
        ("cosh", [0.0, -INF], [1.0, INF]),
        ("asinh", [-0.0, INF, -INF], [-0.0, INF, -INF]),
        ("acosh", [1.0, 0.5, INF, -INF], [0.0, NAN, INF, NAN]),
        ("atanh", [-0.0, 1.0, -1.0, 2.0], [-0.0, INF, -INF, NAN]),
        ("sigmoid", [0.0, INF, -INF, 1000.0, -1000.0], [0.5, 1.0, 0.0, 1.0, 0.0]),
    ],
)
def test_exact_values(name: str, x: list[float], expected: list[float]) -> None:
    assert_same(run(make(name), np.array(x)), expected)
    assert np.isnan(run(make(name), np.array([NAN]))).all()


def test_sigmoid_reaches_the_subnormal_numbers() -> None:
    x = np.array([-100.0], np.float32)
    assert run(M.sigmoid, x)[0] == np.float32(math.exp(-100))
    np.testing.assert_allclose(run_decomposed(M.Sigmoid(), x), [math.exp(-100)], rtol=0.05)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", [*REFERENCE, "erf", "erfc"])
def test_narrow_floats_are_computed_wide_and_rounded_once(name: str, dtype: str) -> None:
    kind = dtype_of(dtype).numpy
    low, high = registry()[name].domain  # type: ignore[attr-defined]
    x = np.random.default_rng(0).uniform(low, high, 100).astype(kind)
    got = run(make(name), x)
    assert got.dtype == kind
    exact = run(make(name), x.astype(np.float64))
    np.testing.assert_array_equal(got, exact.astype(np.float32).astype(kind))


COMPLEX = ["exp", "log", "sqrt", "sin", "cos", "tanh", "square", "reciprocal"]


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_values_and_gradients_agree_with_torch(name: str) -> None:
    generator = np.random.default_rng(3)
    z = generator.normal(size=8) + 1j * generator.normal(size=8)
    leaf = torch.tensor(z, requires_grad=True)
    result = getattr(torch, name)(leaf)
    (result.real + 2 * result.imag).sum().backward()
    np.testing.assert_allclose(run(make(name), z), result.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(complex_gradients(make(name), z)[0], leaf.grad.numpy(), rtol=1e-10)
    narrow = run(make(name), z.astype(np.complex64))
    assert narrow.dtype == np.complex64
    np.testing.assert_allclose(narrow, result.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in [*REFERENCE, "erf", "erfc"] if n not in COMPLEX])
def test_functions_of_reals_refuse_complex_numbers(name: str) -> None:
    with pytest.raises(TypeRuleError, match="no meaning"):
        trace(make(name), "c64[2]", name="test")


@pytest.mark.parametrize("name", [n for n in [*REFERENCE, "erf", "erfc"] if n != "square"])
def test_ops_refuse_integers_and_functions_take_them_as_f32(name: str) -> None:
    with pytest.raises(TypeRuleError, match="no meaning"):
        trace(make(name), "i32[2]", name="test")
    module = T if hasattr(T, name) else M
    assert run(getattr(module, name), np.array([1, 1], np.int32)).dtype == np.float32


def test_square_of_integers_wraps() -> None:
    assert run(M.square, np.array([3, -128, 100], np.int8)).tolist() == [9, 0, 16]
