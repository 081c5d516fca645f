"""Weights of a few bits for activations of floats: bytes shared by steps of k, and their sums."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.program.code import SlotKind
from monograph.targets.cpu.build import Program

COLUMNS = 70


def layer(dtype: str, steps: int, group: int) -> Any:
    random = np.random.default_rng(0)
    low, high = {"int4": (-8, 8), "uint4": (0, 16), "int2": (-2, 2), "int8": (-9, 9)}[dtype]
    shape = (COLUMNS, steps // group, group)
    numbers = random.integers(low, high, shape)
    weight = numbers.astype(np.int8 if dtype == "int8" else getattr(ml_dtypes, dtype))
    scale = random.uniform(0.5, 1, (*shape[:2], 1)).astype(np.float32)
    exact = (weight.astype(np.float64) - 2) * scale

    def model(x: Any) -> Any:
        made = (F.cast(weight, "f32") - 2) * scale
        return F.linear(x, F.reshape(made, (COLUMNS, steps)))

    return model, exact.reshape(COLUMNS, steps)


@pytest.mark.parametrize(
    ("dtype", "steps", "group"),
    [("int4", 256, 256), ("int4", 67, 67), ("uint4", 256, 64), ("int4", 34, 17), ("int2", 96, 32)],
)
@pytest.mark.parametrize("rows", [1, 5, 17])
def test_sums_are_those_of_floats(dtype: str, steps: int, group: int, rows: int) -> None:
    model, exact = layer(dtype, steps, group)
    x = np.random.default_rng(1).standard_normal((rows, steps)).astype(np.float32)
    found = monograph.compile(model, x, cache=False)(x)
    np.testing.assert_allclose(found, x @ exact.T, rtol=1e-5, atol=1e-4)


def panel_bytes(dtype: str) -> int:
    model, _ = layer(dtype, 256, 256)
    program = monograph.compile(model, "f32[1, 256]", cache=False).executable.program
    assert isinstance(program, Program)
    (panels,) = (slot for slot in program.slots if slot.name in ("right", "words"))
    assert isinstance(panels.nbytes, int) and panels.kind is SlotKind.PREPARED
    return panels.nbytes


def test_four_bits_take_half_of_what_eight_do() -> None:
    whole = panel_bytes("int8")
    assert panel_bytes("int4") == whole // 2
    assert panel_bytes("int2") == whole // 4
