"""Compiling with passes of one's choice, and with one's own."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options
from monograph.errors import MonographError
from monograph.ir.graph import Graph
from monograph.passes.base import Pass, PassResult
from monograph.passes.dce import DeadCodeElimination


def function(x: Any) -> Any:
    return F.exp(x) + F.exp(x)


def nodes_after(**options: Any) -> int:
    return int(monograph.compile(function, "f32[8]", **options).executable.report.nodes_after)


def test_the_given_passes_run_instead_of_the_level_s() -> None:
    assert nodes_after(passes="dce") == 3
    assert nodes_after(passes="cse,dce") == 2
    assert nodes_after(passes=[DeadCodeElimination()]) == 3
    assert nodes_after() < 3


def test_a_pass_of_one_s_own_runs() -> None:
    seen = []

    @dataclasses.dataclass(frozen=True)
    class Count(Pass):
        """Look at the graph."""

        name: ClassVar[str] = "count_nodes"

        def run(self, graph: Graph) -> PassResult:
            seen.append(len(graph))
            return PassResult(changed=False)

    x = np.ones(8, np.float32)
    compiled = monograph.compile(function, "f32[8]", passes=[Count()], cache=True)
    np.testing.assert_allclose(compiled(x), 2 * np.exp(x), rtol=1e-6)
    assert seen == [3]
    assert compiled.executable.report.cache == "off"  # nobody knows when it changes


def test_passes_of_the_package_may_be_cached() -> None:
    assert Options(cache=True, passes=[DeadCodeElimination()]).may_cache is True


@pytest.mark.parametrize("passes", [[3], [DeadCodeElimination]])
def test_what_is_no_pass_is_an_error(passes: Any) -> None:
    with pytest.raises(MonographError, match="not a pass"):
        monograph.compile(function, "f32[8]", passes=passes)


def test_a_pass_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(MonographError, match="nonsense"):
        monograph.compile(function, "f32[8]", passes="nonsense")
