"""Functions of complex numbers that are written with others are as exact as torch's."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

import monograph

NUMBERS = torch.tensor(
    [1e-5 + 2e-5j, 0.5 - 0.25j, -1.5 + 3j, 2 + 0j, 3j, -2 - 1j, 1e-3 - 30j, 8 + 0.1j],
    dtype=torch.complex64,
)


INVERSES = ("acos", "acosh", "asin", "asinh", "atan", "atanh")
OTHERS = ("cosh", "exp2", "expm1", "log10", "log1p", "log2", "rsqrt", "sigmoid", "sinh", "tan")


@pytest.mark.parametrize("name", [*INVERSES, *OTHERS])
def test_functions_of_complex_numbers_are_as_exact_as_torch_s(name: str) -> None:
    function = getattr(torch, name)
    got = monograph.compile(lambda z: function(z), NUMBERS, level="O0", threads=1)(NUMBERS)
    expected, eager = function(NUMBERS.to(torch.complex128)), function(NUMBERS)
    slack = 8 * torch.finfo(torch.float32).eps * expected.abs()
    assert bool(((got - expected).abs() <= 2 * (eager - expected).abs() + slack).all())


def test_the_hyperbolic_sine_of_an_infinite_real_number_is_real() -> None:
    infinite = torch.tensor([complex("inf"), complex("-inf")], dtype=torch.complex64)
    for function in (torch.sinh, torch.cosh):
        got = monograph.compile(lambda z, f=function: f(z), infinite, level="O0", threads=1)
        torch.testing.assert_close(got(infinite), function(infinite))


def test_the_power_of_minus_one_is_the_reciprocal() -> None:
    z = torch.tensor([0, 0.5 - 0.25j, 1e-20j], dtype=torch.complex64)
    got = monograph.compile(lambda z: z**-1, z, level="O0", threads=1)(z)
    torch.testing.assert_close(got, z**-1, equal_nan=True)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_inverse_functions_keep_to_their_side_of_a_cut_and_do_not_overflow(dtype: type) -> None:
    sizes = [0.0, 1e-30, 1e-8, 0.3, 1.0, 1.0000001, 2.0, 1e10, 1e200, np.inf]
    axis = [sign * size for size in sizes for sign in (1.0, -1.0)]
    with np.errstate(over="ignore"):
        z = np.array([complex(a, b) for a, b in product(axis, axis)]).astype(dtype)
    tensor = torch.from_numpy(z)
    functions = [getattr(torch, name) for name in INVERSES]
    compiled = monograph.compile(lambda z: [f(z) for f in functions], tensor, level="O0", threads=1)
    for name, got in zip(INVERSES, compiled(tensor), strict=True):
        with np.errstate(divide="ignore"):
            expected = getattr(np, f"arc{name[1:]}")(z.astype(np.complex128))
        found = got.numpy()
        for mine, its in ((found.real, expected.real), (found.imag, expected.imag)):
            np.testing.assert_allclose(
                mine, its, rtol=4 * np.finfo(dtype).eps, atol=1e-38, err_msg=name
            )
            np.testing.assert_array_equal(np.signbit(mine), np.signbit(its), err_msg=name)


def test_the_logarithm_of_nearly_one_loses_nothing() -> None:
    z = torch.tensor([1e-30 + 1e-25j, -1e-9 + 1e-20j, 0.4 - 1e-12j], dtype=torch.complex128)
    got = monograph.compile(torch.log1p, z, level="O0", threads=1)(z)
    real = [1e-30, -1e-9 - 5e-19, 0.33647223662121293]
    np.testing.assert_allclose(got.real, real, rtol=1e-15)
    np.testing.assert_allclose(got.imag, [1e-25, 1e-20 / (1 - 1e-9), -1e-12 / 1.4], rtol=1e-15)
