"""The model that the book follows from Python to machine code: a small classifier of images.

Two convolutions, one with a batch norm and one with a residual connection; then a pool, a mean
over the picture, a linear layer and a softmax. Run it to see what it becomes on this machine.
"""

from __future__ import annotations

import numpy as np

import monograph
from monograph import Value
from monograph import functional as F

SHAPES = {
    "first": (16, 3, 3, 3),
    "second": (16, 16, 3, 3),
    "last": (10, 16),
    **{"scale": (16,), "shift": (16,), "mean": (16,), "variance": (16,)},
}


def weights() -> dict[str, np.ndarray]:
    """Weights that are the same everywhere, since nobody has trained them."""
    made = {
        name: (np.arange(np.prod(shape), dtype=np.float32) % 13 - 6).reshape(shape) / 32
        for name, shape in SHAPES.items()
    }
    return {**made, "scale": 1 + made["scale"], "variance": 1 + made["variance"]}


def classify(image: Value) -> Value:
    """The shares of ten classes in images of 32×32 pixels from 0 to 255."""
    w = {name: image.graph.add_weight(name, array) for name, array in weights().items()}
    x = F.conv(image / 256.0, w["first"], padding=1)
    x = F.relu(F.batch_norm(x, w["scale"], w["shift"], w["mean"], w["variance"]))
    x = F.relu(x + F.conv(x, w["second"], padding=1))
    x = F.mean(F.max_pool(x, 2, 2), (2, 3))
    return F.softmax(F.linear(x, w["last"]), axis=-1)


def main() -> None:
    """Compile it, call it, and say what it became."""
    image = np.random.default_rng(0).uniform(0, 255, (2, 3, 32, 32)).astype(np.float32)
    graph = monograph.trace(classify, "f32[batch, 3, 32, 32]")
    compiled = monograph.compile(graph)
    (expected,) = monograph.interpret(graph, [image])
    print("native code agrees:", np.allclose(compiled(image), expected, atol=1e-6))
    for kernel in monograph.explain(compiled).kernels:
        print(f"{kernel.name}: {kernel.kind} over {kernel.space}")


if __name__ == "__main__":
    main()
