"""Joining many operands: each element is one operand's, and formulas do not get deep with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.interpret import interpret
from monograph.kernel.evaluate import evaluate_kernel
from tests.kernel.build import flat


def pieces(count: int) -> Any:
    """Pieces of one to three columns, in another order than they lie in."""

    def program(x: Any) -> Any:
        starts = [(7 * k) % (count - 3) for k in range(count)]
        return F.concat([x[:, s : s + 1 + s % 3] for s in starts], 1) * 2.0

    return program


@pytest.mark.parametrize("level", ["O0", "O2"])
def test_each_of_many_pieces_is_in_its_place(level: str) -> None:
    graph = monograph.trace(pieces(71), "f32[2, 71]")
    x = np.arange(142, dtype=np.float32).reshape(2, 71)
    (found,) = compile_graph(graph, Options(cache=False, level=level, threads=1)).run([x])
    np.testing.assert_array_equal(found, interpret(graph, [x])[0])


def test_more_operands_than_formulas_may_be_deep() -> None:
    kernel = flat(pieces(1100), "f32[2, 1100]")
    x = np.arange(2200, dtype=np.float32)
    (found,) = evaluate_kernel(kernel, [x])
    (expected,) = interpret(monograph.trace(pieces(1100), "f32[2, 1100]"), [x.reshape(2, 1100)])
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def test_a_join_of_many_constants_is_rewritten_to_its_end() -> None:
    def program(x: Any) -> Any:
        return F.stack([F.full((3,), 0.0)] * 400 + [x], -1) * 2.0

    graph = monograph.trace(program, "f32[3]")
    x = np.ones(3, np.float32)
    (expected,) = interpret(graph, [x])
    (found,) = interpret(monograph.optimize(graph), [x])
    np.testing.assert_array_equal(found, expected)
