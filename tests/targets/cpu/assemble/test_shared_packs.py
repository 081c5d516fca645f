"""An operand that several products want packed alike is packed once."""

from __future__ import annotations

from typing import Any

import numpy as np

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.graph import Graph
from monograph.passes.lower_composites import LowerComposites
from monograph.program.code import Launch, walk_steps
from monograph.targets.cpu.build import build
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.target import FORMULAS

GENERATOR = np.random.default_rng(5)
WEIGHTS = [GENERATOR.standard_normal((64, 384)).astype(np.float32) for _ in range(3)]


def projections(x: Any) -> Any:
    return tuple(x @ weight for weight in WEIGHTS)


def launched(graph: Graph) -> list[str]:
    LowerComposites(keep=FORMULAS, keep_lowerable=True).run(graph)
    steps = build(graph, machine_named("x86-64")).steps
    launches = [step for step in walk_steps(steps) if isinstance(step, Launch)]
    return [step.kernel for step in launches for _ in range(step.times)]


def test_projections_of_one_input_pack_it_once() -> None:
    graph = monograph.trace(projections, "f32[128, 64]")
    names = launched(graph)
    assert sum("pack_left" in name for name in names) == 1
    assert len(names) == 4


def test_projections_of_different_inputs_pack_each() -> None:
    def apart(x: Any) -> Any:
        return projections(x), projections(F.tanh(x))

    names = launched(monograph.trace(apart, "f32[128, 64]"))
    assert sum("pack_left" in name for name in names) == 2


def test_what_reads_a_shared_operand_is_right() -> None:
    x = GENERATOR.standard_normal((128, 64)).astype(np.float32)
    graph = monograph.trace(lambda x: projections(F.tanh(x)), "f32[128, 64]")
    got = compile_graph(graph, Options(cache=False)).run([x])
    for made, weight in zip(got, WEIGHTS, strict=True):
        np.testing.assert_allclose(made, np.tanh(x.astype(np.float64)) @ weight, atol=1e-4)
