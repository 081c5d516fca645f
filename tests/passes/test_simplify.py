"""Each rule of simplify fires where it should and, unless it is fast_math, changes no bit."""

from __future__ import annotations

import numpy as np
import pytest

import monograph.functional as F
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph
from monograph.ir.types import DTYPES
from monograph.ops.elementwise import Cast, Clip
from monograph.ops.joining import Concat, Split, Stack
from monograph.ops.reduce import Max, Mean, Sum
from monograph.ops.shape import Expand, Reshape, Squeeze, Tile, Transpose
from monograph.ops.slicing import Flip, Pad, PadBorder, Roll, Slice
from monograph.passes.simplify import EXACT, Simplify
from monograph.rewrite.rules import fast_math
from tests.passes.rule_cases import EDGES, Case, outputs, same

FLOATS = ("f64", "f32", "f16", "bf16", "f8e5m2")
INTEGERS = ("i64", "i32", "i8", "u8", "i4")
SIGNED = ("i64", "i8", "i4")
NUMBERS = FLOATS + INTEGERS
BOOL = ("bool",)
ONE = ((EDGES,),)
TWO = ((EDGES,), (EDGES,))
THREE = ((EDGES,), (EDGES,), (EDGES,))
SQUARE = ((4, 4),)


def twice(op):
    return lambda x: op(op(x))


def while_never(x):
    return F.while_loop(lambda carry: False, lambda carry: carry * 2, x)


def if_decided(x):
    return F.cond(False, lambda: x * 2, lambda: x * 3)


def if_alike(x):
    return F.cond(F.any(F.equal(x, 0)), lambda x: x, lambda x: x, x)


def scan_unused(x):
    return F.scan(lambda carry, row: (carry + row, (row * 2, row * 3)), x[0], x)[1][0]


