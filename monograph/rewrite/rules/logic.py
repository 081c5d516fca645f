"""Comparisons, logic, bits and selection. All of it is exact for floats."""

from __future__ import annotations

from collections.abc import Callable

from monograph.ir.graph import Value
from monograph.ir.op import Op
from monograph.ir.types import bool_
from monograph.ops.elementwise import (
    BITS,
    BOOLEANS,
    FLOATS,
    INTEGERS,
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    LogicalXor,
    NotEqual,
    Where,
    equal,
    greater,
    greater_equal,
    is_nan,
    less,
    less_equal,
    logical_not,
    not_equal,
)
from monograph.ops.shape import expand
from monograph.rewrite.constants import as_number, splat
from monograph.rewrite.pattern import AnyConstant
from monograph.rewrite.rule import Match, Rule


def _not_of(comparison: type[Op], inverse: Callable[[Value, Value], Value]) -> Rule:
    return Rule(
        f"not_of_{comparison.name}",
        pattern=lambda x, y: LogicalNot()(comparison()(x, y)),
        replacement=lambda x, y: inverse(x, y),
        guard=lambda match: not match.x.dtype.is_float,
        floats="integers and bools only: with NaN both comparisons are false",
    )


def _all_ones(match: Match) -> bool:
    """Whether every bit of the constant is set: -1, or the largest unsigned number."""
    element = splat(match.ones)
    return element is not None and as_number(element) in (-1, 2**match.type.dtype.bits - 1)


COMPARISONS = (
    Rule(
        "less_than_self",
        pattern=lambda x: Less()(x, x),
        replacement=lambda: False,
        floats="exact: NaN is not less than itself either",
    ),
    Rule(
        "greater_than_self",
        pattern=lambda x: Greater()(x, x),
        replacement=lambda: False,
        floats="exact: NaN is not greater than itself either",
    ),
    Rule(
        "less_equal_self",
        pattern=lambda x: LessEqual()(x, x),
        replacement=lambda: True,
        kinds=BITS,
        floats="integers and bools only: false for NaN",
    ),
    Rule(
        "greater_equal_self",
        pattern=lambda x: GreaterEqual()(x, x),
        replacement=lambda: True,
        kinds=BITS,
        floats="integers and bools only: false for NaN",
    ),
    Rule(
        "equal_self",
        pattern=lambda x: Equal()(x, x),
        replacement=lambda: True,
        kinds=BITS,
        floats="integers and bools only: false for NaN",
    ),
    Rule(
        "not_equal_self",
        pattern=lambda x: NotEqual()(x, x),
        replacement=lambda: False,
        kinds=BITS,
        floats="integers and bools only: true for NaN",
    ),
    Rule(
        "equal_self_unless_nan",
        pattern=lambda x: Equal()(x, x),
        replacement=lambda x: logical_not(is_nan(x)),
        kinds=FLOATS,
        floats="exact: NaN alone differs from itself",
    ),
    Rule(
        "not_equal_self_if_nan",
        pattern=lambda x: NotEqual()(x, x),
        replacement=lambda x: is_nan(x),
        kinds=FLOATS,
        floats="exact: NaN alone differs from itself",
    ),
    Rule(
        "not_of_equal",
        pattern=lambda x, y: LogicalNot()(Equal()(x, y)),
        replacement=lambda x, y: not_equal(x, y),
        floats="exact: both are true where either is NaN",
    ),
    Rule(
        "not_of_not_equal",
        pattern=lambda x, y: LogicalNot()(NotEqual()(x, y)),
        replacement=lambda x, y: equal(x, y),
        floats="exact: both are false where either is NaN",
    ),
    _not_of(Less, greater_equal),
    _not_of(LessEqual, greater),
    _not_of(Greater, less_equal),
    _not_of(GreaterEqual, less),
    Rule(
        "equal_to_true",
        pattern=lambda x: Equal()(x, True),
        replacement=lambda x: x,
        kinds=BOOLEANS,
        floats="bools only",
    ),
    Rule(
        "equal_to_false",
        pattern=lambda x: Equal()(x, False),
        replacement=lambda x: logical_not(x),
        kinds=BOOLEANS,
        floats="bools only",
    ),
)

