"""Compile a transformer that is written in plain JAX, and measure it beside ``jax.jit``.

    python examples/jax_transformer.py

Its layers are one ``jax.lax.scan``; the same function is then differentiated by JAX, and the
gradient compiled as one native program.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import monograph

LAYERS, WIDTH, HEADS, LENGTH, WORDS = 4, 64, 4, 32, 100


def normalize(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)


def logits(params, tokens):
    causal = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))

    def layer(x, own):
        q, k, v = jnp.split(normalize(x) @ own["qkv"], 3, -1)
        q, k, v = (y.reshape(LENGTH, HEADS, -1).transpose(1, 0, 2) for y in (q, k, v))
        scores = jnp.where(causal, q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5, -1e9)
        mixed = (jax.nn.softmax(scores) @ v).transpose(1, 0, 2).reshape(LENGTH, WIDTH)
        x = x + mixed @ own["out"]
        return x + jax.nn.gelu(normalize(x) @ own["up"]) @ own["down"], None

    x, _ = jax.lax.scan(layer, params["words"][tokens], params["layers"])
    return normalize(x) @ params["words"].T


def loss(params, tokens):
    log_probabilities = jax.nn.log_softmax(logits(params, tokens))
    return -jnp.take_along_axis(log_probabilities[:-1], tokens[1:, None], -1).mean()


def parameters():
    shapes = {
        "qkv": (LAYERS, WIDTH, 3 * WIDTH),
        "out": (LAYERS, WIDTH, WIDTH),
        "up": (LAYERS, WIDTH, 4 * WIDTH),
        "down": (LAYERS, 4 * WIDTH, WIDTH),
    }
    keys = jax.random.split(jax.random.key(0), len(shapes) + 1)
    layers = {
        name: jax.random.normal(key, shape) * shape[-2] ** -0.5
        for key, (name, shape) in zip(keys, shapes.items(), strict=False)
    }
    return {"words": jax.random.normal(keys[-1], (WORDS, WIDTH)), "layers": layers}


def best_milliseconds(function, *arguments):
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(20):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def main():
    params = parameters()
    tokens = jax.random.randint(jax.random.key(1), (LENGTH,), 0, WORDS)
    for name, function in (("logits", logits), ("gradient", jax.grad(loss))):
        theirs = jax.jit(function)
        ours = monograph.compile(theirs, params, tokens)
        pairs = zip(
            jax.tree_util.tree_leaves(ours(params, tokens)),
            jax.tree_util.tree_leaves(theirs(params, tokens)),
            strict=True,
        )
        worst = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
        agrees = "agrees with jax.jit" if worst < 1e-4 else "DIFFERS"
        mine, xla = (best_milliseconds(f, params, tokens) for f in (ours, theirs))
        print(f"{name}: {agrees} (error {worst:.0e}); {mine:.2f} ms, jax.jit {xla:.2f} ms")


if __name__ == "__main__":
    main()
