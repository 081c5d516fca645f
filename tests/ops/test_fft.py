"""What is special about Fourier transforms: sizes, norms, halves, windows, symbols."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ops import data, elementwise, fft
from tests.ops.against_torch import agree, draw
from tests.ops.running import complex_gradients, refuses, run

NORMS = ["backward", "ortho", "forward"]
COMPLEX = draw(3, 4, 5) + 1j * draw(3, 4, 5, seed=1)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [None, 3, 8])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_axis_as_torch(name: str, size: int | None, norm: Any) -> None:
    x = COMPLEX.real if name in ("rfft", "ihfft") else COMPLEX
    got = run(lambda x: getattr(fft, name)(x, size, 1, norm), x)
    expected = getattr(torch.fft, name)(torch.tensor(x), size, 1, norm).resolve_conj().numpy()
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("sizes", "axes"), [(None, None), ((4, 6), None), (None, (2, 0)), ((5, 2), (0, 1))]
)
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"])
def test_several_axes_as_torch(name: str, sizes: Any, axes: Any, norm: Any) -> None:
    x = COMPLEX.real if name in ("rfftn", "ihfftn") else COMPLEX
    got = run(lambda x: getattr(fft, name)(x, sizes, axes, norm), x)
    expected = getattr(torch.fft, name)(torch.tensor(x), sizes, axes, norm).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.bool_])
def test_real_operands_become_complex(dtype: Any) -> None:
    x = np.array([1, 0, 2, 3]).astype(dtype)
    for function, expected in ((fft.fft, np.fft.fft), (fft.rfft, np.fft.rfft)):
        got = run(function, x)
        assert got.dtype == np.complex64
        np.testing.assert_allclose(got, expected(x.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "irfftn", "hfftn"])
def test_complex_gradients_beside_torch(name: str) -> None:
    ours, theirs = getattr(fft, name), getattr(torch.fft, name)
    (got,) = complex_gradients(lambda x: ours(x, (5, 6)) * (1 + 2j), COMPLEX)
    leaf = torch.tensor(COMPLEX, requires_grad=True)
    result = theirs(leaf, (5, 6)) * (1 + 2j)
    (want,) = torch.autograd.grad((result.real + result.imag * 2.0).sum(), leaf)
    np.testing.assert_allclose(got, want.numpy(), atol=1e-10)


@pytest.mark.parametrize("size", [4, 5])
def test_symbolic_lengths(size: int) -> None:
    def ours(x: Any) -> Any:
        half = fft.rfft(x)
        return fft.irfft(half * half, x.shape[-1]) + elementwise.abs(fft.fft(x))

    def theirs(x: Any) -> Any:
        half = torch.fft.rfft(x)
        return torch.fft.irfft(half * half, x.shape[-1]) + torch.fft.fft(x).abs()

    agree(ours, theirs, draw(2, size), types=["f64[batch, time]"])


@pytest.mark.parametrize("axes", [None, 0, (1, 2)])
def test_shifts(axes: Any) -> None:
    x = draw(3, 4, 5)
    for inverse, expected in ((False, np.fft.fftshift), (True, np.fft.ifftshift)):
        got = run(lambda x, inverse=inverse: fft.fft_shift(x, axes, inverse), x)
        np.testing.assert_array_equal(got, expected(x, axes))


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_windows_as_torch(size: int, periodic: bool) -> None:
    for coefficients, theirs in [
        ((0.5, 0.5), torch.hann_window),
        ((0.54, 0.46), torch.hamming_window),
        ((0.42, 0.5, 0.08), torch.blackman_window),
    ]:
        graph = trace(lambda c=coefficients: fft.cosine_window(size, c, periodic))
        expected = theirs(size, periodic=periodic, dtype=torch.float64)
        np.testing.assert_allclose(interpret(graph)[0], expected.numpy(), atol=1e-7)


def test_a_window_of_symbolic_size() -> None:
    def ours(x: Any) -> Any:
        with x.graph.as_current():
            return x * fft.cosine_window(x.shape[0], (0.5, 0.5), dtype="f64")

    graph = trace(ours, "f64[n]")
    expected = torch.hann_window(6, dtype=torch.float64).numpy()
    np.testing.assert_allclose(interpret(graph, [np.ones(6)])[0], expected, atol=1e-15)


@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("types", [None, ["f64[batch, time]", "f64[6]"]])
def test_short_time_transform(onesided: bool, types: Any) -> None:
    def ours(x: Any, window: Any) -> Any:
        return elementwise.abs(fft.stft(x, 6, 2, window, onesided))

    def theirs(x: Any, window: Any) -> Any:
        result = torch.stft(
            x, 6, 2, window=window, center=False, onesided=onesided, return_complex=True
        )
        return result.abs().mT

    agree(ours, theirs, draw(2, 15), np.hanning(8)[1:-1], types=types)


def test_type_rules() -> None:
    refuses("complex numbers are needed", fft.Fft((0,)), "f32[3]")
    refuses("real numbers are needed", fft.rfft, "c64[3]")
    refuses("axis 1 is out of range", lambda x: fft.fft(x, axis=1), "c64[3]")
    refuses("named twice", fft.Fft((0, -1)), "c64[3]")
    refuses("no elements along axis 0", fft.fft, "c64[0]")
    refuses("no such norm", lambda x: fft.fft(x, norm="half"), "c64[3]")  # type: ignore[arg-type]
    refuses("no such scale", fft.Fft((0,), False, "half"), "c64[3]")  # type: ignore[arg-type]
    refuses("a length below 1", lambda x: fft.irfft(x, 0), "c64[3]")
    refuses("half the length and the spectrum", fft.Irfft((0,), 9), "c64[3]")
    refuses("an axis is needed", lambda x: fft.rfftn(x, axes=()), "f32[3]")
    refuses("do not pair up", lambda x: fft.fftn(x, (1, 2), (0,)), "c64[3]")
    refuses("a positive step", lambda x: fft.frames(x, 2, 0), "f32[3]")


def test_frames() -> None:
    graph = trace(lambda: fft.frames(data.arange(7), 3, 2))
    np.testing.assert_array_equal(interpret(graph)[0], [[0, 1, 2], [2, 3, 4], [4, 5, 6]])
