"""Symbolic dimensions agree with integer arithmetic, stay canonical, and refuse hostile text."""

from __future__ import annotations

import copy
import operator
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from monograph.errors import DimensionError, ZeroDivisorError
from monograph.ir.dims import (
    Bindings,
    Dim,
    Symbol,
    SymbolicDim,
    UnboundSymbolError,
    dim_max,
    dim_min,
    evaluate_dim,
    exact_quotient,
    is_static,
    parse_dim,
    provably_at_least,
    provably_different,
    provably_equal,
    provably_less,
    shape_product,
    solve_for,
    substitute_dim,
    substitute_shape,
)

a, b, c, n = Symbol("a"), Symbol("b"), Symbol("c"), Symbol("n")
zero_or_more = Symbol("z", 0)
small = Symbol("s", 2, 9)
SYMBOLS = {str(symbol): symbol for symbol in (a, b, c, n, zero_or_more, small)}


# Canonical form -----------------------------------------------------------------------------------


def test_equal_expressions_are_equal_however_they_were_built() -> None:
    assert 2 * n + 1 == 1 + n * 2
    assert (a + b) * 2 == 2 * b + 2 * a
    assert (a + b) * (a - b) == a * a - b * b
    assert hash(2 * n + 1) == hash(1 + n * 2)
    assert a + 1 != a + 2


@pytest.mark.parametrize(("dim", "value"), [(n - n, 0), (n + 3 - n, 3), (0 * n, 0), (n % 1, 0)])
def test_a_constant_result_is_an_int(dim: Dim, value: int) -> None:
    assert type(dim) is int
    assert dim == value


