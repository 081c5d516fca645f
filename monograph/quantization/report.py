"""What quantizing a model did: each layer's precision and why, and the conversions left."""

from __future__ import annotations

import json
from typing import Any

from monograph.dataclass import dataclass


@dataclass(frozen=True)
class LayerReport:
    """One contraction: its name, op, the dtypes of its operands, and why it is in float, if so."""

    name: str
    op: str
    precision: str
    reason: str = ""
    weight_bytes: int = 0
    stored_bytes: int = 0


@dataclass(frozen=True)
class QuantizationReport:
    """What became of a model. Bytes are those of one call, symbolic sizes at their least."""

    layers: tuple[LayerReport, ...]
    quantizes: int
    dequantizes: int
    alone: int
    """Conversions that no neighbouring kernel takes in: of inputs, and for ops of floats."""
    conversion_bytes: int
    """What all conversions read and write."""

    @property
    def quantized(self) -> tuple[LayerReport, ...]:
        """The layers that are not in float."""
        return tuple(layer for layer in self.layers if layer.precision != "float")

    @property
    def weight_ratio(self) -> float:
        """How many times smaller the weights of the layers became."""
        before = sum(layer.weight_bytes for layer in self.layers)
        return before / max(1, sum(layer.stored_bytes for layer in self.layers))

    def to_json(self) -> dict[str, Any]:
        """For a program to read."""
        return {
            "layers": [
                {
                    "name": each.name,
                    "op": each.op,
                    "precision": each.precision,
                    "reason": each.reason,
                    "weight_bytes": each.weight_bytes,
                    "stored_bytes": each.stored_bytes,
                }
                for each in self.layers
            ],
            "quantizes": self.quantizes,
            "dequantizes": self.dequantizes,
            "alone": self.alone,
            "conversion_bytes": self.conversion_bytes,
        }

    def __str__(self) -> str:
        kept = [layer for layer in self.layers if layer.precision == "float"]
        lines = [
            f"{len(self.quantized)} of {len(self.layers)} layers quantized, "
            f"their weights {self.weight_ratio:.2f} times smaller",
            f"{self.quantizes} quantize and {self.dequantizes} dequantize nodes are left, "
            f"{self.alone} of them alone;",
            f"they move {self.conversion_bytes:,} bytes a call",
        ]
        lines += [f"in float: {each.name} ({each.op}): {each.reason}" for each in kept]
        return "\n".join(lines)

    def dumps(self) -> str:
        """``to_json`` as text."""
        return json.dumps(self.to_json(), indent=2)
