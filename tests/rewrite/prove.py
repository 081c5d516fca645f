"""Proofs of rewrite rules: a rule is applied to a program, and z3 looks for inputs that tell it.

A rule is *proved* for a program if there are none: no input of any bits for which an element of the
answer differs. Exact rules keep every bit but those of a NaN; ``fast_math`` rules are held against
the algebra of real numbers, wherever the left side is defined there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import z3

from monograph.ir.graph import Graph
from monograph.ir.types import TensorType
from monograph.rewrite.driver import rewrite_graph
from monograph.rewrite.rule import Rule
from tests.passes.rule_cases import EDGES, Case
from tests.rewrite.symbolic import Floats, Symbols, Unprovable

MILLISECONDS = 20_000
"""That z3 may take for one element."""
ELEMENTS_ALIKE = 2
"""Of the edge cases' sixteen elements, each computed as the others: how many are looked at."""
SYMBOLIC_CONSTANTS = {
    "combine_added_constants",
    "combine_multiplied_constants",
    "combine_added_constants_fast",
    "combine_multiplied_constants_fast",
}
"""Rules that take any constants, which are symbols here."""
ZEROS_ALIKE = {"extreme_of_extreme"}
"""Rules whose float contract leaves the sign of zero open."""

ROUNDED_CONSTANT = {"divide_by_constant"}
"""Rules that write a constant of their own, which is rounded to the dtype."""
ROUNDING = 2.0**-24
"""How far, relatively, such a constant is off in f32."""


@dataclass(frozen=True)
class Refutation:
    """Inputs for which a rule changes an answer."""

    rule: str
    inputs: str
    before: str
    after: str


def refute(rule: Rule, graph: Graph, floats: Floats) -> Refutation | None:
    """Inputs that tell a graph from what a rule makes of it; None if there are none, for sure."""
    after = graph.clone()
    report = rewrite_graph(after, [rule], during="proof")
    assert report.changed, f"{rule.name} does not apply to\n{graph}"
    symbols = Symbols(floats, constants={} if rule.name in SYMBOLIC_CONSTANTS else None)
    inputs = [
        symbols.array(value.type, value.name)
        for value in graph.inputs
        if isinstance(value.type, TensorType)
    ]
    left = symbols.run(graph, inputs)
    defined = list(symbols.defined)
    right = symbols.run(after, inputs)
    known = [*defined, *symbols.facts]
    claims = [(z3.BoolVal(True), each) for each in symbols.defined[len(defined) :]]
    for before, found in zip(left, right, strict=True):
        assert before.shape == found.shape
        claims += _different(before, found)
    for a, b in claims:
        model = _counterexample(rule, a, b, known)
        if model is not None:
            return Refutation(rule.name, str(model), *(str(model.eval(x)) for x in (a, b)))
    return None


def _different(before: Any, after: Any) -> Iterator[tuple[Any, Any]]:
    """The pairs of elements that are not the same term; of sixteen alike, the first two."""
    pairs = zip(before.reshape(-1), after.reshape(-1), strict=True)
    found = [(a, b) for a, b in pairs if not z3.eq(z3.simplify(a), z3.simplify(b))]
    yield from found[:ELEMENTS_ALIKE] if before.shape == (EDGES,) else found


def _counterexample(rule: Rule, a: Any, b: Any, known: list[Any]) -> Any:
    solver = z3.Solver()
    solver.set("timeout", MILLISECONDS)
    same = a == b
    if rule.name in ZEROS_ALIKE and z3.is_fp(a):
        same = z3.Or(same, z3.fpEQ(a, b))
    if rule.name in ROUNDED_CONSTANT and z3.is_real(a):
        same = z3.Abs(a - b) <= z3.Q(*ROUNDING.as_integer_ratio()) * z3.Abs(a)
    solver.add(*known, z3.Not(same))
    answer = solver.check()
    if answer == z3.unknown:
        raise Unprovable("z3 gave up")
    return solver.model() if answer == z3.sat else None


def settings(rule: Rule, dtype: str) -> Floats:
    """What stands for floats in a rule's proof."""
    if rule.fast_math:
        return Floats.REAL
    return Floats.TRUE if rule.name.startswith("cast_") else Floats.SMALL


def prove(rule: Rule, case: Case, dtype: str) -> Refutation | None:
    """Prove one case of a rule in one dtype, in the dtype's own format if a constant needs it."""
    graph = case.graph(dtype)
    floats = settings(rule, dtype)
    try:
        return refute(rule, graph, floats)
    except Unprovable:
        if floats is not Floats.SMALL:
            raise
        return refute(rule, graph, Floats.TRUE)


def small_floats() -> list[float]:
    """Every number that a float of 4 and 4 bits may be, the infinities too."""
    finite = [m * 2.0**e for e in range(-9, 5) for m in range(16) if m * 2.0**e <= 240.0]
    positive = sorted({*finite, np.inf})
    return [*positive, *(-each for each in positive)]
