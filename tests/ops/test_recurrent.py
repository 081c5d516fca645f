"""Recurrent layers beside torch's, and beside the equations where torch has no such thing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ops import recurrent
from tests.ops.against_torch import agree, draw
from tests.ops.running import refuses, run

TIME, BATCH, FEATURES, SIZE = 4, 3, 2, 5
COUNTS = {"rnn": 1, "gru": 3, "lstm": 4}
GATES: dict[str, dict[str, Any]] = {
    "rnn": {},
    "gru": {"gates": "rzh", "linear_before_reset": True},
    "lstm": {"gates": "ifco"},
}


def layer(kind: str, direction: str, **options: Any) -> torch.nn.RNNBase:
    torch.manual_seed(0)
    made = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[kind]
    both = direction == "bidirectional"
    return made(FEATURES, SIZE, bidirectional=both, dtype=torch.float64, **options)


def parameters(module: torch.nn.RNNBase) -> list[np.ndarray]:
    """Weight, recurrent and bias, with a first axis for the directions."""
    sides = ["", "_reverse"] if module.bidirectional else [""]

    def stacked(names: list[str]) -> np.ndarray:
        sides_of = [[getattr(module, name + side) for name in names] for side in sides]
        return np.stack([torch.cat(parts).detach().numpy() for parts in sides_of])

    return [
        stacked(["weight_ih_l0"]),
        stacked(["weight_hh_l0"]),
        stacked(["bias_ih_l0", "bias_hh_l0"]),
    ]


def functional_call(module: torch.nn.RNNBase, x: Any, weights: Any, states: Any) -> Any:
    """A torch layer as a function of stacked parameters, so that both sides are differentiable."""
    weight, turned, bias = weights
    sides = ["", "_reverse"] if module.bidirectional else [""]
    named = {}
    for position, side in enumerate(sides):
        half = bias.shape[1] // 2
        named[f"weight_ih_l0{side}"] = weight[position]
        named[f"weight_hh_l0{side}"] = turned[position]
        named[f"bias_ih_l0{side}"] = bias[position, :half]
        named[f"bias_hh_l0{side}"] = bias[position, half:]
    return torch.func.functional_call(module, named, (x, states))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_values_and_gradients_as_torch(kind: str, direction: Any, symbolic: bool) -> None:
    module = layer(kind, direction)
    sides = 2 if direction == "bidirectional" else 1
    x, initial = draw(TIME, BATCH, FEATURES), draw(sides, BATCH, SIZE, seed=1)
    cell = draw(sides, BATCH, SIZE, seed=2)
    states = [initial, cell] if kind == "lstm" else [initial]

    def ours(x: Any, w: Any, r: Any, b: Any, *states: Any) -> Any:
        made = getattr(recurrent, kind)(x, w, r, b, *states, direction=direction, **GATES[kind])
        total = made[0]
        for last in made[1:]:
            total = total + last[None] * 2.0
        return total

    def theirs(x: Any, w: Any, r: Any, b: Any, *states: Any) -> Any:
        given = tuple(states) if kind == "lstm" else states[0]
        output, final = functional_call(module, x, (w, r, b), given)
        total = output.reshape(TIME, BATCH, sides, SIZE).transpose(1, 2)
        for last in final if kind == "lstm" else (final,):
            total = total + last[None] * 2.0
        return total

    rows = COUNTS[kind] * SIZE
    types = [
        "f64[t, n, f]",
        f"f64[{sides}, {rows}, f]",
        f"f64[{sides}, {rows}, {SIZE}]",
        f"f64[{sides}, {2 * rows}]",
        *[f"f64[{sides}, n, {SIZE}]"] * len(states),
    ]
    agree(ours, theirs, x, *parameters(module), *states, types=types if symbolic else None)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_sequences_that_end_early(kind: str, direction: Any) -> None:
    module, lengths = layer(kind, direction), np.array([2, 4, 1])
    x = draw(TIME, BATCH, FEATURES)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(x), torch.tensor(lengths), enforce_sorted=False
    )
    output, final = module(packed)
    padded = torch.nn.utils.rnn.pad_packed_sequence(output)[0].detach().numpy()

    def ours(x: Any) -> Any:
        return getattr(recurrent, kind)(
            x, *parameters(module), lengths=lengths, direction=direction, **GATES[kind]
        )

    outputs, *states = interpret(trace(ours, x), [x])
    np.testing.assert_allclose(outputs.transpose(0, 2, 1, 3).reshape(padded.shape), padded)
    for got, want in zip(states, final if kind == "lstm" else (final,), strict=True):
        np.testing.assert_allclose(got, want.detach().numpy())


def test_projection_as_torch() -> None:
    module = layer("lstm", "forward", proj_size=3)
    weights = [
        *parameters(module),
        module.weight_hr_l0.detach().numpy()[None],
    ]
    x = draw(TIME, BATCH, FEATURES)

    def ours(x: Any, w: Any, r: Any, b: Any, p: Any) -> Any:
        return recurrent.lstm(x, w, r, b, projection=p, gates="ifco")

    outputs, last, cell = interpret(trace(ours, x, *weights), [x, *weights])
    expected, (expected_last, expected_cell) = module(torch.tensor(x))
    np.testing.assert_allclose(outputs[:, 0], expected.detach().numpy())
    np.testing.assert_allclose(last, expected_last.detach().numpy())
    np.testing.assert_allclose(cell, expected_cell.detach().numpy())


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_reverse_is_forward_of_the_reversed() -> None:
    module = layer("gru", "forward")
    x = draw(TIME, BATCH, FEATURES)
    forward = run(lambda x: recurrent.gru(x, *parameters(module))[0], x[::-1].copy())
    reverse = run(lambda x: recurrent.gru(x, *parameters(module), direction="reverse")[0], x)
    np.testing.assert_allclose(reverse, forward[::-1])


def test_gru_that_resets_before_the_product() -> None:
    x, w, r = draw(1, 1, 2), draw(1, 9, 2, seed=1), draw(1, 9, 3, seed=2)
    b, h = draw(1, 18, seed=3), draw(1, 1, 3, seed=4)
    got = run(lambda *operands: recurrent.gru(*operands)[0], x, w, r, b, h)
    through, state = x[0, 0] @ w[0].T + b[0, :9], h[0, 0]
    z = sigmoid(through[:3] + state @ r[0, :3].T + b[0, 9:12])
    reset = sigmoid(through[3:6] + state @ r[0, 3:6].T + b[0, 12:15])
    new = np.tanh(through[6:] + (reset * state) @ r[0, 6:].T + b[0, 15:])
    np.testing.assert_allclose(got[0, 0, 0], (1 - z) * new + z * state)


@pytest.mark.parametrize("input_forget", [False, True])
def test_lstm_with_peepholes_and_a_clip(input_forget: bool) -> None:
    x, w, r = draw(1, 1, 2), draw(1, 12, 2, seed=1), draw(1, 12, 3, seed=2)
    h, c, p = draw(1, 1, 3, seed=4), draw(1, 1, 3, seed=5), draw(1, 9, seed=6)

    def ours(x: Any, w: Any, r: Any, h: Any, c: Any, p: Any) -> Any:
        return recurrent.lstm(x, w, r, None, h, c, peephole=p, clip=0.4, input_forget=input_forget)[
            :2
        ]

    outputs, last = interpret(trace(ours, x, w, r, h, c, p), [x, w, r, h, c, p])
    total, cell = x[0, 0] @ w[0].T + h[0, 0] @ r[0].T, c[0, 0]

    def clip(x: np.ndarray) -> np.ndarray:
        return np.clip(x, -0.4, 0.4)

    entry = sigmoid(clip(total[:3] + p[0, :3] * cell))
    forget = 1 - entry if input_forget else sigmoid(clip(total[6:9] + p[0, 6:] * cell))
    following = forget * cell + entry * np.tanh(clip(total[9:]))
    output = sigmoid(clip(total[3:6] + p[0, 3:6] * following))
    np.testing.assert_allclose(outputs[0, 0, 0], output * np.tanh(following))
    np.testing.assert_allclose(last[0, 0], outputs[0, 0, 0])


def test_activations_for_each_direction() -> None:
    x, w, r = draw(TIME, BATCH, 2), draw(2, 3, 2, seed=1), draw(2, 3, 3, seed=2)
    relu, affine = (
        recurrent.recurrent_activation("Relu"),
        recurrent.recurrent_activation("Affine", 0.5, 0.1),
    )

    def ours(x: Any, w: Any, r: Any) -> Any:
        made = recurrent.rnn(x, w, r, direction="bidirectional", activations=[relu, affine])
        return made[0]

    got = run(ours, x, w, r)
    first = np.maximum(x[0] @ w[0].T, 0)
    last = (x[-1] @ w[1].T) * 0.5 + 0.1
    np.testing.assert_allclose(got[0, 0], first)
    np.testing.assert_allclose(got[-1, 1], last)


def test_every_activation() -> None:
    x = np.array([-2.0, -0.1, 0.3, 4.0])
    expected = {
        "affine": 2 * x + 0.5,
        "elu": np.where(x > 0, x, 2 * np.expm1(x)),
        "hardsigmoid": np.clip(2 * x + 0.5, 0, 1),
        "leakyrelu": np.where(x > 0, x, 2 * x),
        "relu": np.maximum(x, 0),
        "scaledtanh": 2 * np.tanh(0.5 * x),
        "sigmoid": sigmoid(x),
        "softplus": np.log1p(np.exp(x)),
        "softsign": x / (1 + np.abs(x)),
        "tanh": np.tanh(x),
        "thresholdedrelu": np.where(x > 2, x, 0),
    }
    for name, want in expected.items():
        activate = recurrent.recurrent_activation(name, 2.0, 0.5)
        np.testing.assert_allclose(run(activate, x), want, rtol=1e-6)


def test_no_time_at_all() -> None:
    module = layer("lstm", "forward")
    outputs, last, _ = interpret(
        trace(lambda x: recurrent.lstm(x, *parameters(module)), np.zeros((0, BATCH, FEATURES))),
        [np.zeros((0, BATCH, FEATURES))],
    )
    assert outputs.shape == (0, 1, BATCH, SIZE)
    np.testing.assert_array_equal(last, np.zeros((1, BATCH, SIZE)))


def test_type_rules() -> None:
    shapes = ("f32[4, 3, 2]", "f32[1, 15, 2]", "f32[1, 15, 5]")
    refuses("gates do not fit", lambda *o: recurrent.gru(*o, gates="zzh"), *shapes)
    refuses("no such direction", lambda *o: recurrent.gru(*o, direction="up"), *shapes)  # type: ignore[arg-type]
    refuses("weight does not fit", recurrent.gru, "f32[4, 3, 2]", "f32[15, 2]", shapes[2])
    refuses("x does not fit", recurrent.gru, "f32[4, 2]", *shapes[1:])
    refuses("the directions", lambda *o: recurrent.gru(*o, direction="bidirectional"), *shapes)
    refuses("does not hold 4 gates", recurrent.lstm, *shapes)
    refuses("inner dimensions differ", recurrent.gru, "f32[4, 3, 7]", *shapes[1:])
    refuses("number of activations", lambda *o: recurrent.gru(*o, activations=[]), *shapes)
    refuses("no such activation", lambda x: recurrent.recurrent_activation("gelu")(x), "f32[2]")
