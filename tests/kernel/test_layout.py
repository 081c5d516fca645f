"""Layouts: strides, borders, and which shapes are views of which."""

from __future__ import annotations

import numpy as np
import pytest

from monograph.ir.dims import Symbol, evaluate_dim
from monograph.kernel.layout import MemoryLayout, channels_last, make_layout


def test_channels_last_keeps_the_batch_first() -> None:
    assert channels_last(4) == (0, 2, 3, 1)
    assert make_layout((2, 3, 5, 7), channels_last(4)) == MemoryLayout((105, 1, 21, 3), 0, 210)


@pytest.mark.parametrize("border", [(0, 0, 1, 1), (0, 0, 2, 3), (0, 0, 0, 2), (0, 0, 1, 0)])
def test_a_border_surrounds_every_element(border: tuple[int, ...]) -> None:
    shape = (2, 3, 4, 5)
    layout = make_layout(shape, channels_last(4), border)
    assert isinstance(layout.span, int)
    memory = np.zeros(layout.span, bool)
    places = {}
    for index in np.ndindex(shape):
        place = layout.offset + sum(i * s for i, s in zip(index, layout.strides, strict=True))
        assert place not in places
        places[place] = index
        memory[place] = True
    for index in np.ndindex(shape):
        for row in range(-border[2], border[2] + 1):
            for column in range(-border[3], border[3] + 1):
                there = (index[0], index[1], index[2] + row, index[3] + column)
                place = layout.offset + sum(
                    i * s for i, s in zip(there, layout.strides, strict=True)
                )
                inside = 0 <= there[2] < 4 and 0 <= there[3] < 5
                assert memory[place] == inside
                assert not inside or places[place] == there


def test_a_view_keeps_what_lies_together() -> None:
    layout = make_layout((2, 3, 4, 5), channels_last(4))
    assert layout.viewed((2, 3, 4, 5), (2, 3, 20)) == MemoryLayout((60, 1, 3), 0, 120)
    assert layout.viewed((2, 3, 4, 5), (2, 1, 3, 4, 5)) is not None
    assert layout.viewed((2, 3, 4, 5), (2, 12, 5)) is None
    assert layout.viewed((2, 3, 4, 5), (2, 60)) is None


def test_a_border_lies_between_what_a_view_would_join() -> None:
    layout = make_layout((2, 3, 4, 5), channels_last(4), (0, 0, 1, 1))
    assert layout.viewed((2, 3, 4, 5), (2, 3, 20)) is None


def test_sizes_may_be_symbolic() -> None:
    n, h = Symbol("n"), Symbol("h")
    layout = make_layout((n, 3, h, 5), channels_last(4), (0, 0, 1, 1))
    known = make_layout((2, 3, 4, 5), channels_last(4), (0, 0, 1, 1))
    bindings = {n: 2, h: 4}
    assert layout.span is not None and known.span is not None
    assert evaluate_dim(layout.span, bindings) == known.span
    assert tuple(evaluate_dim(s, bindings) for s in layout.strides) == known.strides
