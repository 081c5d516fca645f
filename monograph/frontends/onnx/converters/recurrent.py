"""Recurrent layers: RNN, GRU and LSTM, each direction a ``scan`` over time.

What a step needs of its input is one product for all steps, before the scan; inside is only what
depends on the state. Where sequences have lengths of their own, steps past the end leave the state
as it is and give zeros; a reverse scan then starts at the end of each sequence by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import i64

Function: TypeAlias = Callable[[Value], Value]
States: TypeAlias = tuple[Value, ...]
Step: TypeAlias = Callable[[Value, States], States]
Prepare: TypeAlias = Callable[["Direction"], Step]


LSTM_FUNCTIONS = ("Sigmoid", "Tanh", "Tanh")
"""Of the gates, of what enters the cell, and of what leaves it."""


@dataclass(frozen=True)
class Direction:
    """One direction of a layer: its weights, and the functions of its gates."""

    weight: Value
    recurrence: Value
    input_bias: Value | None
    recurrent_bias: Value | None
    peepholes: tuple[Value, ...] | None
    functions: tuple[Function, ...]
    reverse: bool
    clip: float

    def from_input(self, x: Value) -> Value:
        """What the gates take of the input."""
        return F.linear(x, self.weight, self.input_bias)

    def from_state(self, h: Value) -> Value:
        """What the gates take of the state."""
        return F.linear(h, self.recurrence, self.recurrent_bias)

    def apply(self, which: int, x: Value) -> Value:
        """Function ``which`` of ``x``, held within the clip threshold if there is one."""
        return self.functions[which](F.clip(x, -self.clip, self.clip) if self.clip else x)


@converter("RNN")
def rnn(node: OnnxNode) -> tuple[Value, ...]:
    """h = f(x W + h R + b)."""

    def prepare(layer: Direction) -> Step:
        def step(x: Value, states: States) -> States:
            (h,) = states
            return (layer.apply(0, F.add(x, layer.from_state(h))),)

        return step

    return run(node, directions(node, ("Tanh",)), prepare)


@converter("GRU")
def gru(node: OnnxNode) -> tuple[Value, ...]:
    """h = (1 - z) g(…) + z h, with an update gate z and a reset gate r."""
    before_reset = bool(node.integer("linear_before_reset", 0))

    def prepare(layer: Direction) -> Step:
        r_gates, r_new = _parted(layer.recurrence, 0)
        b_gates, b_new = (
            (None, None) if layer.recurrent_bias is None else _parted(layer.recurrent_bias, 0)
        )

        def step(x: Value, states: States) -> States:
            (h,) = states
            x_gates, x_new = _parted(x, 1)
            gates = layer.apply(0, F.add(x_gates, F.linear(h, r_gates, b_gates)))
            update, reset = F.split(gates, 2, 1)
            if before_reset:
                fresh = F.multiply(reset, F.linear(h, r_new, b_new))
            else:
                fresh = F.linear(F.multiply(reset, h), r_new, b_new)
            candidate = layer.apply(1, F.add(x_new, fresh))
            kept = F.multiply(update, h)
            return (F.add(F.multiply(F.subtract(1.0, update), candidate), kept),)

        return step

    return run(node, directions(node, ("Sigmoid", "Tanh")), prepare)


@converter("LSTM")
def lstm(node: OnnxNode) -> tuple[Value, ...]:
    """c = f c + i g(…) and h = o tanh(c), with input, output and forget gates."""
    return run_lstm(node, directions(node, LSTM_FUNCTIONS))


def run_lstm(node: OnnxNode, layers: Sequence[Direction]) -> tuple[Value, ...]:
    """All steps of an LSTM with these directions."""
    coupled = bool(node.integer("input_forget", 0))

    def prepare(layer: Direction) -> Step:
        def step(x: Value, states: States) -> States:
            h, cell = states
            gates = F.add(x, layer.from_state(h))
            enter, leave, forget, candidate = F.split(gates, 4, 1)
            if layer.peepholes is not None:
                enter = F.add(enter, F.multiply(layer.peepholes[0], cell))
                forget = F.add(forget, F.multiply(layer.peepholes[2], cell))
            enter = layer.apply(0, enter)
            kept = F.subtract(1.0, enter) if coupled else layer.apply(0, forget)
            added = F.multiply(enter, layer.apply(1, candidate))
            cell = F.add(F.multiply(kept, cell), added)
            if layer.peepholes is not None:
                leave = F.add(leave, F.multiply(layer.peepholes[1], cell))
            return F.multiply(layer.apply(0, leave), layer.functions[2](cell)), cell

        return step

    return run(node, layers, prepare, states=2)


def run(
    node: OnnxNode, layers: Sequence[Direction], prepare: Prepare, states: int = 1
) -> tuple[Value, ...]:
    """All steps of all directions: the outputs of the steps, then the last of each state."""
    x = node.input(0)
    batch_first = bool(node.integer("layout", 0))
    if batch_first:
        x = F.swapaxes(x, 0, 1)
    initial = [_initial(node, 5 + index, x, layers, batch_first) for index in range(states)]
    inside = _inside(node, x)
    outputs, lasts = [], []
    for position, layer in enumerate(layers):
        first = tuple(each[position] for each in initial)
        last, output = _scanned(layer, x, first, inside, prepare(layer))
        outputs.append(output)
        lasts.append(last)
    y = F.stack(outputs, 1)  # [time, direction, batch, hidden]
    finals = [F.stack(each, 0) for each in zip(*lasts, strict=True)]
    if batch_first:
        y = F.transpose(y, (2, 0, 1, 3))
        finals = [F.swapaxes(each, 0, 1) for each in finals]
    return y, *finals


def _scanned(
    layer: Direction, x: Value, first: States, inside: Value | None, step: Step
) -> tuple[States, Value]:
    """One direction: the last states, and the output of each step."""
    projected = layer.from_input(x)

    def body(states: States, now: tuple[Value, ...]) -> tuple[States, Value]:
        made = step(now[0], states)
        if inside is None:
            return made, made[0]
        kept = tuple(F.where(now[1], new, old) for new, old in zip(made, states, strict=True))
        return kept, F.where(now[1], made[0], 0.0)

    steps = (projected,) if inside is None else (projected, inside)
    last, outputs = F.scan(body, first, steps, reverse=layer.reverse)
    return last, outputs


def _inside(node: OnnxNode, x: Value) -> Value | None:
    """Which steps lie inside each sequence, [time, batch, 1]; None if all do."""
    lengths, known = node.optional(4), node.constant(4)
    if lengths is None or (known is not None and all(known == x.shape[0])):
        return None
    times = F.reshape(F.iota((x.shape[0],), 0, i64), (x.shape[0], 1))
    within = F.less(times, F.reshape(cast_to(lengths, i64), (1, -1)))
    return F.unsqueeze(within, 2)


def _initial(
    node: OnnxNode, index: int, x: Value, layers: Sequence[Direction], batch_first: bool
) -> list[Value]:
    """The first value of a state for each direction: an operand, or zeros."""
    given = node.optional(index)
    if given is None:
        return [F.zeros((x.shape[1], layer.recurrence.shape[1]), x.dtype) for layer in layers]
    whole = F.swapaxes(given, 0, 1) if batch_first else given
    return [_part(whole, position) for position in range(len(layers))]


# What a layer is made of.


def directions(node: OnnxNode, defaults: Sequence[str]) -> list[Direction]:
    """The directions of a layer, with their parts of the operands."""
    name = node.string("direction", "forward")
    flags = {"forward": (False,), "foward": (False,), "reverse": (True,)}
    reverses = flags.get(name, (False, True))
    if name not in flags and name != "bidirectional":
        raise node.error("an unknown direction", found=repr(name))
    weight, recurrence, bias = node.input(1), node.input(2), node.optional(3)
    peepholes = node.optional(7)
    if weight.rank != 3 or weight.shape[0] != len(reverses):
        raise node.error(
            "the weights do not fit", expected=f"{len(reverses)} directions", found=str(weight.type)
        )
    functions = _functions(node, defaults, len(reverses))
    made = []
    for position, reverse in enumerate(reverses):
        of_input, of_state = (None, None) if bias is None else F.split(_part(bias, position), 2, 0)
        peeps = None if peepholes is None else F.split(_part(peepholes, position), 3, 0)
        made.append(
            Direction(
                _part(weight, position),
                _part(recurrence, position),
                of_input,
                of_state,
                peeps,
                functions[position * len(defaults) :][: len(defaults)],
                reverse,
                node.number("clip", 0.0),
            )
        )
    return made


def _part(x: Value, position: int) -> Value:
    return F.squeeze(F.slice(x, (position,), (position + 1,), axes=(0,)), (0,))


def _parted(x: Value, axis: int) -> tuple[Value, ...]:
    """What a GRU's two gates take of an axis, and what its new state takes."""
    each = x.shape[axis] // 3
    return F.split(x, (2 * each, each), axis)


