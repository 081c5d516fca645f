"""JAX functions as graphs and as native code: trees, control flow, keys, symbols, models."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

import monograph  # noqa: E402
from monograph.errors import InputError, UnsupportedError  # noqa: E402
from tests.frontends.jax import models  # noqa: E402

KEY = jax.random.key(7)
TOKENS = jnp.arange(9) * 7 % 31
IMAGES = jax.random.normal(KEY, (2, 12, 12, 3))
SEQUENCE = jax.random.normal(KEY, (6, 5))
MODELS: dict[str, tuple[Any, Any, Any]] = {
    "transformer": (models.transformer, models.transformer_parameters, TOKENS),
    "transformer, batch": (
        jax.vmap(models.transformer, (None, 0)),
        models.transformer_parameters,
        jnp.stack([TOKENS, TOKENS[::-1]]),
    ),
    "transformer, gradient": (
        jax.value_and_grad(models.transformer_loss),
        models.transformer_parameters,
        TOKENS,
    ),
    "convolutional net": (models.conv_net, models.conv_parameters, IMAGES),
    "convolutional net, gradient": (
        jax.value_and_grad(models.conv_loss),
        models.conv_parameters,
        IMAGES,
    ),
    "convolutional net, one by one": (
        jax.vmap(lambda p, x: models.conv_net(p, x[None])[0], (None, 0)),
        models.conv_parameters,
        IMAGES,
    ),
    "RNN": (models.recurrent, models.recurrent_parameters, SEQUENCE),
    "RNN, batch": (
        jax.vmap(models.recurrent, (None, 0)),
        models.recurrent_parameters,
        jnp.stack([SEQUENCE, -SEQUENCE]),
    ),
    "RNN, gradient": (
        jax.grad(models.recurrent_loss, argnums=(0, 1)),
        models.recurrent_parameters,
        SEQUENCE,
    ),
}


def assert_same(found: Any, expected: Any, tolerance: float = 2e-6) -> None:
    """The same tree of JAX's arrays, each within rounding of its largest element."""
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected)
    leaves = zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True)
    for a, b in leaves:
        assert isinstance(a, jax.Array) and (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = np.nan_to_num(np.abs(np.asarray(b))).max(initial=1.0)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), 0, tolerance * scale)


def check(function: Any, *arguments: Any, tolerance: float = 2e-6) -> None:
    compiled = monograph.compile(jax.jit(function), *arguments, strict=True, cache=False)
    assert_same(compiled(*arguments), function(*arguments), tolerance)


@pytest.mark.parametrize("name", MODELS)
def test_models_in_plain_jax_agree(name: str) -> None:
    function, parameters, x = MODELS[name]
    check(function, parameters(), x, tolerance=1e-5)


def test_trees_go_in_and_come_out() -> None:
    def swap(pair: Any, scale: Any) -> Any:
        return {"sum": pair["a"][0] + pair["b"], "rest": [pair["a"], None], "scaled": scale * 2}

    tree = {"a": (jnp.arange(3.0), jnp.ones((2, 2), jnp.int32)), "b": jnp.float32(2)}
    compiled = monograph.compile(jax.jit(swap), tree, jnp.float32(3))
    assert_same(compiled(tree, jnp.float32(3)), swap(tree, jnp.float32(3)))
    names = [value.name for value in compiled.executable.graph.inputs]
    assert names == ["pair.a.0", "pair.a.1", "pair.b", "scale"]
    with pytest.raises(InputError, match="another structure"):
        compiled(tree["a"], jnp.float32(3))


def test_static_arguments_are_given_as_they_are() -> None:
    graph = monograph.from_jax(lambda x, n: jnp.tile(x, n), jnp.arange(2.0), 3, static_argnums=(1,))
    assert str(graph.outputs[0].type) == "f32[6]" and len(graph.inputs) == 1


