"""Recurrent layers: rnn, gru and lstm, each a ``scan`` over time (so gradients come for free).

Shapes and semantics are ONNX's: x is [time, batch, features], and every parameter has a first axis
for the directions (forward, backward, or both). Other frameworks order the gates in another way,
which ``gates`` says: one letter a gate, in the order in which the parameters hold them. Sequences
may end early (``lengths``): from there on a state stays as it is and the output is zero.

What the gates take of the input is one product for all steps, before the scan. In it there is one
product with the state (two if a GRU resets before it), and what follows is elementwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from monograph.ir.build import Operand, as_operands, graph_of, promote_operands
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.operators import function
from monograph.ops import (
    activation,
    control,
    data,
    elementwise,
    joining,
    linalg,
    rectifier,
    slicing,
)
from monograph.ops import math as math_ops
from monograph.ops import shape as shape_ops
from monograph.ops.rules import require

Direction: TypeAlias = Literal["forward", "reverse", "bidirectional"]
Activation: TypeAlias = Callable[[Value], Value]
States: TypeAlias = tuple[Value, ...]
Step: TypeAlias = Callable[[States, Value], States]

_REVERSED: dict[str, tuple[bool, ...]] = {
    "forward": (False,),
    "reverse": (True,),
    "bidirectional": (False, True),
}


def recurrent_activation(
    name: str, alpha: float | None = None, beta: float | None = None
) -> Activation:
    """An activation by ONNX's name for it, in any case, with its parameters."""
    table: dict[str, tuple[float, float, Callable[[Value, float, float], Value]]] = {
        "affine": (1.0, 0.0, lambda x, a, b: x * a + b),
        "elu": (1.0, 0.0, lambda x, a, _: activation.elu(x, a)),
        "hardsigmoid": (0.2, 0.5, lambda x, a, b: elementwise.clip(x * a + b, 0.0, 1.0)),
        "leakyrelu": (0.01, 0.0, lambda x, a, _: rectifier.leaky_relu(x, a)),
        "relu": (0.0, 0.0, lambda x, _, __: rectifier.relu(x)),
        "scaledtanh": (1.0, 1.0, lambda x, a, b: math_ops.tanh(x * b) * a),
        "sigmoid": (0.0, 0.0, lambda x, _, __: math_ops.sigmoid(x)),
        "softplus": (0.0, 0.0, lambda x, _, __: activation.softplus(x)),
        "softsign": (0.0, 0.0, lambda x, _, __: activation.softsign(x)),
        "tanh": (0.0, 0.0, lambda x, _, __: math_ops.tanh(x)),
        "thresholdedrelu": (1.0, 0.0, lambda x, a, _: elementwise.where(x > a, x, 0.0)),
    }
    require(
        name.lower() in table,
        "recurrent_activation: no such activation",
        expected=", ".join(table),
        found=name,
    )
    default_alpha, default_beta, compute = table[name.lower()]
    first = default_alpha if alpha is None else alpha
    second = default_beta if beta is None else beta
    return lambda x: compute(x, first, second)


