"""The ops that workloads use, spelt for PyTorch and for JAX.

A workload is written once, as a function of a spelling and arrays: ``xp.softmax(x, -1)``. Each
spelling is what a user of that framework would write: torch's own functions where it has one, and
for JAX those of ``jax.nn``, or the usual few lines (statistics in f32) where it has none.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import torch
from torch.nn import functional


class Spelling(Protocol):
    """What a workload may call; arrays support arithmetic, slicing and ``.T`` by themselves."""

    def relu(self, x: Any) -> Any: ...
    def sigmoid(self, x: Any) -> Any: ...
    def tanh(self, x: Any) -> Any: ...
    def gelu(self, x: Any, *, tanh: bool) -> Any: ...
    def linear(self, x: Any, weight: Any) -> Any: ...
    def softmax(self, x: Any) -> Any: ...
    def log_softmax(self, x: Any) -> Any: ...
    def layer_norm(self, x: Any, scale: Any, shift: Any) -> Any: ...
    def rms_norm(self, x: Any, scale: Any) -> Any: ...
    def group_norm(self, x: Any, groups: int, scale: Any, shift: Any) -> Any: ...
    def cross_entropy(self, logits: Any, labels: Any) -> Any: ...
    def argmax(self, x: Any) -> Any: ...
    def sum(self, x: Any, axis: int | None = None) -> Any: ...
    def mean(self, x: Any) -> Any: ...


EPSILON = 1e-5


class TorchSpelling:
    """As in PyTorch; rows are the last axis."""

    def relu(self, x: Any) -> Any:
        return torch.relu(x)

    def sigmoid(self, x: Any) -> Any:
        return torch.sigmoid(x)

    def tanh(self, x: Any) -> Any:
        return torch.tanh(x)

    def gelu(self, x: Any, *, tanh: bool) -> Any:
        return functional.gelu(x, approximate="tanh" if tanh else "none")

    def linear(self, x: Any, weight: Any) -> Any:
        return functional.linear(x, weight)

    def softmax(self, x: Any) -> Any:
        return torch.softmax(x, -1)

    def log_softmax(self, x: Any) -> Any:
        return torch.log_softmax(x, -1)

    def layer_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return functional.layer_norm(x, (x.shape[-1],), scale, shift, EPSILON)

    def rms_norm(self, x: Any, scale: Any) -> Any:
        return functional.rms_norm(x, (x.shape[-1],), scale, EPSILON)

    def group_norm(self, x: Any, groups: int, scale: Any, shift: Any) -> Any:
        return functional.group_norm(x, groups, scale, shift, EPSILON)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return functional.cross_entropy(logits, labels)

    def argmax(self, x: Any) -> Any:
        return torch.argmax(x, -1)

    def sum(self, x: Any, axis: int | None = None) -> Any:
        return torch.sum(x) if axis is None else torch.sum(x, axis)

    def mean(self, x: Any) -> Any:
        return torch.mean(x)


@cache
def jax_spelling() -> Spelling:
    """As in JAX; imports it."""
    import jax
    import jax.numpy as jnp

    class JaxSpelling:
        """As in JAX; statistics are in f32, as its libraries of layers have them."""

        def relu(self, x: Any) -> Any:
            return jax.nn.relu(x)

        def sigmoid(self, x: Any) -> Any:
            return jax.nn.sigmoid(x)

        def tanh(self, x: Any) -> Any:
            return jnp.tanh(x)

        def gelu(self, x: Any, *, tanh: bool) -> Any:
            return jax.nn.gelu(x, approximate=tanh)

        def linear(self, x: Any, weight: Any) -> Any:
            return x @ weight.T

        def softmax(self, x: Any) -> Any:
            return jax.nn.softmax(x, axis=-1)

        def log_softmax(self, x: Any) -> Any:
            return jax.nn.log_softmax(x, axis=-1)

        def layer_norm(self, x: Any, scale: Any, shift: Any) -> Any:
            return _normalized(x, axes=(-1,)) * scale + shift

        def rms_norm(self, x: Any, scale: Any) -> Any:
            wide = x.astype(jnp.float32)
            square = jnp.mean(wide * wide, axis=-1, keepdims=True)
            return (wide * jax.lax.rsqrt(square + EPSILON)).astype(x.dtype) * scale

        def group_norm(self, x: Any, groups: int, scale: Any, shift: Any) -> Any:
            batch, channels, *space = x.shape
            grouped = x.reshape(batch, groups, channels // groups, *space)
            normal = _normalized(grouped, axes=tuple(range(2, grouped.ndim))).reshape(x.shape)
            per_channel = (channels, *(1 for _ in space))
            return normal * scale.reshape(per_channel) + shift.reshape(per_channel)

        def cross_entropy(self, logits: Any, labels: Any) -> Any:
            chosen = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
            return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)

        def argmax(self, x: Any) -> Any:
            return jnp.argmax(x, axis=-1)

        def sum(self, x: Any, axis: int | None = None) -> Any:
            return jnp.sum(x, axis=axis)

        def mean(self, x: Any) -> Any:
            return jnp.mean(x)

    def _normalized(x: Any, axes: tuple[int, ...]) -> Any:
        wide = x.astype(jnp.float32)
        centred = wide - jnp.mean(wide, axis=axes, keepdims=True)
        variance = jnp.mean(centred * centred, axis=axes, keepdims=True)
        return (centred * jax.lax.rsqrt(variance + EPSILON)).astype(x.dtype)

    return JaxSpelling()