# Functions of gates.

_WITH_ALPHA = {
    "affine": 1.0, "leakyrelu": 0.01, "thresholdedrelu": 1.0, "scaledtanh": 1.0,
    "hardsigmoid": 0.2, "elu": 1.0,
}  # fmt: skip
_WITH_BETA = {"affine": 0.0, "scaledtanh": 1.0, "hardsigmoid": 0.5}
_PLAIN: dict[str, Function] = {
    "relu": F.relu,
    "tanh": F.tanh,
    "sigmoid": F.sigmoid,
    "softsign": F.softsign,
    "softplus": F.softplus,
}


def _functions(node: OnnxNode, defaults: Sequence[str], directions: int) -> tuple[Function, ...]:
    """The functions of all directions; those with parameters take theirs in order."""
    names = node.strings("activations", ()) or tuple(defaults) * directions
    wanted = len(defaults) * directions
    if len(names) < wanted:
        raise node.error("activations are missing", expected=str(wanted), found=str(names))
    alphas, betas = (list(node.floats(f"activation_{word}", ())) for word in ("alpha", "beta"))
    made = []
    for name in names[:wanted]:
        key = name.lower()
        if key in _PLAIN:
            made.append(_PLAIN[key])
            continue
        if key not in _WITH_ALPHA:
            raise node.error("an unknown activation", found=repr(name))
        alpha = alphas.pop(0) if alphas else _WITH_ALPHA[key]
        beta = betas.pop(0) if betas and key in _WITH_BETA else _WITH_BETA.get(key, 0.0)
        made.append(_parametric(key, alpha, beta))
    return tuple(made)


def _parametric(name: str, alpha: float, beta: float) -> Function:
    kinds: dict[str, Function] = {
        "affine": lambda x: F.add(F.multiply(x, alpha), beta),
        "leakyrelu": lambda x: F.leaky_relu(x, alpha),
        "thresholdedrelu": lambda x: F.where(F.greater(x, alpha), x, 0.0),
        "scaledtanh": lambda x: F.multiply(F.tanh(F.multiply(x, beta)), alpha),
        "hardsigmoid": lambda x: F.clip(F.add(F.multiply(x, alpha), beta), 0.0, 1.0),
        "elu": lambda x: F.elu(x, alpha),
    }
    return kinds[name]
