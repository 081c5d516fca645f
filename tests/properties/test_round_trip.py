"""Every graph prints to text that reads back as the same graph, and prints the same again."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, seed, settings

from monograph.ir.compare import structurally_equal
from monograph.ir.graph import Graph
from monograph.ir.text.parser import parse
from monograph.ir.text.printer import print_graph
from monograph.ir.verify import verify
from tests.properties.draws import seed_of
from tests.properties.graphs import graphs

GRAPHS = 300


def weights_of(graph: Graph) -> dict[str, object]:
    """The data of a graph's weights, which the text form leaves out."""
    return {node.op.label: node.op.data for node in graph.walk() if node.op.name == "weight"}


@pytest.mark.parametrize("part", range(2))
def test_text_reads_back_as_the_same_graph(part: int) -> None:
    seen: set[str] = set()

    @seed(seed_of(part))
    @settings(
        max_examples=GRAPHS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs(odd_names=part == 1))
    def check(graph: Graph) -> None:
        verify(graph)
        text = print_graph(graph)
        again = parse(text, weights=weights_of(graph))
        assert structurally_equal(graph, again, names=True)
        assert print_graph(again) == text
        seen.add(text)

    check()
    assert len(seen) >= GRAPHS * 0.85
