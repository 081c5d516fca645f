"""Rows that a kernel computes more than once are not written over what they are computed from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.interpret import interpret


@pytest.mark.parametrize("rows", [5, 15, 16, 17, 31, 33])
def test_a_column_is_added_once_to_the_last_row(rows: int) -> None:
    def program(g: Any, v: Any) -> Any:
        centred = g - F.sum(g, 0)
        column = F.sum(centred * v, 1, keepdims=True)
        made = centred + F.pad(column, (0, 0), (0, 16))
        return made + F.pad(F.slice(made, [0, 0], [3, 17]), (0, 0), (rows - 3, 0))

    graph = monograph.trace(program, f"f32[{rows}, 17]", f"f32[{rows}, 17]")
    generator = np.random.default_rng(0)
    inputs = [generator.normal(size=(rows, 17)).astype(np.float32) for _ in range(2)]
    (expected,) = interpret(graph, inputs)
    (found,) = compile_graph(graph, Options(cache=False, level="O0", threads=1)).run(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