CASES: dict[str, list[Case]] = {
    "add_zero": [
        Case(lambda x: x + 0, INTEGERS + BOOL),
        Case(lambda x: abs(x) + 0.0, FLOATS),
        Case(lambda x: 0.0 + F.relu(x), FLOATS),
        Case(lambda x: x * x + 0.0, FLOATS),
        Case(lambda x: F.exp(x) + np.zeros(EDGES, np.float32)),
        Case(lambda x: F.where(x > 0, F.square(x), 1.0) + 0.0, FLOATS),
        Case(lambda x: (F.maximum(x, 0.0) + x) + 0.0),
        Case(lambda x: F.reshape(F.sigmoid(x), (4, 4)) + 0.0),
        Case(lambda x: F.cast(x, "f32") + 0.0, INTEGERS),
    ],
    "add_negative_zero": [Case(lambda x: x + -0.0, FLOATS), Case(lambda x: -0.0 + x, FLOATS)],
    "subtract_zero": [Case(lambda x: x - 0, NUMBERS)],
    "subtract_from_negative_zero": [Case(lambda x: -0.0 - x, FLOATS)],
    "subtract_from_zero": [Case(lambda x: 0 - x, INTEGERS)],
    "subtract_self": [Case(lambda x: x - x, INTEGERS)],
    "add_negated": [
        Case(lambda x, y: x + -y, NUMBERS, TWO),
        Case(lambda x, y: -y + x, NUMBERS, TWO),
    ],
    "subtract_negated": [Case(lambda x, y: x - -y, NUMBERS, TWO)],
    "negate_difference": [Case(lambda x, y: -(x - y), INTEGERS, TWO)],
    "combine_added_constants": [Case(lambda x: (x + 3) + 2, INTEGERS)],
    "multiply_by_one": [
        Case(lambda x: x * 1, NUMBERS + BOOL),
        Case(lambda x: 1 * x, NUMBERS),
        Case(lambda x: x * np.ones(EDGES, np.float32)),
        Case(lambda x: x * Expand((EDGES,))(F.full((1,), 1.0, "f32"))),
    ],
    "multiply_by_minus_one": [Case(lambda x: x * -1, FLOATS + SIGNED)],
    "multiply_by_zero": [Case(lambda x: x * 0, INTEGERS + BOOL)],
    "multiply_negated": [Case(lambda x, y: -x * -y, NUMBERS, TWO)],
    "combine_multiplied_constants": [Case(lambda x: 2 * (x * 3), INTEGERS)],
    "divide_by_one": [Case(lambda x: x / 1, FLOATS)],
    "divide_by_minus_one": [Case(lambda x: x / -1, FLOATS)],
    "divide_negated": [Case(lambda x, y: -x / -y, FLOATS, TWO)],
    "divide_by_power_of_two": [
        Case(lambda x: x / 4, FLOATS),
        Case(lambda x: x / -0.5, FLOATS),
        Case(lambda x: x / 2.0**126),
        Case(lambda x: x / 2.0**-126),
    ],
    "floor_divide_by_one": [Case(lambda x: x // 1, INTEGERS)],
    "remainder_by_one": [Case(lambda x: x % 1, INTEGERS)],
    "power_zero": [Case(lambda x: x**0, NUMBERS)],
    "power_negative_zero": [Case(lambda x: x**-0.0, FLOATS)],
    "power_one": [Case(lambda x: x**1, NUMBERS)],
    "power_two": [Case(lambda x: x**2, NUMBERS)],
    "power_minus_one": [Case(lambda x: x**-1.0, FLOATS)],
    "power_of_one": [Case(lambda x: 1**x, NUMBERS)],
    "abs_of_negated": [Case(lambda x: abs(-x), FLOATS + SIGNED)],
    "square_of_negated": [Case(lambda x: F.square(-x), NUMBERS)],
    "square_of_abs": [Case(lambda x: F.square(abs(x)), NUMBERS)],
    "maximum_of_one": [Case(lambda x: F.maximum(x, x), NUMBERS + BOOL)],
    "minimum_of_one": [Case(lambda x: F.minimum(x, x), NUMBERS + BOOL)],
    "maximum_with_lowest": [Case(lambda x: F.maximum(-np.inf, x), FLOATS)],
    "minimum_with_highest": [Case(lambda x: F.minimum(x, np.inf), FLOATS)],
    "idempotent": [
        Case(twice(op), FLOATS) for op in (F.relu, F.floor, F.ceil, F.round, F.trunc, F.relu6)
    ]
    + [Case(twice(F.stop_gradient), NUMBERS), Case(twice(abs), NUMBERS)],
    "involution": [
        Case(twice(F.negate), NUMBERS),
        Case(twice(F.bitwise_not), INTEGERS + BOOL),
        Case(twice(F.logical_not), BOOL),
        Case(twice(lambda x: F.flip(x, 0)), NUMBERS),
    ],
    "round_whole": [Case(lambda x: F.floor(F.ceil(x)), FLOATS)],
    "clip_unbounded": [Case(lambda x: Clip()(x), NUMBERS)],
    "clip_twice": [
        Case(lambda x: F.clip(F.clip(x, -2, 3), -1, 5), (*FLOATS, "i64")),
        Case(lambda x: F.clip(F.clip(x, 0.0, None), -0.0, 1.0), FLOATS),
        Case(lambda x: F.clip(F.clip(x, -0.0, 0.5), None, 0.0), FLOATS),
        Case(lambda x: F.clip(F.clip(x, None, -0.0), 0.0, None), FLOATS),
        Case(lambda x: F.clip(F.clip(x, 2.0, -1.0), -3.0, 1.0), FLOATS),
        Case(lambda x: F.clip(F.clip(x, -1.0, 1.0), 2.0, 3.0), FLOATS),
    ],
    "less_than_self": [Case(lambda x: x < x, NUMBERS + BOOL)],
    "greater_than_self": [Case(lambda x: x > x, NUMBERS + BOOL)],
    "less_equal_self": [Case(lambda x: x <= x, INTEGERS + BOOL)],
    "greater_equal_self": [Case(lambda x: x >= x, INTEGERS + BOOL)],
    "equal_self": [Case(lambda x: F.equal(x, x), INTEGERS + BOOL)],
    "not_equal_self": [Case(lambda x: F.not_equal(x, x), INTEGERS + BOOL)],
    "equal_self_unless_nan": [Case(lambda x: F.equal(x, x), FLOATS)],
    "not_equal_self_if_nan": [Case(lambda x: F.not_equal(x, x), FLOATS)],
    "not_of_equal": [Case(lambda x, y: F.logical_not(F.equal(x, y)), NUMBERS, TWO)],
    "not_of_not_equal": [Case(lambda x, y: F.logical_not(F.not_equal(x, y)), NUMBERS, TWO)],
    "not_of_less": [Case(lambda x, y: F.logical_not(x < y), INTEGERS + BOOL, TWO)],
    "not_of_less_equal": [Case(lambda x, y: F.logical_not(x <= y), INTEGERS + BOOL, TWO)],
    "not_of_greater": [Case(lambda x, y: F.logical_not(x > y), INTEGERS + BOOL, TWO)],
    "not_of_greater_equal": [Case(lambda x, y: F.logical_not(x >= y), INTEGERS + BOOL, TWO)],
    "equal_to_true": [Case(lambda x: F.equal(x, True), BOOL)],
    "equal_to_false": [Case(lambda x: F.equal(False, x), BOOL)],
    "and_true": [Case(lambda x: F.logical_and(x, True), BOOL)],
    "and_false": [Case(lambda x: F.logical_and(x, False), BOOL)],
    "and_self": [Case(lambda x: F.logical_and(x, x), BOOL)],
    "and_not_self": [Case(lambda x: F.logical_and(F.logical_not(x), x), BOOL)],
    "or_false": [Case(lambda x: F.logical_or(x, False), BOOL)],
    "or_true": [Case(lambda x: F.logical_or(True, x), BOOL)],
    "or_self": [Case(lambda x: F.logical_or(x, x), BOOL)],
    "or_not_self": [Case(lambda x: F.logical_or(x, F.logical_not(x)), BOOL)],
    "xor_false": [Case(lambda x: F.logical_xor(x, False), BOOL)],
    "xor_true": [Case(lambda x: F.logical_xor(x, True), BOOL)],
    "xor_self": [Case(lambda x: F.logical_xor(x, x), BOOL)],
    "bitwise_and_zero": [Case(lambda x: x & 0, INTEGERS)],
    "bitwise_and_ones": [
        Case(lambda x: x & -1, SIGNED),
        Case(lambda x: x & np.uint8(255), ("u8",)),
    ],
    "bitwise_and_self": [Case(lambda x: x & x, INTEGERS + BOOL)],
    "bitwise_or_zero": [Case(lambda x: x | 0, INTEGERS)],
    "bitwise_or_ones": [Case(lambda x: x | -1, SIGNED)],
    "bitwise_or_self": [Case(lambda x: x | x, INTEGERS + BOOL)],
    "bitwise_xor_zero": [Case(lambda x: x ^ 0, INTEGERS)],
    "bitwise_xor_ones": [Case(lambda x: x ^ -1, SIGNED)],
    "bitwise_xor_self": [Case(lambda x: x ^ x, INTEGERS + BOOL)],
    "shift_left_by_zero": [Case(lambda x: x << 0, INTEGERS)],
    "shift_right_by_zero": [Case(lambda x: x >> 0, INTEGERS)],
    "where_same": [
        Case(lambda x, y: F.where(x < y, x, x), NUMBERS, TWO),
        Case(lambda x, y: F.where(x < y, y, y), NUMBERS, ((4, 4), (4,))),
    ],
    "where_true": [Case(lambda x, y: F.where(True, x, y), NUMBERS, TWO)],
    "where_false": [Case(lambda x, y: F.where(False, x, y), NUMBERS, ((4, 4), (4,)))],
    "where_not": [Case(lambda x, y: F.where(F.logical_not(F.is_nan(x)), x, y), FLOATS, TWO)],
    "where_true_else_false": [Case(lambda x, y: F.where(x < y, True, False), NUMBERS, TWO)],
    "where_false_else_true": [Case(lambda x, y: F.where(x < y, False, True), NUMBERS, TWO)],
    "where_inside_then": [
        Case(lambda x, y, z: F.where(p := x < y, F.where(p, x, y), z), NUMBERS, THREE)
    ],
    "where_inside_else": [
        Case(lambda x, y, z: F.where(p := x < y, z, F.where(p, x, y)), NUMBERS, THREE)
    ],
    "transpose_twice": [
        Case(lambda x: Transpose((1, 2, 0))(Transpose((2, 1, 0))(x)), shapes=((2, 3, 4),)),
        Case(lambda x: Transpose((-1, 0, 1))(Transpose((2, -3, 1))(x)), shapes=((2, 3, 4),)),
    ],
    "transpose_to_itself": [Case(lambda x: Transpose((0, 1, -1))(x), shapes=((2, 3, 4),))],
    "transpose_of_ones": [Case(lambda x: F.transpose(x, (0, 2, 1)), shapes=((2, 1, 4),))],
    "move_nothing": [
        Case(lambda x: Reshape((4, 4))(x), shapes=SQUARE),
        Case(lambda x: Expand((4, 4))(x), shapes=SQUARE),
        Case(lambda x: Slice((0, 0), (4, 9), (1, 1))(x), shapes=SQUARE),
        Case(lambda x: Slice((0, 0), (1, 4), (3, 1))(x), shapes=((1, 4),)),
        Case(lambda x: Pad((0, 0), (0, 0), (), 1.0)(x), shapes=SQUARE),
        Case(lambda x: PadBorder((0, 0), (0, 0))(x), shapes=SQUARE),
        Case(lambda x: Tile((1, 1))(x), shapes=SQUARE),
        Case(lambda x: Concat(0)(x), shapes=SQUARE),
        Case(lambda x: Squeeze(())(x), shapes=SQUARE),
    ],
    "reshape_twice": [
        Case(lambda x: Reshape((8, 2))(Reshape((2, 8))(x)), shapes=SQUARE),
        Case(lambda x: F.reshape(F.unsqueeze(x, 0), (16,)), shapes=SQUARE),
    ],
    "expand_twice": [Case(lambda x: Expand((2, 3, 4))(Expand((3, 4))(x)), shapes=((1, 4),))],
    "move_filled": [
        Case(lambda x: Reshape((8, 2))(Expand((4, 4))(x)), shapes=((1, 1),)),
        Case(lambda x: F.transpose(Expand((3, 4))(x)), shapes=((),)),
        Case(lambda x: F.flip(F.full((4,), -0.0, "f32"), 0) + x, shapes=((4,),)),
        Case(lambda x: Expand((3, 4))(F.full((4,), 0.1, "bf16")), shapes=((4,),)),
        Case(lambda x: Slice((1, 0), (3, 4), (1, 2))(Expand((3, 4))(x)), shapes=((),)),
    ],
    "slice_twice": [
        Case(
            lambda x: Slice((1, 1), (3, 4), (1, 2))(Slice((0, 2), (5, 12), (2, 2))(x)),
            shapes=((6, 12),),
        ),
        Case(lambda x: Slice((0,), (0,), (1,))(Slice((3,), (9,), (2,))(x)), shapes=((10,),)),
    ],
    "concat_flatten": [
        Case(lambda x, y: Concat(0)(Concat(0)(x, y), Concat(0)(y, x)), shapes=((2, 3), (4, 3)))
    ],
    "concat_with_nothing": [
        Case(lambda x, y: Concat(0)(x, y, x), shapes=((2, 3), (0, 3))),
        Case(lambda x, y: Concat(0)(x, y), shapes=((2, 3), (0, 3))),
        Case(lambda x, y: Concat(0)(y, y), shapes=((2, 3), (0, 3))),
    ],
    "concat_of_parts": [
        Case(lambda x: Concat(1)(x[:, 1:2], x[:, 2:6], x[:, 6:7]), shapes=((2, 8),)),
        Case(lambda x: Concat(-1)(*F.split(x, (3, 4, 1), 1)), shapes=((2, 8),)),
    ],
    "split_of_one": [
        Case(lambda x: Split((4,), 0)(x), shapes=SQUARE),
        Case(lambda x: F.split(x, (1, 2, 1), 0)[1], shapes=SQUARE),
    ],
    "stack_of_one": [Case(lambda x: Stack(1)(x), shapes=SQUARE)],
    "flip_of_ones": [Case(lambda x: Flip((0, 2))(x), shapes=((1, 4, 1),))],
    "roll_by_nothing": [Case(lambda x: Roll((0, 8), (0, 1))(x), shapes=SQUARE)],
    "take_in_order": [
        Case(lambda x: F.take(x, F.iota((4,)), 1), shapes=SQUARE),
        Case(lambda x: F.take(x, F.iota((2,)), 0), shapes=SQUARE),
    ],
    "cast_to_itself": [Case(lambda x: Cast(x.dtype)(x), NUMBERS + BOOL)],
    "cast_twice": [
        Case(lambda x: F.cast(F.cast(x, "f32"), x.dtype), ("f16", "bf16", "f8e5m2", "i8", "bool")),
        Case(lambda x: F.cast(F.cast(x, "f64"), "bf16"), ("f32", "f16", "i32", "i8", "bool")),
        Case(lambda x: F.cast(F.cast(x, "i64"), "i8"), ("i32", "u8", "i4", "bool")),
        Case(lambda x: F.cast(F.cast(x, "f32"), "i32"), ("f16", "i8", "bool")),
        Case(lambda x: F.cast(F.cast(x, "f64"), "bool"), ("f16", "i8", "bool")),
    ],
    "reduce_one_element": [
        Case(lambda x: Sum((1,), True)(abs(x)), (*FLOATS, "i32"), ((4, 1),)),
        Case(lambda x: Max((1,))(x), NUMBERS, ((4, 1),)),
        Case(lambda x: Sum(())(abs(x)), NUMBERS),
        Case(lambda x: Mean((-1,))(abs(x)), FLOATS, ((4, 1),)),
        Case(lambda x: Mean((-1,), True)(x), FLOATS, ((4, 1),)),
        Case(lambda x: Sum(())(x), NUMBERS),
        Case(lambda x: F.prod(x, 1), FLOATS, ((4, 1),)),
    ],
    "clip_window": [
        Case(lambda x: F.avg_pool(x, 50, ceil_mode=True), FLOATS, ((1, 2, 2, 4),)),
        Case(lambda x: F.avg_pool(x, (9, 2), padding=(2, 1), ceil_mode=True), FLOATS, ((2, 8),)),
        Case(
            lambda x: F.avg_pool(x, 9, padding=1, count_include_pad=False, ceil_mode=True),
            FLOATS,
            ((1, 1, 4, 4),),
        ),
        Case(lambda x: F.max_pool(x, 9, 20, 1, 2, True), NUMBERS, ((1, 1, 4, 4),)),
        Case(lambda x: F.max_pool_with_indices(x, 50, ceil_mode=True), NUMBERS, ((1, 1, 4, 4),)),
    ],
    "pool_padding": [
        Case(
            lambda x: F.max_pool(F.pad(x, (0, 0, 1), (0, 0, 2), -np.inf), 3, 2, 1),
            FLOATS,
            ((2, 4, 5),),
        ),
        Case(
            lambda x: F.max_pool(F.pad(x, (0, 0, 0, 1), (0, 0, 1, 1), -128), 2, 1),
            ("i8",),
            ((1, 2, 4, 5),),
        ),
    ],
    "extreme_of_extreme": [
        Case(lambda x: F.max(F.max(abs(x), 1), 0), NUMBERS, ((3, 4, 2),)),
        Case(lambda x: F.min(F.min(abs(x), 0, True), 2, True), NUMBERS, ((3, 4, 2),)),
    ],
    "if_decided": [Case(if_decided, NUMBERS)],
    "if_alike": [Case(if_alike, NUMBERS)],
    "while_never": [Case(while_never, NUMBERS)],
    "scan_unused": [Case(scan_unused, ("f32", "i32"), SQUARE)],
}  # fmt: skip

EXACT_CASES = [
    pytest.param(name, case, dtype, id=f"{name}-{index}-{dtype}")
    for name, cases in CASES.items()
    for index, case in enumerate(cases)
    for dtype in case.dtypes
]


def test_every_exact_rule_has_a_case():
    assert {rule.name for rule in EXACT} == set(CASES)


@pytest.mark.parametrize("name, case, dtype", EXACT_CASES)
def test_exact_rule_fires_and_changes_no_bit(name, case, dtype):
    graph = case.graph(dtype)
    operands = case.operands(dtype)
    before = outputs(graph, operands)
    nodes = len(graph)
    result = Simplify().run(graph)
    assert result.changed
    assert result.counters.get(name, 0) >= 1, str(graph)
    after = outputs(graph, operands)
    for left, right in zip(before, after, strict=True):
        assert same(left, right), f"{left}\n{right}\n{graph}"
    assert len(graph) <= nodes + 1
    assert not Simplify().run(graph).changed


def near(x):
    return abs(x) + 0.25


FAST: dict[str, Case] = {
    "add_zero_fast": Case(lambda x: x + 0.0, FLOATS),
    "subtract_negative_zero_fast": Case(lambda x: x - -0.0, FLOATS),
    "subtract_from_zero_fast": Case(lambda x: 0.0 - x, FLOATS),
    "negate_difference_fast": Case(lambda x, y: -(x - y), FLOATS, TWO),
    "multiply_by_zero_fast": Case(lambda x: x * 0.0, FLOATS),
    "subtract_self_fast": Case(lambda x: x - x, FLOATS),
    "divide_self_fast": Case(lambda x: x / x, FLOATS),
    "divide_zero_fast": Case(lambda x: 0.0 / x, FLOATS),
    "exp_of_log": Case(lambda x: F.exp(F.log(x))),
    "log_of_exp": Case(lambda x: F.log(F.exp(x))),
    "exp2_of_log2": Case(lambda x: F.exp2(F.log2(x))),
    "log2_of_exp2": Case(lambda x: F.log2(F.exp2(x))),
    "expm1_of_log1p": Case(lambda x: F.expm1(F.log1p(x))),
    "log1p_of_expm1": Case(lambda x: F.log1p(F.expm1(x))),
    "sqrt_of_square": Case(lambda x: F.sqrt(F.square(x))),
    "sqrt_of_product": Case(lambda x: F.sqrt(x * x)),
    "square_of_sqrt": Case(lambda x: F.square(F.sqrt(x))),
    "product_of_sqrt": Case(lambda x: F.sqrt(x) * F.sqrt(x)),
    "reciprocal_twice": Case(lambda x: F.reciprocal(F.reciprocal(x))),
    "power_three": Case(lambda x: x**3),
    "power_half": Case(lambda x: x**0.5),
    "power_minus_half": Case(lambda x: x**-0.5),
    "one_over_sqrt": Case(lambda x: 1.0 / F.sqrt(x)),
    "divide_by_sqrt": Case(lambda x, y: x / F.sqrt(y), ("f32",), TWO),
    "product_of_exp": Case(lambda x, y: F.exp(x) * F.exp(y), ("f32",), TWO),
    "combine_added_constants_fast": Case(lambda x: 2.5 + (x + 0.3)),
    "combine_multiplied_constants_fast": Case(lambda x: (x * 2.5) * 0.3),
    "factor_out": Case(lambda x, y, z: x * y + z * x, ("f32",), THREE),
    "divide_by_constant": Case(lambda x: x / 3.0),
    "sum_of_sum": Case(lambda x: F.sum(F.sum(x, 1), 0), ("f32",), ((3, 4, 2),)),
    "mean_of_mean": Case(lambda x: F.mean(F.mean(x, 1, True), 2, True), ("f32",), ((3, 4, 2),)),
}


def test_every_fast_rule_has_a_case_and_says_what_it_bends():
    assert {rule.name for rule in fast_math.RULES} == set(FAST)
    assert all(rule.fast_math and rule.floats for rule in fast_math.RULES)
    assert not any(rule.fast_math for rule in EXACT)


@pytest.mark.parametrize("name", FAST)
def test_fast_rule_fires_only_when_asked_and_is_near(name):
    case = FAST[name]
    for dtype in case.dtypes:
        generator = np.random.default_rng(0)
        numpy = DTYPES[dtype].numpy
        operands = [generator.uniform(0.5, 2.0, shape).astype(numpy) for shape in case.shapes]
        graph = case.graph(dtype)
        assert name not in Simplify().run(graph).counters
        before = outputs(graph, operands)
        result = Simplify(fast_math=True).run(graph)
        assert result.counters.get(name) == 1, str(graph)
        for left, right in zip(before, outputs(graph, operands), strict=True):
            np.testing.assert_allclose(right.astype(np.float64), left.astype(np.float64), rtol=1e-5)


def refuses(function, *types: str) -> bool:
    return not Simplify().run(trace(function, *types)).changed


def test_signed_zero_keeps_float_additions_of_zero():
    assert refuses(lambda x: x + 0.0, "f32[4]")
    assert refuses(lambda x: F.maximum(x, -1.0) + 0.0, "f32[4]")
    assert refuses(lambda x: F.sqrt(x) + 0.0, "f32[4]")
    assert refuses(lambda x: x - (-0.0), "f32[4]")
    assert refuses(lambda x: 0.0 - x, "f32[4]")


def test_nan_keeps_float_products_with_zero_and_self_quotients():
    assert refuses(lambda x: x * 0.0, "f32[4]")
    assert refuses(lambda x: x / x, "f32[4]")
    assert refuses(lambda x: x - x, "f32[4]")
    assert refuses(lambda x: F.logical_not(x < 1.0), "f32[4]")


def test_complex_numbers_are_left_alone():
    assert refuses(lambda x: x * 1, "c64[4]")
    assert refuses(lambda x: x / 1, "c64[4]")


def test_a_broadcast_is_not_an_identity():
    graph = trace(lambda x: x * np.ones((3, 4), np.float32), "f32[4]")
    result = Simplify().run(graph)
    assert not result.changed
    assert result.rules["multiply_by_one"].refused == 1
    assert graph.outputs[0].shape == (3, 4)


def test_padding_that_a_maximum_may_see_stays():
    def pooled(value, low=(0, 0, 0), high=(0, 0, 2), ceil=False):
        return lambda x: F.max_pool(F.pad(x, low, high, value), 3, 2, ceil_mode=ceil)

    assert refuses(pooled(0.0), "f32[2, 4, 8]")
    assert refuses(pooled(-np.inf, ceil=True), "f32[2, 4, 8]")
    assert refuses(pooled(-np.inf, low=(0, 1, 0)), "f32[2, 4, 8]")
    assert refuses(pooled(-np.inf, high=(0, 0, -1)), "f32[2, 4, 8]")


def test_inexact_divisors_stay():
    assert refuses(lambda x: x / 3.0, "f32[4]")
    assert refuses(lambda x: x / 2.0**127, "f32[4]")
    assert refuses(lambda x: x / 0.0, "f32[4]")
    assert refuses(lambda x: x / np.inf, "f32[4]")


def test_casts_that_lose_stay():
    assert refuses(lambda x: F.cast(F.cast(x, "f16"), "f32"), "f32[4]")
    assert refuses(lambda x: F.cast(F.cast(x, "i32"), "f32"), "f32[4]")
    assert refuses(lambda x: F.cast(F.cast(x, "f32"), "i8"), "i16[4]")
    assert refuses(lambda x: F.cast(F.cast(x, "f16"), "bf16"), "bf16[4]")


def test_slices_that_leave_a_gap_or_overlap_stay_apart():
    assert refuses(lambda x: Concat(0)(x[:2], x[3:]), "f32[8]")
    assert refuses(lambda x: Concat(0)(x[:4], x[3:]), "f32[8]")
    assert refuses(lambda x, y: Concat(0)(x[:4], y[4:]), "f32[8]", "f32[8]")


def test_symbolic_shapes():
    graph = trace(lambda x: F.reshape(F.reshape(x * 0, (-1,)), x.shape), "i32[batch, 4]")
    Simplify().run(graph)
    assert [node.op.name for node in graph.nodes] == ["full"]
    x = np.ones((3, 4), np.int32)
    assert (outputs(graph, [x])[0] == 0 * x).all()


def test_regions_are_simplified():
    def program(p, x):
        return F.cond(p, lambda: x * 1.0, lambda: F.relu(F.relu(x)))

    counters = Simplify().run(trace(program, "bool[]", "f32[4]")).counters
    assert counters == {"multiply_by_one": 1, "idempotent": 1}


def test_the_eight_rules_of_the_text_book():
    """Each in a program of its own; what is left is what the table says."""

    def ops_left(function) -> list[str]:
        graph: Graph = trace(function, "f32[4, 3]")
        Simplify(fast_math=True).run(graph)
        return [node.op.name for node in graph.nodes if node.op.name not in ("constant", "full")]

    assert ops_left(lambda x: x * 1.0) == []
    assert ops_left(lambda x: x + 0.0) == []
    assert ops_left(lambda x: x * 0.0) == []
    assert ops_left(lambda x: x**2) == ["multiply"]
    assert ops_left(lambda x: F.exp(F.log(x))) == []
    assert ops_left(lambda x: x / x) == []
    assert ops_left(lambda x: F.relu(F.relu(x))) == ["relu"]
    assert ops_left(lambda x: F.transpose(F.transpose(x))) == []
