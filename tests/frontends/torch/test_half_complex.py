"""complex32 comes in, is computed with and goes out as torch does it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch

import monograph
from monograph.errors import UnsupportedError

Function = Callable[..., torch.Tensor]

FUNCTIONS: dict[str, Function] = {
    "copy": lambda z: z.clone(),
    "widen": lambda z: z.to(torch.complex64) + 1,
    "round": lambda z: (z.to(torch.complex128) * 1.0001).to(torch.complex32),
    "real": lambda z: z.real,
    "imag": lambda z: z.imag * 2,
    "parts": lambda z: torch.view_as_real(z),
    "conjugate": lambda z: z.conj().resolve_conj(),
    "moved": lambda z: z.reshape(3, 2).t()[1:],
    "sum_of_two": lambda z: z + z[2:3],
    "product": lambda z: z * z,
    "in_place": lambda z: z.clone().add_(z),
    "joined": lambda z: torch.cat([z, z * 2]),
    "made": lambda z: torch.complex(z.imag, z.real),
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "ComplexHalf support is experimental")
        yield


def numbers() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, dtype=torch.complex64, generator=generator).to(torch.complex32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_computed_as_torch_does(name: str) -> None:
    function = FUNCTIONS[name]
    got = monograph.compile(function, numbers())(numbers())
    expected = function(numbers())
    assert got.dtype is expected.dtype
    assert got.shape == expected.shape
    wide = torch.complex64 if expected.is_complex() else torch.float32
    torch.testing.assert_close(got.to(wide), expected.to(wide), rtol=1e-3, atol=1e-3)
    if name not in ("product", "sum_of_two"):
        assert torch.equal(got.to(wide), expected.to(wide))


def test_a_cast_rounds_the_parts_and_may_overflow() -> None:
    z = torch.tensor([1 / 3 + 1e6j, -1e-9 - 70000j, complex(float("nan"), 1)])
    got = monograph.compile(lambda z: z.to(torch.complex32).to(torch.complex64), z)(z)
    torch.testing.assert_close(
        got, z.to(torch.complex32).to(torch.complex64), rtol=0, atol=0, equal_nan=True
    )


def test_a_weight_may_be_complex32() -> None:
    class Turn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turns", numbers().repeat(4))

        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return z + self.turns.to(torch.complex64)

    module, z = Turn(), torch.zeros(24, dtype=torch.complex64)
    torch.testing.assert_close(monograph.compile(module, z)(z), module(z), rtol=0, atol=0)


def test_a_look_at_its_bytes_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="complex32"):
        monograph.from_torch(lambda z: z.view(torch.int32), numbers())
