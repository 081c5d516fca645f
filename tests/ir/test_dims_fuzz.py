"""Long random computations of sizes agree with Python's integers, and stay short.

Each chain applies a few hundred operations to one to four symbols and to what it has computed so
far, as the shape rules of a long model do, and holds every result against integers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import pytest

from monograph.errors import DimensionError
from monograph.ir.dims import Dim, Symbol, dim_max, dim_min, evaluate_dim, parse_dim
from monograph.ir.dims.polynomial import bounds_of

SYMBOLS = (Symbol("a", 0), Symbol("b", 1), Symbol("c", 0), Symbol("d", 2, 9))
NUMBERS = (1, 2, 3, 4, 7, 16, -1, -3)
LENGTH = 200
LARGEST_SIZE = 2**62
LONGEST_TEXT = 500_000
CHECKED_EVERY = 50
FEW, MANY = 5, 400

Operation = Callable[[Dim, Dim], Dim]
Whole = Callable[[int, int], int]
Known = tuple[Dim, list[int]]

OPERATIONS: dict[str, tuple[Operation, Whole]] = {
    "+": (lambda x, y: x + y, lambda x, y: x + y),
    "-": (lambda x, y: x - y, lambda x, y: x - y),
    "*": (lambda x, y: x * y, lambda x, y: x * y),
    "//": (lambda x, y: x // y, lambda x, y: x // y),
    "%": (lambda x, y: x % y, lambda x, y: x % y),
    "ceiling": (lambda x, y: -(-x // y), lambda x, y: -(-x // y)),
    "round up": (lambda x, y: x + -x % y, lambda x, y: x + -x % y),
    "max": (dim_max, max),
    "min": (dim_min, min),
    "square": (lambda x, y: x * x + y, lambda x, y: x * x + y),
}
DIVIDING = {"//", "%", "ceiling", "round up"}


def bindings_of(symbols: Sequence[Symbol], draw: random.Random) -> dict[Symbol, int]:
    """Sizes such as zero, one, a prime and others, inside the declared ranges."""
    return {
        symbol: min(
            max(draw.choice((0, 1, 7, draw.randint(2, 60))), symbol.lower), symbol.upper or 60
        )
        for symbol in symbols
    }


def check(dim: Dim, values: list[int], bindings: list[dict[Symbol, int]]) -> None:
    """A dimension has the values that integers have, inside its bounds."""
    lower, upper = bounds_of(dim)
    for value, sizes in zip(values, bindings, strict=True):
        assert evaluate_dim(dim, sizes) == value
        assert lower is None or lower <= value
        assert upper is None or value <= upper


def check_text(dim: Dim) -> None:
    """What prints is short, and parses back to the same object."""
    text = str(dim)
    assert len(text) < LONGEST_TEXT
    assert parse_dim(text, {symbol.name: symbol for symbol in SYMBOLS}) == dim


def run_chain(seed: int, length: int = LENGTH, compared_every: int = 1) -> int:
    """Apply operations at random; how many were refused, for a number beyond all sizes."""
    draw = random.Random(seed)
    symbols = SYMBOLS[: draw.randint(1, 4)]
    bindings = [bindings_of(symbols, draw) for _ in range(3)]
    known: list[Known] = [(symbol, [sizes[symbol] for sizes in bindings]) for symbol in symbols]
    names = [*draw.choices(list(OPERATIONS), k=4), "+"]
    refused = 0
    for step in range(length):
        name = draw.choice(names)
        left, left_values = draw.choice(known[-6:])
        number = draw.choice(NUMBERS)
        right, right_values = (
            draw.choice(known[-12:]) if draw.random() < 0.7 else (number, [number] * 3)
        )
        if name in DIVIDING and 0 in right_values:
            continue
        symbolic, whole = OPERATIONS[name]
        values = [whole(x, y) for x, y in zip(left_values, right_values, strict=True)]
        if max(map(abs, values)) > LARGEST_SIZE:
            continue
        try:
            dim = symbolic(left, right)
        except DimensionError as problem:
            assert "number too large" in str(problem)
            refused += 1
            continue
        if step % compared_every == 0:
            check(dim, values, bindings)
        if step % CHECKED_EVERY == 0:
            check_text(dim)
        known.append((dim, values))
    check(*known[-1], bindings)
    check_text(known[-1][0])
    return refused


@pytest.mark.parametrize("seed", range(FEW))
def test_long_chains_of_sizes_agree_with_integers(seed: int) -> None:
    start = time.process_time()
    assert run_chain(seed) < LENGTH // 2
    assert time.process_time() - start < 60


@pytest.mark.parametrize(("seed", "length"), [(144, 200), (192, 200), (7, 600)])
def test_chains_of_very_large_sizes_never_grow_too_large(seed: int, length: int) -> None:
    assert run_chain(seed, length, compared_every=100) < length // 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_chains_of_a_thousand_steps_never_grow_too_large(part: int) -> None:
    for seed in range(part * 10, part * 10 + 10):
        assert run_chain(seed, 1000, compared_every=200) < 500, f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_many_long_chains_of_sizes_agree_with_integers(part: int) -> None:
    for seed in range(FEW + part * MANY // 8, FEW + (part + 1) * MANY // 8):
        assert run_chain(seed) < LENGTH // 2, f"seed {seed}"


def test_equal_chains_give_one_object() -> None:
    def chain() -> Dim:
        a, b, c, _ = SYMBOLS
        dim: Dim = a
        for number in range(1, 60):
            dim = (dim * (b + c) + number) // (b + number) + dim % 7
        return dim

    first, second = chain(), chain()
    assert first is second
    assert hash(first) == hash(second)