class Layer:
    """The parameters of a layer, checked, and the way through time that all kinds share.

    ``size`` is that of a state, if no weight among the parameters tells it: whoever holds weights
    in another form overrides ``from_input`` and ``from_state``.
    """

    def __init__(
        self,
        name: str,
        gates: str,
        order: str,
        x: Operand,
        parameters: Mapping[str, Operand | None],
        states: Sequence[Operand | None],
        lengths: Operand | None,
        direction: Direction,
        activations: Sequence[Activation],
        size: Dim | None = None,
    ) -> None:
        require(
            sorted(gates) == sorted(order),
            f"{name}: the gates do not fit",
            expected=f"each letter of {order} once",
            found=gates,
        )
        require(
            direction in _REVERSED,
            f"{name}: no such direction",
            expected=", ".join(_REVERSED),
            found=direction,
        )
        self.name, self.gates, self.reversed = name, gates, _REVERSED[direction]
        named = {key: operand for key, operand in parameters.items() if operand is not None}
        given = [state for state in states if state is not None]
        self.x, *values = promote_operands(x, *named.values(), *given)
        self.parameters = dict(zip(named, values, strict=False))
        found = iter(values[len(named) :])
        self.states = [None if state is None else next(found) for state in states]
        self._check_ranks()
        self.inside = None if lengths is None else self._inside(lengths)
        needed = len(activations) // len(self.reversed)
        self.activations = [
            activations[position * needed : (position + 1) * needed]
            for position in range(len(self.reversed))
        ]
        self.size = self.parameters["weight"].shape[1] // len(gates) if size is None else size

    def _check_ranks(self) -> None:
        ranks = {"weight": 3, "recurrent": 3, "bias": 2, "peephole": 2, "projection": 3}
        values = {"x": self.x, **self.parameters}
        for key, value in values.items():
            rank = ranks.get(key, 3)
            require(
                value.rank == rank and value.dtype.is_float,
                f"{self.name}: {key} does not fit",
                expected=f"floats of rank {rank}",
                found=value.type,
            )
            require(
                key == "x" or value.shape[0] == len(self.reversed),
                f"{self.name}: {key} does not fit",
                expected=f"a first dimension of {len(self.reversed)}, the directions",
                found=value.type,
            )
        for key in {"weight", "recurrent"} & self.parameters.keys():
            rows = self.parameters[key].shape[1]
            require(
                not isinstance(rows, int) or rows % len(self.gates) == 0,
                f"{self.name}: {key} does not hold {len(self.gates)} gates",
                expected=f"a second dimension that is a multiple of {len(self.gates)}",
                found=self.parameters[key].type,
            )

    def _inside(self, lengths: Operand) -> Value:
        """Which steps lie inside each sequence: [time, batch, 1]."""
        (given,) = as_operands(graph_of([self.x, lengths]), [lengths])
        with self.x.graph.as_current():
            times = data.iota((self.x.shape[0], 1, 1), 0, given.dtype)
        return elementwise.less(times, shape_ops.unsqueeze(given, -1))

    def of(self, key: str, side: int) -> Value | None:
        """A parameter of one direction."""
        value = self.parameters.get(key)
        return None if value is None else _of_direction(value, side)

    def needed(self, key: str, side: int) -> Value:
        """A parameter of one direction that every layer has."""
        value = self.of(key, side)
        assert value is not None  # weight and recurrent are never None
        return value

    def biases(self, side: int) -> tuple[Value | None, Value | None]:
        """The biases beside the weights and beside the recurrent weights."""
        both = self.of("bias", side)
        if both is None:
            return None, None
        half = self.size * len(self.gates)
        return (
            slicing.slice(both, [0], [half], axes=[0]),
            slicing.slice(both, [half], [half * 2], axes=[0]),
        )

    def from_input(self, side: int, bias: Value | None) -> Value:
        """What the gates take of all steps of the input."""
        return _affine(self.x, self.needed("weight", side), bias)

    def from_state(self, side: int) -> Activation:
        """What the gates take of a state, as a function of it for the steps to call."""
        weight = self.needed("recurrent", side)
        return lambda state: linalg.linear(state, weight)

    def part(self, x: Value, letter: str, gates: str | None = None) -> Value:
        """The part of the last axis that belongs to a gate."""
        position = (self.gates if gates is None else gates).index(letter)
        start = self.size * position
        return slicing.slice(x, [start], [start + self.size], axes=[-1])

    def initial(self, state: int, side: int, size: Dim) -> Value:
        """A state before the first step: zeros unless it is given."""
        value = self.states[state]
        if value is None:
            with self.x.graph.as_current():
                return data.zeros((self.x.shape[1], size), self.x.dtype)
        return _of_direction(value, side)

    def run(
        self, step: Step, states: States, side: int, bias: Value | None
    ) -> tuple[Value, States]:
        """The outputs at each time, and the states after the last step, of one direction."""
        inputs, inside = self.from_input(side, bias), self.inside

        def body(carry: States, current: tuple[Value, ...]) -> tuple[States, Value]:
            following = step(carry, current[0])
            if inside is None:
                return following, following[0]
            pairs = zip(following, carry, strict=True)
            kept = tuple(elementwise.where(current[1], new, old) for new, old in pairs)
            return kept, elementwise.where(current[1], following[0], 0.0)

        sequences = (inputs,) if inside is None else (inputs, inside)
        final, outputs = control.scan(body, states, sequences, reverse=self.reversed[side])
        return outputs, final

    def joined(self, results: Sequence[tuple[Value, States]]) -> tuple[Value, ...]:
        """Outputs of [time, directions, batch, size] and states of [directions, batch, size]."""
        outputs = joining.stack([output for output, _ in results], 1)
        states = zip(*(final for _, final in results), strict=True)
        return outputs, *(joining.stack(list(state), 0) for state in states)


def _of_direction(value: Value, side: int) -> Value:
    return shape_ops.squeeze(slicing.slice(value, [side], [side + 1], axes=[0]), 0)


