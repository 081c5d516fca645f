"""Products of small integers two at a time: which they are, in bounds, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from monograph import functional as F
from monograph.ir.types import i8, i16, i32
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction, as_contraction, with_k_ordered
from monograph.kernel.expr import Apply, Buffer
from monograph.kernel.verify import verify_nest
from monograph.targets.cpu.products.packing import panels_of, rows_of
from monograph.targets.cpu.products.pairs import (
    fits,
    holds_small,
    image_in_pairs,
    in_pairs,
    is_small,
)
from monograph.targets.cpu.products.product import product_nest
from monograph.targets.cpu.products.tiles import Reading, Segment, Tiling
from tests.kernel.build import flat

TILING = Tiling((Segment(0, 4, 3),), 4, 8, 0, 2, 2, Reading.PACKED, Reading.PACKED)


def contraction(function: Any, *types: str) -> Contraction:
    found = as_contraction(flat(function, *types))
    assert found is not None
    return found


def product_of(*types: str) -> Contraction:
    return contraction(lambda a, b: F.cast(a, "i32") @ F.cast(b, "i32"), *types)


@pytest.mark.parametrize("depth", [12, 13])
def test_steps_of_k_come_two_at_a_time(depth: int) -> None:
    found = in_pairs(product_of(f"u8[12, {depth}]", f"i8[{depth}, 21]"))
    assert found is not None
    assert found.size(found.k) == (depth + 1) // 2
    body = found.reduction.body
    assert isinstance(body, Apply) and body.function == "multiply_pairs"


@pytest.mark.parametrize("depth", [12, 13])
def test_the_loops_of_pairs_stay_in_bounds(depth: int) -> None:
    found = in_pairs(product_of(f"u8[12, {depth}]", f"i8[{depth}, 21]"))
    assert found is not None
    rows, panels = rows_of(found).outputs[0], panels_of(found, 8).outputs[0]
    assert verify_nest(product_nest(found, TILING, rows, panels)) > 12 * 6 * 21


def test_bytes_on_the_right_can_be_stored_as_they_are() -> None:
    found = in_pairs(product_of("u8[12, 12]", "i8[12, 21]"))
    assert found is not None and isinstance(found.right, Apply)
    assert found.right.function == "widen_pairs"
    assert found.right.operands[0].dtype is i16


def test_words_of_unknown_size_are_left_alone_unless_they_are_known_to_be_small() -> None:
    words = contraction(lambda a, b: a @ F.cast(b, "i32"), "i32[12, 12]", "i8[12, 21]")
    assert in_pairs(words) is None
    names = {buffer.name for buffer in words.kernel.inputs if buffer.dtype is i32}
    assert in_pairs(words, names) is not None
    assert in_pairs(product_of("u16[12, 12]", "i8[12, 21]")) is None


def test_a_range_follows_from_what_is_computed() -> None:
    byte = e.cast(e.load(Buffer("b", i8, (4,)), (e.index(0),)), i32)
    moved = e.apply("subtract", byte, e.literal(100, i32))
    assert fits(byte, i8) and is_small(moved)
    assert not fits(moved, i8) and fits(moved, i16)
    far = e.apply("add", byte, e.literal(32700, i32))
    assert not fits(far, i16)


def test_the_range_of_a_formula_that_uses_its_parts_often_is_found_at_once() -> None:
    part = e.cast(e.load(Buffer("b", i8, (4,)), (e.index(0),)), i32)
    for _ in range(100):
        part = e.apply("bitwise_xor", part, e.apply("negate", part))
    assert not is_small(part)


def test_numbers_are_small_if_all_of_them_are() -> None:
    assert holds_small(np.array([-512, 511], np.int32))
    assert not holds_small(np.array([0, 512], np.int32))
    assert holds_small(np.zeros(0, np.int32))


def windows(channels: int) -> Contraction:
    """A product whose left operand is the 3 × 3 windows of an image with its channels last."""
    shape = f"i32[6, 6, {channels}]"

    def convolved(image: Any, weight: Any) -> Any:
        turned = F.transpose(image, (2, 0, 1))
        return F.transpose(F.conv(F.unsqueeze(turned, 0), F.cast(weight, "i32")), (0, 2, 3, 1))

    return contraction(convolved, shape, f"i8[16, {channels}, 3, 3]")


def test_an_image_is_read_in_words_of_two_channels() -> None:
    found = windows(4)
    names = {buffer.name for buffer in found.kernel.inputs if buffer.dtype is i32}
    made = image_in_pairs(_with_channels_last(found), names)
    assert made is not None
    copy, paired = made
    assert copy.outputs[0].dtype is i16
    assert paired.size(paired.k) == 3 * 3 * 4 // 2
    panels = panels_of(paired, 8).outputs[0]
    tiling = replace(TILING, rows=(Segment(0, 4, 4),), left=Reading.IN_PLACE)
    assert verify_nest(product_nest(paired, tiling, None, panels)) > 16 * 16 * 18


def test_an_odd_number_of_channels_is_left_alone() -> None:
    found = windows(3)
    names = {buffer.name for buffer in found.kernel.inputs if buffer.dtype is i32}
    assert image_in_pairs(_with_channels_last(found), names) is None


def _with_channels_last(found: Contraction) -> Contraction:
    return with_k_ordered(found, found.left, merge=False)
