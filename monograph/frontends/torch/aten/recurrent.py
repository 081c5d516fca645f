"""Recurrent layers: torch's flat parameter lists, unpacked layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, static
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
from monograph.ir.types import i64
from monograph.ops.recurrent import recurrent_activation

Layer = Callable[[Value, "dict[str, Any]", int], tuple[Value, ...]]
"""From x [time, batch, features], parameters and the layer's place to (outputs, states…)."""


def _stack(parts: Sequence[Value]) -> Value:
    return F.stack(list(parts), 0)


def _parameters(node: TorchNode, projected: bool) -> list[dict[str, Any]]:
    """For each layer what ``F.lstm`` and its like take, the directions along the first axis."""
    directions = 2 if node["bidirectional"] else 1
    biased = bool(node["has_biases"])
    width = 2 + 2 * biased + projected
    flat: list[Value] = node["params"]
    layers = []
    for layer in range(static(node["num_layers"], "num_layers")):
        sides = [
            flat[start : start + width]
            for start in range(layer * directions * width, (layer + 1) * directions * width, width)
        ]
        found: dict[str, Any] = {
            "weight": _stack([side[0] for side in sides]),
            "recurrent": _stack([side[1] for side in sides]),
            "direction": "bidirectional" if directions == 2 else "forward",
        }
        if biased:
            found["bias"] = _stack([F.concat([side[2], side[3]], 0) for side in sides])
        if projected:
            found["projection"] = _stack([side[-1] for side in sides])
        layers.append(found)
    return layers


def _states(node: TorchNode, states: Value, layer: int) -> Value:
    """The initial states of a layer, out of those of all."""
    directions = 2 if node["bidirectional"] else 1
    return F.slice(states, [layer * directions], [(layer + 1) * directions], axes=[0])


def _run(node: TorchNode, run: Layer, projected: bool = False) -> tuple[Value, ...]:
    """Layer after layer: the outputs of the last, and the last states of all."""
    layers = _parameters(node, projected)
    dropped = float(node["dropout"]) if node["train"] else 0.0
    packed = _Packed(node) if node.op_name.endswith(".data") else None
    x: Value = packed.unpacked(node["data"]) if packed is not None else node["input"]
    if node.get("batch_first"):
        x = F.swapaxes(x, 0, 1)
    ends: list[tuple[Value, ...]] = []
    for place, parameters in enumerate(layers):
        if place > 0 and dropped > 0.0:
            x = F.dropout(x, node.random_key(), dropped)
        if packed is not None:
            parameters["lengths"] = packed.lengths
        outputs, *states = run(x, parameters, place)
        time, directions, batch, size = outputs.shape
        x = F.reshape(F.swapaxes(outputs, 1, 2), (time, batch, directions * size))
        ends.append(tuple(states))
    if node.get("batch_first"):
        x = F.swapaxes(x, 0, 1)
    if packed is not None:
        x = packed.packed(x)
    return x, *(F.concat(list(each), 0) for each in zip(*ends, strict=True))


class _Packed:
    """A packed sequence: the steps of all examples, time by time, the longest examples first.

    ``batch_sizes`` says how many examples are left at each time. The layers run on examples of
    equal length, and ``lengths`` tells them where each one really ends.
    """

    def __init__(self, node: TorchNode) -> None:
        hidden = node["hx"][0] if isinstance(node["hx"], list) else node["hx"]
        self.sizes = F.cast(node["batch_sizes"], i64)
        self.starts = F.cumsum(self.sizes, 0) - self.sizes
        self.batch = hidden.shape[1]
        example = F.arange(self.batch, dtype=i64)
        self.there = F.less(example, F.unsqueeze(self.sizes, 1))  # [time, batch]
        self.lengths = F.sum(F.cast(self.there, i64), 0)
        self.steps = node["data"].shape[0]

    def unpacked(self, data: Value) -> Value:
        """[steps, features] as [time, batch, features]; after an example's end it means nothing."""
        places = F.unsqueeze(self.starts, 1) + F.arange(self.batch, dtype=i64)
        return F.take(data, F.where(self.there, places, 0), axis=0)

    def packed(self, outputs: Value) -> Value:
        """[time, batch, features] as [steps, features]."""
        time, batch, features = outputs.shape
        flat = F.reshape(outputs, (time * batch, features))
        # Which of the places in ``flat`` are steps, in order: those come first, the rest is cut.
        order = F.argsort(F.cast(F.logical_not(F.reshape(self.there, (time * batch,))), i64), 0)
        return F.take(flat, F.slice(order, [0], [self.steps]), axis=0)


@converter("aten.lstm.input", "aten.lstm.data")
def _lstm(node: TorchNode) -> tuple[Value, ...]:
    hidden, cell = node["hx"]

    def run(x: Value, parameters: dict[str, Any], layer: int) -> tuple[Value, ...]:
        initial, initial_cell = (_states(node, states, layer) for states in (hidden, cell))
        outputs: tuple[Value, ...] = F.lstm(
            x, **parameters, initial=initial, initial_cell=initial_cell, gates="ifco"
        )
        return outputs

    return _run(node, run, projected=hidden.shape[-1] != cell.shape[-1])


@converter("aten.gru.input", "aten.gru.data")
def _gru(node: TorchNode) -> tuple[Value, ...]:
    def run(x: Value, parameters: dict[str, Any], layer: int) -> tuple[Value, ...]:
        initial = _states(node, node["hx"], layer)
        outputs: tuple[Value, ...] = F.gru(
            x, **parameters, initial=initial, gates="rzh", linear_before_reset=True
        )
        return outputs

    return _run(node, run)


@converter("aten.rnn_tanh.input", "aten.rnn_relu.input", "aten.rnn_tanh.data", "aten.rnn_relu.data")
def _rnn(node: TorchNode) -> tuple[Value, ...]:
    activation = recurrent_activation("relu" if "relu" in node.op_name else "tanh")
    directions = 2 if node["bidirectional"] else 1

    def run(x: Value, parameters: dict[str, Any], layer: int) -> tuple[Value, ...]:
        initial = _states(node, node["hx"], layer)
        outputs: tuple[Value, ...] = F.rnn(
            x, **parameters, initial=initial, activations=[activation] * directions
        )
        return outputs

    return _run(node, run)
