"""Graphs as Relay's text, the IR of TVM up to its version 0.18: ``to_relay``.

    #[version = "0.0.5"]
    def @main(%x: Tensor[(2, 4), float32], %w: Tensor[(3, 4), float32]) -> Tensor[(2, 3), float32] {
      %0 = nn.dense(%x, %w, units=3) /* ty=Tensor[(2, 3), float32] */;
      nn.relu(%0) /* ty=Tensor[(2, 3), float32] */
    }

Weights are parameters of the function, as ``tvm.relay.build(params=…)`` takes them: their arrays
come beside the text, by name. No runtime of Relay is tested against: the text is checked by form.
"""

from __future__ import annotations

from monograph.exporters.relay import converters  # noqa: F401  # fills the table
from monograph.exporters.relay.emitter import TABLE, Emitter, RelayModule
from monograph.ir.graph import Graph

__all__ = ["TABLE", "RelayModule", "to_relay"]


def to_relay(graph: Graph) -> RelayModule:
    """A module with the graph as its function main."""
    return Emitter(TABLE.lower(graph)).module()
