"""Rows in turn: one is written while the next one is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.kernel.kernel import Kernel
from monograph.targets.cpu.assemble import program_builder as launches
from monograph.targets.cpu.loops.nest import build_nest
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.nests.verify import verify_nest
from tests.kernel.build import flat
from tests.targets.cpu.loops.test_nest import body, rows

TYPE = "f32[10, 64]"


def scaled(x: Any) -> Any:
    return x * F.sum(x * x, axis=1, keepdims=True)


def normalized(x: Any, y: Any) -> Any:
    both = x + y
    centred = both - F.mean(both, axis=1, keepdims=True)
    return centred / F.sqrt(F.mean(centred * centred, axis=1, keepdims=True) + 1e-5)


def in_groups(x: Any, scale: Any) -> Any:
    grouped = F.reshape(x, (10, 4, 16))
    return grouped / F.sum(grouped * grouped, axis=(1, 2), keepdims=True) * scale


def test_a_row_is_written_while_the_next_one_is_read() -> None:
    kernel = flat(scaled, "f32[64, 128]")
    nest = build_nest(kernel, rows(kernel, pipelined_rows=8))
    assert nest.extent == 8
    assert nest.volatile == {"turn_v0"}
    assert body(nest) == dedent("""\
        v0_first: f32 = nothing yet of sum
        vector i1 < 128 by 8:
          v0_first = sum(v0_first, (b0[i1+1024*_p] * b0[i1+1024*_p]))
        turn_v0[0] = v0_first
        for turn < 7:
          v0_known = turn_v0[turn]
          v0: f32 = nothing yet of sum
          vector i1 < 128 by 8:
            o0[i1+1024*_p+128*turn] = (b0[i1+1024*_p+128*turn] * v0_known)
            v0 = sum(v0, (b0[i1+1024*_p+128*turn+128] * b0[i1+1024*_p+128*turn+128]))
          turn_v0[turn+1] = v0
        v0_last = turn_v0[7]
        vector i1 < 128 by 8:
          o0[i1+1024*_p+896] = (b0[i1+1024*_p+896] * v0_last)""")


def test_the_last_group_may_have_fewer_rows() -> None:
    kernel = flat(normalized, TYPE, TYPE)
    nest = build_nest(kernel, rows(kernel, pipelined_rows=4, cache_row=True))
    assert nest.extent == 3
    assert verify_nest(nest) > 0


def test_what_needs_no_sum_is_written_as_it_is_read() -> None:
    def added(x: Any, y: Any) -> Any:
        both = x + y
        return both * F.rsqrt(F.mean(both * both, axis=1, keepdims=True) + 1e-5), both

    kernel = flat(added, TYPE, TYPE)
    streaming = frozenset(buffer.name for buffer in kernel.outputs)
    nest = build_nest(kernel, rows(kernel, pipelined_rows=4, cache_row=True, streaming=streaming))
    assert nest.extent == 10, "two rows would be written past the cache at once"
    first, second = str(nest).split("vector")[1:]
    assert "o0[" in first and "o1[" not in first
    assert "o1[" in second and "o0[" not in second


def test_rows_whose_sum_is_written_alone_take_no_turns() -> None:
    kernel = flat(lambda x: F.sum(x, axis=1), TYPE)
    assert build_nest(kernel, rows(kernel, pipelined_rows=4)).extent == 10


@pytest.mark.parametrize("count", (1, 3, 4, 5, 9))
@pytest.mark.parametrize("function", (scaled, normalized))
def test_turns_change_nothing(
    function: Callable[..., Any], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = function.__code__.co_argcount
    generator = np.random.default_rng(0)
    given = [generator.normal(size=(count, 80)).astype(np.float32) for _ in range(arguments)]
    check(function, given, [f"f32[{count}, 80]"] * arguments, monkeypatch)


def test_turns_follow_rows_that_are_scaled_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    given = [generator.normal(size=size).astype(np.float32) for size in ((10, 64), (4, 1))]
    check(in_groups, given, [TYPE, "f32[4, 1]"], monkeypatch)


def check(
    function: Callable[..., Any],
    given: list[np.ndarray[Any, Any]],
    types: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results with turns are those without, but for the order of sums over several axes."""
    found = []
    for turns in (0, 4):
        changed: list[Schedule] = []

        def chosen(
            kernel: Kernel,
            machine: Machine,
            turns: int = turns,
            changed: list[Schedule] = changed,
            choose: Any = launches.choose,
        ) -> Schedule:
            changed.append(replace(choose(kernel, machine), pipelined_rows=turns))
            return changed[-1]

        with monkeypatch.context() as patched:
            patched.setattr(launches, "choose", chosen)
            executable = compile_graph(monograph.trace(function, *types), Options(cache=False))
        assert changed
        found += executable(*given)
    np.testing.assert_allclose(*found, rtol=0 if found[0].ndim == 2 else 1e-6)