def _sum(values: Sequence[Value | None]) -> Value | None:
    """The sum of those that are there."""
    found = [value for value in values if value is not None]
    return elementwise.add(*found) if len(found) > 1 else next(iter(found), None)


def _clip(x: Value, limit: float | None) -> Value:
    return x if limit is None else elementwise.clip(x, -limit, limit)


def _affine(x: Value, weight: Value, bias: Value | None) -> Value:
    return linalg.linear(x, weight) if bias is None else linalg.linear(x, weight, bias)


def _default(
    activations: Sequence[Activation] | None, names: Sequence[str], direction: str
) -> Sequence[Activation]:
    """The activations given, for each direction, or the usual ones."""
    count = len(_REVERSED.get(direction, (False,)))
    if activations is None:
        activations = [recurrent_activation(name) for name in names]
    if len(activations) == len(names):
        activations = list(activations) * count
    require(
        len(activations) == len(names) * count,
        "the number of activations does not fit",
        expected=f"{len(names)} for each of {count} directions",
        found=len(activations),
    )
    return activations


@function
def rnn(
    x: Operand,
    weight: Operand,
    recurrent: Operand,
    bias: Operand | None = None,
    initial: Operand | None = None,
    lengths: Operand | None = None,
    *,
    direction: Direction = "forward",
    activations: Sequence[Activation] | None = None,
    clip: float | None = None,
) -> tuple[Value, Value]:
    """h = f(x Wᵀ + h Rᵀ + b) at each time: (outputs, last h).

    ``weight`` is [directions, H, features], ``recurrent`` [directions, H, H], ``bias`` (one beside
    each of them) [directions, 2 H], ``initial`` [directions, batch, H].
    """
    chosen = _default(activations, ["tanh"], direction)
    parameters = {"weight": weight, "recurrent": recurrent, "bias": bias}
    layer = Layer("rnn", "h", "h", x, parameters, [initial], lengths, direction, chosen)
    results = []
    for side in range(len(layer.reversed)):
        first = (layer.initial(0, side, layer.size),)
        step = _rnn_step(layer, side, clip)
        results.append(layer.run(step, first, side, _sum(layer.biases(side))))
    outputs, last = layer.joined(results)
    return outputs, last


def _rnn_step(layer: Layer, side: int, clip: float | None) -> Step:
    (activate,) = layer.activations[side]
    from_state = layer.from_state(side)

    def step(states: States, current: Value) -> States:
        return (activate(_clip(current + from_state(states[0]), clip)),)

    return step


@function
def gru(
    x: Operand,
    weight: Operand,
    recurrent: Operand,
    bias: Operand | None = None,
    initial: Operand | None = None,
    lengths: Operand | None = None,
    *,
    direction: Direction = "forward",
    gates: str = "zrh",
    activations: Sequence[Activation] | None = None,
    clip: float | None = None,
    linear_before_reset: bool = False,
) -> tuple[Value, Value]:
    """Gated recurrent units: (outputs, last h).

    z = f(x, h) keeps the state, r = f(x, h) resets it, n = g(x, r h) is new, h = (1 - z) n + z h.
    With ``linear_before_reset``, r scales h Rᵀ + b instead of h. ``weight`` is
    [directions, 3 H, features], ``recurrent`` [directions, 3 H, H], ``bias`` [directions, 6 H].
    torch's layers have gates ``rzh`` and reset after the product.
    """
    chosen = _default(activations, ["sigmoid", "tanh"], direction)
    parameters = {"weight": weight, "recurrent": recurrent, "bias": bias}
    layer = Layer("gru", gates, "zrh", x, parameters, [initial], lengths, direction, chosen)
    make = _step_resetting_after if linear_before_reset else _step_resetting_before
    results = []
    for side in range(len(layer.reversed)):
        step = make(layer, side, clip)
        first = (layer.initial(0, side, layer.size),)
        results.append(layer.run(step, first, side, layer.biases(side)[0]))
    outputs, last = layer.joined(results)
    return outputs, last


def _step_resetting_after(layer: Layer, side: int, clip: float | None) -> Step:
    """One product with the state for all gates; r scales what it gives the new state."""
    gate, new = layer.activations[side]
    from_state, bias = layer.from_state(side), layer.biases(side)[1]

    def step(states: States, current: Value) -> States:
        (state,) = states
        through = from_state(state)
        through = through if bias is None else through + bias

        def gated(letter: str) -> Value:
            total = layer.part(current, letter) + layer.part(through, letter)
            return gate(_clip(total, clip))

        keep, reset = gated("z"), gated("r")
        fresh = layer.part(current, "h") + reset * layer.part(through, "h")
        return ((1.0 - keep) * new(_clip(fresh, clip)) + keep * state,)

    return step


