"""Special functions beside SciPy's, over their whole range, and what happens at their edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special
import torch

from monograph.ops import bessel, gamma, polynomials, special_functions
from tests.ops.against_torch import agree, draw
from tests.ops.running import assert_same, gradients, refuses, run

INF, NAN = np.inf, np.nan
GENERATOR = np.random.default_rng(0)
EVERYWHERE = np.concatenate(
    [GENERATOR.uniform(-30, 30, 500), 10.0 ** GENERATOR.uniform(-20, 5, 500)]
)
POSITIVE = np.abs(EVERYWHERE)


def close(got: np.ndarray, expected: np.ndarray, relative: float, absolute: float) -> None:
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))
    finite = np.isfinite(expected)
    np.testing.assert_allclose(got[finite], expected[finite], rtol=relative, atol=absolute)


@pytest.mark.parametrize(
    ("ours", "theirs", "x"),
    [
        (gamma.lgamma, scipy.special.gammaln, EVERYWHERE),
        (gamma.digamma, scipy.special.psi, EVERYWHERE),
        (bessel.bessel_i0, scipy.special.i0, EVERYWHERE[np.abs(EVERYWHERE) < 700]),
        (bessel.bessel_i0e, scipy.special.i0e, EVERYWHERE),
        (bessel.bessel_i1, scipy.special.i1, EVERYWHERE[np.abs(EVERYWHERE) < 700]),
        (bessel.bessel_i1e, scipy.special.i1e, EVERYWHERE),
        (bessel.bessel_j0, scipy.special.j0, EVERYWHERE),
        (bessel.bessel_j1, scipy.special.j1, EVERYWHERE),
        (bessel.bessel_y0, scipy.special.y0, EVERYWHERE),
        (bessel.bessel_y1, scipy.special.y1, EVERYWHERE),
        (bessel.bessel_k0, scipy.special.k0, POSITIVE),
        (bessel.bessel_k0e, scipy.special.k0e, POSITIVE),
        (bessel.bessel_k1, scipy.special.k1, POSITIVE),
        (bessel.bessel_k1e, scipy.special.k1e, POSITIVE),
        (bessel.airy_ai, lambda x: scipy.special.airy(x)[0], GENERATOR.uniform(-40, 20, 500)),
        (special_functions.erfcx, scipy.special.erfcx, EVERYWHERE),
        (special_functions.ndtr, scipy.special.ndtr, EVERYWHERE),
        (special_functions.log_ndtr, scipy.special.log_ndtr, EVERYWHERE),
        (special_functions.ndtri, scipy.special.ndtri, GENERATOR.uniform(0, 1, 500)),
        (special_functions.ndtri, scipy.special.ndtri, 10.0 ** GENERATOR.uniform(-300, -1, 200)),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_as_scipy(ours: Any, theirs: Callable[..., Any], x: np.ndarray) -> None:
    close(run(ours, x), theirs(x), 1e-10, 1e-12)
    single = x.astype(np.float32)
    wanted = theirs(single.astype(np.float64))
    with np.errstate(over="ignore"):
        rounded = wanted.astype(np.float32)
    close(run(ours, single), rounded, 1e-6, 1e-12)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 8])
def test_polygamma_as_scipy(order: int) -> None:
    x = POSITIVE[POSITIVE > 1e-10]
    expected = scipy.special.polygamma(order, x)
    close(run(lambda x: gamma.polygamma(order, x), x), expected, 1e-10, 1e-12)


def test_polygamma_reflects() -> None:
    x = GENERATOR.uniform(-9, 0, 50)
    for order in (1, 2, 5):
        expected = torch.special.polygamma(order, torch.tensor(x)).numpy()
        np.testing.assert_allclose(run(lambda x, o=order: gamma.polygamma(o, x), x), expected)


def test_zeta_as_scipy() -> None:
    x, q = 1 + 10.0 ** GENERATOR.uniform(-3, 2, 300), 10.0 ** GENERATOR.uniform(-3, 4, 300)
    np.testing.assert_allclose(run(gamma.zeta, x, q), scipy.special.zeta(x, q), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0, 1e3, 1e6])
def test_incomplete_gamma_as_scipy(scale: float) -> None:
    a = GENERATOR.uniform(0.1, 2, 300) * scale
    x = np.maximum(a + np.sqrt(a) * GENERATOR.uniform(-4, 4, 300), 1e-6)
    close(run(gamma.igamma, a, x), scipy.special.gammainc(a, x), 1e-9, 1e-12)
    close(run(gamma.igammac, a, x), scipy.special.gammaincc(a, x), 1e-9, 1e-12)


@pytest.mark.parametrize("dimensions", [1, 3, 5])
def test_multigamma_as_torch(dimensions: int) -> None:
    agree(
        lambda x: gamma.multigamma(x, dimensions),
        lambda x: torch.special.multigammaln(x, dimensions),
        np.abs(draw(4)) + dimensions,
    )


FAMILIES = {
    "chebyshev_t": scipy.special.eval_chebyt,
    "chebyshev_u": scipy.special.eval_chebyu,
    "hermite_h": scipy.special.eval_hermite,
    "hermite_he": scipy.special.eval_hermitenorm,
    "laguerre_l": scipy.special.eval_laguerre,
    "legendre_p": scipy.special.eval_legendre,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_polynomials_as_scipy(family: str) -> None:
    x, n = GENERATOR.uniform(-2, 2, 400), GENERATOR.integers(0, 40, 400)
    got = run(lambda x, n: polynomials.polynomial(family, x, n), x, n.astype(np.float64))
    np.testing.assert_allclose(got, FAMILIES[family](n, x), rtol=1e-8, atol=1e-9)


def test_polynomials_of_nan() -> None:
    def ours(x: Any) -> Any:
        return polynomials.polynomial("legendre_p", x, np.array([-1.0, 0.0, 3.0]))

    assert_same(run(ours, np.full(3, NAN)), [0.0, 1.0, NAN])


def test_limits() -> None:
    ends = np.array([INF, -INF, NAN])
    for function, expected in [
        (gamma.lgamma, [INF, INF, NAN]),
        (gamma.digamma, [INF, NAN, NAN]),
        (bessel.bessel_i0, [INF, INF, NAN]),
        (bessel.bessel_i1, [INF, -INF, NAN]),
        (bessel.bessel_i0e, [0, 0, NAN]),
        (bessel.bessel_i1e, [0, 0, NAN]),
        (bessel.bessel_j0, [0, 0, NAN]),
        (bessel.bessel_y0, [0, NAN, NAN]),
        (bessel.bessel_y1, [0, NAN, NAN]),
        (bessel.bessel_k0, [0, NAN, NAN]),
        (bessel.bessel_k1e, [0, NAN, NAN]),
        (bessel.spherical_bessel_j0, [0, 0, NAN]),
        (bessel.airy_ai, [0, 0, NAN]),
        (special_functions.erfcx, [0, INF, NAN]),
        (special_functions.ndtr, [1, 0, NAN]),
        (special_functions.log_ndtr, [0, -INF, NAN]),
        (special_functions.ndtri, [NAN, NAN, NAN]),
        (special_functions.entropy_term, [-INF, -INF, NAN]),
    ]:
        np.testing.assert_array_equal(run(function, ends), expected, err_msg=function.__name__)


def test_at_zero() -> None:
    zero = np.array([0.0, -0.0])
    assert_same(run(gamma.digamma, zero), [-INF, INF])
    assert_same(run(gamma.lgamma, zero), [INF, INF])
    assert_same(run(bessel.bessel_y0, zero), [-INF, -INF])
    assert_same(run(bessel.bessel_k1, zero), [INF, INF])
    assert_same(run(special_functions.sinc, zero), [1, 1])
    assert_same(run(special_functions.ndtri, np.array([0.0, 1.0, 0.5])), [-INF, INF, 0.0])
    assert_same(run(gamma.lgamma, np.array([1.0, 2.0, -1.0])), [0, 0, INF])


def test_products_with_a_logarithm() -> None:
    x = np.array([0.0, 0.0, 0.0, 0.0, 2.0, 2.0, NAN])
    y = np.array([0.0, -3.0, INF, NAN, 0.0, 5.0, 1.0])
    for ours, theirs in [
        (special_functions.xlogy, torch.special.xlogy),
        (special_functions.xlog1py, torch.special.xlog1py),
    ]:
        expected = theirs(torch.tensor(x), torch.tensor(y)).numpy()
        np.testing.assert_array_equal(np.isnan(run(ours, x, y)), np.isnan(expected))
        np.testing.assert_allclose(run(ours, x, y), expected)
        agree(ours, theirs, draw(3, 4), np.abs(draw(4, seed=1)) + 0.1)


def test_gradients_at_limits() -> None:
    zero = np.array([0.0])
    (got,) = gradients(bessel.bessel_i1, zero)
    assert got == 0.5
    for function in (special_functions.sinc, bessel.spherical_bessel_j0, bessel.bessel_i0):
        (got,) = gradients(function, zero)
        assert got == 0.0
    (got,) = gradients(lambda x: special_functions.xlogy(x, np.array([0.0])), zero)
    assert got == 0.0


@pytest.mark.parametrize("name", ["k0e", "k1e"])
def test_scaled_bessel_functions_decay_to_the_end_of_the_range(name: str) -> None:
    x = np.array([2.5, 300.0, 1e8, 1e17, 3e38, 1e200, 1e308])
    np.testing.assert_allclose(
        run(getattr(bessel, f"bessel_{name}"), x), getattr(scipy.special, name)(x), rtol=2e-15
    )


def test_the_tail_of_the_normal_distribution_is_relatively_accurate() -> None:
    x = np.linspace(-37.5, -1.0, 400)
    with mpmath.workdps(40):
        exact = [float(mpmath.ncdf(mpmath.mpf(number))) for number in x]
    np.testing.assert_allclose(run(special_functions.ndtr, x), exact, rtol=2e-15)


def test_small_functions_as_torch() -> None:
    x = np.abs(draw(3, 4)) + 0.1
    agree(special_functions.entropy_term, torch.special.entr, x)
    agree(special_functions.sinc, torch.special.sinc, x)
    np.testing.assert_array_equal(
        run(special_functions.entropy_term, np.array([0.0, -1.0])), [0.0, -INF]
    )
    held = np.array([0.02, 0.3, 0.99, 0.5])
    agree(lambda x: special_functions.logit(x, 0.05), lambda x: torch.special.logit(x, 0.05), held)


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.float16])
def test_integers_become_f32_and_narrow_floats_stay(dtype: Any) -> None:
    x = np.array([1, 0, 1]).astype(dtype)
    got = run(special_functions.ndtr, x)
    assert got.dtype == (np.float16 if dtype is np.float16 else np.float32)
    np.testing.assert_allclose(got, scipy.special.ndtr(x.astype(np.float64)), rtol=1e-3)


def test_type_rules() -> None:
    refuses("no meaning here", gamma.Lgamma(), "i32[3]")
    refuses("no meaning here", bessel.BesselJ0(), "c64[3]")
    refuses("a negative order", lambda x: gamma.polygamma(-1, x), "f32[3]")
    refuses("no such family", polynomials.Polynomial("gegenbauer"), "f32[3]", "f32[3]")
    refuses("do not broadcast", gamma.igamma, "f32[3]", "f32[4]")
    refuses("no dimensions", lambda x: gamma.multigamma(x, 0), "f32[3]")
