"""Models in plain JAX beside ``jax.jit``: a transformer that scans its layers, a conv net, an RNN.

    python -m benchmarks.jax_programs [-k name] [--rounds 15]

Each is run forward, mapped by ``jax.vmap``, and differentiated by ``jax.grad``. Both contenders
have the same inputs and, by turns, the same machine; errors are against float64, over the largest
number of each result. × is XLA's time over ours: more than 1 is a win.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_X64", "1")

import jax
import jax.numpy as jnp
import numpy as np

import monograph
from monograph.tuning.alternating_timer import alternate
from tests.frontends.jax import models


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Every function and its arguments, in float32."""
    tokens = jax.random.randint(jax.random.key(1), (128,), 0, 1000, jnp.int32)
    batch = jax.random.randint(jax.random.key(2), (4, 128), 0, 1000, jnp.int32)
    images = _normal(jax.random.key(3), 8, 32, 32, 3)
    sequences = _normal(jax.random.key(4), 16, 64, 64)
    words = _single(models.transformer_parameters(4, 256, 1000))
    filters = _single(models.conv_parameters())
    gates = _single(models.recurrent_parameters(64, 128))

    def one_image(parameters: Any, image: Any) -> Any:
        return models.conv_net(parameters, image[None])[0]

    return {
        "transformer": (models.transformer, (words, tokens)),
        "transformer, vmap": (jax.vmap(models.transformer, (None, 0)), (words, batch)),
        "transformer, grad": (jax.grad(models.transformer_loss), (words, tokens)),
        "conv net": (models.conv_net, (filters, images)),
        "conv net, vmap": (jax.vmap(one_image, (None, 0)), (filters, images)),
        "conv net, grad": (jax.grad(models.conv_loss), (filters, images)),
        "RNN": (models.recurrent, (gates, sequences[0])),
        "RNN, vmap": (jax.vmap(models.recurrent, (None, 0)), (gates, sequences)),
        "RNN, grad": (jax.grad(models.recurrent_loss), (gates, sequences[0])),
    }


def _normal(key: Any, *shape: int) -> Any:
    return jax.random.normal(key, shape, jnp.float32)


def _single(tree: Any) -> Any:
    return jax.tree_util.tree_map(lambda leaf: leaf.astype(jnp.float32), tree)


def _wide(tree: Any) -> Any:
    def widen(leaf: Any) -> Any:
        return leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf

    return jax.tree_util.tree_map(widen, tree)


def error(found: Any, exact: Any) -> float:
    """The largest error of any leaf, over the largest number of that leaf."""
    pairs = zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(exact), strict=True)
    return max(_error(np.asarray(a, np.float64), np.asarray(b)) for a, b in pairs)


def _error(found: Any, exact: Any) -> float:
    return float(np.abs(found - exact).max() / max(np.abs(exact).max(), 1e-30))


def measure(
    name: str, function: Callable[..., Any], arguments: tuple[Any, ...], rounds: int
) -> str:
    """A row of the table."""
    theirs = jax.jit(function)
    ours = monograph.compile(theirs, *arguments, cache=False)
    exact = theirs(*map(_wide, arguments))
    times = alternate(
        {
            "ours": lambda: jax.block_until_ready(ours(*arguments)),
            "XLA": lambda: jax.block_until_ready(theirs(*arguments)),
        },
        rounds,
    )
    mine, xla = times["ours"].median * 1e3, times["XLA"].median * 1e3
    errors = f"{error(ours(*arguments), exact):9.1e} {error(theirs(*arguments), exact):9.1e}"
    return f"{name:<20} {mine:9.3f} {xla:9.3f} {xla / mine:6.2f} {errors}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each program; one that fails has its reason there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-k", default="", help="only programs whose name contains this")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args(arguments)
    print(f"{'ms a call, median':<20} {'ours':>9} {'XLA':>9} {'×':>6} {'error':>9} {'XLA’s':>9}")
    failed = 0
    for name, (function, values) in programs().items():
        if given.k not in name:
            continue
        try:
            print(measure(name, function, values, given.rounds), flush=True)
        except Exception as problem:  # one row that fails must not end the table
            failed += 1
            reason = " | ".join(str(problem).splitlines())
            print(f"{name:<20} {type(problem).__name__}: {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
