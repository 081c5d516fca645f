"""Random numbers: published vectors, statistics, reproducibility, dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

from monograph.autodiff.vjp import grad
from monograph.frontends.trace import trace
from monograph.ir.decompose import decompose_node
from monograph.ir.interpret import interpret
from monograph.ops import distributions, erf_inv, joining, random, reduce
from tests.ops.running import refuses

KEY = np.array([3, 141592653], np.uint32)
MANY = 200_000


def run(function: Callable[..., Any], *arrays: Any) -> Any:
    given = [np.asarray(array) for array in arrays]
    return interpret(trace(function, *given), given)[0]


# Bits.


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers_of_random123(
    counter: tuple[int, int], key: tuple[int, int], expected: tuple[int, int]
) -> None:
    words = [np.array(word, np.uint32) for word in (*key, *counter)]
    for apply in (random.Threefry(), random.Threefry().decompose):
        graph = trace(lambda *xs, apply=apply: apply(*xs), *words)
        assert tuple(int(word) for word in interpret(graph, words)) == expected


def test_keys_are_those_of_jax() -> None:
    """Published in JAX's documentation: split and fold_in of key 0."""
    expected = [[1797259609, 2579123966], [928981903, 3453687069]]
    assert run(lambda: random.split_key(random.random_key(0))).tolist() == expected
    for number in (0, 1):
        got = run(lambda number=number: random.fold_in(random.random_key(0), number))
        assert got.tolist() == expected[number]
    got = run(lambda n: random.fold_in(random.random_key(0), n), np.int64(1))
    assert got.tolist() == expected[1]


def test_numbers_are_those_of_jax() -> None:
    """Published in JAX's documentation: uniform of key 0, of its second child; normal of key 42."""
    uniform, normal = distributions.uniform, distributions.normal
    assert run(lambda: uniform(random.random_key(0))) == pytest.approx(0.947667, abs=1e-6)

    def child() -> Any:
        return uniform(joining.unstack(random.split_key(random.random_key(0)))[1])

    assert run(child) == pytest.approx(0.00729382, abs=1e-8)
    assert run(lambda: normal(random.random_key(42))) == pytest.approx(-0.028304616, rel=1e-6)


def test_a_seed_of_64_bits_is_used_whole() -> None:
    assert run(lambda: random.random_key(2**40 + 5)).tolist() == [2**8, 5]
    assert run(lambda: random.random_key(-1)).tolist() == [2**32 - 1] * 2
    refuses("too large", lambda: random.random_key(2**64))


def test_elements_depend_on_their_position_alone() -> None:
    wide = run(lambda key: random.random_bits(key, (6, 5)), KEY)
    flat = run(lambda key: random.random_bits(key, (7,)), KEY)
    np.testing.assert_array_equal(wide.reshape(-1)[:7], flat)


def test_symbolic_shapes_give_the_same_bits_decomposed() -> None:
    """An unbounded size counts in 64 bits."""
    expected = run(lambda key: random.random_bits(key, (3, 2)), KEY)
    x = np.zeros((3, 2), np.float32)
    graph = trace(lambda key, x: random.random_bits(key, x.shape), "u32[2]", "f32[n, 2]")
    np.testing.assert_array_equal(interpret(graph, [KEY, x])[0], expected)
    while any(node.op.is_composite() for node in graph.nodes):
        decompose_node(next(node for node in graph.nodes if node.op.is_composite()))
    np.testing.assert_array_equal(interpret(graph, [KEY, x])[0], expected)


def test_bits_are_fair_and_keys_are_independent() -> None:
    bits = run(lambda key: random.random_bits(key, (MANY,)), KEY)
    ones = np.unpackbits(bits.view(np.uint8)).reshape(MANY, 32).mean(0)
    assert np.abs(ones - 0.5).max() < 0.006
    children = run(lambda key: random.split_key(key, 1000), KEY)
    assert len({tuple(child) for child in children.tolist()}) == 1000
    other = run(lambda key: random.random_bits(key, (MANY,)), children[0])
    assert abs(np.corrcoef(bits, other)[0, 1]) < 0.01


