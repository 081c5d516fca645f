"""Instruments that a caller puts around whatever compiles."""

from __future__ import annotations

import numpy as np

import monograph
from monograph import functional as F
from monograph.ir.graph import Graph
from monograph.passes.base import Pass
from monograph.passes.instruments import Instrument, watching


class Names(Instrument):
    """Notes which passes ran."""

    def __init__(self) -> None:
        self.starts = 0
        self.passes: list[str] = []

    def start(self, graph: Graph) -> None:
        self.starts += 1

    def after(self, each: Pass, graph: Graph, seconds: float, changed: bool) -> None:
        self.passes.append(each.name)


def test_watching_sees_optimising_and_compiling_in_its_block_alone() -> None:
    graph = monograph.trace(lambda x: F.relu(x) + 0.0, "f32[4]")
    outer, inner = Names(), Names()
    with watching(outer):
        monograph.optimize(graph, passes="cse,dce")
        with watching(inner):
            compiled = monograph.compile(graph, cache=False)
    monograph.optimize(graph)
    assert outer.passes[:2] == ["cse", "dce"]
    assert outer.passes[2:] == inner.passes
    assert inner.starts == 2, "the level's passes, and the lowering ones"
    assert np.array_equal(compiled(np.float32([-1, 0, 1, 2]))[0], [0, 0, 1, 2])
