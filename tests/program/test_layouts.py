"""A layout of the arena serves all sizes that fit into it; few are planned for sizes that grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph.compiler import Options, compile_graph
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ops import joining, linalg, math, shape
from monograph.ops.softmax import softmax
from monograph.program import layouts
from monograph.program.arena import verify
from monograph.program.verify import ProgramVerifier
from monograph.runtime.cpu.native import Native


def _native(function: Any, *types: str) -> Native:
    native = compile_graph(trace(function, *types), Options(cache=False, variants=0)).native
    assert native is not None
    return native


def _attention(x: Any, past: Any) -> Any:
    keys = joining.concat([past, x], 0)
    weights = softmax(linalg.matmul(x, shape.transpose(keys, (1, 0))), axis=-1)
    return [math.tanh(linalg.matmul(weights, keys)), keys]


def _arrays(past: int) -> list[Any]:
    draw = np.random.default_rng(past)
    return [draw.normal(size=(rows, 64)).astype(np.float32) for rows in (40, past)]


@pytest.mark.usefixtures("unverified")  # two hundred sizes would be, one after the other
def test_a_cache_that_grows_is_planned_for_now_and_then() -> None:
    native = _native(_attention, "f32[n, 64]", "f32[past, 64]")
    seen = set()
    for past in range(200, 400):
        x, kept = _arrays(past)
        got = native([x, kept])
        seen.add(native.calls_at[tuple(native.sizes([x, kept]))].layout)
        np.testing.assert_array_equal(got[1], np.concatenate([kept, x]))
        if past % 40 == 0:
            expected = interpret(native.graph, [x, kept])
            np.testing.assert_allclose(got[0], expected[0], rtol=1e-3, atol=1e-4)
    assert 1 < len(seen) <= 6
    assert len(native.layouts.kept) <= layouts.MAX_LAYOUTS >= len(native.frames)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 500), (40, 200), (64, 64)])
def test_a_layout_with_room_to_spare_is_right_for_smaller_sizes(sizes: tuple[int, int]) -> None:
    native = _native(_attention, "f32[n, 64]", "f32[past, 64]")
    native.layouts.find((2, 2))
    layout = native.layouts.find((64, 600))
    verify(layout.plan, layout.plan.requests)
    bindings = dict(zip(native.program.sizes, sizes, strict=True))
    ProgramVerifier(native.program, native.requests).verify(bindings, layout.plan, layout.copies)
    assert layout.serves(native.layouts.needs(sizes))


def test_first_sizes_get_an_exact_layout_and_sizes_that_would_be_lost_in_one_their_own() -> None:
    native = _native(_attention, "f32[n, 64]", "f32[past, 64]")
    large = native.layouts.find((4000, 4000))
    assert large.plan.peak == native.plan_for((4000, 4000)).peak
    small = native.layouts.find((500, 500))
    assert small is not large and small.plan.peak < large.plan.peak / 8
    assert native.layouts.find((3900, 4000)) is large
    assert native.layouts.find((400, 500)) is small
