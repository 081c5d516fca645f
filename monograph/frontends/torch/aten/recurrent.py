"""Recurrent layers: torch's flat lists of parameters, one layer on top of the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, static
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
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
    x: Value = node["input"]
    if node["batch_first"]:
        x = F.swapaxes(x, 0, 1)
    ends: list[tuple[Value, ...]] = []
    for place, parameters in enumerate(layers):
        if place > 0 and dropped > 0.0:
            x = F.dropout(x, node.random_key(), dropped)
        outputs, *states = run(x, parameters, place)
        time, directions, batch, size = outputs.shape
        x = F.reshape(F.swapaxes(outputs, 1, 2), (time, batch, directions * size))
        ends.append(tuple(states))
    if node["batch_first"]:
        x = F.swapaxes(x, 0, 1)
    return x, *(F.concat(list(each), 0) for each in zip(*ends, strict=True))


@converter("aten.lstm.input")
def _lstm(node: TorchNode) -> tuple[Value, ...]:
    hidden, cell = node["hx"]

    def run(x: Value, parameters: dict[str, Any], layer: int) -> tuple[Value, ...]:
        initial, initial_cell = (_states(node, states, layer) for states in (hidden, cell))
        outputs: tuple[Value, ...] = F.lstm(
            x, **parameters, initial=initial, initial_cell=initial_cell, gates="ifco"
        )
        return outputs

    return _run(node, run, projected=hidden.shape[-1] != cell.shape[-1])


@converter("aten.gru.input")
def _gru(node: TorchNode) -> tuple[Value, ...]:
    def run(x: Value, parameters: dict[str, Any], layer: int) -> tuple[Value, ...]:
        initial = _states(node, node["hx"], layer)
        outputs: tuple[Value, ...] = F.gru(
            x, **parameters, initial=initial, gates="rzh", linear_before_reset=True
        )
        return outputs

    return _run(node, run)


@converter("aten.rnn_tanh.input", "aten.rnn_relu.input")
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
