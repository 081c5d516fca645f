"""Convolutions of separate windows: gathered where both ends are row-major, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from monograph import functional as F
from tests.targets.cpu.stepping import draw, kernels_of_network


def check(net: Any, x: tuple[int, ...], *sizes: str) -> str:
    """Compare a network with the interpreter, and give the names of its kernels."""
    kernels = kernels_of_network(net, x, *sizes)
    return " ".join(built.name for built in kernels)


@pytest.mark.parametrize(
    ("x", "weight", "how"),
    [
        ((1, 32, 16, 16), (24, 32, 1, 1), {"stride": 2}),
        ((2, 24, 17, 15), (16, 24, 1, 1), {"stride": 2}),
        ((1, 3, 32, 64), (20, 3, 4, 4), {"stride": 4}),
        ((1, 16, 16, 18), (40, 16, 2, 2), {"stride": (2, 3)}),
        ((2, 16, 64), (24, 16, 2), {"stride": 4}),
    ],
    ids=str,
)
def test_neither_end_is_turned(x: tuple[int, ...], weight: tuple[int, ...], how: Any) -> None:
    w, bias = draw(*weight), draw(weight[0])
    names = check(lambda x: F.relu(F.conv(x, w, bias, **how)), x)
    assert "gather" in names and "convert" not in names


def test_sizes_that_are_not_known() -> None:
    w = draw(24, 32, 1, 1)

    def net(x: Any) -> Any:
        return F.relu(F.conv(x, w, stride=2))

    for size in ((1, 32, 9, 12), (3, 32, 1, 2)):
        assert "gather" in check(net, size, "n", "32", "h", "w")


@pytest.mark.parametrize(
    ("weight", "how"),
    [
        ((24, 32, 3, 3), {"stride": 2}),
        ((24, 32, 1, 1), {}),
        ((24, 32, 1, 1), {"stride": 2, "padding": 1}),
        ((32, 16, 1, 1), {"stride": 2, "groups": 2}),
    ],
    ids=["overlapping", "every pixel", "padded", "grouped"],
)
def test_what_is_not_gathered(weight: tuple[int, ...], how: Any) -> None:
    w = draw(*weight)
    assert "gather" not in check(lambda x: F.conv(x, w, **how), (1, 32, 16, 16))


def test_between_convolutions_channels_stay_last() -> None:
    first, second, third = draw(32, 8, 3, 3), draw(24, 32, 1, 1), draw(8, 24, 3, 3)

    def net(x: Any) -> Any:
        y = F.relu(F.conv(x, first, padding=1))
        return F.conv(F.relu(F.conv(y, second, stride=2)), third, padding=1)

    assert "gather" not in check(net, (1, 8, 16, 16))


def test_empty_lanes_cost_more_than_turning() -> None:
    w = draw(32, 16, 2, 2)
    assert "gather" not in check(lambda x: F.conv(x, w, stride=2), (1, 16, 14, 14))
