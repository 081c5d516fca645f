"""Minimum cuts against networkx."""

from __future__ import annotations

import networkx
import numpy as np
import pytest

from monograph.quantization.min_cut import INFINITE, Network


@pytest.mark.parametrize("seed", range(30))
def test_a_cut_costs_what_the_maximum_flow_carries(seed: int) -> None:
    generator = np.random.default_rng(seed)
    names = ["source", "sink", *range(12)]
    network, reference = Network(), networkx.DiGraph()
    reference.add_nodes_from(names)
    edges: dict[tuple[object, object], float] = {}
    for _ in range(50):
        first, second = generator.choice(len(names), 2, replace=False)
        capacity = float(generator.integers(1, 20))
        tail, head = names[first], names[second]
        network.add_edge(tail, head, capacity)
        edges[tail, head] = edges.get((tail, head), 0.0) + capacity
    reference.add_weighted_edges_from([(*pair, c) for pair, c in edges.items()], "capacity")
    cost, side = network.cut()
    assert cost == networkx.minimum_cut_value(reference, "source", "sink")
    assert "source" in side and "sink" not in side
    crossing = sum(c for (t, h), c in edges.items() if t in side and h not in side)
    assert crossing == cost


def test_an_infinite_edge_is_never_cut() -> None:
    network = Network()
    network.add_edge("source", "a", INFINITE)
    network.add_edge("a", "b", INFINITE)
    network.add_edge("b", "sink", 3)
    network.add_edge("a", "sink", 4)
    assert network.cut() == (7.0, {"source", "a", "b"})
