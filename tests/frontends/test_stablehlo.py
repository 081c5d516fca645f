"""StableHLO modules, as text and as bytecode, against what jaxlib computes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402

import monograph  # noqa: E402
from monograph.errors import InputError, UnsupportedError  # noqa: E402
from monograph.exporters.runtimes import run_stablehlo  # noqa: E402
from monograph.frontends.stablehlo import from_stablehlo  # noqa: E402
from tests.frontends.jax import models  # noqa: E402

X = jax.random.normal(jax.random.key(0), (4, 6))
I = jnp.array([2, 0, 3, 3])  # noqa: E741


def elementwise(x: Any, i: Any) -> Any:
    near = jnp.clip(x, -0.9, 0.9)
    return (
        jnp.exp(x), jnp.log1p(x * x), jnp.arcsin(near), lax.erf(x), lax.cbrt(x), jnp.sign(x),
        jnp.round(x * 3), lax.population_count(i), lax.clz(i), i // 3, i % 3, i << 2, i ^ 5,
        x.astype(jnp.bfloat16), x.astype(jnp.int8), lax.bitcast_convert_type(x, jnp.int32),
        jnp.where(x > 0, x, -x), jnp.arctan2(x, near), lax.complex(x, near) * 2, x > near,
    )  # fmt: skip


def moving(x: Any, i: Any) -> Any:
    return (
        x.T, x[::-1, 1::2], x.reshape(3, 8), jnp.pad(x, ((1, 0), (0, 2)), constant_values=3.0),
        x[i], x.at[i].add(1.0), x.at[i, 1].set(7.0), lax.dynamic_slice(x, (i[0], 1), (2, 3)),
        lax.dynamic_update_slice(x, x[:2, :2] * 0, (i[0], 0)), jnp.concatenate([x, x], 1),
        jnp.arange(5), jnp.take(x, i, 1), x.at[:, i].max(0.5),
    )  # fmt: skip


def reducing(x: Any, i: Any) -> Any:
    return (
        x.sum(0), x.max(), x.prod(1), jnp.any(x > 1, 0), jnp.argmax(x, 1), jnp.cumsum(x, 1),
        lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 2), "SAME"), lax.sort(x, dimension=0),
        lax.sort((i, i[::-1]), num_keys=2), jnp.argsort(-x[0]), x @ x.T,
        jnp.einsum("ij,kj->ik", x, x),
    )  # fmt: skip


def control(x: Any, i: Any) -> Any:
    grown = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 1.5), (0, x))[1]
    chosen = lax.switch(i[0], [lambda: x, lambda: -x, lambda: x * 2])
    summed, partial = lax.scan(lambda c, row: (c + row, c.sum()), x[0], x)
    return grown, lax.cond(i[1] > 0, lambda: x, lambda: x + 1), chosen, summed, partial


def check(function: Any, *arguments: Any) -> None:
    exported = export.export(jax.jit(function))(*arguments)
    leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(arguments)]
    expected = jax.tree_util.tree_leaves(exported.call(*arguments))
    graph = from_stablehlo(exported.mlir_module())
    for found in (
        monograph.interpret(graph, leaves),
        monograph.compile(graph, cache=False)(*leaves),
    ):
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(a.astype(wide), np.asarray(b).astype(wide), 1e-5, 1e-5)


@pytest.mark.parametrize("function", [elementwise, moving, reducing, control])
def test_operations_agree_with_jaxlib(function: Any) -> None:
    check(function, X, I)


@pytest.mark.parametrize("gradient", [False, True])
def test_models_agree_with_jaxlib(gradient: bool) -> None:
    def either(model: Any, loss: Any) -> Any:
        return jax.grad(loss) if gradient else model

    tokens, images = jnp.arange(9) * 7 % 31, jax.random.normal(jax.random.key(3), (2, 8, 8, 3))
    transformer = either(models.transformer, models.transformer_loss)
    check(transformer, models.transformer_parameters(), tokens)
    check(either(models.conv_net, models.conv_loss), models.conv_parameters(), images)


def test_files_of_text_and_bytecode_load(tmp_path: Path) -> None:
    exported = export.export(jax.jit(lambda x: jnp.tanh(x) + 1))(X)
    text, code = tmp_path / "m.mlir", tmp_path / "b.mlir"
    text.write_text(exported.mlir_module())
    code.write_bytes(exported.mlir_module_serialized)
    for path in (text, code):
        (found,) = monograph.load(path)(np.asarray(X))
        np.testing.assert_allclose(found, np.tanh(X) + 1, 1e-6)
        (again,) = monograph.compile(path)(np.asarray(X))
        np.testing.assert_array_equal(found, again)


def test_what_is_no_module_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "other.mlir"
    path.write_text("something else")
    with pytest.raises(InputError, match=r"other\.mlir is not a StableHLO module"):
        from_stablehlo(path)
    path.write_text("func.func @first() { return }")
    with pytest.raises(InputError, match=r"other\.mlir is a module without a function main"):
        from_stablehlo(path)
    with pytest.raises(InputError, match="no file"):
        from_stablehlo(tmp_path / "missing.mlir")


def test_what_has_no_meaning_is_named() -> None:
    exported = export.export(jax.jit(jnp.linalg.eigh))(X[:, :4])
    with pytest.raises(UnsupportedError, match="custom call"):
        from_stablehlo(exported.mlir_module())


def test_functions_that_call_themselves_are_refused() -> None:
    text = """
    module { func.func public @main(%x: tensor<f32>) -> tensor<f32> {
      %y = func.call @main(%x) : (tensor<f32>) -> tensor<f32>
      func.return %y : tensor<f32> } }"""
    with pytest.raises(UnsupportedError, match="without end"):
        from_stablehlo(text)


@pytest.mark.parametrize("count", [3, 5000])
@pytest.mark.parametrize(
    ("type_", "words"),
    [
        ("bf16", "1.5 -0.0 0x7FC0 0xFF80"), ("f16", "1.5 0xFC00"), ("f32", "0.1 0x7F800000"),
        ("f64", "0.1 0x7FF0000000000000"), ("f8E4M3FN", "1.5 -2.0"), ("f8E5M2", "1.5 -2.0"),
        ("i4", "-3 7"), ("ui4", "15 1"), ("i1", "true false"), ("ui8", "200 3"),
        ("ui64", "18446744073709551615 1"), ("complex<f32>", "(1.0,2.0) (0x7FC00000,-1.0)"),
        ("complex<f64>", "(0.1,2.0)"),
    ],
)  # fmt: skip
def test_constants_of_every_dtype(type_: str, words: str, count: int) -> None:
    """One number that fills them, and different ones, long ones as bytes."""
    several = [words.split()[k % len(words.split())] for k in range(count)]
    for contents in (words.split()[0], f"[{', '.join(several)}]"):
        text = f"""module {{ func.func public @main() -> tensor<{count}x{type_}> {{
            %c = stablehlo.constant dense<{contents}> : tensor<{count}x{type_}>
            return %c : tensor<{count}x{type_}> }} }}"""
        (found,) = monograph.interpret(from_stablehlo(text), [])
        (expected,) = run_stablehlo(text, [])
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()


def test_a_short_file_does_not_take_memory() -> None:
    graph = from_stablehlo("""module { func.func public @main(%x: tensor<f32>) -> tensor<f32> {
        %c = stablehlo.constant dense<1.0> : tensor<1000000000000xf32>
        return %x : tensor<f32> } }""")
    assert str(graph.outputs[0].type) == "f32[]"
