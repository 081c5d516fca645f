"""What patterns match: variables, literals, constants, attributes, any order, any grouping."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import monograph.functional as F
from monograph.errors import InputError
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Node
from monograph.ops.elementwise import Subtract
from monograph.ops.math import Tanh
from monograph.ops.reduce import Sum
from monograph.ops.shape import Transpose
from monograph.rewrite import AnyConstant, Rule, capture, rewrite


def rule(pattern, **options) -> Rule:
    options.setdefault("replacement", lambda: None)
    return Rule("rule", pattern=pattern, floats="untouched", **options)


def last(function, *types: str) -> Node:
    """The node that makes the only output."""
    graph: Graph = trace(function, *(types or ("f32[4]",)))
    node = graph.outputs[0].producer
    assert node is not None
    return node


def matches(pattern, node: Node, **options):
    return list(rule(pattern, **options).matches(node))


def test_a_variable_is_one_value_wherever_it_occurs():
    assert matches(lambda x: x - x, last(lambda a: a - a))
    assert not matches(lambda x: x - x, last(lambda a, b: a - b, "f32[4]", "f32[4]"))
    (found,) = matches(lambda x, y: x - y, last(lambda a, b: a - b, "f32[4]", "f32[4]"))
    assert (found.x.name, found.y.name) == ("a", "b")


def test_commutative_operands_match_in_either_order():
    for program in (lambda a: F.tanh(a) * 2.0, lambda a: 2.0 * F.tanh(a)):
        (found,) = matches(lambda x: Tanh()(x) * 2.0, last(program))
        assert found.x.name == "a"
    assert not matches(lambda x: Subtract()(x, 2.0), last(lambda a: 2.0 - a))


def test_backtracking_revisits_an_order_that_failed_later():
    pattern = lambda x, y: (x * y) + Tanh()(x)  # noqa: E731
    for product in (lambda a, b: a * b, lambda a, b: b * a):
        node = last(lambda a, b, p=product: F.tanh(b) + p(a, b), "f32[4]", "f32[4]")
        (found,) = matches(pattern, node)
        assert (found.x.name, found.y.name) == ("b", "a")


def test_literals_match_scalars_splats_and_spread_constants():
    spellings = (
        lambda a: a * 0.5,
        lambda a: a * np.full(4, 0.5, np.float32),
        lambda a: a * F.full((4,), 0.5, "f32"),
        lambda a: a * F.expand(np.array([0.5], np.float32), (4,)),
    )
    for program in spellings:
        assert matches(lambda x: x * 0.5, last(program))
    assert not matches(lambda x: x * 0.5, last(lambda a: a * 0.25))
    assert not matches(lambda x: x * 0.5, last(lambda a: a * np.arange(4, dtype=np.float32)))


def test_literals_round_to_the_dtype_of_the_constant():
    for dtype in ("f64", "f32", "f16", "bf16"):
        assert matches(lambda x: x * 0.1, last(lambda a: a * 0.1, f"{dtype}[4]"))
    assert not matches(lambda x: x * 0.1, last(lambda a: a * 0.1001))


def test_a_tolerance_is_relative_and_must_be_asked_for():
    node = last(lambda a: a * 0.79788)
    assert not matches(lambda x: x * 0.7978845608, node)
    assert matches(lambda x: x * 0.7978845608, node, tolerance=1e-4)
    assert not matches(lambda x: x * 0.7978845608, node, tolerance=1e-7)


def test_zeros_have_signs():
    assert matches(lambda x: x + 0.0, last(lambda a: a + 0.0))
    assert not matches(lambda x: x + 0.0, last(lambda a: a + -0.0))
    assert matches(lambda x: x + -0.0, last(lambda a: a + -0.0))
    assert matches(lambda x: x + 0, last(lambda a: a + 0, "i32[4]"))


def test_weights_are_not_constants():
    graph = Graph()
    x = graph.add_input("x", "f32[4]")
    weight = graph.add_weight("ones", np.ones(4, np.float32))
    graph.set_outputs([x * weight])
    assert not matches(lambda x: x * 1.0, graph.outputs[0].producer)


def test_any_constant_binds_the_value():
    (found,) = matches(lambda x: x + AnyConstant("c"), last(lambda a: 3.0 + a))
    assert found.c.op.data.array() == 3.0
    assert not matches(lambda x: x + AnyConstant("c"), last(lambda a: a + a))


def test_attributes_match_exactly_or_are_captured():
    node = last(lambda a: F.transpose(a, (1, 0)), "f32[3, 4]")
    (found,) = matches(lambda x: Transpose(capture("p"))(x), node)
    assert found.p == (1, 0)
    assert matches(lambda x: Transpose((1, 0))(x), node)
    assert not matches(lambda x: Transpose((0, 1))(x), node)
    twice = last(lambda a: F.sum(F.sum(a, 0), 0), "f32[3, 4]")
    assert matches(lambda x: Sum(capture("axes"))(Sum(capture("axes"))(x)), twice)
    other = last(lambda a: F.sum(F.sum(a, 1), 0), "f32[3, 4]")
    assert not matches(lambda x: Sum(capture("axes"))(Sum(capture("axes"))(x)), other)


def grouped(values, order):
    """Every way to multiply values in this order, two at a time."""
    chosen = [values[index] for index in order]
    if len(chosen) == 1:
        yield lambda: chosen[0]
        return
    for cut in range(1, len(chosen)):
        lefts = list(grouped(chosen[:cut], range(cut)))
        rights = list(grouped(chosen[cut:], range(len(chosen) - cut)))
        for left, right in itertools.product(lefts, rights):
            yield lambda left=left, right=right: left() * right()


def test_associative_patterns_match_every_order_and_grouping():
    pattern = rule(lambda x, y: 0.5 * x * Tanh()(y), associative=True)
    count = 0
    for order in itertools.permutations(range(3)):
        for index in range(2):

            def program(a, b, order=order, index=index):
                return list(grouped([a, F.tanh(b), F.full((), 0.5, "f32")], order))[index]()

            found = list(pattern.matches(last(program, "f32[4]", "f32[4]")))
            assert [(match.x.name, match.y.name) for match in found] == [("a", "b")]
            count += 1
    assert count == 12


@pytest.mark.parametrize(
    "program",
    [
        lambda a: a * a * a * 0.25,
        lambda a: F.power(a, 3.0) * 0.25,
        lambda a: F.square(a) * (a * 0.25),
        lambda a: a * F.square(a) / 4.0,
        lambda a: (a / 4.0) * (a * a),
    ],
)
def test_associative_products_see_quotients_and_powers(program):
    found = matches(lambda x: 0.25 * x * x * x, last(program), associative=True)
    assert {match.x.name for match in found} == {"a"}


def test_a_factor_may_itself_be_a_product():
    node = last(lambda a, b: 0.5 * (a * b) * F.tanh(a * b), "f32[4]", "f32[4]")
    assert not matches(lambda x: 0.5 * x * Tanh()(x), node, associative=True)

    def shared(a, b):
        product = a * b
        return 0.5 * product * F.tanh(product)

    node = last(shared, "f32[4]", "f32[4]")
    (found,) = matches(lambda x: 0.5 * x * Tanh()(x), node, associative=True)
    assert found.x.op.name == "multiply"


def test_search_is_bounded():
    def wide(a):
        total = a
        for _ in range(10):
            total = total * a
        return total

    pattern = lambda x, y: x * x * x * x * x * x * x * x * x * x * y  # noqa: E731
    assert matches(pattern, last(wide), associative=True)
    never = lambda x: x * x * x * x * x * x * x * x * x * x * Tanh()(x)  # noqa: E731
    assert not matches(never, last(wide), associative=True)


def test_the_default_leaves_complex_numbers_alone():
    assert not matches(lambda x: x * 1, last(lambda a: a * 1, "c64[4]"))


def test_a_pattern_must_have_an_op_at_its_root():
    with pytest.raises(InputError, match="no op at its root"):
        rule(lambda x: x)
    with pytest.raises(InputError, match="variables and numbers"):
        rule(lambda x: Tanh()(x) + np.ones(3))


def test_single_use_asks_that_nothing_else_reads_the_inside():
    def program(a, shared):
        inner = F.tanh(a)
        return (inner * 2.0, inner) if shared else (inner * 2.0,)

    single = rule(lambda x: Tanh()(x) * 2.0, replacement=lambda x: x, single_use=True)
    for shared in (False, True):
        graph = trace(lambda a, shared=shared: program(a, shared), "f32[4]")
        assert (single.apply(graph.outputs[0].producer) is None) == shared


def test_rules_describe_themselves():
    made = rule(lambda x: Transpose(capture("p"))(x * 1))
    assert made.before == "transpose(multiply(x, 1), permutation=p)"
    assert repr(made) == "<Rule rule>"

    @rewrite("drop", root=Transpose, floats="exact")
    def drop(node: Node):
        """transpose(x) → x."""
        return None

    assert drop.before == "transpose(x) → x."
    assert drop.roots == (Transpose,)
