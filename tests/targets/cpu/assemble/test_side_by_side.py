"""Equal kernels that do not wait for each other run in one region."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.passes.lower_composites import LowerComposites
from monograph.program.code import Launch
from monograph.targets.cpu.build import build
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.target import FORMULAS

GENERATOR = np.random.default_rng(7)
WEIGHTS = [GENERATOR.standard_normal((64, 64)).astype(np.float32) for _ in range(3)]
WIDE = [GENERATOR.standard_normal((64, 384)).astype(np.float32) for _ in range(3)]


def together(function: Any, shape: str) -> list[int]:
    graph = monograph.trace(function, shape)
    LowerComposites(keep=FORMULAS, keep_lowerable=True).run(graph)
    program = build(graph, machine_named("x86-64"))
    assert program.ends[-1] == len(program.steps)
    return [step.times for step in program.steps if isinstance(step, Launch)]


def apart(x: Any) -> Any:
    return tuple(x @ weight for weight in WEIGHTS)


def wide(x: Any) -> Any:
    return tuple(x @ weight for weight in WIDE)


def chained(x: Any) -> Any:
    for weight in WEIGHTS:
        x = x @ weight
    return x


def test_products_of_one_input_run_together() -> None:
    assert together(apart, "f32[2048, 64]") == [3]


def test_products_of_each_other_run_one_after_the_other() -> None:
    assert together(chained, "f32[2048, 64]") == [1, 1, 1]


def test_products_of_an_unknown_number_of_rows_run_together() -> None:
    assert together(wide, "f32[rows, 64]") == [1, 3]  # they share what is packed


@pytest.mark.parametrize("rows", [1, 96, 300])
def test_every_run_of_an_unknown_size_computes_its_own_result(rows: int) -> None:
    x = GENERATOR.standard_normal((rows, 64)).astype(np.float32)
    graph = monograph.trace(wide, "f32[rows, 64]")
    got = compile_graph(graph, Options(cache=False, threads=2)).run([x])
    for made, weight in zip(got, WIDE, strict=True):
        np.testing.assert_allclose(made, x.astype(np.float64) @ weight, atol=1e-4)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_run_computes_its_own_result(threads: int) -> None:
    x = GENERATOR.standard_normal((2048, 64)).astype(np.float32)
    graph = monograph.trace(lambda x: apart(F.tanh(x)), "f32[2048, 64]")
    got = compile_graph(graph, Options(cache=False, threads=threads)).run([x])
    for made, weight in zip(got, WEIGHTS, strict=True):
        np.testing.assert_allclose(made, np.tanh(x.astype(np.float64)) @ weight, atol=1e-4)