def test_random_bits_refuses() -> None:
    refuses("not a key", lambda k: random.random_bits(k, (3,)), "u32[3]")
    refuses("not a key", lambda k: random.random_bits(k, (3,)), "i32[2]")
    refuses("not a key", lambda k: random.random_bits(k, (3,)), "u32[1, 2]")
    refuses("not a key", random.split_key, "u32[]")
    refuses("not a key", lambda k: random.fold_in(k, 1), "f32[2]")
    refuses("unsigned", lambda k: random.random_bits(k, (3,), "i32"), "u32[2]")
    refuses("negative", lambda k: random.random_bits(k, (-3,)), "u32[2]")
    refuses("32 bits", random.Threefry(), "u32[]", "u32[]", "u64[]", "u32[]")


# Distributions.


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_uniform_fills_the_unit_interval_and_never_reaches_one(dtype: str) -> None:
    drawn = run(lambda key: distributions.uniform(key, (MANY,), dtype=dtype), KEY)
    drawn = drawn.astype(np.float64)
    assert 0.0 <= drawn.min() < 1e-2 and 0.99 < drawn.max() < 1.0
    coarse = {"f16": 2**-11, "bf16": 2**-8}.get(dtype, 0.0)  # the grid's mean is half a step low
    assert abs(drawn.mean() + coarse - 0.5) < 4 * np.sqrt(1 / 12 / MANY)
    if not coarse:
        assert scipy.stats.kstest(drawn, "uniform").pvalue > 1e-3


def test_uniform_between_bounds() -> None:
    drawn = run(lambda key: distributions.uniform(key, (MANY,), -3, 5), KEY)
    assert drawn.min() >= -3 and drawn.max() <= 5
    assert scipy.stats.kstest((drawn + 3) / 8, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
def test_normal_is_normal(dtype: str) -> None:
    drawn = run(lambda key: distributions.normal(key, (MANY,), dtype=dtype), KEY)
    drawn = drawn.astype(np.float64)
    assert np.isfinite(drawn).all()
    loose = 5 if dtype in ("f16", "bf16") else 1
    assert abs(drawn.mean()) < 0.01 * loose
    assert abs(drawn.std() - 1) < 0.01 * loose
    if loose == 1:
        assert scipy.stats.kstest(drawn, "norm").pvalue > 1e-3
        assert np.abs(drawn).max() > 4


def test_normal_scales() -> None:
    plain = run(lambda key: distributions.normal(key, (5,)), KEY)
    got = run(lambda key: distributions.normal(key, (5,), 3.0, 2.0), KEY)
    np.testing.assert_allclose(got, plain * 2 + 3, rtol=1e-6)


def test_inverse_erf_is_accurate() -> None:
    points = np.concatenate([np.linspace(-1, 1, 20001)[1:-1], 1 - np.logspace(-15, -1, 200)])
    got = run(erf_inv.erf_inv, points)
    np.testing.assert_allclose(got, scipy.special.erfinv(points), rtol=1e-13, atol=1e-300)
    narrow = points[np.abs(points) < 0.999999].astype(np.float32)
    expected = scipy.special.erfinv(narrow.astype(np.float64))
    np.testing.assert_allclose(run(erf_inv.erf_inv, narrow), expected, rtol=2e-6)


def test_inverse_erf_at_the_ends() -> None:
    got = run(erf_inv.erf_inv, np.array([1, -1, 1.5, np.nan, -0.0], np.float32))
    np.testing.assert_array_equal(got, [np.inf, -np.inf, np.nan, np.nan, -0.0])
    assert np.signbit(got[4])


def test_bernoulli() -> None:
    drawn = run(lambda key: distributions.bernoulli(key, 0.3, (MANY,)), KEY)
    assert drawn.dtype == np.bool_
    assert abs(drawn.mean() - 0.3) < 0.005
    chances = np.array([0.0, 1.0], np.float32)
    got = run(lambda key, p: distributions.bernoulli(key, p, (50, 2)), KEY, chances)
    assert not got[:, 0].any() and got[:, 1].all()
    assert run(lambda key, p: distributions.bernoulli(key, p), KEY, chances).shape == (2,)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "u32", "i64", "u64"])
