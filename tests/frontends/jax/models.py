"""Small models in plain JAX: a transformer that scans its layers, a convolutional net, an RNN."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def normal(key: Any, *shape: int) -> Any:
    return jax.random.normal(key, shape) / max(shape[-2] if len(shape) > 1 else 1, 1) ** 0.5


def transformer_parameters(layers: int = 2, width: int = 16, vocabulary: int = 31) -> Any:
    keys = jax.random.split(jax.random.key(0), 6)
    return {
        "embedding": normal(keys[0], vocabulary, width),
        "layers": {
            "qkv": normal(keys[1], layers, width, 3 * width),
            "out": normal(keys[2], layers, width, width),
            "up": normal(keys[3], layers, width, 4 * width),
            "down": normal(keys[4], layers, 4 * width, width),
            "scale": jnp.ones((layers, 2, width)),
        },
        "head": normal(keys[5], width, vocabulary),
    }


def layer_norm(x: Any, scale: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return scale * centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)


def transformer(parameters: Any, tokens: Any) -> Any:
    """Logits of a causal language model; the layers are one ``lax.scan``."""
    heads = 4
    length = tokens.shape[0]
    causal = jnp.tril(jnp.ones((length, length), bool))

    def layer(x: Any, own: Any) -> tuple[Any, None]:
        normed = layer_norm(x, own["scale"][0])
        q, k, v = jnp.split(normed @ own["qkv"], 3, -1)
        q, k, v = (y.reshape(length, heads, -1).transpose(1, 0, 2) for y in (q, k, v))
        scores = jnp.where(causal, q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5, -1e9)
        mixed = (jax.nn.softmax(scores) @ v).transpose(1, 0, 2).reshape(length, -1)
        x = x + mixed @ own["out"]
        hidden = jax.nn.gelu(layer_norm(x, own["scale"][1]) @ own["up"])
        return x + hidden @ own["down"], None

    x, _ = jax.lax.scan(layer, parameters["embedding"][tokens], parameters["layers"])
    return x @ parameters["head"]


def transformer_loss(parameters: Any, tokens: Any) -> Any:
    logits = jax.nn.log_softmax(transformer(parameters, tokens[:-1]))
    return -jnp.take_along_axis(logits, tokens[1:, None], -1).mean()


def conv_parameters() -> Any:
    keys = jax.random.split(jax.random.key(1), 3)
    return {
        "first": normal(keys[0], 3, 3, 3, 8),
        "second": normal(keys[1], 3, 3, 8, 16),
        "head": normal(keys[2], 16, 10),
    }


def conv_net(parameters: Any, images: Any) -> Any:
    """Logits of images [batch, height, width, 3]: strided and pooled convolutions."""
    layout = ("NHWC", "HWIO", "NHWC")
    x = images
    for name, stride in (("first", 1), ("second", 2)):
        x = jax.lax.conv_general_dilated(
            x, parameters[name], (stride, stride), "SAME", dimension_numbers=layout
        )
        x = jax.nn.relu(x)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.mean((1, 2)) @ parameters["head"]


def conv_loss(parameters: Any, images: Any) -> Any:
    return jax.nn.logsumexp(conv_net(parameters, images), -1).mean()


def recurrent_parameters(inputs: int = 5, width: int = 8) -> Any:
    keys = jax.random.split(jax.random.key(2), 3)
    return (
        normal(keys[0], inputs, 3 * width),
        normal(keys[1], width, 3 * width),
        jax.random.normal(keys[2], (3 * width,)),
    )


def recurrent(parameters: Any, sequence: Any) -> Any:
    """The states of a gated recurrent unit over a sequence [time, inputs]."""
    from_input, from_state, bias = parameters

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        a, b = jnp.split(x @ from_input + bias, [2 * state.shape[0]])
        c, d = jnp.split(state @ from_state, [2 * state.shape[0]])
        update, reset = jnp.split(jax.nn.sigmoid(a + c), 2)
        new = update * state + (1 - update) * jnp.tanh(b + reset * d)
        return new, new

    return jax.lax.scan(step, jnp.zeros(from_state.shape[0]), sequence)[1]


def recurrent_loss(parameters: Any, sequence: Any) -> Any:
    return jnp.square(recurrent(parameters, sequence)).sum()
