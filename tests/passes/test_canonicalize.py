"""Canonical form: one spelling, one order, the same bits, and a second run that changes nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import monograph.functional as F
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph
from monograph.ir.types import DTYPES
from monograph.ops.reduce import Sum
from monograph.ops.shape import Transpose
from monograph.ops.softmax import Softmax
from monograph.passes.canonicalize import Canonicalize
from monograph.rewrite.rules import canonical_forms
from tests.passes.rule_cases import Case, outputs, same

FLOATS = ("f64", "f32", "f16", "bf16", "f8e5m2")
SIGNED = ("i64", "i32", "i8", "i4")
ONE = ((16,),)
TWO = ((16,), (16,))

CASES: dict[str, list[Case]] = {
    "greater_as_less": [Case(lambda x, y: x > y, FLOATS + SIGNED, TWO)],
    "greater_equal_as_less_equal": [Case(lambda x, y: x >= y, FLOATS + SIGNED, TWO)],
    "subtracted_constant": [
        Case(lambda x: x - 3, FLOATS + SIGNED),
        Case(lambda x: x - 0.0, FLOATS),
        Case(lambda x: x - -0.0, FLOATS),
        Case(lambda x: x - float("inf"), FLOATS),
        Case(lambda x: x - np.arange(16, dtype=np.float32)),
        Case(lambda x: x - F.full((16,), 0.1, "f32")),
        Case(lambda x: x - F.expand(np.float32(0.1), (16,))),
        Case(lambda x: x - np.int8(-128), ("i8",)),
    ],
    "decomposed_alias": [
        Case(F.square, FLOATS + SIGNED),
        Case(F.reciprocal, FLOATS),
        Case(lambda x: F.squeeze(x, 0), FLOATS, ((1, 16),)),
        Case(lambda x: F.unsqueeze(x, 1), FLOATS),
        Case(lambda x, y: F.stack((x, y), 1), FLOATS, TWO),
    ],
    "counted_from_the_front": [
        Case(lambda x: Sum((-1, 0))(x), SIGNED, ((4, 2, 4),)),
        Case(lambda x: Transpose((-1, 0, 1))(x), FLOATS, ((4, 2, 2),)),
        Case(lambda x: Softmax(-1)(x), ("f32",), ((2, 3),)),
    ],
}
EXACT_CASES = [
    pytest.param(name, case, dtype, id=f"{name}-{index}-{dtype}")
    for name, cases in CASES.items()
    for index, case in enumerate(cases)
    for dtype in case.dtypes
]


def test_every_rule_has_a_case():
    assert {rule.name for rule in canonical_forms.RULES} == set(CASES)


@pytest.mark.parametrize("name, case, dtype", EXACT_CASES)
def test_rule_fires_and_changes_no_bit(name, case, dtype):
    graph = case.graph(dtype)
    operands = case.operands(dtype)
    before = outputs(graph, operands)
    result = Canonicalize().run(graph)
    assert result.changed and result.counters[name] >= 1
    for left, right in zip(before, outputs(graph, operands), strict=True):
        assert same(left, right), f"{left}\n{right}\n{graph}"
    assert not Canonicalize().run(graph).changed


def canonical(function, *types: str) -> Graph:
    graph = trace(function, *types)
    Canonicalize().run(graph)
    assert not Canonicalize().run(graph).changed
    return graph


def test_constants_go_right():
    for program in (lambda x: 2.0 * x, lambda x: x * 2.0):
        node = canonical(program, "f32[4]").outputs[0].producer
        assert node.operands[0].name == "x"


def test_spread_constants_go_right_too():
    graph = canonical(lambda x: F.full((4,), 2.0, "f32") + x, "f32[4]")
    assert graph.outputs[0].producer.operands[0].name == "x"


def test_operands_go_in_order_of_definition():
    def program(order):
        def function(a, b):
            values = [a, b, F.exp(a), F.tanh(b)]
            return values[order[0]] * values[order[1]]

        return function

    for pair in itertools.combinations(range(4), 2):
        texts = set()
        for order in itertools.permutations(pair):
            node = canonical(program(order), "f32[4]", "f32[4]").outputs[0].producer
            texts.add(tuple(value.name for value in node.operands))
        assert len(texts) == 1


def test_subtraction_and_division_keep_their_order():
    graph = trace(lambda x: 2.0 - x, "f32[4]")
    assert not Canonicalize().run(graph).changed


def test_unsigned_constants_and_weights_stay_subtracted():
    assert not Canonicalize().run(trace(lambda x: x - 3, "u8[4]")).changed
    graph = Graph()
    x = graph.add_input("x", "f32[4]")
    graph.set_outputs([x - graph.add_weight("w", np.ones(4, np.float32))])
    assert not Canonicalize().run(graph).changed


def test_order_that_decides_a_symbolic_type_is_kept():
    graph = trace(lambda a, b: F.exp(b) + a, "f32[m]", "f32[n]")
    before = graph.outputs[0].type
    assert not Canonicalize().run(graph).changed
    assert graph.outputs[0].type == before


def test_regions_are_ordered():
    graph = trace(lambda p, x: F.cond(p, lambda: 2.0 * x, lambda: 3.0 + x), "bool[]", "f32[4]")
    assert Canonicalize().run(graph).counters == {"reordered": 2}


def test_reordering_changes_no_bit():
    for dtype in FLOATS:
        case = Case(lambda x, y: F.maximum(F.exp(y) * x, y + x), (dtype,), TWO)
        graph = case.graph(dtype)
        before = outputs(graph, case.operands(dtype))
        assert Canonicalize().run(graph).counters["reordered"] >= 2
        assert same(before[0], outputs(graph, case.operands(dtype))[0])
        assert before[0].dtype == DTYPES[dtype].numpy
