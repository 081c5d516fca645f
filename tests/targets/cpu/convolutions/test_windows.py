"""Convolutions of a picture: its rows are laid out as windows read them, if that pays."""

from __future__ import annotations

from typing import Any

import pytest

from monograph import functional as F
from monograph.targets.cpu.nests.verify import verify_nest
from tests.targets.cpu.stepping import draw, kernels_of_network


def check(net: Any, x: tuple[int, ...], *sizes: str) -> str:
    """Compare a network with the interpreter, and give the names of its kernels."""
    kernels = kernels_of_network(net, x, *sizes)
    for built in kernels:
        if "_windows" in built.name and not sizes:
            verify_nest(built.nest)
    return " ".join(built.name for built in kernels)


@pytest.mark.parametrize(
    ("x", "weight", "how"),
    [
        ((1, 3, 32, 32), (16, 3, 3, 3), {"stride": 2, "padding": 1}),
        ((2, 3, 9, 16), (20, 3, 3, 3), {"padding": 1}),
        ((1, 1, 20, 20), (16, 1, 5, 5), {}),
        ((1, 2, 12, 40), (32, 2, 3, 3), {"dilation": (1, 3), "padding": (5, 7)}),
        ((1, 3, 13, 32), (17, 3, 2, 3), {"stride": (3, 2), "padding": ((0, 2), (2, 0))}),
    ],
    ids=str,
)
def test_a_picture_is_not_turned(x: tuple[int, ...], weight: tuple[int, ...], how: Any) -> None:
    w, bias = draw(*weight), draw(weight[0])
    names = check(lambda x: F.relu(F.conv(x, w, bias, **how)), x)
    assert "windows" in names and "convert" not in names


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        ((1, 8, 32, 32), (16, 8, 3, 3)),
        ((1, 3, 32, 32), (8, 3, 3, 3)),
        ((1, 3, 30, 30), (16, 3, 3, 3)),
        ((1, 3, 32, 32), (16, 3, 9, 9)),
    ],
    ids=["many channels", "few results", "ragged rows", "many taps"],
)
def test_what_is_better_turned(x: tuple[int, ...], weight: tuple[int, ...]) -> None:
    w = draw(*weight)
    padding = weight[-1] // 2
    assert "windows" not in check(lambda x: F.conv(x, w, padding=padding), x)


def test_a_number_of_pictures_that_is_not_known() -> None:
    w = draw(16, 3, 3, 3)
    names = check(lambda x: F.conv(x, w, padding=1), (3, 3, 8, 16), "n", "3", "8", "16")
    assert "windows" in names


def test_rows_whose_number_is_not_known_are_turned() -> None:
    w = draw(16, 3, 3, 3)
    names = check(lambda x: F.conv(x, w, padding=1), (2, 3, 7, 16), "2", "3", "h", "16")
    assert "windows" not in names


def test_a_result_that_another_convolution_reads_has_its_channels_together() -> None:
    first, second = draw(16, 3, 3, 3), draw(16, 16, 3, 3)

    def net(x: Any) -> Any:
        return F.conv(F.relu(F.conv(x, first, padding=1)), second, padding=1)

    assert "windows" not in check(net, (1, 3, 16, 16))
