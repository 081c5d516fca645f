"""How rules are driven: order, requeueing, erasure, names, locations, refusal, an end, speed."""

from __future__ import annotations

import time

import numpy as np
import pytest

import monograph.functional as F
from monograph.errors import PassError
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Node
from monograph.ir.interpret import interpret
from monograph.ops.elementwise import Negate
from monograph.ops.math import Cos, Exp, Sin, Tanh, cos, exp, sin, tanh
from monograph.rewrite import Rule, rewrite, rewrite_graph, watch_rewrites

ONE = Rule("one", pattern=lambda x: x * 1, replacement=lambda x: x, floats="exact")
SIN = Rule("sin", pattern=lambda x: Sin()(x), replacement=lambda x: cos(x), floats="wrong")
COS = Rule("cos", pattern=lambda x: Cos()(x), replacement=lambda x: sin(x), floats="wrong")
TANH = Rule("tanh", pattern=lambda x: Tanh()(Exp()(x)), replacement=lambda x: tanh(x), floats="no")


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def drive(graph: Graph, *rules: Rule):
    return rewrite_graph(graph, rules, during="test")


def test_users_are_seen_again():
    graph = trace(lambda x: F.tanh(F.exp(x) * 1.0), "f32[4]")
    report = drive(graph, TANH, ONE)
    assert names(graph) == ["tanh"]
    assert report.counters == {"one": 1, "tanh": 1}
    assert report.rules["tanh"].attempts == 2
    assert report.rules["tanh"].seconds > 0


def test_nothing_to_do_is_no_change():
    graph = trace(lambda x: F.tanh(x), "f32[4]")
    before = str(graph)
    assert not drive(graph, ONE, TANH).changed
    assert str(graph) == before


def test_matched_nodes_stay_while_others_read_them():
    def program(x):
        inner = F.exp(x)
        return F.tanh(inner), inner

    graph = trace(program, "f32[4]")
    drive(graph, TANH)
    assert names(graph) == ["exp", "tanh"]


def test_new_nodes_stand_where_the_old_one_stood_and_keep_its_line():
    graph = trace(lambda x: F.exp(F.sin(x)), "f32[4]")
    location = graph.nodes[0].location
    drive(graph, SIN)
    assert names(graph) == ["cos", "exp"]
    assert graph.nodes[0].location == location


def test_chosen_names_survive_and_made_up_ones_do_not():
    graph = Graph()
    x = graph.add_input("x", "f32[4]")
    hidden = graph.add("sin", x, name="hidden")
    graph.set_outputs([hidden, graph.add("sin", hidden)])
    drive(graph, SIN)
    assert [value.name for value in graph.outputs] == ["hidden", "cos"]


def test_a_replacement_of_another_type_is_refused_and_leaves_nothing_behind():
    shrink = Rule("shrink", pattern=lambda x: Sin()(x), replacement=lambda x: F.sum(x), floats="no")
    graph = trace(lambda x: F.sin(x), "f32[4]")
    before = str(graph)
    report = drive(graph, shrink)
    assert not report.changed
    assert report.counters == {"refused": 1}
    assert str(graph) == before


def test_a_replacement_that_no_type_rule_accepts_is_refused():
    wrong = Rule("wrong", pattern=lambda x: Sin()(x), replacement=lambda x: x @ x[0], floats="no")
    graph = trace(lambda x: F.sin(x), "f32[4]")
    assert drive(graph, wrong).rules["wrong"].refused == 1
    assert names(graph) == ["sin"]


def test_a_rule_that_changes_its_mind_leaves_nothing_behind():
    @rewrite("hesitant", root=Sin, floats="exact")
    def hesitant(node: Node):
        cos(exp(node.operands[0]))
        return None

    graph = trace(lambda x: F.sin(x), "f32[4]")
    assert not drive(graph, hesitant).changed
    assert names(graph) == ["sin"]


def test_rules_that_undo_each_other_are_named():
    graph = trace(lambda x: F.exp(F.sin(x)), "f32[4]")
    with pytest.raises(PassError) as caught:
        drive(graph, SIN, COS, ONE)
    text = str(caught.value)
    assert "does not come to an end" in text
    assert "sin (" in text and "cos (" in text and "one" not in text
    assert "test" in text


def test_two_rules_of_one_name_are_refused():
    with pytest.raises(PassError, match="one name"):
        drive(Graph(), ONE, ONE)


def test_unused_nodes_are_not_rewritten():
    graph = trace(lambda x: (F.sin(x), x)[1], "f32[4]")
    assert not drive(graph, SIN).changed


def test_regions_take_part():
    def program(p, x):
        return F.cond(p, lambda: F.tanh(F.exp(x) * 1.0), lambda: x * 1.0)

    graph = trace(program, "bool[]", "f32[4]")
    assert drive(graph, ONE, TANH).counters == {"one": 2, "tanh": 1}
    then, otherwise = graph.nodes[0].regions
    assert names(then) == ["tanh"]
    assert names(otherwise) == []


def test_a_watcher_sees_each_rewrite_and_may_veto_it():
    seen = []

    def watcher(rule, node, values):
        seen.append((rule.name, node.op.name, [value.name for value in values]))
        return len(seen) != 1

    graph = trace(lambda x: (x * 1.0) + F.tanh(F.exp(x)), "f32[4]")
    with watch_rewrites(watcher):
        report = drive(graph, ONE, TANH)
    assert [entry[:2] for entry in seen] == [("one", "multiply"), ("tanh", "tanh")]
    assert report.counters == {"tanh": 1}
    assert names(graph) == ["constant", "multiply", "tanh", "add"]


def test_a_number_fills_the_type_of_the_root():
    zero = Rule("zero", pattern=lambda x: x - x, replacement=lambda: 0, floats="no")
    graph = trace(lambda x: x - x, "f32[batch, 3]")
    drive(graph, zero)
    (result,) = interpret(graph, [np.ones((2, 3), np.float32)])
    assert result.dtype == np.float32 and (result == np.zeros((2, 3))).all()


def test_a_base_class_is_a_root_of_every_op_below_it():
    from monograph.ops.elementwise import Unary

    @rewrite("twice", root=Unary, floats="exact")
    def twice(node: Node):
        inner = node.operands[0].producer
        both = inner is not None and isinstance(inner.op, Negate) and isinstance(node.op, Negate)
        return inner.operands[0] if inner is not None and both else None

    graph = trace(lambda x: F.exp(F.negate(-x)), "f32[4]")
    report = drive(graph, twice)
    assert report.counters == {"twice": 1}
    assert report.rules["twice"].attempts >= 3


@pytest.mark.parametrize("shape", ["chain", "fan"])
def test_time_grows_with_the_number_of_nodes(shape):
    def seconds(count: int) -> float:
        graph = Graph()
        x = graph.add_input("x", "f32[4]")
        one = graph.add_constant(1.0, "f32")
        values = [x]
        for _ in range(count):
            values.append((values[-1] if shape == "chain" else x) * one)
        graph.set_outputs(values[-1:] if shape == "chain" else values)
        start = time.thread_time()
        report = drive(graph, ONE, TANH)
        assert report.rules["one"].hits == count
        assert len(graph) == 0
        return time.thread_time() - start

    small, large = seconds(2_000), seconds(16_000)
    assert large < 8 * small * 4 + 0.5