def test_randint_is_uniform_in_its_range(dtype: str) -> None:
    low = 0 if dtype[0] == "u" else -3
    drawn = run(lambda key: distributions.randint(key, (MANY,), low, 7, dtype), KEY)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == list(range(low, 7))
    if dtype not in ("i8", "u8"):  # 16 bits leave a bias of one in a few thousand
        assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_randint_over_all_of_a_dtype() -> None:
    drawn = run(lambda key: distributions.randint(key, (MANY,), -128, 128, "i8"), KEY)
    assert len(np.unique(drawn)) == 256
    refuses("range", lambda k: distributions.randint(k, (3,), 5, 5), "u32[2]")
    refuses("range", lambda k: distributions.randint(k, (3,), 0, 300, "u8"), "u32[2]")
    refuses("dtype", lambda k: distributions.randint(k, (3,), 0, 3, "f32"), "u32[2]")


def test_distributions_refuse() -> None:
    refuses("dtype", lambda k: distributions.uniform(k, (3,), dtype="i32"), "u32[2]")
    refuses("dtype", lambda k: distributions.normal(k, (3,), dtype="f8e5m2"), "u32[2]")
    refuses("range", lambda k: distributions.uniform(k, (3,), 2.0, 1.0), "u32[2]")
    refuses("range", lambda k: distributions.uniform(k, (3,), 0.0, np.inf), "u32[2]")
    refuses("not a key", lambda k: distributions.normal(k, (3,)), "u32[4]")
    refuses("float", erf_inv.erf_inv, "i32[2]")
    refuses("real", erf_inv.erf_inv, "c64[2]")


# Dropout.


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_zeroes_a_share_and_keeps_the_mean(rate: float) -> None:
    got = run(lambda x, key: distributions.dropout(x, key, rate), np.ones(MANY, np.float32), KEY)
    assert abs((got == 0).mean() - rate) < 0.005
    assert set(np.unique(got)) == {np.float32(0), np.float32(1 / (1 - rate))}
    assert abs(got.mean() - 1) < 0.02 * (1 + rate / (1 - rate))


def test_dropout_of_nothing_and_of_everything() -> None:
    x = np.array([1.0, np.nan, np.inf], np.float32)
    assert len(trace(lambda x, key: distributions.dropout(x, key, 0), x, KEY).nodes) == 0
    np.testing.assert_array_equal(
        run(lambda x, k: distributions.dropout(x, k, 1.0), x, KEY), [0, 0, 0]
    )


def test_dropout_s_gradient_has_the_same_mask() -> None:
    x = np.ones(1000, np.float32)
    forward = run(lambda x, k: distributions.dropout(x, k, 0.4), x, KEY)
    graph = trace(lambda x, k: reduce.sum(distributions.dropout(x, k, 0.4)), x, KEY)
    np.testing.assert_array_equal(interpret(grad(graph), [x, KEY])[0], forward)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dropout_decomposed_is_bit_for_bit_the_same(dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=500).astype(dtype)
    graph = trace(lambda x, k: distributions.dropout(x, k, 0.3), x, KEY)
    whole = interpret(graph, [x, KEY])[0]
    decompose_node(graph.nodes[0])
    np.testing.assert_array_equal(interpret(graph, [x, KEY])[0], whole)


def test_dropout_refuses() -> None:
    refuses("probability", lambda x, k: distributions.dropout(x, k, 1.5), "f32[3]", "u32[2]")
    refuses("probability", distributions.Dropout(float("nan")), "f32[3]", "u32[2]")
    refuses("float", lambda x, k: distributions.dropout(x, k, 0.5), "i32[3]", "u32[2]")
    refuses("not a key", lambda x, k: distributions.dropout(x, k, 0.5), "f32[3]", "u32[3]")
