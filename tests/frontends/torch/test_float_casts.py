"""Floats that no integer is like become what torch makes of them, compiled and interpreted."""

from __future__ import annotations

import platform

import pytest
import torch

import monograph

INF, NAN = float("inf"), float("nan")
LEAST = -(2**31), -(2**63)
NUMBERS = [INF, -INF, NAN, 1e20, -1e20, 3e9, -3e9, 300.7, -300.7, -1.5, -0.0, 70000.0]
EXPECTED = {
    torch.int8: [0, 0, 0, 0, 0, 0, 0, 44, -44, -1, 0, 112],
    torch.uint8: [0, 0, 0, 0, 0, 0, 0, 44, 212, 255, 0, 112],
    torch.int16: [0, 0, 0, 0, 0, 0, 0, 300, -300, -1, 0, 4464],
    torch.int32: [*[LEAST[0]] * 7, 300, -300, -1, 0, 70000],
    torch.int64: [*[LEAST[1]] * 5, 3 * 10**9, -3 * 10**9, 300, -300, -1, 0, 70000],
    torch.uint32: [0, 0, 0, 0, 0, 3 * 10**9, 1294967296, 300, 2**32 - 300, 2**32 - 1, 0, 70000],
    torch.uint64: [
        *(0, 2**63, 2**63, 0, 2**63, 3 * 10**9, 2**64 - 3 * 10**9),
        *(300, 2**64 - 300, 2**64 - 1, 0, 70000),
    ],
    torch.bool: [True] * 10 + [False, True],
}


@pytest.mark.parametrize("dtype", EXPECTED, ids=str)
@pytest.mark.parametrize("source", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("repeats", [1, 37])
def test_floats_become_integers_as_in_torch(
    dtype: torch.dtype, source: torch.dtype, repeats: int
) -> None:
    x = torch.tensor(NUMBERS * repeats, dtype=source)
    compiled = monograph.compile(lambda x: x.to(dtype), x)
    assert compiled(x).tolist() == EXPECTED[dtype] * repeats
    (interpreted,) = monograph.interpret(compiled.executable.graph, [x.numpy()])
    assert interpreted.tolist() == EXPECTED[dtype] * repeats


@pytest.mark.parametrize("source", [torch.float16, torch.bfloat16], ids=str)
def test_short_floats_have_infinities_too(source: torch.dtype) -> None:
    x = torch.tensor([INF, -INF, NAN, 300.0, -300.0], dtype=source)
    compiled = monograph.compile(lambda x: (x.to(torch.int32), x.to(torch.int8)), x)
    words, small = compiled(x)
    assert words.tolist() == [LEAST[0]] * 3 + [300, -300]
    assert small.tolist() == [0, 0, 0, 44, -44]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="torch leaves it to the processor")
@pytest.mark.parametrize("dtype", [d for d in EXPECTED if d is not torch.uint32], ids=str)
def test_torch_itself_agrees(dtype: torch.dtype) -> None:
    assert torch.tensor(NUMBERS * 37).to(dtype).tolist() == EXPECTED[dtype] * 37


def test_what_is_written_into_integers_is_cast_likewise() -> None:
    x, y = torch.tensor([INF, 300.7, NAN]), torch.zeros(3, dtype=torch.int8)
    compiled = monograph.compile(lambda x, y: y.clone().copy_(x), x, y)
    assert compiled(x, y).tolist() == [0, 44, 0]
