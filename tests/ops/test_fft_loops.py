"""Fourier transforms in native code, of lengths with every kind of factor, against NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monograph.compiler import Options, compile_graph
from monograph.frontends.trace import trace
from monograph.ir.dims import Symbol
from monograph.ir.types import Array, TensorType, c64, f32, type_of_array
from monograph.ops import fft
from monograph.ops.fft_steps import factors
from monograph.program.code import Launch, SlotKind

STRICT = Options(strict=True, cache=False, level="O0")


def compiled(function: Callable[..., Any], *types: TensorType) -> Any:
    return compile_graph(trace(function, *types, name="transform"), STRICT)


def check(got: Array, expected: Array) -> None:
    scale = np.abs(expected).max(initial=1e-30)
    assert np.abs(got - expected).max(initial=0.0) <= 4e-7 * scale


def numbers(*sizes: int) -> Array:
    return np.random.default_rng(0).normal(size=sizes).astype(np.float32)


@pytest.mark.parametrize("size", [1, 2, 9, 12, 35, 64, 34])
def test_every_length_and_direction(size: int) -> None:
    x = numbers(11, size)
    z = np.asarray(x + 1j * numbers(11, size)[::-1], np.complex64)
    half = z[:, : size // 2 + 1]

    def all_of(x: Any, z: Any, half: Any) -> list[Any]:
        return [fft.fft(z), fft.ifft(z), fft.rfft(x), fft.irfft(half, size)]

    executable = compiled(all_of, *map(type_of_array, (x, z, half)))
    forwards, backwards, spectrum, signal = executable.run([x, z, half])
    check(forwards, np.fft.fft(z.astype(np.complex128)))
    check(backwards, np.fft.ifft(z.astype(np.complex128)))
    check(spectrum, np.fft.rfft(x.astype(np.float64)))
    check(signal, np.fft.irfft(half.astype(np.complex128), size))


def test_axes_that_are_not_the_last() -> None:
    x = numbers(3, 8, 5, 2)
    executable = compiled(lambda x: fft.rfftn(x, axes=(2, 0, 1)), type_of_array(x))
    check(executable.run([x])[0], np.fft.rfftn(x.astype(np.float64), axes=(2, 0, 1)))


def test_planes_too_long_for_a_thread_lie_in_memory() -> None:
    z = np.asarray(numbers(8, 4104) + 1j, np.complex64)
    executable = compiled(fft.fft, type_of_array(z))
    check(executable.run([z])[0], np.fft.fft(z.astype(np.complex128)))


def test_the_last_rows_do_not_fill_the_lanes() -> None:
    z = np.asarray(numbers(35, 48) + 1j, np.complex64)
    executable = compiled(fft.fft, type_of_array(z))
    check(executable.run([z])[0], np.fft.fft(z.astype(np.complex128)))


def test_one_compile_serves_every_length() -> None:
    rows, size = Symbol("rows", 1), Symbol("size", 1)
    forwards = compiled(fft.fft, TensorType(c64, (rows, size)))
    real = compiled(fft.rfft, TensorType(f32, (rows, size)))
    for shape in ((1, 1), (3, 7), (9, 16)):
        x = numbers(*shape)
        z = np.asarray(x - 2j * x, np.complex64)
        check(forwards.run([z])[0], np.fft.fft(z.astype(np.complex128)))
        check(real.run([x])[0], np.fft.rfft(x.astype(np.float64)))


def test_the_turns_of_a_known_length_are_computed_once() -> None:
    program = compiled(fft.fft, TensorType(c64, (3, 16))).program
    assert [slot.kind for slot in program.slots].count(SlotKind.PREPARED) == 2
    assert sum(isinstance(step, Launch) for step in program.steps) == 1


def test_a_length_is_the_product_of_its_factors() -> None:
    for size in range(1, 400):
        assert np.prod(factors(size), dtype=int) == size
    assert factors(1024) == [4, 4, 4, 4, 4]
    assert factors(2 * 3 * 97) == [2, 3, 97]
