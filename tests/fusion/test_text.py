"""The grouping as people read it: the whole text of a few small graphs."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from monograph import functional as F
from tests.fusion.grouping import fused


def shown(text: str) -> str:
    return dedent(text).lstrip("\n")


def test_a_chain_says_what_it_does_not_write() -> None:
    fusion = fused(lambda x: F.tanh(x + 1.0) * x, "f32[64, 64]")
    assert str(fusion) == shown("""
        group 0: add_tanh_multiply (pointwise, 3 nodes over 64×64)
            %add = add(%x, %c)
            %tanh = tanh(%add)
            %multiply = multiply(%tanh, %x)
          + %add stays inside: 16.0 KiB not written
          + %tanh stays inside: 16.0 KiB not written
    """)


def test_softmax_says_how_many_rows_it_visits() -> None:
    fusion = fused(lambda x: F.softmax(x, -1), "f32[n, 128]")
    assert str(fusion) == shown("""
        group 0: max_subtract_exp_sum_etc (rows, 5 nodes over n×128, n rows)
            %max = max(%x)
            %subtract = subtract(%x, %max)
            %exp = exp(%subtract)
            %sum = sum(%exp)
            %softmax = divide(%exp, %sum)
          + %max stays inside: 4*n bytes not written
          + %subtract stays inside: 512*n bytes not written
          + %exp stays inside: 512*n bytes not written
    """)


def test_a_reason_stands_where_a_kernel_ends() -> None:
    def two(x: Any, w: Any) -> Any:
        inner = F.exp(x)
        return inner, F.sum(inner @ w)

    assert str(fused(two, "f32[16, 16]", "f32[16, 16]")) == shown("""
        group 0: exp (pointwise, 1 node over 16×16)
            %exp = exp(%x)

        group 1: dot_general (contraction, 1 node over 16×16)
            %matmul = dot_general(%exp, %w)
          - %exp is read from memory: a contraction reads each element many times

        group 2: sum (rows, 1 node over 16×16, 1 row)
            %sum = sum(%matmul)
          - %matmul is read from memory: a row of a contraction's result is needed whole
    """)


def test_what_is_computed_again_is_marked() -> None:
    def cheap(x: Any) -> Any:
        shifted = x + 1.0
        return shifted, F.exp(F.flip(shifted, 0))

    text = str(fused(cheap, "f32[32, 64]"))
    assert "%add = add(%x, %c)  (again)" in text


def test_a_scalar_has_a_space_too() -> None:
    assert "pointwise, 1 node over a scalar" in str(fused(lambda x: F.exp(x), "f32[]"))
