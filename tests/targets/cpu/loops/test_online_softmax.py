"""A softmax's largest element and sum, found part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.kernel.kernel import Kernel
from monograph.targets.cpu.loops.nest import build_nest
from monograph.targets.cpu.nests.verify import verify_nest
from tests.kernel.build import flat
from tests.targets.cpu.loops.test_nest import body, rows

LENGTH = 20_001
"""Long enough to be visited in parts, the last of which is not whole."""


def softmax(columns: int) -> Kernel:
    return flat(lambda x: F.softmax(x, -1), f"f32[4, {columns}]")


def test_a_part_is_searched_and_summed_while_it_is_near() -> None:
    kernel = softmax(128)
    lines = body(build_nest(kernel, rows(kernel, cache_row=True, softmax_block=64))).splitlines()
    assert lines[0] == "for _slice < 2:"
    assert "    v0_part = max_number(v0_part, b0[i1+128*_p])" in lines
    assert "    row0[i1] = decay((b0[i1+128*_p] - v0_held))" in lines
    assert "  v1 = sum(v1, (sums[_slice] * decay((largest[_slice] - v0))))" in lines
    assert lines[-1] == "    o0[i1+128*_p] = ((row0[i1] * v1_scale) * (1.0:f32 / v1))"


def test_a_part_asks_for_the_next_one() -> None:
    kernel = softmax(128)
    assert "prefetch b0[i1+128*_p+64]" in str(
        build_nest(kernel, rows(kernel, cache_row=True, softmax_block=64))
    )


@pytest.mark.parametrize("columns", (65, 100, 128, 200))
def test_parts_stay_inside_the_row(columns: int) -> None:
    kernel = softmax(columns)
    assert verify_nest(build_nest(kernel, rows(kernel, cache_row=True, softmax_block=64))) > 0


def test_a_row_of_one_part_is_visited_as_a_whole() -> None:
    kernel = softmax(64)
    with_parts = build_nest(kernel, rows(kernel, cache_row=True, softmax_block=64))
    assert str(with_parts) == str(build_nest(kernel, rows(kernel, cache_row=True)))


def test_other_sums_are_not_taken_in_parts() -> None:
    def shifted(x: Any) -> Any:
        return F.sum(F.abs(x - F.max(x, axis=1, keepdims=True)), axis=1)

    kernel = flat(shifted, "f32[4, 128]")
    assert "slice" not in str(build_nest(kernel, rows(kernel, cache_row=True, softmax_block=64)))


def spoilt(value: float, places: slice) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(0).normal(size=(3, LENGTH)).astype(np.float32)
    x[1, places] = value
    return x


@pytest.mark.parametrize("function", (F.softmax, F.log_softmax))
@pytest.mark.parametrize(
    "x",
    (
        spoilt(0.0, slice(0)),
        spoilt(-np.inf, slice(0, 5000)),
        spoilt(-np.inf, slice(None)),
        spoilt(np.inf, slice(7, 8)),
        spoilt(np.nan, slice(9000, 9001)),
        spoilt(90.0, slice(12_000, 12_100)),
    ),
    ids=("numbers", "masked part", "masked row", "infinity", "nan", "large"),
)
def test_parts_give_what_whole_rows_do(function: Any, x: np.ndarray[Any, Any]) -> None:
    graph = monograph.trace(lambda x: function(x, -1), f"f32[3, {LENGTH}]")
    executable = compile_graph(graph, Options(cache=False))
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = wide.max(-1, keepdims=True)
        total = np.exp(wide - largest).sum(-1, keepdims=True)
        share = np.exp(wide - largest) / total
        expected = share if function is F.softmax else wide - largest - np.log(total)
    np.testing.assert_allclose(executable(x)[0], expected, rtol=3e-6, atol=1e-37)
