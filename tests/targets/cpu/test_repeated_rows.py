"""Rows that a kernel computes more than once are not written over what they are computed from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.dims import Symbol, dim_min
from monograph.ir.interpret import interpret
from monograph.ir.types import f32
from monograph.kernel.expr import Buffer, index, load
from monograph.targets.cpu.assemble import program_builder
from monograph.targets.cpu.nests.loop_nest import LoopNest, Write
from monograph.targets.cpu.nests.verify import ScheduleError, verify_sampled


def traced(rows: int) -> Any:
    def program(g: Any, v: Any) -> Any:
        centred = g - F.sum(g, 0)
        column = F.sum(centred * v, 1, keepdims=True)
        made = centred + F.pad(column, (0, 0), (0, 16))
        return made + F.pad(F.slice(made, [0, 0], [3, 17]), (0, 0), (rows - 3, 0))

    return monograph.trace(program, f"f32[{rows}, 17]", f"f32[{rows}, 17]")


@pytest.mark.parametrize("rows", [5, 15, 16, 17, 31, 33])
def test_a_column_is_added_once_to_the_last_row(rows: int) -> None:
    graph = traced(rows)
    generator = np.random.default_rng(0)
    inputs = [generator.normal(size=(rows, 17)).astype(np.float32) for _ in range(2)]
    (expected,) = interpret(graph, inputs)
    (found,) = compile_graph(graph, Options(cache=False, level="O0", threads=1)).run(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_verifier_refuses_rows_that_are_written_over_and_computed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MONOGRAPH_VERIFY", "1")
    monkeypatch.setattr(program_builder, "overwrites_in_order", lambda nest, inputs: True)
    inputs = [np.ones((17, 17), np.float32)] * 2
    with pytest.raises(ScheduleError, match="computed in its place"):
        compile_graph(traced(17), Options(cache=False, level="O0", threads=1)).run(inputs)


@pytest.mark.parametrize("again", [0, 2])
def test_the_verifier_sees_an_element_that_is_read_after_it_was_written(again: int) -> None:
    given, made = Buffer("b0", f32, (4,)), Buffer("o0", f32, (4,))
    p = Symbol("_p", 0, 2)
    lots = [p, dim_min(p + again, 2)]  # the second lot once more at the end
    body = tuple(Write(made, index(k), load(given, (index(k),))) for k in lots)
    nest = LoopNest("twice", (given,), (made,), (), (), p, 3, 1, body)
    verify_sampled(nest, {})
    with pytest.raises(ScheduleError, match="is read after o0"):
        verify_sampled(nest, {}, in_place={"b0": "o0"})
