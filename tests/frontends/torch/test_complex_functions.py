"""Functions of complex numbers that are written with others are as exact as torch's."""

from __future__ import annotations

import pytest
import torch

import monograph

NUMBERS = torch.tensor(
    [1e-5 + 2e-5j, 0.5 - 0.25j, -1.5 + 3j, 2 + 0j, 3j, -2 - 1j, 1e-3 - 30j, 8 + 0.1j],
    dtype=torch.complex64,
)


@pytest.mark.parametrize(
    "name", ["cosh", "expm1", "log10", "log2", "rsqrt", "sigmoid", "sinh", "tan"]
)
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
