"""Gradients of random graphs agree with central differences in f64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from monograph import functional as F
from monograph.autodiff.vjp import grad
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.text.printer import print_graph
from monograph.ir.types import Array
from monograph.ir.verify import verify
from tests.properties.draws import seed_of
from tests.properties.graphs import graphs
from tests.properties.meaning import all_values

PARTS = 2
GRAPHS = 200
STEP = 2e-5


def with_loss(graph: Graph) -> Graph:
    """The graph with one output: a bounded number that depends on all outputs of the original."""
    copy = graph.clone()
    copy.updates = {}
    outputs = [value for value in copy.outputs if value.dtype.name == "f64"] or copy.inputs
    with copy.as_current():
        terms = []
        for index, output in enumerate(outputs):
            weights = np.random.default_rng(index).normal(size=output.shape)
            terms.append(F.sum(F.tanh(output) * weights))
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        copy.set_outputs([total])
    return copy


def slope(graph: Graph, inputs: Sequence[Array], direction: Sequence[Array], step: float) -> float:
    """The central difference of the loss along a direction."""
    ends = []
    for sign in (1.0, -1.0):
        moved = [x + sign * step * d for x, d in zip(inputs, direction, strict=True)]
        ends.append(float(interpret(graph, moved)[0]))
    return (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("part", range(PARTS))
def test_gradients_agree_with_central_differences(part: int) -> None:
    checked: set[str] = set()

    @seed(seed_of(part))
    @settings(
        max_examples=GRAPHS + GRAPHS // 2,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(graphs(smooth=True), st.integers(0, 2**16 - 1))
    def check(drawn: Graph, number: int) -> None:
        graph = with_loss(drawn)
        text = print_graph(graph)
        note(text)
        generator = np.random.default_rng(number)
        inputs = [
            0.7 * generator.normal(size=value.tensor.static_shape()) for value in graph.inputs
        ]
        if not is_tame(graph, inputs):
            return
        gradient = grad(graph)
        verify(gradient)
        gradients = interpret(gradient, inputs)
        direction = [generator.normal(size=x.shape) for x in inputs]
        parts = [float(np.sum(g * d)) for g, d in zip(gradients, direction, strict=True)]
        coarse, fine = (slope(graph, inputs, direction, h) for h in (STEP, STEP / 2))
        # What halving the step changes is what the difference does not know.
        unsure = 4 * abs(coarse - fine)
        sizes = [float(np.abs(g * d).sum()) for g, d in zip(gradients, direction, strict=True)]
        scale = max(1.0, *sizes)
        assert abs(sum(parts) - fine) <= unsure + 1e-5 * scale, (sum(parts), fine, coarse)
        if unsure <= 1e-3 * scale:
            checked.add(text)

    check()
    print(f"{len(checked)} distinct graphs")
    assert len(checked) >= GRAPHS


def is_tame(graph: Graph, inputs: Sequence[Array]) -> bool:
    """Whether all values are moderate, so that differences of them mean something."""
    with np.errstate(all="ignore"):
        arrays = all_values(graph, inputs).values()
        return all(bool((np.abs(a) < 1e3).all()) for a in arrays if a.dtype == np.float64)
