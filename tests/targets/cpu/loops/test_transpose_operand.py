"""What a reduction reads along its rows is turned where neighbouring results share a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from tests.targets.cpu.stepping import steps_of


def _gaps(a: Any, b: Any) -> Any:
    return F.sum(F.abs(F.unsqueeze(a, -2) - F.unsqueeze(b, -3)), -1)


def names(*types: str) -> list[str]:
    return [kernel.name for kernel in steps_of(_gaps, *types).kernels.values()]


def test_a_small_operand_of_many_rows_is_turned() -> None:
    assert any("_turn" in name for name in names("f32[30, 7]", "f32[40, 7]"))


@pytest.mark.parametrize("types", [("f32[4, 7]", "f32[40, 7]"), ("f32[30, 7]", "f32[5, 7]")])
def test_what_is_read_a_few_times_or_fills_no_vector_is_read_where_it_lies(types: Any) -> None:
    assert not any("_turn" in name for name in names(*types))


@pytest.mark.parametrize("shape", [(33, 41, 3), (64, 8, 20), (17, 100, 129)])
def test_distances_are_those_of_every_two_rows(shape: tuple[int, int, int]) -> None:
    rows, columns, length = shape
    generator = np.random.default_rng(0)
    a = generator.normal(size=(2, rows, length)).astype(np.float32)
    b = generator.normal(size=(2, columns, length)).astype(np.float32)
    expected = np.abs(a[:, :, None].astype(np.float64) - b[:, None]).sum(-1)
    np.testing.assert_allclose(monograph.compile(_gaps, a, b)(a, b), expected, rtol=1e-5)
