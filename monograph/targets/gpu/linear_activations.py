"""Joins a product with its bias and activation where the library computes all three at once.

%dot = dot_general(%x, %w)
%sum = add(%dot, %b)               ─▶     %y = linear_activation(%x, %w, %b)
%y = gelu(%sum)                               {activation = "gelu_tanh"}
"""

from __future__ import annotations

from monograph.ir.graph import Graph
from monograph.ir.types import bf16, f16
from monograph.ops.linalg import DotGeneral
from monograph.ops.linear_activation import LinearActivation
from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.choices import CUBLASLT, Site, site_of


def join_linear_activations(graph: Graph, chip: Chip) -> int:
    """Make one node of each product that the library computes with its epilogue; how many."""
    joined = 0
    for node in list(graph.nodes):
        if node.erased or not isinstance(node.op, DotGeneral):
            continue
        site = site_of(node)
        if site is not None and site.activation and _is_joined(site, chip):
            _join(graph, site)
            joined += 1
    return joined


def _is_joined(site: Site, chip: Chip) -> bool:
    """Whether the library computes all of a site.

    Where nothing was measured: in 16 bits, since its epilogue reads and writes nothing else.
    """
    winner = chip.measured.winner(site.key)
    if winner is not None:
        return winner == CUBLASLT
    return chip.backend == "cuda" and site.nodes[0].results[0].dtype in (f16, bf16)


def _join(graph: Graph, site: Site) -> None:
    first, linear, last = site.nodes[0], site.nodes[1], site.nodes[-1]
    op = first.op
    assert isinstance(op, DotGeneral)
    bias = next(value for value in linear.operands if value is not first.results[0])
    made = LinearActivation(site.activation, inputs_first=tuple(op.rhs_contracting) == (0,))
    with graph.inserting_before(last, last.location):
        joined = graph.create(made, (*first.operands, bias), name=last.results[0].name)
    graph.replace(last, joined.results)
    for each in reversed(site.nodes[:-1]):
        graph.erase(each)
