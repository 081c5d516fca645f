"""Weights that are stored in few bits: which part of their formula is, and what is left to do."""

from __future__ import annotations

from typing import Any

from monograph import functional as F
from monograph.ir.types import f32, i8
from monograph.kernel.contraction import Contraction, as_contraction
from monograph.kernel.expr import Load
from monograph.targets.cpu.products.widening import in_groups, narrowed, widened
from tests.kernel.build import flat

ROWS, WEIGHT = "f32[2, 256]", "i8[64, 256]"


def layer(weight: Any, *types: str) -> Contraction:
    found = as_contraction(flat(lambda x, *rest: F.linear(x, weight(*rest)), *types))
    assert found is not None
    return found


def test_a_weight_with_a_scale_of_each_column_is_stored_as_bytes() -> None:
    found = layer(lambda w, s: F.cast(w, "f32") * s, ROWS, WEIGHT, "f32[64, 1]")
    part = narrowed(found)
    assert isinstance(part, Load) and part.dtype is i8
    assert widened(found, part) is found.right


def test_a_scale_of_each_group_makes_k_two_axes() -> None:
    def grouped(w: Any, s: Any) -> Any:
        whole = F.reshape(F.cast(w, "f32"), (64, 4, 64)) * s
        return F.reshape(whole, (64, 256))

    found = layer(grouped, ROWS, WEIGHT, "f32[64, 4, 1]")
    assert narrowed(found).dtype is f32
    groups = in_groups(found)
    assert [axis.extent for axis in groups.k] == [4, 64]
    assert narrowed(groups).dtype is i8


def test_groups_of_a_few_steps_are_not_worth_an_axis() -> None:
    def grouped(w: Any, s: Any) -> Any:
        return F.reshape(F.reshape(F.cast(w, "f32"), (64, 64, 4)) * s, (64, 256))

    found = layer(grouped, ROWS, WEIGHT, "f32[64, 64, 1]")
    assert in_groups(found) is found


def test_what_costs_too_much_is_stored_as_it_is_multiplied() -> None:
    found = layer(lambda w, s: F.cast(w, "f32") / s, ROWS, WEIGHT, "f32[64, 1]")
    assert narrowed(found) is found.right
