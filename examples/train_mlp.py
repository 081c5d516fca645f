"""Train a small network to tell two interleaved spirals apart.

The loss is traced once, differentiated once and optimised once. What remains for the loop is to run
one graph on a batch and to take a step down the slope.

    python examples/train_mlp.py
"""

import numpy as np

import monograph
from monograph import functional as F

STEPS, RATE, HIDDEN = 600, 0.5, 32
SHAPES = {
    "w1": (2, HIDDEN),
    "b1": (HIDDEN,),
    "w2": (HIDDEN, HIDDEN),
    "b2": (HIDDEN,),
    "w3": (HIDDEN, 2),
    "b3": (2,),
}


def network(x, w1, b1, w2, b2, w3, b3):
    hidden = F.tanh(x @ w1 + b1)
    return F.tanh(hidden @ w2 + b2) @ w3 + b3


def loss(x, labels, w1, b1, w2, b2, w3, b3):
    return F.cross_entropy(network(x, w1, b1, w2, b2, w3, b3), labels)


def spirals(generator, count):
    """Points on two spirals, with a little noise, and the number of the spiral of each."""
    labels = generator.integers(0, 2, count)
    turn = generator.uniform(0.3, 1.5, count)
    angle = 2 * np.pi * turn + np.pi * labels
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1)
    return (points + generator.normal(scale=0.02, size=points.shape)).astype(np.float32), labels


generator = np.random.default_rng(0)
arrays = {
    name: (generator.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
    for name, shape in SHAPES.items()
}

# An array lends its type to the input; a symbol leaves the size of the batch open.
graph = monograph.trace(loss, "f32[batch, 2]", "i64[batch]", *arrays.values())
step = monograph.optimize(monograph.value_and_grad(graph, list(arrays)))
print(f"{len(graph)} nodes compute the loss, {len(step)} the loss and its gradients")

for number in range(STEPS + 1):
    points, labels = spirals(generator, 256)
    value, *gradients = monograph.interpret(step, {"x": points, "labels": labels, **arrays})
    for name, gradient in zip(arrays, gradients, strict=True):
        arrays[name] = arrays[name] - np.float32(RATE) * gradient
    if number % 100 == 0:
        print(f"step {number:4}   loss {float(value):.4f}")

predict = monograph.trace(network, "f32[batch, 2]", *arrays.values())
points, labels = spirals(generator, 1000)
(scores,) = monograph.interpret(predict, {"x": points, **arrays})
print(f"accuracy on new points: {np.mean(scores.argmax(axis=1) == labels):.1%}")
