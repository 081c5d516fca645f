"""Recurrent layers: RNN, GRU and LSTM, as ``ops.recurrent`` has them, which follows ONNX.

What is left to do here is ONNX's own: operands by their places, batches that come first, and
functions of gates by name, those with parameters taking theirs from a list in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import i64
from monograph.ops.recurrent import Activation, Direction, recurrent_activation

LSTM_FUNCTIONS = ("Sigmoid", "Tanh", "Tanh")
"""Of the gates, of what enters the cell, and of what leaves it."""


@converter("RNN")
def rnn(node: OnnxNode) -> tuple[Value, ...]:
    """h = f(x W + h R + b)."""
    options = common_options(node, ("Tanh",))
    return finish(node, F.rnn(time_first(node, node.input(0)), *_weights(node), **options))


@converter("GRU")
def gru(node: OnnxNode) -> tuple[Value, ...]:
    """h = (1 - z) g(…) + z h, with an update gate z and a reset gate r."""
    options = common_options(node, ("Sigmoid", "Tanh"))
    after = bool(node.integer("linear_before_reset", 0))
    x = time_first(node, node.input(0))
    return finish(node, F.gru(x, *_weights(node), **options, linear_before_reset=after))


@converter("LSTM")
def lstm(node: OnnxNode) -> tuple[Value, ...]:
    """c = f c + i g(…) and h = o tanh(c), with input, output and forget gates."""
    made = F.lstm(
        time_first(node, node.input(0)),
        *_weights(node),
        **common_options(node, LSTM_FUNCTIONS),
        initial_cell=time_first(node, node.optional(6)),
        peephole=node.optional(7),
        input_forget=bool(node.integer("input_forget", 0)),
    )
    return finish(node, made)


def _weights(node: OnnxNode) -> tuple[Value, Value, Value | None]:
    """Weights, recurrent weights and biases, which have a part for each direction."""
    count = 2 if direction_of(node) == "bidirectional" else 1
    weight = node.input(1)
    if weight.rank != 3 or weight.shape[0] != count:
        raise node.error(
            "the weights do not fit", expected=f"{count} directions", found=str(weight.type)
        )
    return weight, node.input(2), node.optional(3)


def common_options(node: OnnxNode, defaults: Sequence[str]) -> dict[str, Any]:
    """What all kinds have: first state, lengths, direction, functions and clip."""
    direction = direction_of(node)
    count = 2 if direction == "bidirectional" else 1
    return {
        "initial": time_first(node, node.optional(5)),
        "lengths": _lengths(node),
        "direction": direction,
        "activations": _functions(node, defaults, count),
        "clip": node.number("clip", 0.0) or None,
    }


def direction_of(node: OnnxNode) -> Direction:
    """The direction by its name, of which an old exporter's misspelling is one."""
    match node.string("direction", "forward"):
        case "forward" | "foward":
            return "forward"
        case "reverse":
            return "reverse"
        case "bidirectional":
            return "bidirectional"
        case name:
            raise node.error("an unknown direction", found=repr(name))


def time_first(node: OnnxNode, value: Any) -> Any:
    """An operand, if it is there, with time, or the direction, before the batch."""
    return value if value is None or not _is_batch_first(node) else F.swapaxes(value, 0, 1)


def finish(node: OnnxNode, made: tuple[Value, ...]) -> tuple[Value, ...]:
    """The outputs and last states in the layout that the node has."""
    if not _is_batch_first(node):
        return made
    outputs, *states = made
    return F.transpose(outputs, (2, 0, 1, 3)), *(F.swapaxes(each, 0, 1) for each in states)


def _is_batch_first(node: OnnxNode) -> bool:
    return bool(node.integer("layout", 0))


def _lengths(node: OnnxNode) -> Value | None:
    """How long each sequence is; None if all are as long as there is time."""
    lengths, known = node.optional(4), node.constant(4)
    time = node.input(0).shape[1 if _is_batch_first(node) else 0]
    if lengths is None or (known is not None and all(known == time)):
        return None
    return cast_to(lengths, i64)


# Functions of gates.

_TAKES_ALPHA = {
    "affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu",
}  # fmt: skip
_TAKES_BETA = {"affine", "scaledtanh", "hardsigmoid"}
_PLAIN = {"relu", "tanh", "sigmoid", "softsign", "softplus"}


def _functions(node: OnnxNode, defaults: Sequence[str], directions: int) -> list[Activation]:
    """The functions of all directions; those with parameters take theirs in order."""
    names = node.strings("activations", ()) or tuple(defaults) * directions
    wanted = len(defaults) * directions
    if len(names) < wanted:
        raise node.error("activations are missing", expected=str(wanted), found=str(names))
    alphas, betas = (list(node.floats(f"activation_{word}", ())) for word in ("alpha", "beta"))
    made = []
    for name in names[:wanted]:
        key = name.lower()
        if key not in _PLAIN | _TAKES_ALPHA:
            raise node.error("an unknown activation", found=repr(name))
        alpha = alphas.pop(0) if alphas and key in _TAKES_ALPHA else None
        beta = betas.pop(0) if betas and key in _TAKES_BETA else None
        made.append(recurrent_activation(key, alpha, beta))
    return made
