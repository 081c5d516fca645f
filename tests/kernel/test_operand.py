"""Operands of contractions: what is stored of them, what is multiplied, and what is left to do."""

from __future__ import annotations

from typing import Any

import pytest

from monograph import functional as F
from monograph.ir.types import bf16, f32, i8, i32, u8
from monograph.kernel.contraction import Contraction, as_contraction, with_scale_groups
from monograph.kernel.expr import Load
from tests.kernel.build import flat

ROWS, WEIGHT = "f32[2, 256]", "i8[64, 256]"


def layer(weight: Any, *types: str) -> Contraction:
    found = as_contraction(flat(lambda x, *rest: F.linear(x, weight(*rest)), *types))
    assert found is not None
    return found


def test_a_weight_with_a_scale_of_each_column_is_stored_as_bytes() -> None:
    weights = layer(lambda w, s: F.cast(w, "f32") * s, ROWS, WEIGHT, "f32[64, 1]").weights
    assert isinstance(weights.stored, Load) and weights.stored.dtype is i8
    assert weights.is_narrow and weights.bits == 8
    assert weights.multiplied is f32 and weights.widened_load is None
    assert weights.of_stored(weights.stored) is weights.formula


def test_a_scale_of_each_group_makes_k_two_axes() -> None:
    def grouped(w: Any, s: Any) -> Any:
        whole = F.reshape(F.cast(w, "f32"), (64, 4, 64)) * s
        return F.reshape(whole, (64, 256))

    found = layer(grouped, ROWS, WEIGHT, "f32[64, 4, 1]")
    assert not found.weights.is_narrow and found.weights.group == 64
    groups = with_scale_groups(found)
    assert [axis.extent for axis in groups.k] == [4, 64]
    assert groups.weights.stored.dtype is i8


def test_groups_of_a_few_steps_are_not_worth_an_axis() -> None:
    def grouped(w: Any, s: Any) -> Any:
        return F.reshape(F.reshape(F.cast(w, "f32"), (64, 64, 4)) * s, (64, 256))

    found = layer(grouped, ROWS, WEIGHT, "f32[64, 64, 1]")
    assert found.weights.group is None
    assert with_scale_groups(found) is found


def test_what_costs_too_much_is_stored_as_it_is_multiplied() -> None:
    found = layer(lambda w, s: F.cast(w, "f32") / s, ROWS, WEIGHT, "f32[64, 1]")
    assert not found.weights.is_narrow and found.weights.bits == 32


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("u8[12, 16]", "i8[16, 21]"), (u8, i8)),
        (("i32[12, 16]", "i8[16, 21]"), (i32, i8)),
    ],
)
def test_integers_are_multiplied_in_the_narrowest_dtype(types: Any, expected: Any) -> None:
    found = as_contraction(flat(lambda a, b: F.cast(a, "i32") @ F.cast(b, "i32"), *types))
    assert found is not None and found.summed is i32
    assert tuple(each.multiplied for each in found.operands()) == expected
    assert (found.operands()[0].widened_load is None) == (types[0][0] == "i" and "i32" in types[0])


def test_halves_are_multiplied_as_they_are_stored() -> None:
    found = as_contraction(flat(lambda a, b: a @ b, "bf16[12, 16]", "bf16[16, 21]"))
    assert found is not None and found.summed is f32
    assert [each.multiplied for each in found.operands()] == [bf16, bf16]


@pytest.mark.parametrize(("dtype", "expected"), [("i4", 2), ("u4", 2), ("i2", 4), ("i8", 1)])
def test_steps_of_few_bits_share_a_byte(dtype: str, expected: int) -> None:
    found = layer(lambda w, s: F.cast(w, "f32") * s, ROWS, f"{dtype}[64, 256]", "f32[64, 1]")
    assert found.weights.steps_per_byte == expected
    assert found.weights.bits == 8 // expected


def test_what_is_computed_in_few_bits_is_packed_when_it_is_done() -> None:
    found = layer(lambda w, s: F.cast(w + w, "f32") * s, ROWS, "i4[64, 256]", "f32[64, 1]")
    assert found.weights.steps_per_byte == 2
