"""What is special about attention: masks, causality, grouped heads, queries that see nothing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from monograph.ops.attention import Attention, attention
from tests.ops.against_torch import agree, draw
from tests.ops.running import assert_same, gradients, refuses, run, run_decomposed

INF = np.inf


def operands(
    heads: int = 4, shared: int = 4, queries: int = 5, keys: int = 6
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        draw(2, heads, queries, 8),
        draw(2, shared, keys, 8, seed=1),
        draw(2, shared, keys, 3, seed=2),
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shared", [1, 2, 4])
@pytest.mark.parametrize("symbolic", [False, True])
def test_grouped_heads_agree_with_torch(causal: bool, shared: int, symbolic: bool) -> None:
    types = ["f64[n, 4, q, d]", f"f64[n, {shared}, k, d]", f"f64[n, {shared}, k, e]"]
    agree(
        lambda q, k, v: attention(q, k, v, causal=causal),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True),
        *operands(shared=shared),
        types=types if symbolic else None,
    )


@pytest.mark.parametrize(("queries", "keys"), [(3, 7), (7, 3), (4, 4), (1, 5)])
def test_causality_is_counted_from_the_first_query_and_key(queries: int, keys: int) -> None:
    q, k, v = operands(queries=queries, keys=keys)
    agree(
        lambda q, k, v: attention(q, k, v, causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        *(q, k, v),
    )
    first = run(lambda q, k, v: attention(q, k, v, causal=True), q, k, v)[:, :, 0]
    np.testing.assert_allclose(first, v[:, :, 0], rtol=1e-12)


@pytest.mark.parametrize("shape", [(5, 6), (1, 6), (4, 5, 6), (2, 1, 5, 6), (2, 4, 1, 1), ()])
def test_masks_broadcast(shape: tuple[int, ...]) -> None:
    added = draw(*shape, seed=3)
    kept = np.array(draw(*shape, seed=4) > -0.5)

    def theirs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        whole = torch.broadcast_to(m, (2, 4, 5, 6))
        return F.scaled_dot_product_attention(q, k, v, whole)

    agree(attention, theirs, *operands(), added)
    agree(attention, theirs, *operands(), kept)


def test_a_query_that_sees_nothing_gives_zeros_and_takes_no_gradient() -> None:
    q, k, v = operands()
    kept = np.ones((5, 6), np.bool_)
    kept[2] = False
    added = np.where(kept, 0, -INF)
    for mask in (kept, added):
        for got in (run(attention, q, k, v, mask), run_decomposed(Attention(), q, k, v, mask)):
            assert_same(got[:, :, 2], np.zeros((2, 4, 3)))
            assert np.isfinite(got).all()
    agree(attention, F.scaled_dot_product_attention, q, k, v, kept)
    by_query = gradients(attention, q, k, v, kept)[0]
    assert_same(by_query[:, :, 2], np.zeros((2, 4, 8)))


def test_a_mask_and_causality_both_apply() -> None:
    q, k, v = operands(keys=5)
    kept = np.array(draw(5, 5, seed=5) > 0)
    both = run(lambda q, k, v: attention(q, k, v, kept, causal=True), q, k, v)
    np.testing.assert_allclose(
        both, run(lambda q, k, v: attention(q, k, v, np.tril(kept)), q, k, v), rtol=1e-12
    )


def test_nothing_to_see_at_all_gives_zeros() -> None:
    q, k, v = operands(keys=0)
    for got in (run(attention, q, k, v), run_decomposed(Attention(), q, k, v)):
        assert_same(got, np.zeros((2, 4, 5, 3)))


def test_batches_broadcast() -> None:
    q, k, v = operands()
    got = run(attention, q, k[:1], v[0:1])
    want = run(attention, q, np.repeat(k[:1], 2, 0), np.repeat(v[:1], 2, 0))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    np.testing.assert_allclose(run_decomposed(Attention(), q, k[:1], v[:1]), want, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_scores_of_narrow_floats_are_f32(dtype: type) -> None:
    arrays = [array.astype(dtype) for array in operands(shared=2)]
    exact = run(attention, *(array.astype(np.float64) for array in arrays))
    step = float(ml_dtypes.finfo(dtype).eps)
    for got in (run(attention, *arrays), run_decomposed(Attention(), *arrays)):
        assert got.dtype == dtype
        np.testing.assert_allclose(
            got.astype(np.float64), exact, rtol=0.51 * step + 1e-6, atol=1e-6
        )


def test_large_scores_do_not_overflow() -> None:
    q, k, v = (array.astype(np.float32) * 1e3 for array in operands())
    assert np.isfinite(run(attention, q, k, v)).all()


def test_what_does_not_fit_is_refused() -> None:
    good = ["f32[2, 4, 5, 8]", "f32[2, 4, 6, 8]", "f32[2, 4, 6, 3]"]

    def refuse(message: str, *types: str) -> None:
        refuses(message, Attention(), *types)

    refuse("real float operands", *(text.replace("f32", "i32") for text in good))
    refuse("different dtypes", good[0], good[1], "f64[2, 4, 6, 3]")
    refuse("the ranks", "f32[5, 8]", "f32[6, 8]", "f32[6, 3]")
    refuse("the ranks", good[0], good[1], "f32[4, 6, 3]")
    refuse("the depths of query and key differ", good[0], "f32[2, 4, 6, 7]", good[2])
    refuse("the lengths of key and value differ", good[0], good[1], "f32[2, 4, 5, 3]")
    refuse("the heads of key and value differ", good[0], good[1], "f32[2, 2, 6, 3]")
    refuse("do not divide into groups", good[0], "f32[2, 3, 6, 8]", "f32[2, 3, 6, 3]")
    refuse("do not divide into groups", good[0], "f32[2, 0, 6, 8]", "f32[2, 0, 6, 3]")
    refuse("shapes do not broadcast", good[0], "f32[3, 4, 6, 8]", "f32[3, 4, 6, 3]")
    refuse("the mask has the wrong dtype", *good, "i32[5, 6]")
    refuse("shapes do not broadcast", *good, "bool[5, 7]")
    refuse("too many dimensions", *good, "bool[1, 2, 4, 5, 6]")
    refuse("the shapes of the mask and the scores", *["f32[1, 1, 1, 8]"] * 3, "bool[5, 1]")