class Scaled:
    """Methods as users of ``jax.jit`` write them."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    @functools.partial(monograph.jit, static_argnums=(0, 2), cache=False)
    def by_position(self, x: Any, count: int = 2) -> Any:
        return self.scale * x + jnp.arange(count).sum()

    @functools.partial(monograph.jit, static_argnames=("self", "count"), cache=False)
    def by_name(self, x: Any, count: int = 2) -> Any:
        return self.scale * x + jnp.arange(count).sum()

    @functools.partial(jax.jit, static_argnums=(0, 2))
    def jitted(self, x: Any, count: int = 2) -> Any:
        return self.scale * x + jnp.arange(count).sum()


@pytest.mark.parametrize("name", ["by_position", "by_name"])
def test_methods_have_static_arguments(name: str) -> None:
    method, x = getattr(Scaled(3.0), name), jnp.ones(2)
    assert_same(method(x), 3 * x + 1)
    assert_same(method(x, 4), 3 * x + 6)
    assert_same(method(x, count=3), 3 * x + 3)
    assert_same(getattr(Scaled(5.0), name)(x), 5 * x + 1)
    assert_same(jax.grad(lambda x: method(x, 4).sum())(x), 3 * x)


def test_options_of_jit_that_change_no_result_are_accepted() -> None:
    step = monograph.jit(lambda x: x + 1, donate_argnums=0, keep_unused=True, inline=True)
    x = jnp.ones(3)
    np.testing.assert_array_equal(step(x), x + 1)
    with pytest.raises(InputError, match="has no option 'backend'"):
        monograph.jit(lambda x: x, backend="gpu")


def test_static_values_of_other_types_are_other_programs() -> None:
    told = monograph.jit(lambda x, kind: x * (2 if kind is True else 3), static_argnums=1)
    assert [float(told(jnp.float32(1), kind)) for kind in (1, True)] == [3.0, 2.0]


def test_what_jit_calls_static_is_static_in_what_is_compiled() -> None:
    def tile(x: Any, count: int, *, times: int = 1) -> Any:
        return jnp.tile(x, count) * times

    x = jnp.arange(2.0)
    function = jax.jit(tile, static_argnums=1, static_argnames="times")
    assert str(monograph.from_jax(function, x, 3).outputs[0].type) == "f32[6]"
    compiled = monograph.compile(function, x, 3, kwargs={"times": 2}, cache=False)
    for found in (compiled(x, 3, times=2), compiled(x)):
        assert_same(found, jnp.tile(x, 3) * 2)
    with pytest.raises(InputError, match="another value of its static argument 1"):
        compiled(x, 4)
    with pytest.raises(InputError, match="must be hashable"):
        monograph.compile(function, x, [3])
    assert_same(monograph.compile(Scaled(3.0).jitted, x, 3, cache=False)(x, 3), 3 * x + 3)
    part = functools.partial(jax.jit(lambda n, x: jnp.tile(x, n), static_argnums=0), 2)
    assert_same(monograph.compile(part, "f32[2]", cache=False)(x), jnp.tile(x, 2))


@pytest.mark.parametrize("wrong", [{"static_argnums": 2}, {"static_argnames": "n"}])
def test_parameters_that_do_not_exist_are_not_static(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"no .*parameter .* to be static"):
        monograph.jit(lambda x: x, **wrong)


@pytest.mark.parametrize("given", ["text", b"bytes", {1}, np.array(["text"]), object()])
def test_arguments_that_are_no_arrays_are_named(given: Any) -> None:
    compiled = monograph.compile(jax.jit(lambda x: x * 2), jnp.ones(3), cache=False)
    with pytest.raises(InputError, match="argument x is no array"):
        compiled(given)
    with pytest.raises(InputError, match=r"argument 0\['w'\] is no array"):
        monograph.jit(lambda tree: tree["w"])({"w": given})


def test_another_dtype_is_another_program() -> None:
    compiled = monograph.compile(jax.jit(lambda x, s: x * s), jnp.ones(3), jnp.float32(1))
    assert_same(compiled(np.ones(3), 2), 2 * jnp.ones(3))  # f64 is f32 in JAX, 2 takes any dtype
    for given in (jnp.ones(3, jnp.int32), np.ones(3, bool), jnp.ones(3, jnp.bfloat16)):
        with pytest.raises(InputError, match="argument x has another dtype"):
            compiled(given, 2.0)
        with pytest.raises(InputError, match="argument x has another dtype"):
            jax.jit(compiled)(given, 2.0)
    with pytest.raises(InputError, match="argument s has another dtype"):
        compiled(jnp.ones(3), 1j)
    by_dtype = monograph.jit(lambda x: x + 1, cache=False)
    for dtype in (jnp.int32, jnp.bfloat16):
        assert_same(by_dtype(jnp.ones(3, dtype)), jnp.ones(3, dtype) + 1)


def test_gradients_of_gradients() -> None:
    function = monograph.jit(lambda x, y: jnp.sum(jnp.sin(x) * y**3), cache=False)
    plain, x, y = function.__wrapped__, jnp.array([0.5, 1.0]), jnp.array([2.0, -1.0])
    twice = jax.grad(lambda x, y: jax.grad(function, 1)(x, y).sum())
    assert_same(twice(x, y), jax.grad(lambda x, y: jax.grad(plain, 1)(x, y).sum())(x, y), 1e-5)
    assert_same(jax.jacrev(jax.grad(function))(x, y), jax.hessian(plain)(x, y), 1e-5)


def test_symbolic_sizes_are_symbols() -> None:
    def scores(x: Any, w: Any) -> Any:
        return jax.nn.softmax(x @ w), x.shape[0] * jnp.ones(2), x.reshape(-1).sum()

    compiled = monograph.compile(jax.jit(scores), "f32[batch, 4]", "f32[4, 3]", cache=False)
    w = jnp.arange(12.0).reshape(4, 3) / 7
    for batch in (1, 5):
        x = jax.random.normal(KEY, (batch, 4))
        assert_same(compiled(x, w), scores(x, w))


@pytest.mark.parametrize("which", [-3, 0, 1, 2, 9])
def test_switch_takes_the_nearest_branch(which: int) -> None:
    branches = [lambda x: x + 1, lambda x: x * 2, lambda x: -x]
    check(lambda i, x: lax.switch(i, branches, x), jnp.int32(which), jnp.arange(3.0))


def test_loops_run() -> None:
    def collatz(n: Any) -> Any:
        def step(carry: Any) -> Any:
            n, count = carry
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

        return lax.while_loop(lambda carry: carry[0] != 1, step, (n, 0))[1]

    check(collatz, jnp.int32(27))
    check(jax.vmap(collatz), jnp.arange(1, 9, dtype=jnp.int32))
    check(lambda x: lax.fori_loop(0, 5, lambda i, y: y * 1.5 + i, x), jnp.ones(3))
    check(lambda x: lax.scan(lambda c, y: (c + y, c * y), x[0], x, reverse=True), jnp.arange(5.0))
    check(lambda x: lax.associative_scan(jnp.multiply, x), jnp.linspace(0.5, 1.5, 11))
    check(lambda x: lax.map(lambda y: jnp.cumsum(y)[-1], x), jnp.ones((3, 4)))


def test_random_numbers_have_the_same_bits() -> None:
    def draws(key: Any) -> Any:
        keys = jax.random.split(key, 4)
        return (
            jax.random.bits(keys[0], (5,), jnp.uint8),
            jax.random.bits(keys[1], (7,)),
            jax.random.uniform(keys[2], (3, 3)),
            jax.random.permutation(keys[3], 10),
            jax.random.key_data(jax.random.fold_in(key, 3)),
            jax.vmap(lambda k: jax.random.randint(k, (2,), -5, 9))(keys),
        )

    compiled = monograph.compile(jax.jit(draws), KEY, strict=True, cache=False)
    for a, b in zip(compiled(KEY), draws(KEY), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_keys_are_returned_as_keys() -> None:
    compiled = monograph.compile(jax.jit(lambda k: jax.random.split(k)), KEY, cache=False)
    assert (jax.random.key_data(compiled(KEY)) == jax.random.key_data(jax.random.split(KEY))).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32"])
def test_integers_divide_and_shift_as_in_xla(dtype: str) -> None:
    limits = np.iinfo(dtype)
    a = jnp.array([7, limits.min, limits.max, 0, limits.min], dtype)
    b = jnp.array([0, 0, 3, 0, limits.max], dtype)
    amounts = jnp.array([0, 1, limits.bits - 1, limits.bits, limits.max], dtype)

    def compute(a: Any, b: Any, n: Any) -> Any:
        shifts = [lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic]
        counts = [lax.population_count(a), lax.clz(a)]
        return [lax.div(a, b), lax.rem(a, b), *(f(a, n) for f in shifts), *counts]

    check(compute, a, b, amounts)


def test_floats_become_integers_and_back_as_in_xla() -> None:
    edges = jnp.array([np.nan, np.inf, -np.inf, -0.0, 2.5, -2.5, 3e9, -3e9, 255.9])

    def compute(x: Any) -> Any:
        types = (jnp.int8, jnp.uint8, jnp.int32, jnp.uint32, jnp.bool_, jnp.bfloat16)
        return [x.astype(dtype) for dtype in types], lax.round(x), lax.nextafter(x, x[::-1])

    found = monograph.compile(jax.jit(compute), edges, strict=True, cache=False)(edges)
    for a, b in zip(
        jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(compute(edges)), strict=True
    ):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64))


def test_sorts_have_zeros_tied_and_nan_last() -> None:
    x = jnp.array([3.0, np.nan, -0.0, 0.0, -np.inf, 1.0, np.nan, np.inf, 0.0, -0.0])
    y = jnp.arange(10)

    def compute(x: Any, y: Any) -> Any:
        return lax.sort((x, y), num_keys=1), lax.top_k(x, 4), jnp.argmax(x), jnp.lexsort((y, x))

    found = monograph.compile(jax.jit(compute), x, y, strict=True, cache=False)(x, y)
    for a, b in zip(
        jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(compute(x, y)), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("mode", ["clip", "fill", "promise_in_bounds"])
def test_indices_outside_follow_the_mode(mode: str) -> None:
    x, wanted = jnp.arange(12.0).reshape(4, 3), jnp.array([0, 3, 1])
    if mode != "promise_in_bounds":
        wanted = jnp.array([-9, -1, 2, 4, 77])

    def compute(x: Any, at: Any) -> Any:
        return x.at[at].get(mode=mode), x.at[at].set(9.0, mode=mode), x.at[at, 1].add(1, mode=mode)

    check(compute, x, wanted)
    check(lambda x, i: lax.dynamic_slice(x, (i, i), (2, 2)), x, jnp.int32(3))
    check(lambda x, i: lax.dynamic_update_slice(x, -x[:2, :2], (i, i)), x, jnp.int32(-1))


def test_wide_dtypes_work_where_they_are_enabled() -> None:
    with jax.enable_x64(True):
        x = jnp.linspace(0, 1, 5, dtype=jnp.float64)
        check(lambda x: (jnp.sin(x), jnp.argsort(x), x.astype(jnp.int64)), x, tolerance=1e-15)


def test_jit_compiles_once_for_each_signature() -> None:
    calls = []

    @monograph.jit(static_argnums=(1,), cache=False)
    def power(x: Any, n: int, scale: Any = 1.0) -> Any:
        calls.append(n)
        return scale * x**n

    for n in (2, 3, 2):
        assert_same(power(jnp.arange(3.0), n), jnp.arange(3.0) ** n)
    assert calls == [2, 3]
    assert_same(power(jnp.arange(3.0), 2, scale=jnp.float32(4)), 4 * jnp.arange(3.0) ** 2)
    assert len(calls) == 3


def test_compiled_functions_run_inside_jax_programs() -> None:
    def inner(p: Any, x: Any) -> Any:
        return {"y": jnp.tanh(x @ p), "n": jnp.argmax(x, -1)}

    fast = monograph.jit(inner, cache=False)
    p, x = jax.random.normal(KEY, (4, 3)), jax.random.normal(KEY, (2, 4))

    def outer(function: Any) -> Any:
        return lambda p, x: jnp.sum(function(p, x)["y"] ** 2) + function(p, x)["n"].sum()

    assert_same(jax.jit(outer(fast))(p, x), outer(inner)(p, x))
    assert_same(jax.jit(jax.grad(outer(fast)))(p, x), jax.grad(outer(inner))(p, x))
    assert_same(jax.vmap(lambda row: fast(p, row)["y"])(x), inner(p, x)["y"])
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(outer(fast), (p, x), (p, x))


def test_a_wrong_size_inside_a_jax_program_is_found_while_jax_traces_it() -> None:
    compiled = monograph.compile(jax.jit(lambda x, y: x + y), "f32[n, 4]", "f32[n, 4]", cache=False)
    x = jnp.ones((2, 4))
    for other in (jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones(4)):
        with pytest.raises(InputError, match="input %y"):
            jax.jit(compiled)(x, other)


def test_a_compiled_function_is_saved_and_loaded_without_jax(tmp_path: Path) -> None:
    function = jax.jit(lambda p, x: [p["w"] @ x, {"n": x.sum()}])
    p, x = {"w": jnp.arange(6.0).reshape(2, 3)}, jnp.ones(3)
    path = monograph.compile(function, p, x, cache=False).save(tmp_path / "f.mono")
    found = monograph.load(path)({"w": np.asarray(p["w"])}, np.asarray(x))
    np.testing.assert_allclose(found[0], np.asarray(p["w"] @ x))
    assert found[1]["n"] == 3
    script = (
        f"import monograph, numpy as np, sys; f = monograph.load({str(path)!r});"
        "f({'w': np.ones((2, 3), np.float32)}, np.ones(3, np.float32));"
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_has_no_meaning_is_named_with_its_line() -> None:
    def prints(x: Any) -> Any:
        jax.debug.print("{x}", x=x)
        return x

    with pytest.raises(UnsupportedError) as caught:
        monograph.compile(jax.jit(prints), jnp.ones(2))
    assert "test_from_jax.py" in str(caught.value)


def test_a_plain_function_needs_examples_of_jax() -> None:
    with pytest.raises(InputError, match="function of JAX's ops"):
        monograph.compile(lambda x: jnp.sin(x), np.ones(3, np.float32))
    assert_same(
        monograph.compile(lambda x: jnp.sin(x), jnp.ones(3))(jnp.ones(3)), jnp.sin(jnp.ones(3))
    )


def test_nodes_know_the_lines_they_came_from() -> None:
    graph = monograph.from_jax(lambda x: jnp.exp(x), jnp.ones(2))
    (node,) = [node for node in graph.nodes if node.op.name == "exp"]
    assert node.location is not None and node.location.file == __file__


def test_a_sample_of_the_harnesses_agrees() -> None:
    """One of each group, compiled; ``make conformance`` runs all of them."""
    pytest.importorskip("absl")
    command = [sys.executable, "-m", "tests.frontends.jax.harnesses", "--sample", "100"]
    done = subprocess.run(
        [*command, "--target", "cpu", "--at-least", "1.0"],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
