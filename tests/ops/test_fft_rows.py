"""Fourier transforms whose lanes lie along the row, against NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monograph.compiler import Options, compile_graph
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol
from monograph.ir.types import Array, TensorType, c64, f32, f64, type_of_array
from monograph.ops import fft
from monograph.ops.fft_rows import FIRST_RADIX, later_steps, suits_rows

STRICT = Options(strict=True, cache=False, level="O0")


def compiled(function: Callable[..., Any], *types: TensorType) -> Any:
    return compile_graph(trace(function, *types, name="transform"), STRICT)


def check(got: Array, expected: Array, bound: float = 4e-7) -> None:
    assert np.abs(got - expected).max() <= bound * np.abs(expected).max()


def numbers(*sizes: int) -> Array:
    return np.random.default_rng(0).normal(size=sizes)


@pytest.mark.parametrize(("size", "double"), [(128, False), (400, True), (1664, False)])
def test_a_few_rows_of_every_kind(size: int, double: bool) -> None:
    x = numbers(3, size).astype(np.float64 if double else np.float32)
    z = np.array(x, np.complex128 if double else np.complex64)
    z.imag = x[::-1, ::-1]
    half = z[:, : size // 2 + 1]
    assert suits_rows(size // 2, 3, f64 if double else f32)

    def all_of(x: Any, z: Any, half: Any) -> list[Any]:
        return [fft.fft(z), fft.ifft(z), fft.rfft(x), fft.irfft(half, size)]

    executable = compiled(all_of, *map(type_of_array, (x, z, half)))
    forwards, backwards, spectrum, signal = executable.run([x, z, half])
    bound = 2e-15 if double else 4e-7
    check(forwards, np.fft.fft(z.astype(np.complex128)), bound)
    check(backwards, np.fft.ifft(z.astype(np.complex128)), bound)
    check(spectrum, np.fft.rfft(x.astype(np.float64)), bound)
    check(signal, np.fft.irfft(half.astype(np.complex128), size), bound)


def test_any_number_of_long_rows() -> None:
    rows = Symbol("rows", 1)
    assert suits_rows(512, rows, f32)
    forwards = compiled(fft.fft, TensorType(c64, (rows, 512)))
    real = compiled(fft.rfft, TensorType(f32, (rows, 1024)))
    for count in (1, 11):
        x = numbers(count, 1024).astype(np.float32)
        z = x[:, :512] - np.complex64(2j) * x[:, 512:]
        check(forwards.run([z])[0], np.fft.fft(z.astype(np.complex128)))
        check(real.run([x])[0], np.fft.rfft(x.astype(np.float64)))


def test_the_later_axis_is_transformed_in_place() -> None:
    z = (numbers(5, 72) + 1j).astype(np.complex64)
    executable = compiled(lambda z: fft.fftn(z, axes=(0, 1)), type_of_array(z))
    check(executable.run([z])[0], np.fft.fftn(z.astype(np.complex128)))


def test_a_row_too_long_for_a_thread_lies_in_memory() -> None:
    z = (numbers(2, 40960) + 1j).astype(np.complex64)
    executable = compiled(fft.fft, type_of_array(z))
    check(executable.run([z])[0], np.fft.fft(z.astype(np.complex128)))


def test_the_steps_make_up_the_length() -> None:
    for size in range(64, 2048, FIRST_RADIX):
        assert FIRST_RADIX * np.prod(later_steps(size), dtype=int) == size
    assert later_steps(1024) == [8, 4, 4]
    assert later_steps(8 * 2 * 3) == [2, 3]


def test_rows_side_by_side_that_stay_in_the_cache_are_left_there() -> None:
    assert not suits_rows(128, 64, f32)
    assert suits_rows(128, 64, f32, is_written=True)
    assert suits_rows(512, 64, f32)
    assert not suits_rows(8 * 17, 1, f32)
    assert not suits_rows(100, 1, f32)
