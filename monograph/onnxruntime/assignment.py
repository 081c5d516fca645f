"""ONNX Runtime's record of which provider runs each node: here the CPU provider runs them all.

ONNX Runtime records this when a session is made, if the options ask for it.
"""

from __future__ import annotations

from onnx import ModelProto

from monograph.dataclass import dataclass

RECORD = "session.record_ep_graph_assignment_info"
"""The entry of the configuration that asks for it, with ``"1"``."""


@dataclass(frozen=True)
class OrtEpAssignedNode:
    """A node of the model."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    """Nodes that a provider was given together."""

    ep_name: str
    nodes: tuple[OrtEpAssignedNode, ...]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes, in the model's order."""
        return list(self.nodes)


def assign_subgraphs(model: ModelProto, provider: str) -> list[OrtEpAssignedSubgraph]:
    """Every node of the model's graph with the provider that runs it."""
    return [
        OrtEpAssignedSubgraph(provider, (OrtEpAssignedNode(node.name, node.domain, node.op_type),))
        for node in model.graph.node
    ]
