"""Walks visit every position of a space once, whatever axes they do it by."""

from __future__ import annotations

from itertools import product

import pytest

from monograph.ir.dims import Symbol, evaluate_dim
from monograph.kernel.walk import Walk, divide, phases, split_phases, whole_walk


def visited(walk: Walk) -> list[tuple[int, ...]]:
    """The positions that a walk of known size gives, in its order."""
    found = []
    extents = [axis.extent for axis in walk.axes]
    for values in product(*(range(extent) for extent in extents if isinstance(extent, int))):
        here = {axis.symbol: value for axis, value in zip(walk.axes, values, strict=True)}
        found.append(tuple(evaluate_dim(place, here) for place in walk.at))
    return found


def test_a_divided_dimension_is_visited_in_order() -> None:
    walk = divide(whole_walk((2, 6)), 1, 3)
    assert [axis.extent for axis in walk.axes] == [2, 3, 2]
    assert visited(walk) == list(product(range(2), range(6)))


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9])
@pytest.mark.parametrize(("stride", "kernel", "low"), [(2, 4, 1), (3, 5, 0), (2, 2, 0), (4, 9, 3)])
def test_phases_together_visit_every_element_once(
    stride: int, kernel: int, low: int, size: int
) -> None:
    found = [
        place
        for first, count in phases(stride, kernel, low, 1, size)
        for place in visited(split_phases(whole_walk((size,)), 0, stride, first, count))
    ]
    assert sorted(found) == [(place,) for place in range(size)]


def test_residues_that_read_the_same_elements_are_one_phase() -> None:
    assert phases(2, 2, 0, 1, 8) == [(0, 2)]
    assert phases(2, 4, 1, 1, 8) == [(0, 1), (1, 1)]
    assert phases(32, 64, 16, 1, 64) == [(0, 16), (16, 16)]


def test_residues_stay_apart_where_sizes_or_dilation_set_them_apart() -> None:
    assert phases(2, 2, 0, 1, 9) == [(0, 1), (1, 1)]
    assert phases(2, 2, 0, 2, 8) == [(0, 1), (1, 1)]


def test_a_symbolic_size_is_divided_exactly() -> None:
    n = Symbol("n", 1, 100)
    walk = split_phases(whole_walk((2 * n,)), 0, 2, 1, 1)
    assert walk.axes[0].extent == n
    assert phases(2, 2, 0, 1, 2 * n) == [(0, 2)]
