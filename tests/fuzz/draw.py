"""A program and a way to run it, from a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch

from tests.fuzz import indexing, layers, pointwise, reductions, views
from tests.fuzz.programs import Program
from tests.fuzz.scope import Drawn, Scope

Family = Callable[[Scope], Drawn | None]

FAMILIES: tuple[tuple[Family, int], ...] = (
    *pointwise.FAMILIES,
    *views.FAMILIES,
    *reductions.FAMILIES,
    *indexing.FAMILIES,
    *layers.FAMILIES,
)
"""What draws a statement, and how often in relation to the others."""

DTYPE_WEIGHTS = {
    **{"float32": 10, "float16": 4, "bfloat16": 5, "float64": 3},
    **{"int64": 1, "int32": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 2, "complex128": 1},
}
"""The dtype of most of a program's inputs, and how often in relation to the others."""


def draw_program(random: Random, dtype: str | None = None) -> Program:
    """A program of a few statements, each of which torch has run."""
    chosen = dtype or random.choices(list(DTYPE_WEIGHTS), list(DTYPE_WEIGHTS.values()))[0]
    scope = Scope(random, chosen)
    for _ in range(random.choice((1, 1, 2, 3))):
        scope.add_source(scope.shape())
    wanted = random.choice((1, 2, 3, 4, 5, 6, 8, 12))
    families, weights = zip(*FAMILIES, strict=True)
    with torch.no_grad():
        for _ in range(6 * wanted):
            held = len(scope.sources)
            if not scope.attempt(random.choices(families, weights)[0](scope)):
                scope.forget_sources(held)
            if len(scope.statements) == wanted:
                break
        while not scope.statements:
            scope.attempt(Drawn("{0}.clone()", (scope.sources[0].name,), True))
    return scope.program()
