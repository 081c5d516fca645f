"""Expressions: each exists once, index arithmetic is exact, and bindings are respected."""

from __future__ import annotations

import gc

from monograph.ir.dims import Symbol
from monograph.ir.types import bool_, f16, f32, f64, i32, i64
from monograph.kernel import expr as e
from monograph.kernel.expr import Buffer, Index, Load

ROW, COLUMN = Symbol("_i0", 0, 7), Symbol("_i1", 0, 7)
X = Buffer("b0", f32, (8, 8))


def at(*places: object) -> Load:
    return e.load(X, tuple(e.index(place) for place in places))  # type: ignore[arg-type]


# Hash-consing.


def test_equal_expressions_are_one_object() -> None:
    assert e.apply("add", at(ROW, COLUMN), at(COLUMN, ROW)) is e.apply(
        "add", at(ROW, COLUMN), at(COLUMN, ROW)
    )


def test_expressions_that_differ_in_anything_are_not_one() -> None:
    one = e.literal(1.0, f32)
    assert e.literal(1.0, f64) is not one
    assert e.literal(2.0, f32) is not one
    assert e.apply("exp", one) is not e.apply("sin", one)
    assert e.load(Buffer("b1", f32, (8, 8)), at(ROW, COLUMN).operands) is not at(ROW, COLUMN)
    assert at(ROW, COLUMN) is not at(COLUMN, ROW)


def test_zeros_of_both_signs_are_different_numbers() -> None:
    assert e.literal(0.0, f32) is not e.literal(-0.0, f32)


def test_a_number_that_is_not_a_number_is_one_object_all_the_same() -> None:
    assert e.literal(float("nan"), f32) is e.literal(float("nan"), f32)


def test_true_and_one_are_not_the_same_number() -> None:
    assert e.literal(True, bool_) is not e.literal(1, i64)


def test_an_expression_that_nobody_holds_is_forgotten() -> None:
    name = "a function that no other test applies"
    e.apply(name, e.literal(1.0, f32))
    gc.collect()
    kept = [x for x in e._INTERNED.values() if getattr(x, "function", None) == name]
    assert kept == []


# Index arithmetic.


def test_positions_are_added_and_multiplied_as_polynomials() -> None:
    position = (e.index(ROW) + 1) * 8 - e.index(ROW) * 8
    assert isinstance(position, Index)
    assert position.dim == 8


def test_division_cancels_where_it_is_exact() -> None:
    assert (e.index(ROW) * 8 + e.index(COLUMN)) // 8 is e.index(ROW)
    assert (e.index(ROW) * 8 + e.index(COLUMN)) % 8 is e.index(COLUMN)


def test_a_position_read_from_memory_stays_a_formula() -> None:
    indices = e.load(Buffer("b1", i64, (8,)), (e.index(ROW),))
    assert repr(indices * 8 + 1) == "((b1[i0] * 8) + 1)"


def test_neutral_operands_of_a_position_vanish() -> None:
    indices = e.load(Buffer("b1", i64, (8,)), (e.index(ROW),))
    assert indices + 0 is indices
    assert 0 + indices is indices
    assert indices * 1 is indices
    assert 1 * indices is indices
    assert indices // 1 is indices
    assert indices % 1 is e.index(0)
    assert indices - 0 is indices


def test_a_cast_to_the_same_dtype_and_one_there_and_back_are_nothing() -> None:
    x = e.load(Buffer("b1", f16, (8,)), (e.index(ROW),))
    wide = e.cast(x, f32)
    assert e.cast(x, f16) is x
    assert e.cast(wide, f16) is x


def test_a_cast_that_loses_digits_is_kept() -> None:
    x = e.load(Buffer("b1", i32, (8,)), (e.index(ROW),))
    assert e.cast(e.cast(x, f32), i32) is not x


def test_a_select_whose_condition_is_known_is_its_branch() -> None:
    yes, no = e.literal(1.0, f32), e.literal(2.0, f32)
    assert e.select(e.literal(True, bool_), yes, no) is yes
    assert e.select(e.literal(False, bool_), yes, no) is no
    unknown = e.apply("less", at(ROW, COLUMN), yes, dtype=bool_)
    assert e.select(unknown, yes, yes) is yes


# Substitution.


def test_substitution_reaches_positions() -> None:
    assert e.substitute(e.apply("exp", at(ROW, COLUMN)), {ROW: COLUMN + 1}) is e.apply(
        "exp", at(COLUMN + 1, COLUMN)
    )


def test_substitution_is_simultaneous() -> None:
    assert e.substitute(at(ROW, COLUMN), {ROW: COLUMN, COLUMN: ROW}) is at(COLUMN, ROW)


def test_what_does_not_depend_on_a_variable_stays_the_same_object() -> None:
    body = e.apply("exp", at(ROW, 0))
    assert e.substitute(body, {COLUMN: 3}) is body


def test_a_reduction_s_own_variable_is_not_substituted() -> None:
    row = e.axis("_r0_0", 8)
    total = e.reduce("sum", (row,), at(ROW, row.symbol))
    assert e.substitute(total, {row.symbol: 3}) is total
    assert row.symbol not in total.symbols
    moved = e.substitute(total, {ROW: 5, row.symbol: 3})
    assert moved is e.reduce("sum", (row,), at(5, row.symbol))


def test_a_reduction_depends_on_the_size_of_its_range() -> None:
    n = Symbol("n", 1)
    row = e.axis("_r0_0", n)
    total = e.reduce("sum", (row,), at(ROW, row.symbol))
    assert total.symbols == {ROW, n}


def test_replacing_a_whole_subexpression() -> None:
    inner = e.apply("exp", at(ROW, COLUMN))
    name = e.variable("v0", f32)
    outer = e.apply("add", inner, e.apply("tanh", inner))
    assert e.replace(outer, {inner: name}) is e.apply("add", name, e.apply("tanh", name))
    assert e.replace(outer, {name: inner}) is outer


def test_walking_gives_each_expression_once_and_operands_first() -> None:
    inner = e.apply("exp", at(ROW, COLUMN))
    outer = e.apply("add", inner, inner)
    order = list(e.walk((outer, inner)))
    assert len(order) == len(set(order))
    assert order.index(inner) < order.index(outer)


def test_deep_expressions_are_walked_without_recursion() -> None:
    deep: e.Expr = at(ROW, COLUMN)
    for _ in range(5000):
        deep = e.apply("exp", deep)
    assert sum(1 for _ in e.walk((deep,))) == 5003