def _step_resetting_before(layer: Layer, side: int, clip: float | None) -> Step:
    """A product with the state for the gates, and one with what r leaves of it."""
    gate, new = layer.activations[side]
    both = "".join(letter for letter in layer.gates if letter != "h")
    weights = {
        letters: _rows(layer, layer.needed("recurrent", side), letters) for letters in (both, "h")
    }
    bias = layer.biases(side)[1]
    biases = {letters: None if bias is None else _rows(layer, bias, letters) for letters in weights}

    def step(states: States, current: Value) -> States:
        (state,) = states
        through = _affine(state, weights[both], biases[both])

        def gated(letter: str) -> Value:
            total = layer.part(current, letter) + layer.part(through, letter, both)
            return gate(_clip(total, clip))

        keep, reset = gated("z"), gated("r")
        fresh = layer.part(current, "h") + _affine(reset * state, weights["h"], biases["h"])
        return ((1.0 - keep) * new(_clip(fresh, clip)) + keep * state,)

    return step


def _rows(layer: Layer, parameter: Value, letters: str) -> Value:
    """The rows of a parameter that belong to some gates."""
    starts = [layer.size * layer.gates.index(letter) for letter in letters]
    if letters in layer.gates:
        return slicing.slice(parameter, [starts[0]], [starts[-1] + layer.size], axes=[0])
    rows = [slicing.slice(parameter, [start], [start + layer.size], axes=[0]) for start in starts]
    return joining.concat(rows, 0)


@function
def lstm(
    x: Operand,
    weight: Operand,
    recurrent: Operand,
    bias: Operand | None = None,
    initial: Operand | None = None,
    initial_cell: Operand | None = None,
    lengths: Operand | None = None,
    peephole: Operand | None = None,
    projection: Operand | None = None,
    *,
    direction: Direction = "forward",
    gates: str = "iofc",
    activations: Sequence[Activation] | None = None,
    clip: float | None = None,
    input_forget: bool = False,
) -> tuple[Value, Value, Value]:
    """Long short-term memory: (outputs, last h, last cell).

    The cell becomes f c + i g(x, h) and the output o h(c), with gates i (input), f (forget) and o
    (output). ``weight`` is [directions, 4 H, features], ``recurrent`` [directions, 4 H, H],
    ``bias`` [directions, 8 H], ``peephole`` (i, o, f) [directions, 3 H]. ``projection``, which is
    [directions, P, H], makes the output shorter; ``input_forget`` couples the gates, f = 1 - i.
    torch's layers have gates ``ifco``.
    """
    chosen = _default(activations, ["sigmoid", "tanh", "tanh"], direction)
    parameters = {
        "weight": weight,
        "recurrent": recurrent,
        "bias": bias,
        "peephole": peephole,
        "projection": projection,
    }
    states = [initial, initial_cell]
    layer = Layer("lstm", gates, "iofc", x, parameters, states, lengths, direction, chosen)
    return run_lstm(layer, clip, input_forget)


def run_lstm(layer: Layer, clip: float | None, input_forget: bool) -> tuple[Value, Value, Value]:
    """All directions of an LSTM: (outputs, last h, last cell)."""
    results = []
    for side in range(len(layer.reversed)):
        projection = layer.of("projection", side)
        size = layer.size if projection is None else projection.shape[0]
        first = (layer.initial(0, side, size), layer.initial(1, side, layer.size))
        step = _lstm_step(layer, side, clip, input_forget)
        results.append(layer.run(step, first, side, _sum(layer.biases(side))))
    outputs, last, cell = layer.joined(results)
    return outputs, last, cell


def _lstm_step(layer: Layer, side: int, clip: float | None, input_forget: bool) -> Step:
    gate, new, squash = layer.activations[side]
    peephole, projection = layer.of("peephole", side), layer.of("projection", side)
    from_state = layer.from_state(side)

    def step(states: States, current: Value) -> States:
        state, cell = states
        total = current + from_state(state)

        def gated(letter: str, seen: Value) -> Value:
            amount = layer.part(total, letter)
            if peephole is not None:
                amount = amount + layer.part(peephole, letter, "iof") * seen
            return gate(_clip(amount, clip))

        entry = gated("i", cell)
        forget = 1.0 - entry if input_forget else gated("f", cell)
        following = forget * cell + entry * new(_clip(layer.part(total, "c"), clip))
        output = gated("o", following) * squash(following)
        return (output if projection is None else linalg.linear(output, projection)), following

    return step
