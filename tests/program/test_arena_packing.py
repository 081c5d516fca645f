from __future__ import annotations

import pytest

from monograph.program import arena_packing as packing
from monograph.program.arena_packing import Box, Life, pack


def box(*lives: tuple[int, int, int]) -> Box:
    """A box of (size, first, last), one written over the other."""
    return Box((0,), tuple(Life(*life) for life in lives))


@pytest.fixture(params=["search", "crowd"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "crowd":
        monkeypatch.setattr(packing, "MAX_PAIRS_SEARCHED", -1)


both_ways = pytest.mark.usefixtures("_both_ways")


@both_ways
def test_no_boxes() -> None:
    assert pack([], 0) == (0, [])


@both_ways
def test_boxes_of_other_times_stand_on_the_ground() -> None:
    assert pack([box((3, 0, 1)), box((2, 2, 3)), box((1, 4, 4))], 3) == (3, [0, 0, 0])


@both_ways
def test_a_box_fills_the_lowest_gap() -> None:
    peak, bases = pack([box((5, 0, 2)), box((4, 2, 4)), box((3, 4, 6)), box((1, 4, 4))], 9)
    assert (peak, bases) == (9, [0, 5, 0, 3])


@both_ways
def test_a_box_slides_under_the_lower_stairs_of_another() -> None:
    """The second box would stand on the first at 4; at 1 the stairs have come down to 1."""
    assert pack([box((4, 0, 2), (1, 2, 5)), box((3, 3, 5))], 4) == (4, [0, 1])


@both_ways
def test_the_step_between_two_stairs_is_as_high_as_the_first() -> None:
    assert pack([box((4, 0, 2), (1, 2, 5)), box((3, 2, 5))], 7) == (7, [0, 4])


def test_other_orders_are_tried_where_the_largest_first_misses_the_bound() -> None:
    boxes = [box((1, 2, 4)), box((3, 2, 3)), box((1, 4, 5)), box((3, 3, 5)), box((3, 5, 5))]
    assert pack(boxes, bound=7, effort=0)[0] == 8
    assert pack(boxes, bound=7)[0] == 7


def test_effort_is_not_exceeded_by_much(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []
    consider = packing._Search._consider
    monkeypatch.setattr(
        packing._Search,
        "_consider",
        lambda self, order, tightest: (rounds.append(order), consider(self, order, tightest)),
    )
    pack([box((1, 0, 1)), box((1, 1, 2))], bound=0, effort=50)
    assert 2 <= len(rounds) <= 20