def test_a_symbolic_dimension_never_equals_an_int() -> None:
    fixed: Dim = Symbol("fixed", 4, 4)
    assert fixed != 4
    assert fixed - 4 != 0


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        ((4 * n) // 2, 2 * n),
        ((4 * n + 2) // 2, 2 * n + 1),
        ((4 * n + 1) // 4, n),
        ((4 * n - 1) // 4, n - 1),
        ((2 * n + 1) // 4, n // 2),
        ((4 * a + b) // 4, a + b // 4),
        ((a * b) // a, b),
        ((a * b + a) // a, b + 1),
        ((a * b + c) // a, b + c // a),
        ((a + 1) * (b + 2) // (b + 2), a + 1),
        ((a + b) * (a + b) * 6 // (2 * a + 2 * b), 3 * a + 3 * b),
        (n // 1, n),
        (n // -1, -n),
        (n // n, 1),
        (n // (n + 1), 0),
        (small // 10, 0),
        ((n // 2 + 1) // 3, (n + 2) // 6),
        ((n - 1) // 2 + 1, (n + 1) // 2),
        (-(-n // 4), (n + 3) // 4),
        ((4 * a - b) // 4, a - (b + 3) // 4),
        ((6 * a - 4 * b + 1) // 6, a - (2 * b + 2) // 3),
    ],
)
def test_floor_division_simplifies(dim: Dim, expected: Dim) -> None:
    assert dim == expected


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        ((6 * n) % 3, 0),
        ((5 * n + 9) % 4, (n + 1) % 4),
        ((a * b) % a, 0),
        ((a * b + a) % (b + 1), 0),
        (n % (n + 1), n),
        (small % 10, small),
        ((n % 4) % 4, n % 4),
        ((n + 3) % -2, -((-n - 3) % 2)),
    ],
)
def test_modulo_simplifies(dim: Dim, expected: Dim) -> None:
    assert dim == expected


def test_a_divisor_that_may_be_zero_is_not_cancelled() -> None:
    z = zero_or_more
    assert isinstance((z * a) // z, SymbolicDim)
    assert (z * a) // z != a
    assert z % z != 0
    for dim, text in [((z * a) // z, "a*z//z"), ((a + 1) % z, "(a+1)%z")]:
        with pytest.raises(ZeroDivisorError, match="its divisor 'z' is zero") as raised:
            evaluate_dim(2 * dim + 1, {z: 0, a: 1})
        assert f"'{text}'" in str(raised.value)
        assert "z=0" in str(raised.value)


def test_division_by_the_integer_zero_raises() -> None:
    with pytest.raises(ZeroDivisorError, match="'n'"):
        n // 0
    with pytest.raises(ZeroDivisorError, match="'n'"):
        n % 0


def test_max_and_min_flatten_deduplicate_and_order() -> None:
    assert dim_max(a, dim_max(b, a), 4) == dim_max(4, b, a)
    assert dim_min(b + 1, a) == dim_min(a, b + 1)
    assert dim_max(3, 5) == 5
    assert dim_min(a) is a
    with pytest.raises(ValueError, match="max of no dimensions"):
        dim_max()


def test_max_and_min_drop_what_ranges_prove_dominated() -> None:
    assert dim_max(a, a + 1, 1) == a + 1
    assert dim_min(a, a + 1, 1) == 1
    assert dim_max(small, 9) == 9
    assert dim_max(n, 2, 7) == dim_max(n, 7)
    fixed = Symbol("fixed", 4, 4)
    assert provably_equal(dim_max(fixed, 4), 4)


# Symbols and objects ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "2n", "a b", "é", "a-b", "n\n"])
def test_a_symbol_name_must_be_an_ascii_identifier(name: str) -> None:
    with pytest.raises(ValueError, match="ASCII identifier"):
        Symbol(name)


def test_a_symbol_range_must_be_possible() -> None:
    with pytest.raises(ValueError, match="the range is empty"):
        Symbol("n", 5, 4)
    with pytest.raises(ValueError, match="cannot be negative"):
        Symbol("n", -1)


def test_symbols_differ_if_their_ranges_differ() -> None:
    assert Symbol("n") == n
    assert Symbol("n", 2) != n
    mixed = [Symbol("n", 2) + n, n + Symbol("n", 2)]
    assert mixed[0] == mixed[1]
    assert mixed[0] - n == Symbol("n", 2)


def test_a_dimension_has_no_truth_value_order_or_conversion_to_int() -> None:
    with pytest.raises(TypeError, match="provably_equal"):
        bool(n + 1)
    with pytest.raises(TypeError):
        n < 3  # type: ignore[operator]  # noqa: B015
    with pytest.raises(TypeError):
        int(n)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        range(n)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        n + 1.5  # type: ignore[operator]


def test_a_dimension_is_immutable() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        n._bounds = (0, 0)
    with pytest.raises(AttributeError, match="immutable"):
        del (n + 1)._bounds  # type: ignore[union-attr]


@pytest.mark.parametrize("dim", [n, 2 * n + 1, (a + b) // 2, a % b, dim_max(a, b), dim_min(a, 4)])
def test_copies_and_pickles_are_the_same_dimension(dim: Dim) -> None:
    assert copy.deepcopy(dim) is dim
    assert copy.copy(dim) is dim
    assert pickle.loads(pickle.dumps(dim)) is dim


# Facts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dim", "bounds"),
    [
        (n, (1, None)),
        (3 - 2 * small, (-15, -1)),
        (small - n, (None, 8)),
        (small * small, (4, 81)),
        (small * n, (2, None)),
        (zero_or_more * n, (0, None)),
        ((small - 5) * (small + a), (None, None)),
        ((n % 14) * dim_min(a - b, 1), (None, 13)),
        ((a - b) % (small - 5), (-2, 3)),
        (small // (n - 5), (-9, 9)),
        ((small + 1) % (n + 10), (3, 10)),
        (small // 4, (0, 2)),
        ((small - 9) // 2, (-4, 0)),
        (n // small, (0, None)),
        (small // (n + 1), (0, 4)),
        (n % 8, (0, 7)),
        (small % (n + 1), (0, 9)),
        (n % -8, (-7, 0)),
        (dim_max(n, 4), (4, None)),
        (dim_min(n, small), (1, 9)),
        (3 - dim_min(n, small), (-6, 2)),
    ],
)
def test_bounds_of_each_operation(dim: SymbolicDim, bounds: tuple[int | None, int | None]) -> None:
    assert dim.bounds() == bounds


def test_symbols_are_deep_unique_and_sorted() -> None:
    dim = dim_max((b + n) // 2, a * b) + c % a
    assert isinstance(dim, SymbolicDim)
    assert dim.symbols() == (a, b, c, n)


def test_what_atoms_enclose_proves() -> None:
    """An expression and its own parts: a bound of each alone would not tell."""
    rounded = n + (-n) % 4
    assert provably_at_least(n, n // 2) and provably_at_least(n, (n + 1) // 2)
    assert provably_at_least((n + 1) // 2 * 2, n)
    assert provably_less(7 % rounded, rounded) and provably_less((-7) % n, n)
    assert provably_at_least(n, dim_min(n, a)) and provably_at_least(dim_max(n, a), a)
    assert dim_min(rounded, 2 % rounded) == 2 % rounded
    assert dim_max(dim_min(a, n), a) == a
    assert not provably_at_least(n // 2 * 2, n)
    assert not provably_less(7 % n, 7)


def test_proofs_of_numbers_at_the_limit_give_up() -> None:
    assert not provably_at_least(n // 16, 2**62)
    assert dim_min(n // 16, 2**63 - 1) == parse_dim(f"min(n//16, {2**63 - 1})", SYMBOLS)


def test_what_ranges_prove() -> None:
    assert provably_equal(2 * (a + 1), 2 * a + 2)
    assert provably_equal(Symbol("fixed", 4, 4), 4)
    assert not provably_equal(a, b)
    assert provably_different(a, a + 1)
    assert provably_different(a, 0)
    assert provably_different(3, 4)
    assert not provably_different(a, b)
    assert provably_at_least(a + b, a + 1)
    assert not provably_at_least(a, b)
    assert provably_less(small, 10)
    assert not provably_less(small, 9)


# Substitution, evaluation, solving ----------------------------------------------------------------


def test_substitution_is_simultaneous() -> None:
    assert substitute_dim(a - 2 * b, {a: b, b: a}) == b - 2 * a
    assert substitute_dim((a + b) // 2, {a: 2 * n, b: 4}) == n + 2
    assert substitute_shape((3, a, a * b), {a: 2}) == (3, 2, 2 * b)
    assert (a + 1).substitute({b: 3}) == a + 1  # type: ignore[union-attr]


def test_evaluation_names_the_symbol_that_has_no_value() -> None:
    with pytest.raises(UnboundSymbolError, match=r"'a\*b\+1': symbol 'b' has no value.*a=2"):
        evaluate_dim(a * b + 1, {a: 2})
    assert evaluate_dim(7, {}) == 7


def solve(dim: Dim, value: int, bindings: Bindings) -> dict[Symbol, int] | None:
    assert isinstance(dim, SymbolicDim)
    return solve_for(dim, value, bindings)


def test_solving_an_affine_dimension_binds_its_symbol() -> None:
    assert solve(2 * n + 1, 9, {}) == {n: 4}
    assert solve(10 - n, 3, {}) == {n: 7}
    assert solve(a * b, 12, {a: 3}) == {b: 4}
    assert solve(a * b, 12, {a: 3, b: 4}) == {}


@pytest.mark.parametrize("dim", [a * b, a * a, a // 2, a + a % 3, a + b])
def test_solving_gives_up_on_what_is_not_affine_in_one_symbol(dim: Dim) -> None:
    assert solve(dim, 12, {}) is None


@pytest.mark.parametrize(
    ("dim", "value", "bindings", "message"),
    [
        (2 * n, 9, {}, "no integer 'n'"),
        (n + 4, 2, {}, "needs n=-2, outside the declared range 1.."),
        (small, 10, {}, "needs s=10, outside the declared range 2..9"),
        (a * b, 12, {a: 3, b: 5}, "'a*b' is 15"),
    ],
)
def test_solving_an_impossible_equation_raises(
    dim: Dim, value: int, bindings: Bindings, message: str
) -> None:
    with pytest.raises(ValueError) as raised:
        solve(dim, value, bindings)
    assert message in str(raised.value)


def test_shapes() -> None:
    assert shape_product(()) == 1
    assert shape_product((2, a, 3, b)) == 6 * a * b
    assert shape_product((a, 0)) == 0
    assert is_static((2, 3))
    assert not is_static((2, n))


# Text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (1 + 2 * n, "2*n+1"),
        (b * a, "a*b"),
        (n * n, "n*n"),
        (1 + a + n * n - b, "n*n+a-b+1"),
        (-a, "-a"),
        (a - b, "a-b"),
        (-a * b - 1, "-a*b-1"),
        ((a + b) // 2, "(a+b)//2"),
        ((a + 1) % 4, "(a+1)%4"),
        (a * b // 2, "a*b//2"),
        (a // (b + 1), "a//(b+1)"),
        (a // (2 * b), "a//(2*b)"),
        (a // b // c, "a//b//c"),
        (a // (b // c + 1), "a//(b//c+1)"),
        (3 * (a // 2), "3*(a//2)"),
        (-(a // 2), "-(a//2)"),
        (b - a // 2, "-(a//2)+b"),
        (c * (a // 2), "a//2*c"),
        ((-a) % 4, "(-a)%4"),
        (7 // (a + 1), "7//(a+1)"),
        (dim_max(4, a), "max(a, 4)"),
        (dim_min(b + 1, a), "min(a, b+1)"),
        (a // dim_max(b, 2), "a//max(b, 2)"),
    ],
)
def test_printing_and_parsing_back(dim: Dim, text: str) -> None:
    assert str(dim) == text
    assert parse_dim(text, SYMBOLS) == dim


def test_parsing_allows_ordinary_spacing_and_constants() -> None:
    assert parse_dim("  2 * n\t+ 1 ", SYMBOLS) == 2 * n + 1
    assert parse_dim("--3", {}) == 3
    assert parse_dim("-7//2", {}) == -4
    assert parse_dim("max(2, 3)*n", SYMBOLS) == 3 * n


squares = [f"x{k}, (x{k - 1}*x{k - 1}+a)//(x{k - 1}+{k})" for k in range(1, 4000)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: expected an integer, a name or '(', found 'the end'"),
        ("n+", "column 3"),
        ("n n", "column 3: expected an operator or the end, found 'n'"),
        ("n+m", "column 3: unknown symbol 'm'"),
        ("sum(n)", "column 1: unknown function 'sum'"),
        ("n**2", "column 3: expected an integer"),
        ("n/2", "column 2"),
        ("(n, 2)", "expected ')', found ','"),
        ("max()", "expected an integer, a name or '(', found ')'"),
        ("n//0", "division by zero"),
        ("n%(1-1)", "division by zero"),
        ("²", "column 1"),
        ("é", "column 1"),
        ("1" * 20, "integer too large"),
        ("(" * 65 + "n" + ")" * 65, "nested too deeply"),
        ("(" * 1_000_000, "nested too deeply"),
        ("max(" * 1_000_000, "nested too deeply"),
        ("-" * 1_000_000, "expression too long"),
        ("n+" * 1_000_000, "expression too long"),
        ("*".join(["9" * 19] * 3 + ["n"]), "number too large"),
        (f"let(x0, n, {', '.join(squares)}, x3999)", "too large"),
        ("let()", "expected an integer, a name or '(', found ')'"),
        ("let(x, 2, y)", "column 11: unknown symbol 'y'"),
        ("let(x, 2, x", "expected ')', found 'the end'"),
        ("let(x, 2, x)+x", "column 14: unknown symbol 'x'"),
        ("let(" * 1_000_000, "nested too deeply"),
        ("opaque(a, b)", "expected ')', found ','"),
        ("n" * 100_000, "unknown symbol"),
    ],
)
def test_bad_and_hostile_text_is_refused_quickly(text: str, message: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError) as raised:
        parse_dim(text, SYMBOLS)
    assert message in str(raised.value)
    assert time.perf_counter() - start < 5


def test_definitions_in_front_of_an_expression_are_read() -> None:
    assert parse_dim("let(x, a*b, y, x+1, 2*x*y)", SYMBOLS) == 2 * a * b * (a * b + 1)
    assert parse_dim("max(let(x, a+1, x*x), 2)", SYMBOLS) == (a + 1) * (a + 1)
    unknown = parse_dim("opaque(a+b)-b", SYMBOLS)
    assert evaluate_dim(unknown, {a: 5, b: 2}) == 5
    assert parse_dim(str(unknown), SYMBOLS) is unknown


def test_sharing_does_not_grow_text_exponentially() -> None:
    dim: Dim = n
    for divisor in range(3, 60):
        dim = (dim * (a + b + c + 1)) // divisor
    assert len(str(dim)) < 100_000
    assert parse_dim(str(dim), SYMBOLS) is dim


def test_what_nests_without_end_is_refused_and_all_before_it_parses_back() -> None:
    deepest: list[Dim] = [n]
    with pytest.raises(DimensionError, match="too large"):
        while True:
            deepest.append((a * deepest[-1] + b) % 7)
    assert len(deepest) > 1000
    for dim in (deepest[40], deepest[400]):
        assert parse_dim(str(dim), SYMBOLS) is dim


def test_powers_of_powers_stay_quick_to_compute_with() -> None:
    dim: Dim = n
    start = time.perf_counter()
    for divisor in range(2, 40):
        dim = dim * (a + b + n // divisor + dim)
    assert isinstance(dim, SymbolicDim)
    assert dim.bounds() == (2**64, None)
    assert time.perf_counter() - start < 5


def test_high_powers_and_long_maxima_are_kept_in_parts() -> None:
    power = parse_dim("*".join(["n"] * 100), SYMBOLS)
    assert evaluate_dim(power, {n: 2}) == 2**100
    assert parse_dim(str(power), SYMBOLS) is power
    longest = dim_max(*(n % divisor + b // divisor for divisor in range(2, 200)))
    expected = max(1000 % divisor + 77 // divisor for divisor in range(2, 200))
    assert evaluate_dim(longest, {n: 1000, b: 77}) == expected
    assert parse_dim(str(longest), SYMBOLS) is longest


def test_a_part_that_is_large_is_named_and_defined_once() -> None:
    part = shape_product([(a + k) // (b + k) for k in range(1, 12)]) % c
    dim = part * n + part // 2
    text = str(dim)
    assert text.startswith("let(_1, ")
    assert text.endswith(", n*_1+_1//2)")
    assert text.count("(a+7)//(b+7)") == 1
    assert parse_dim(text, SYMBOLS) is dim
    assert dim - part * n == part // 2


def test_names_of_parts_avoid_those_of_symbols() -> None:
    first = Symbol("_1")
    part = shape_product([(first + k) // (b + k) for k in range(1, 12)]) % c
    text = str(part + first)
    assert text.startswith("let(_2, ")
    assert parse_dim(text, {"_1": first, "b": b, "c": c}) is part + first


def test_parts_of_equal_text_but_other_ranges_differ() -> None:
    def part(symbol: Symbol) -> Dim:
        return shape_product([(symbol + k) // (b + k) for k in range(1, 12)]) % c

    other = Symbol("a", 2)
    assert str(part(a)) == str(part(other))
    assert part(a) != part(other)
    assert isinstance(part(a) - part(other), SymbolicDim)


def test_opaque_parts_cancel_whatever_their_sign() -> None:
    wide = shape_product([a + k * b + c % (k + 2) for k in range(1, 8)])
    assert "opaque(" in str(wide)
    assert wide - wide == 0
    assert 0 - (0 - wide) == wide
    assert n - wide == -(wide - n)


# Properties ---------------------------------------------------------------------------------------

Tree = Any  # an int, a Symbol or (operator, left, right)

OPERATORS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (operator.add, operator.add),
    (operator.sub, operator.sub),
    (operator.mul, operator.mul),
    (operator.floordiv, operator.floordiv),
    (operator.mod, operator.mod),
    (dim_max, max),
    (dim_min, min),
]
VARIABLES = [a, b, zero_or_more, small]

leaves = st.one_of(st.integers(-12, 12), st.sampled_from(VARIABLES))
trees = st.recursive(
    leaves, lambda inner: st.tuples(st.sampled_from(OPERATORS), inner, inner), max_leaves=10
)
bindings_of_all = st.fixed_dictionaries(
    {
        symbol: st.integers(symbol.lower, 40 if symbol.upper is None else symbol.upper)
        for symbol in VARIABLES
    }
)


def build(tree: Tree) -> Dim:
    """The tree as a dimension."""
    if not isinstance(tree, tuple):
        return tree  # type: ignore[no-any-return]
    (symbolic, _), left, right = tree
    return symbolic(build(left), build(right))  # type: ignore[no-any-return]


def compute(tree: Tree, bindings: Bindings) -> int:
    """The tree in Python integers; examples that divide by zero are discarded."""
    if isinstance(tree, Symbol):
        return bindings[tree]
    if not isinstance(tree, tuple):
        return tree  # type: ignore[no-any-return]
    (_, concrete), left, right = tree
    left_value, right_value = compute(left, bindings), compute(right, bindings)
    assume(right_value != 0 or concrete not in (operator.floordiv, operator.mod))
    return concrete(left_value, right_value)  # type: ignore[no-any-return]


@settings(max_examples=500)
@given(trees, bindings_of_all)
def test_a_dimension_evaluates_as_python_integers_do(tree: Tree, bindings: Bindings) -> None:
    expected = compute(tree, bindings)
    assert evaluate_dim(build(tree), bindings) == expected


@settings(max_examples=500)
@given(trees, bindings_of_all)
def test_bounds_hold_for_every_binding(tree: Tree, bindings: Bindings) -> None:
    value = compute(tree, bindings)
    dim = build(tree)
    lower, upper = (dim, dim) if isinstance(dim, int) else dim.bounds()
    assert lower is None or lower <= value
    assert upper is None or value <= upper


@settings(max_examples=500)
@given(trees, bindings_of_all)
def test_printed_text_parses_to_the_same_dimension(tree: Tree, bindings: Bindings) -> None:
    compute(tree, bindings)
    dim = build(tree)
    assert parse_dim(str(dim), SYMBOLS) == dim


@settings(max_examples=500)
@given(trees, st.dictionaries(st.sampled_from(VARIABLES), trees, max_size=2), bindings_of_all)
def test_substitution_commutes_with_evaluation(
    tree: Tree, replacements: dict[Symbol, Tree], bindings: Bindings
) -> None:
    replaced = {symbol: compute(other, bindings) for symbol, other in replacements.items()}
    for symbol, value in replaced.items():
        assume(value >= symbol.lower and (symbol.upper is None or value <= symbol.upper))
    expected = compute(tree, {**bindings, **replaced})
    result = substitute_dim(build(tree), {s: build(other) for s, other in replacements.items()})
    assert evaluate_dim(result, bindings) == expected


@given(trees, trees, bindings_of_all)
def test_what_is_proved_is_true(left: Tree, right: Tree, bindings: Bindings) -> None:
    left_value, right_value = compute(left, bindings), compute(right, bindings)
    left_dim, right_dim = build(left), build(right)
    assert not provably_equal(left_dim, right_dim) or left_value == right_value
    assert not provably_different(left_dim, right_dim) or left_value != right_value
    assert not provably_at_least(left_dim, right_dim) or left_value >= right_value
    assert not provably_less(left_dim, right_dim) or left_value < right_value


@given(trees, trees, bindings_of_all)
def test_addition_and_multiplication_commute(left: Tree, right: Tree, bindings: Bindings) -> None:
    compute((OPERATORS[0], left, right), bindings)
    x, y = build(left), build(right)
    assert x + y == y + x
    assert x * y == y * x
    assert dim_max(x, y) == dim_max(y, x)
    assert x - y == -(y - x)


def test_an_exact_quotient_cancels_what_may_be_zero() -> None:
    z = zero_or_more
    assert exact_quotient(2 * z * n, 2 * z) == n
    assert exact_quotient(2 * z * z + z - 1, z + 1) == 2 * z - 1
    assert exact_quotient(z * n, n + 1) == z * n // (n + 1)