LOGIC = (
    Rule(
        "and_true",
        pattern=lambda x: LogicalAnd()(x, True),
        replacement=lambda x: x,
        floats="bools only",
    ),
    Rule(
        "and_false",
        pattern=lambda x: LogicalAnd()(x, False),
        replacement=lambda: False,
        floats="bools only",
    ),
    Rule(
        "and_self",
        pattern=lambda x: LogicalAnd()(x, x),
        replacement=lambda x: x,
        floats="bools only",
    ),
    Rule(
        "and_not_self",
        pattern=lambda x: LogicalAnd()(x, LogicalNot()(x)),
        replacement=lambda: False,
        floats="bools only",
    ),
    Rule(
        "or_false",
        pattern=lambda x: LogicalOr()(x, False),
        replacement=lambda x: x,
        floats="bools only",
    ),
    Rule(
        "or_true",
        pattern=lambda x: LogicalOr()(x, True),
        replacement=lambda: True,
        floats="bools only",
    ),
    Rule(
        "or_self",
        pattern=lambda x: LogicalOr()(x, x),
        replacement=lambda x: x,
        floats="bools only",
    ),
    Rule(
        "or_not_self",
        pattern=lambda x: LogicalOr()(x, LogicalNot()(x)),
        replacement=lambda: True,
        floats="bools only",
    ),
    Rule(
        "xor_false",
        pattern=lambda x: LogicalXor()(x, False),
        replacement=lambda x: x,
        floats="bools only",
    ),
    Rule(
        "xor_true",
        pattern=lambda x: LogicalXor()(x, True),
        replacement=lambda x: logical_not(x),
        floats="bools only",
    ),
    Rule(
        "xor_self",
        pattern=lambda x: LogicalXor()(x, x),
        replacement=lambda: False,
        floats="bools only",
    ),
)

BITWISE = (
    Rule(
        "bitwise_and_zero",
        pattern=lambda x: x & 0,
        replacement=lambda: 0,
        floats="integers and bools only",
    ),
    Rule(
        "bitwise_and_ones",
        pattern=lambda x: BitwiseAnd()(x, AnyConstant("ones")),
        guard=_all_ones,
        replacement=lambda x: x,
        kinds=INTEGERS,
        floats="integers only",
    ),
    Rule(
        "bitwise_and_self",
        pattern=lambda x: BitwiseAnd()(x, x),
        replacement=lambda x: x,
        floats="integers and bools only",
    ),
    Rule(
        "bitwise_or_zero",
        pattern=lambda x: x | 0,
        replacement=lambda x: x,
        floats="integers and bools only",
    ),
    Rule(
        "bitwise_or_ones",
        pattern=lambda x: BitwiseOr()(x, AnyConstant("ones")),
        guard=_all_ones,
        replacement=lambda ones, match: expand(ones, match.type.shape),
        kinds=INTEGERS,
        floats="integers only",
    ),
    Rule(
        "bitwise_or_self",
        pattern=lambda x: BitwiseOr()(x, x),
        replacement=lambda x: x,
        floats="integers and bools only",
    ),
    Rule(
        "bitwise_xor_zero",
        pattern=lambda x: x ^ 0,
        replacement=lambda x: x,
        floats="integers and bools only",
    ),
    Rule(
        "bitwise_xor_ones",
        pattern=lambda x: BitwiseXor()(x, AnyConstant("ones")),
        guard=_all_ones,
        replacement=lambda x: BitwiseNot()(x),
        kinds=INTEGERS,
        floats="integers only",
    ),
    Rule(
        "bitwise_xor_self",
        pattern=lambda x: BitwiseXor()(x, x),
        replacement=lambda: 0,
        floats="integers and bools only",
    ),
    Rule(
        "shift_left_by_zero",
        pattern=lambda x: x << 0,
        replacement=lambda x: x,
        floats="integers only",
    ),
    Rule(
        "shift_right_by_zero",
        pattern=lambda x: x >> 0,
        replacement=lambda x: x,
        floats="integers only",
    ),
)

SELECTION = (
    Rule(
        "where_same",
        pattern=lambda c, x: Where()(c, x, x),
        replacement=lambda x, match: expand(x, match.type.shape),
        floats="exact: no arithmetic",
    ),
    Rule(
        "where_true",
        pattern=lambda x, y: Where()(True, x, y),
        replacement=lambda x, match: expand(x, match.type.shape),
        floats="exact: no arithmetic",
    ),
    Rule(
        "where_false",
        pattern=lambda x, y: Where()(False, x, y),
        replacement=lambda y, match: expand(y, match.type.shape),
        floats="exact: no arithmetic",
    ),
    Rule(
        "where_not",
        pattern=lambda c, x, y: Where()(LogicalNot()(c), x, y),
        replacement=lambda c, x, y: Where()(c, y, x),
        floats="exact: no arithmetic",
    ),
    Rule(
        "where_true_else_false",
        pattern=lambda c: Where()(c, True, False),
        replacement=lambda c: c,
        guard=lambda match: match.type.dtype is bool_,
        floats="bools only",
    ),
    Rule(
        "where_false_else_true",
        pattern=lambda c: Where()(c, False, True),
        replacement=lambda c: logical_not(c),
        guard=lambda match: match.type.dtype is bool_,
        floats="bools only",
    ),
    Rule(
        "where_inside_then",
        pattern=lambda c, x, y, z: Where()(c, Where()(c, x, y), z),
        replacement=lambda c, x, z: Where()(c, x, z),
        floats="exact: no arithmetic",
    ),
    Rule(
        "where_inside_else",
        pattern=lambda c, x, y, z: Where()(c, x, Where()(c, y, z)),
        replacement=lambda c, x, z: Where()(c, x, z),
        floats="exact: no arithmetic",
    ),
)

RULES: tuple[Rule, ...] = (*COMPARISONS, *LOGIC, *BITWISE, *SELECTION)
