"""Rows times the matrix of their run, beside the products written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph

GENERATOR = np.random.default_rng(0)
ENDS = np.array([5, 5, 21, 22, 30])


def draw(*shape: int) -> Any:
    return GENERATOR.normal(size=shape).astype(np.float32)


def expected(rows: Any, matrices: Any) -> Any:
    made = np.zeros((len(rows), matrices.shape[2]))
    for start, end, matrix in zip([0, *ENDS[:-1]], ENDS, matrices, strict=True):
        made[start:end] = rows[start:end].astype(np.float64) @ matrix.astype(np.float64)
    return made


@pytest.mark.parametrize("columns", [16, 40])
@pytest.mark.parametrize("count", ["33", "n"])
def test_every_row_meets_the_matrix_of_its_run(columns: int, count: str) -> None:
    rows, matrices = draw(33, 300), draw(5, 300, columns)
    types = [f"f32[{count}, 300]", f"f32[5, 300, {columns}]", "i64[5]"]
    graph = monograph.trace(F.grouped_matmul, *types)
    native = compile_graph(graph, Options(threads=2, strict=True, cache=False))
    for got in (
        *native.run([rows, matrices, ENDS]),
        *monograph.interpret(graph, [rows, matrices, ENDS]),
    ):
        np.testing.assert_allclose(got, expected(rows, matrices), rtol=0, atol=1e-4)
        assert not np.any(got[ENDS[-1] :])


def test_an_end_beyond_the_rows_is_an_error() -> None:
    graph = monograph.trace(F.grouped_matmul, "f32[33, 8]", "f32[5, 8, 16]", "i64[5]")
    native = compile_graph(graph, Options(threads=1, strict=True, cache=False))
    with pytest.raises(monograph.errors.MonographError):
        native.run([draw(33, 8), draw(5, 8, 16), ENDS + 10])


def test_the_gradient_reaches_rows_and_matrices() -> None:
    rows, matrices = draw(30, 8), draw(5, 8, 16)

    def loss(x: Any, w: Any) -> Any:
        return F.sum(F.square(F.grouped_matmul(x, w, ENDS)))

    graph = monograph.grad(monograph.trace(loss, "f32[30, 8]", "f32[5, 8, 16]"))
    of_rows, of_matrices = monograph.interpret(graph, [rows, matrices])
    back = 2 * expected(rows, matrices)
    for start, end, matrix, found in zip([0, *ENDS[:-1]], ENDS, matrices, of_matrices, strict=True):
        np.testing.assert_allclose(found, rows[start:end].T @ back[start:end], atol=1e-3)
        np.testing.assert_allclose(of_rows[start:end], back[start:end] @ matrix.T, atol=1e-3)
