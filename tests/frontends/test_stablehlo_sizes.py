"""StableHLO modules with free sizes, as JAX exports them: right at every size, and named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402

import monograph  # noqa: E402
from monograph.errors import InputError, UnsupportedError  # noqa: E402
from monograph.frontends.stablehlo import from_stablehlo  # noqa: E402
from tests.frontends.jax import models  # noqa: E402

SIZES = ({"n": 2, "m": 3}, {"n": 5, "m": 1})
WORDS = {"f": np.float32, "i": np.int32}


def structs(types: str) -> list[Any]:
    """``"f n 4; i m"``: the dtype and the sizes of each argument."""
    scope = export.SymbolicScope()
    made = []
    for each in types.split(";"):
        word, *sizes = each.split()
        shape = export.symbolic_shape(",".join(sizes), scope=scope) if sizes else ()
        made.append(jax.ShapeDtypeStruct(shape, WORDS[word]))
    return made


def arrays_for(types: list[Any], sizes: dict[str, int]) -> list[Any]:
    generator = np.random.default_rng(0)
    made = []
    for each in types:
        shape = [dim if isinstance(dim, int) else dim._evaluate(sizes) for dim in each.shape]
        made.append((generator.normal(size=shape) * 3).astype(each.dtype) % 2)
    return made


def check(function: Any, types: str, *given: Any) -> monograph.Graph:
    """Interpreted and compiled once, and held against XLA at several sizes."""
    free = structs(types)
    exported = export.export(jax.jit(function))(*given, *free)
    graph = from_stablehlo(exported.mlir_module())
    compiled = monograph.compile(graph, cache=False, strict=True)
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(given)]
    for sizes in SIZES:
        arrays = arrays_for(free, sizes)
        expected = jax.tree_util.tree_leaves(exported.call(*given, *arrays))
        for found in (
            monograph.interpret(graph, [*leaves, *arrays]),
            compiled(*leaves, *arrays),
        ):
            for a, b in zip(found, expected, strict=True):
                assert a.dtype == b.dtype and a.shape == b.shape
                np.testing.assert_allclose(a, b, 1e-4, 1e-5)
    return graph


CASES: dict[str, tuple[Any, str]] = {
    "layers": (lambda x: jax.nn.softmax(jnp.tanh(x @ x.T), -1), "f n 4"),
    "means of free sizes": (lambda x: (x.mean(), x.mean(0), x * x.shape[0]), "f n 4"),
    "half": (lambda x: (x[: x.shape[0] // 2], x.reshape(-1, 8)), "f 2*n 4"),
    "a quotient": (lambda x: x[: x.shape[0] // 2], "f n 4"),
    "one more": (lambda x, y: (x[1:] + y, jnp.concatenate([x, y])), "f n+1 4; f n 4"),
    "running sums": (lambda x: (jnp.cumsum(x, 0), lax.cummin(x, 0, reverse=True)), "f n 4"),
    "pad, flip, sort": (lambda x: (jnp.pad(x, 1), x[::-1], jnp.sort(x, 0)), "f n 4"),
    "a start that is data": (
        lambda x, i: lax.dynamic_slice(x, (i, 0), (x.shape[0] - 1, 4)), "f n+1 4; i",
    ),
    "gather, scatter": (lambda x, i: (x[i], x.at[i].add(1.0)), "f n 4; i m"),
    "random numbers": (lambda x: jax.random.normal(jax.random.key(0), x.shape), "f n 4"),
    "triangle": (lambda x: jnp.tril(x @ x.T), "f n 4"),
    "two sizes": (lambda x, y: x[:, None] * y[None], "f n; f m"),
    "a loop": (lambda x: lax.fori_loop(0, 3, lambda _, c: c + jnp.ones(x.shape), x), "f n 4"),
    "a branch": (lambda x, p: lax.cond(p > 0, lambda: x, lambda: jnp.ones(x.shape)), "f n 4; i"),
}  # fmt: skip


@pytest.mark.parametrize(("function", "types"), CASES.values(), ids=CASES)
def test_one_program_serves_every_size(function: Any, types: str) -> None:
    check(function, types)


def test_models_with_free_sizes() -> None:
    graph = check(models.transformer, "i n", models.transformer_parameters())
    assert [str(value.type) for value in graph.outputs] == ["f32[n, 31]"]
    check(models.conv_net, "f n 4*m 8 3", models.conv_parameters())


@pytest.mark.slow
def test_gradients_of_models_with_free_sizes() -> None:
    parameters = models.transformer_parameters()
    check(jax.grad(models.transformer_loss), "i n+1", parameters)
    check(jax.vmap(models.transformer, (None, 0)), "i m n", parameters)
    check(jax.grad(models.conv_loss), "f n 8 8 3", models.conv_parameters())
    check(jax.grad(models.recurrent_loss), "f n 5", models.recurrent_parameters())


def test_sizes_have_the_names_that_jax_gave_them() -> None:
    types = structs("f batch+1 4; f 2*batch 4; f 3*rows")
    exported = export.export(jax.jit(lambda x, y, z: (x[1:], y[::2], z)))(*types)
    graph = from_stablehlo(exported.mlir_module())
    assert [str(value.type) for value in graph.inputs] == [
        "f32[batch+1, 4]", "f32[2*batch, 4]", "f32[3*rows]",
    ]  # fmt: skip


def test_inputs_are_checked_against_the_sizes_of_the_module() -> None:
    exported = export.export(jax.jit(lambda x, y: x + y[::2]))(*structs("f n; f 2*n"))
    compiled = monograph.compile(from_stablehlo(exported.mlir_module()), cache=False)
    assert compiled(np.ones(3, "f4"), np.ones(6, "f4"))[0].shape == (3,)
    for size in (5, 8):
        with pytest.raises(InputError):
            compiled(np.ones(3, "f4"), np.ones(size, "f4"))


def test_operands_of_one_operation_have_one_shape() -> None:
    """A module of another tool's states no conditions: its operations do."""
    graph = from_stablehlo("""
    module { func.func public @main(%x: tensor<?x3xf32>, %y: tensor<?x3xf32>) -> tensor<?x3xf32> {
      %r = stablehlo.add %x, %y : tensor<?x3xf32>
      return %r : tensor<?x3xf32> } }""")
    x, y = graph.inputs
    assert x.type == y.type
    for count in (0, 4):
        ones = np.ones((count, 3), np.float32)
        np.testing.assert_array_equal(monograph.interpret(graph, [ones, ones])[0], ones * 2)


def test_a_shape_that_is_data_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="sizes that are data"):
        from_stablehlo("""
        module { func.func public @main(%x: tensor<6xf32>, %s: tensor<2xi32>) -> tensor<?x?xf32> {
          %r = stablehlo.dynamic_reshape %x, %s : (tensor<6xf32>, tensor<2xi32>) -> tensor<?x?xf32>
          return %r : tensor<?x?xf32> } }""")
