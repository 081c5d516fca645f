"""Windows of few taps are written out where their results cross a border, and computed the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.targets.cpu.loops.unroll_window import MOST_TAPS
from monograph.targets.cpu.nests.verify import verify_nest
from tests.targets.cpu.stepping import draw, kernel_of, steps_of


def test_a_padded_window_is_read_without_gathering() -> None:
    kernel = kernel_of(lambda x: F.max_pool(x, 3, 2, 1), "f32[4, 8, 200]")
    assert "gather" not in kernel.text
    assert verify_nest(kernel.nest) > 0


def test_a_window_inside_its_operand_stays_a_loop_over_taps() -> None:
    kernel = kernel_of(lambda x: F.max_pool(x, 3, 2), "f32[4, 8, 200]")
    assert "max(v" in str(kernel.nest)


def test_a_window_of_many_taps_stays_a_loop_over_taps() -> None:
    kernel = kernel_of(lambda x: F.max_pool(x, MOST_TAPS + 2, 1, 5), "f32[4, 8, 200]")
    assert "max(v" in str(kernel.nest)


@pytest.mark.parametrize("size", [9, 33, 57, 112])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool(x, 3, 2, 1),
        lambda x: F.max_pool(x, 5, 1, 2),
        lambda x: F.max_pool(x, 2, 3, 1, 2),
        lambda x: F.max_pool(x, 2, 2, ceil_mode=True),
        lambda x: F.avg_pool(x, 3, 1, 1, count_include_pad=False),
    ],
    ids=["stride 2", "five by five", "dilated", "overhanging", "means"],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_padded_pools_compute_the_same(function: Any, size: int, symbolic: bool) -> None:
    x = draw(2, 3, 10, size)
    graph = monograph.trace(function, "f32[2, 3, 10, n]" if symbolic else f"f32[2, 3, 10, {size}]")
    (expected,) = monograph.interpret(graph, [x])
    (got,) = monograph.compile(graph, cache=False)(x)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_a_long_window_at_many_borders_is_read_plainly_in_between() -> None:
    builder = steps_of(lambda x: F.avg_pool(x, 25, 1, 12), "f32[8, 64, 500]")
    (kernel,) = builder.kernels.values()
    assert len(kernel.nest.body) == 3
