"""z3 proves the rules of arithmetic, or says for which input they are wrong.

The programs are those of the passes' own tests, in which each rule applies. Where a rule takes a
constant, all constants of the small float format are tried, and all integers of four bits.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import monograph.functional as F
from monograph.frontends.trace import trace
from monograph.inspect.catalogue import all_rules, catalogue
from monograph.ir.op import Trait, registry
from monograph.ops.elementwise import FLOATS, Clip
from monograph.rewrite.proofs import PROVED_PASSES, UNPROVED
from monograph.rewrite.rule import Rule
from tests.passes import test_canonicalize, test_simplify
from tests.passes.rule_cases import Case

z3 = pytest.importorskip("z3")

from tests.rewrite.prove import prove, refute, small_floats  # noqa: E402  # which need z3
from tests.rewrite.symbolic import Floats, Unprovable  # noqa: E402

SLOW = ("cast_twice", "extreme_of_extreme")
INTEGERS = ("i8", "u8", "i4", "bool")
CASES: dict[str, list[Case]] = {
    **test_canonicalize.CASES,
    **test_simplify.CASES,
    **{name: [case] for name, case in test_simplify.FAST.items()},
}


@cache
def rules() -> dict[str, Rule]:
    """The rules that are to be proved, by name."""
    return {rule.name: rule for name, rule in all_rules() if name in PROVED_PASSES}


def dtypes_of(rule: Rule, case: Case) -> Iterator[str]:
    """One float stands for all, whose format no rule knows; casts know it."""
    if rule.name.startswith("cast_"):
        yield from case.dtypes
        return
    yield from (dtype for dtype in case.dtypes if dtype in INTEGERS)
    floats = [dtype for dtype in case.dtypes if dtype.startswith(("f", "bf"))]
    yield from (["f32"] if "f32" in floats else floats[:1])
    if not floats and not set(case.dtypes) & set(INTEGERS):
        yield case.dtypes[0]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
        for name in rules()
        if name not in UNPROVED
    ],
)
def test_a_rule_is_proved(name: str) -> None:
    rule, proved = rules()[name], 0
    for case in CASES[name]:
        for dtype in dtypes_of(rule, case):
            refuted = prove(rule, case, dtype)
            assert refuted is None, f"{dtype}: {refuted}"
            proved += 1
    assert proved


def test_every_rule_is_proved_or_has_a_reason() -> None:
    assert set(UNPROVED) <= set(rules())
    assert all(UNPROVED.values())
    assert set(CASES) >= set(rules()), "a new rule needs a case, to be proved"


@pytest.mark.parametrize("name", UNPROVED)
def test_what_has_a_reason_cannot_be_proved(name: str) -> None:
    rule, case = rules()[name], CASES[name][0]
    floats = [dtype for dtype in dtypes_of(rule, case) if dtype == "f32"]
    with contextlib.suppress(Unprovable):
        assert prove(rule, case, floats[0]) is not None, "it can be proved: take it off the list"


def test_the_list_of_rules_says_what_is_proved() -> None:
    items = {item.name: item for item in catalogue("rules")}
    assert items["add_zero"].facts["proof"] == "proved"
    assert items["power_two"].facts["proof"] == "unproved"
    assert "pow" in items["power_two"].note
    assert items["gelu_erf"].facts["proof"] == "tested"


# Rules that take a constant: all constants --------------------------------------------------------


@pytest.mark.parametrize("constant", [0.0, -0.0, 1.0, 0.015625, 240.0, np.inf, -np.inf])
def test_a_constant_is_subtracted_as_its_negation_is_added(constant: float) -> None:
    graph = trace(lambda x: x - constant, "f32[1]")
    assert refute(rules()["subtracted_constant"], graph, Floats.SMALL) is None


@pytest.mark.slow
def test_every_constant_is_subtracted_as_its_negation_is_added() -> None:
    for constant in small_floats():
        graph = trace(lambda x, c=constant: x - c, "f32[1]")
        assert refute(rules()["subtracted_constant"], graph, Floats.SMALL) is None
    for integer in range(-8, 8):
        graph = trace(lambda x, c=integer: x - c, "i4[1]")
        assert refute(rules()["subtracted_constant"], graph, Floats.SMALL) is None


def test_every_power_of_two_is_divided_by_as_its_reciprocal_is_multiplied() -> None:
    for exponent, sign in itertools.product(range(-6, 7), (1, -1)):
        graph = trace(lambda x, c=sign * 2.0**exponent: x / c, "f32[1]")
        assert refute(rules()["divide_by_power_of_two"], graph, Floats.SMALL) is None


def test_bounds_of_any_order_and_sign_of_zero_are_clipped_once() -> None:
    bounds = (None, -1.0, -0.0, 0.0, 1.0)
    pairs = list(itertools.product(bounds, bounds))[1:]
    chosen = np.random.default_rng(0).permutation(len(pairs) ** 2)[:60]
    for number in chosen:
        inner, outer = pairs[number // len(pairs)], pairs[number % len(pairs)]
        graph = trace(lambda x, i=inner, o=outer: Clip(*o)(Clip(*i)(x)), "f32[1]")
        refuted = refute(rules()["clip_twice"], graph, Floats.SMALL)
        assert refuted is None, f"clip{inner}, then clip{outer}: {refuted}"


# Traits: what `idempotent` and `involution` believe -----------------------------------------------

UNPROVED_TRAITS = {"conj": "z3 has no complex numbers; its imaginary part is negated twice"}


@pytest.mark.parametrize("trait", [Trait.IDEMPOTENT, Trait.INVOLUTION])
def test_every_op_that_claims_a_trait_has_it(trait: Trait) -> None:
    rule = rules()["idempotent" if trait is Trait.IDEMPOTENT else "involution"]
    made: dict[str, Any] = {"clip": Clip(-1.0, 2.0), "flip": lambda x: F.flip(x, 0)}
    for name, cls in registry().items():
        if trait not in cls.traits or name in UNPROVED_TRAITS or cls.__module__[:5] == "tests":
            continue
        apply = made.get(name) or cls()
        dtype = "bool" if name == "logical_not" else "i8" if name == "bitwise_not" else "f32"
        graph = trace(lambda x, f=apply: f(f(x)), f"{dtype}[2]")
        assert refute(rule, graph, Floats.SMALL) is None, name


# The prover itself --------------------------------------------------------------------------------

WRONG = [
    (lambda x: x + 0.0, lambda x: x, "f32", "-0.0"),
    (lambda x: x * 0.0, lambda: 0.0, "f32", "NaN"),
    (lambda x, y: -(x - y), lambda x, y: y - x, "f32", "the zero of equal numbers"),
    (lambda x, y: (x + y) - y, lambda x: x, "f32", "rounding"),
    (lambda x: F.abs(x) * F.abs(x), lambda x: F.abs(x), "i8", "2"),
    (lambda x: F.abs(-F.abs(x)), lambda x: F.maximum(x, -x) + 1, "i8", "everything"),
    (lambda x, y: F.logical_not(x < y), lambda x, y: x >= y, "f32", "NaN"),
    (lambda x: F.maximum(x, -0.0), lambda x: F.relu(x), "f32", "-0.0"),
]


@pytest.mark.parametrize(("pattern", "replacement", "dtype", "why"), WRONG)
def test_a_wrong_rule_is_refuted(pattern: Any, replacement: Any, dtype: str, why: str) -> None:
    rule = Rule("wrong", pattern=pattern, replacement=replacement, floats=f"wrong: {why}")
    count = pattern.__code__.co_argcount
    refuted = refute(rule, trace(pattern, *[f"{dtype}[1]"] * count), Floats.SMALL)
    assert refuted is not None
    assert refuted.before != refuted.after or "0" in refuted.before


def test_a_rule_that_is_wrong_of_real_numbers_is_refuted() -> None:
    rule = Rule(
        "wrong",
        pattern=lambda x: F.sqrt(x * x),
        replacement=lambda x: x,
        floats="wrong below 0",
        kinds=FLOATS,
        fast_math=True,
    )
    refuted = refute(rule, trace(lambda x: F.sqrt(x * x), "f32[1]"), Floats.REAL)
    assert refuted is not None
    assert "-" in refuted.inputs


def test_a_rule_may_not_divide_where_the_left_side_did_not() -> None:
    rule = Rule(
        "wrong", pattern=lambda x: x * 1.0, replacement=lambda x: x * x / x, floats="", kinds=FLOATS
    )
    assert refute(rule, trace(lambda x: x * 1.0, "f32[1]"), Floats.REAL) is not None
