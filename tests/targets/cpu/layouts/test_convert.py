"""The zeros around an image are written by those who have the image."""

from __future__ import annotations

from typing import Any

import numpy as np

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.program.code import Launch


def borders(channels: int, side: int) -> list[Launch]:
    """The launches that write zeros between two convolutions of each channel by itself."""
    weight = np.ones((channels, 1, 3, 3), np.float32)

    def network(x: Any) -> Any:
        for _ in range(2):
            x = F.relu(F.conv(x, weight, padding=1, groups=channels))
        return F.conv(x, np.ones((16, channels, 1, 1), np.float32))

    graph = monograph.trace(network, f"f32[1, {channels}, {side}, {side}]")
    program = compile_graph(graph, Options(cache=False)).program
    assert program is not None
    launches = [step for step in program.steps if isinstance(step, Launch)]
    return [each for each in launches if "border" in each.kernel]


def test_two_processors_write_half_of_a_wide_border_each() -> None:
    wide = borders(256, 14)
    assert wide
    for each in wide:
        assert isinstance(each.extent, int)
        assert each.extent == 2 * each.grain


def test_a_narrow_border_is_no_work_for_two() -> None:
    narrow = borders(16, 14)
    assert narrow
    for each in narrow:
        assert isinstance(each.extent, int)
        assert each.extent <= each.grain
