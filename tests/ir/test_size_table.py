"""Many sizes evaluated at once are what each is by itself."""

from __future__ import annotations

import random

import pytest

from monograph.errors import ZeroDivisorError
from monograph.ir.dims import Dim, Symbol, UnboundSymbolError, dim_max, dim_min, evaluate_dim
from monograph.ir.dims.operations import opaque
from monograph.ir.dims.size_table import SizeTable

A, B, C = Symbol("a", 0), Symbol("b", 1), Symbol("c", 2, 9)


def _drawn(draw: random.Random, known: list[Dim]) -> Dim:
    x, y = draw.choice(known[-8:]), draw.choice([*known, 3, 7])
    kinds = (x + y, x - y, x * C, x // (C + 1), x % C, dim_max(x, y), dim_min(x, y), opaque(x * x))
    return draw.choice(kinds)


@pytest.mark.parametrize("seed", range(3))
def test_all_of_a_table_are_what_each_evaluates_to(seed: int) -> None:
    draw = random.Random(seed)
    dims: list[Dim] = [A, B, C, 5]
    for _ in range(60):
        dims.append(_drawn(draw, dims))
    table = SizeTable(dims, (A, B, C))
    for _ in range(20):
        sizes = draw.randint(0, 40), draw.randint(1, 40), draw.randint(2, 9)
        bindings = dict(zip((A, B, C), sizes, strict=True))
        assert table.values(sizes) == [evaluate_dim(dim, bindings) for dim in dims]


def test_a_divisor_of_zero_is_named() -> None:
    table = SizeTable([B, B // A], (A, B))
    assert table.values((2, 9)) == [9, 4]
    with pytest.raises(ZeroDivisorError, match="its divisor 'a' is zero"):
        table.values((0, 9))


def test_a_symbol_without_a_size_is_an_error() -> None:
    with pytest.raises(UnboundSymbolError, match="symbol 'b' has no value"):
        SizeTable([A + B], (A,))
