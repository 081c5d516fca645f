"""A small convolutional network that tells digits apart: the model that the book follows.

One image or many come in, each of 28 × 28 pixels; ten probabilities an image come out. The weights
are random, since the book asks how it is computed, not how well it reads.

    python examples/digits.py
"""

import re

import numpy as np

import monograph
from monograph import functional as F

generator = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return generator.normal(size=shape).astype(np.float32) / 8


KERNEL = random(8, 1, 3, 3)
NORM = {
    "scale": 1 + random(8),
    "shift": random(8),
    "mean": random(8),
    "variance": 1 + abs(random(8)),
}
WEIGHT, BIAS = random(10, 8 * 14 * 14), random(10)


def digits(image):
    """The probabilities of ten digits, of images of 28 × 28 pixels."""
    weight = image.graph.add_weight
    x = F.conv(image, weight("kernel", KERNEL), padding=1)
    x = F.batch_norm(x, *(weight(name, array) for name, array in NORM.items()))
    x = F.max_pool(F.relu(x), (2, 2))
    x = F.reshape(x, (image.shape[0], 8 * 14 * 14))
    x = F.linear(x, weight("weight", WEIGHT), weight("bias", BIAS))
    return F.softmax(x, axis=-1)


def outline(graph: monograph.Graph) -> str:
    """The text of a graph without its weights, and without the attributes of its nodes."""
    lines = [
        line for line in str(graph).splitlines() if not re.search(r"= (weight|constant)\(", line)
    ]
    return "\n".join(re.sub(r" \{[^{}]*\} :", " :", line) for line in lines)


if __name__ == "__main__":
    graph = monograph.trace(digits, "f32[batch, 1, 28, 28]")
    compiled = monograph.compile(graph)
    for batch in (1, 16):
        images = np.random.default_rng(batch).normal(size=(batch, 1, 28, 28)).astype(np.float32)
        (expected,) = monograph.interpret(graph, [images])
        agrees = np.allclose(compiled(images), expected, rtol=1e-4, atol=1e-6)
        print(f"{batch} images: native code agrees with the interpreter: {agrees}")
