"""A product stores its result as the next one reads it, if nobody else does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.graph import Graph
from monograph.ir.types import DType, bf16, f16
from monograph.passes.lower_composites import LowerComposites
from monograph.program.code import Launch
from monograph.targets.cpu.build import Program, build
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.target import FORMULAS

GENERATOR = np.random.default_rng(11)


def weight(rows: int, columns: int) -> NDArray[np.float32]:
    made: NDArray[np.float32] = GENERATOR.standard_normal((rows, columns), np.float32)
    return made / np.float32(rows**0.5)


UP, DOWN = weight(64, 768), weight(768, 384)


def layer(x: Any) -> Any:
    return F.relu(x @ UP) @ DOWN


def built(function: Any, shape: str) -> Program:
    graph: Graph = monograph.trace(function, shape)
    LowerComposites(keep=FORMULAS, keep_lowerable=True).run(graph)
    return build(graph, machine_named("x86-64"))


def packings(program: Program) -> int:
    launches = [step for step in program.steps if isinstance(step, Launch)]
    assert {step.kernel for step in launches} <= {each.name for each in program.kernels}
    assert program.ends[-1] == len(program.steps)
    return sum("pack_left" in step.kernel for step in launches)


def test_what_only_a_product_reads_is_not_packed_again() -> None:
    assert packings(built(layer, "f32[128, 64]")) == 1


def test_what_somebody_else_reads_is_packed() -> None:
    def both(x: Any) -> Any:
        middle = F.relu(x @ UP)
        return middle @ DOWN, middle

    assert packings(built(both, "f32[128, 64]")) == 2


def test_an_unknown_number_of_rows_is_not_packed_again() -> None:
    assert packings(built(layer, "f32[rows, 64]")) == 1


@pytest.mark.parametrize("dtype", [bf16, f16])
def test_narrow_results_are_rounded_as_if_they_were_stored(dtype: DType) -> None:
    up, down = (each.astype(dtype.numpy) for each in (UP, DOWN))
    x = GENERATOR.standard_normal((128, 64)).astype(dtype.numpy)

    def narrow(x: Any) -> Any:
        return F.relu(x @ up) @ down

    def kept(x: Any) -> Any:
        middle = F.relu(x @ up)
        return middle @ down, middle

    shape = f"{dtype.name}[128, 64]"
    assert packings(built(narrow, shape)) == 1
    options = Options(cache=False)
    (got,) = compile_graph(monograph.trace(narrow, shape), options).run([x])
    expected, _ = compile_graph(monograph.trace(kept, shape), options).run([x])
    np.testing.assert_array_equal(got, expected)


def test_rows_of_any_number_are_read_as_they_were_stored() -> None:
    ready = compile_graph(monograph.trace(layer, "f32[rows, 64]"), Options(cache=False))
    for rows in (1, 6, 29, 31, 36, 41, 100, 252, 257, 300):
        x = GENERATOR.standard_normal((rows, 64)).astype(np.float32)
        expected = np.maximum(x.astype(np.float64) @ UP, 0) @ DOWN
        np.testing.assert_allclose(ready.run([x])[0], expected, atol=1e-5)


def test_kernels_that_nobody_launches_are_not_compiled() -> None:
    program = built(layer, "f32[128, 64]")
    assert not any("pack_left" in each.name for each in program.kernels[1:])


@pytest.mark.parametrize("rows", [96, 100, 128, 197, 300])
@pytest.mark.parametrize("columns", [400, 768])
def test_a_result_in_tiles_is_read_as_it_was_stored(rows: int, columns: int) -> None:
    up, down = weight(64, columns), weight(columns, 384)
    x = GENERATOR.standard_normal((rows, 64)).astype(np.float32)
    graph = monograph.trace(lambda x: F.relu(x @ up) @ down, f"f32[{rows}, 64]")
    (got,) = compile_graph(graph, Options(cache=False)).run([x])
    expected = np.maximum(x.astype(np.float64) @ up, 0) @ down
    np.testing.assert_allclose(got, expected, atol=1e-5)
