"""Small float models for tests, with weights from a fixed seed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import monograph
from monograph import functional as F
from monograph.ir.graph import Graph
from monograph.ir.types import Array
from monograph.quantization.profile import Profile


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def weight(x: Any, name: str, *shape: int) -> Any:
    depth = int(np.prod(shape[1:])) if len(shape) > 1 else 10
    array = draw(*shape, seed=sum(map(ord, name)), scale=depth**-0.5)
    return x.graph.add_weight(name, array)


def images(batch: str = "4") -> Graph:
    """Convolutions, a residual sum, pools, a concatenation and a linear layer."""

    def model(x: Any) -> Any:
        x = F.relu(F.conv(x, weight(x, "a", 8, 3, 3, 3), weight(x, "b", 8), padding=1))
        y = F.conv(x, weight(x, "c", 8, 8, 3, 3), weight(x, "d", 8), padding=1)
        x = F.relu(x + y)
        x = F.concat([F.max_pool(x, 2, 2), F.max_pool(x, 2, 2)], 1)
        x = F.reshape(x, (x.shape[0], 16 * 4 * 4))
        return F.linear(x, weight(x, "e", 10, 256), weight(x, "f", 10))

    return monograph.trace(model, f"f32[{batch}, 3, 8, 8]")


def perceptron(batch: str = "4", inputs: int = 16) -> Graph:
    """Three linear layers."""

    def model(x: Any) -> Any:
        x = F.relu(F.linear(x, weight(x, "a", 32, inputs), weight(x, "b", 32)))
        x = F.relu(F.linear(x, weight(x, "c", 32, 32), weight(x, "d", 32)))
        return F.linear(x, weight(x, "e", 5, 32), weight(x, "f", 5))

    return monograph.trace(model, f"f32[{batch}, {inputs}]")


def encoder() -> Graph:
    """Norms, attention and a feed-forward layer, with residual sums."""

    def model(x: Any) -> Any:
        y = F.layer_norm(x, weight(x, "g", 16) + 1.0, weight(x, "h", 16))
        y = F.linear(y, weight(x, "qkv", 48, 16))
        y = F.transpose(F.reshape(y, (2, 6, 3, 2, 8)), (2, 0, 3, 1, 4))
        q, k, v = (F.squeeze(each, (0,)) for each in F.split(y, 3, axis=0))
        y = F.reshape(F.transpose(F.attention(q, k, v), (0, 2, 1, 3)), (2, 6, 16))
        x = x + F.linear(y, weight(x, "o", 16, 16), weight(x, "p", 16))
        y = F.layer_norm(x, weight(x, "i", 16) + 1.0, weight(x, "j", 16))
        y = F.gelu(F.linear(y, weight(x, "up", 64, 16)))
        return x + F.linear(y, weight(x, "down", 16, 64))

    return monograph.trace(model, "f32[2, 6, 16]")


def batches(graph: Graph, count: int = 4, rows: int = 4) -> list[Array]:
    """Random batches for a model with one input; a free batch has ``rows``."""
    shape = [dim if isinstance(dim, int) else rows for dim in graph.inputs[0].shape]
    return [draw(*shape, seed=100 + k) for k in range(count)]


@cache
def profile_of(model: Callable[[], Graph], per_channel: bool = False) -> Profile:
    """The profile of a model on eight batches; taken once."""
    graph = model()
    return monograph.quantize.profile(graph, batches(graph, 8), per_channel=per_channel)


def relative_error(got: Array, expected: Array) -> float:
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))
