"""Ranges of integer formulas: what follows from dtypes, and what of the numbers themselves."""

from __future__ import annotations

import numpy as np

from monograph.ir.types import holds_integers_of, i8, i16, i32, u2, u4, u8
from monograph.kernel import expr as e
from monograph.kernel.expr import Buffer
from monograph.kernel.integer_range import fits, holds_small, is_small, narrowest


def test_a_range_follows_from_what_is_computed() -> None:
    byte = e.cast(e.load(Buffer("b", i8, (4,)), (e.index(0),)), i32)
    moved = e.apply("subtract", byte, e.literal(100, i32))
    assert fits(byte, i8) and is_small(moved)
    assert not fits(moved, i8) and fits(moved, i16)
    far = e.apply("add", byte, e.literal(32700, i32))
    assert not fits(far, i16)
    assert [narrowest(each) for each in (byte, moved, far)] == [i8, i16, i32]


def test_masks_and_products_have_ranges() -> None:
    byte = e.load(Buffer("b", u8, (4,)), (e.index(0),))
    pair = e.apply("bitwise_and", byte, e.literal(3, u8))
    signed = e.cast(e.apply("multiply", pair, e.literal(5, u8)), i32)
    assert fits(pair, u2) and fits(signed, u4)
    assert fits(e.apply("multiply", signed, e.literal(-8, i32)), i8)
    assert not fits(e.apply("multiply", byte, byte), u4)


def test_the_range_of_a_formula_that_uses_its_parts_often_is_found_at_once() -> None:
    part = e.cast(e.load(Buffer("b", i8, (4,)), (e.index(0),)), i32)
    for _ in range(100):
        part = e.apply("bitwise_xor", part, e.apply("negate", part))
    assert not is_small(part)


def test_numbers_are_small_if_all_of_them_are() -> None:
    assert holds_small(np.array([-512, 511], np.int32))
    assert not holds_small(np.array([0, 512], np.int32))
    assert holds_small(np.zeros(0, np.int32))


def test_a_dtype_holds_those_whose_numbers_it_has() -> None:
    assert holds_integers_of(i16, u8) and holds_integers_of(i16, i8) and holds_integers_of(i8, i8)
    assert not holds_integers_of(i8, u8) and not holds_integers_of(u8, i8)
