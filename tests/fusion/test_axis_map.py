"""Where in a kernel's index space the elements of a value are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import monograph
from monograph import functional as F
from monograph.fusion.axis_map import (
    cuts_rows_anew,
    identity,
    operand_axis_map,
    pads_rows,
    reduction_axes,
)
from monograph.ir.graph import Node


def last(function: Callable[..., Any], *types: str) -> Node:
    """The node that makes a function's result."""
    node = monograph.trace(function, *types).outputs[0].producer
    assert node is not None
    return node


def test_a_value_of_the_space_s_own_shape_lies_along_its_axes() -> None:
    assert identity((4, 8)) == (0, 1)


def test_a_dimension_of_size_one_lies_along_no_axis() -> None:
    assert identity((4, 1, 8)) == (0, None, 2)


@pytest.mark.parametrize(
    ("type_", "place"),
    [
        ("f32[4, 8]", (0, 1)),
        ("f32[8]", (1,)),
        ("f32[1]", (None,)),
        ("f32[4, 1]", (0, None)),
        ("f32[]", ()),
    ],
)
def test_a_broadcast_operand_is_aligned_at_the_right(type_: str, place: Any) -> None:
    node = last(lambda x, y: x + y, "f32[4, 8]", type_)
    assert operand_axis_map(node, 1) == place


def test_symbolic_dimensions_are_compared_as_such() -> None:
    node = last(lambda x, y: x + y, "f32[n, 8]", "f32[n, 1]")
    assert operand_axis_map(node, 1) == (0, None)


def test_a_transpose_is_read_with_its_axes_exchanged() -> None:
    node = last(lambda x: F.transpose(x, (2, 0, 1)), "f32[2, 3, 4]")
    assert operand_axis_map(node, 0) == (1, 2, 0)


def test_a_reshape_that_adds_a_one_keeps_every_place() -> None:
    node = last(lambda x: F.reshape(x, (4, 1, 8)), "f32[4, 8]")
    assert operand_axis_map(node, 0) == (0, 2)


def test_a_reshape_that_joins_dimensions_has_no_place() -> None:
    node = last(lambda x: F.reshape(x, (32,)), "f32[4, 8]")
    assert operand_axis_map(node, 0) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.slice(x, [1], [3], axes=[0]),
        lambda x: F.flip(x, 0),
        lambda x: F.concat([x, x], 0),
    ],
    ids=["slice", "flip", "concat"],
)
def test_elements_that_are_elsewhere_have_no_place(function: Callable[..., Any]) -> None:
    assert operand_axis_map(last(function, "f32[4, 8]"), 0) is None


def test_an_expand_is_read_along_the_dimensions_that_it_keeps() -> None:
    node = last(lambda x: F.expand(x, (4, 8)), "f32[4, 1]")
    assert operand_axis_map(node, 0) == (0, None)


def test_reduced_axes_count_from_the_front() -> None:
    assert reduction_axes(last(lambda x: F.sum(x, axis=-1), "f32[4, 8]")) == (1,)
    assert reduction_axes(last(lambda x: F.argmax(x, -2), "f32[4, 8]")) == (0,)


@pytest.mark.parametrize(
    ("shape", "anew"), [((8, 6), True), ((48,), True), ((6, 4, 2), False), ((3, 2, 8), False)]
)
def test_rows_are_cut_anew_unless_each_is_whole_or_divided(
    shape: tuple[int, ...], anew: bool
) -> None:
    assert cuts_rows_anew(last(lambda x: F.reshape(x, shape), "f32[6, 8]")) is anew


def test_only_padding_along_rows_pads_rows() -> None:
    assert pads_rows(last(lambda x: F.pad(x, [0, 1], [0, 0]), "f32[6, 8]"))
    assert not pads_rows(last(lambda x: F.pad(x, [1, 0], [0, 0]), "f32[6, 8]"))
