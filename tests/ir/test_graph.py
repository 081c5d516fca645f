"""The graph's structure: use lists, order, insertion, replacement, names, copies."""

from __future__ import annotations

import numpy as np
import pytest

import monograph.ops  # registers every op
from monograph.errors import GraphError, InputError, TypeRuleError
from monograph.frontends.trace import trace
from monograph.inspect.structure import count_by_family
from monograph.ir.compare import structurally_equal
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.verify import verify


def small() -> Graph:
    graph = Graph("small")
    x = graph.add_input("x", "f32[4]")
    a = graph.add("relu", x)
    b = graph.add("exp", a)
    graph.set_outputs([graph.add("add", a, b)])
    return graph


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def test_uses_are_kept_in_order_and_count_outputs() -> None:
    graph = small()
    relu = graph.nodes[0].result
    assert [use.node.op.name for use in relu.uses] == ["exp", "add"]
    assert [use.position for use in relu.uses] == [0, 0]
    assert graph.outputs[0].users == (graph.output_node,)


def test_one_value_used_twice_by_a_node_has_two_uses_and_one_user() -> None:
    graph = Graph()
    x = graph.add_input("x", "f32[4]")
    y = graph.add("multiply", x, x)
    graph.set_outputs([y, y])
    assert len(x.uses) == 2
    assert len(x.users) == 1
    assert len(y.uses) == 2


def test_insertion_before_a_node_keeps_the_order_of_evaluation() -> None:
    graph = small()
    exp = graph.nodes[1]
    with graph.inserting_before(exp):
        negated = graph.add("negate", graph.nodes[0].result)
    exp.set_operand(0, negated)
    assert names(graph) == ["relu", "negate", "exp", "add"]
    verify(graph)


def test_replace_all_uses_reaches_the_outputs() -> None:
    graph = small()
    x = graph.inputs[0]
    graph.replace_all_uses(graph.outputs[0], x)
    assert graph.outputs == (x,)
    graph.erase(graph.nodes[2])
    assert names(graph) == ["relu", "exp"]


def test_a_used_node_cannot_be_erased() -> None:
    graph = small()
    with pytest.raises(GraphError, match="%relu is still used"):
        graph.erase(graph.nodes[0])


def test_a_node_cannot_be_erased_twice() -> None:
    graph = small()
    add = graph.nodes[2]
    graph.replace_all_uses(add.result, graph.inputs[0])
    graph.erase(add)
    with pytest.raises(GraphError, match="already erased"):
        graph.erase(add)


def test_replacement_must_have_the_same_type() -> None:
    graph = small()
    other = graph.add("cast", graph.inputs[0], dtype=monograph.ops.data.dtype_of("f64"))
    with pytest.raises(GraphError, match="their types differ"):
        graph.replace(graph.nodes[0], [other])


def test_nodes_may_be_erased_while_iterating() -> None:
    graph = Graph()
    x = graph.add_input("x", "f32[4]")
    for _ in range(10):
        graph.add("relu", x)
    seen = 0
    for node in graph.nodes:
        graph.erase(node)
        seen += 1
    assert seen == 10
    assert len(graph) == 0


def test_names_are_unique_and_reused_when_free() -> None:
    graph = Graph()
    x = graph.add_input("x", "f32[4]")
    first, second, third = (graph.add("relu", x) for _ in range(3))
    assert [v.name for v in (first, second, third)] == ["relu", "relu_1", "relu_2"]
    graph.rename(third, "relu")
    assert third.name not in ("relu", "relu_1")
    assert graph.add("relu", x, name="hidden").name == "hidden"


def test_two_inputs_of_one_name_are_refused() -> None:
    graph = Graph()
    graph.add_input("x", "f32[4]")
    with pytest.raises(InputError, match="two values are called %x"):
        graph.add_input("x", "f32[4]")


def test_values_of_another_graph_are_refused() -> None:
    stranger = Graph("other").add_input("y", "f32[4]")
    graph = small()
    with pytest.raises(GraphError, match="%y belongs to another graph"):
        graph.create(graph.nodes[0].op, (stranger,))


def test_wrong_operand_counts_name_the_operands() -> None:
    graph = small()
    with pytest.raises(TypeRuleError) as caught:
        graph.add("multiply", graph.inputs[0])
    assert "wrong number of operands" in str(caught.value)
    assert "2 (a, b)" in str(caught.value)
    assert "test_graph.py" in str(caught.value)


def test_an_unknown_op_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean softmax"):
        small().add("sofmax", 1.0)


def test_an_unknown_attribute_lists_the_right_ones() -> None:
    graph = small()
    with pytest.raises(InputError, match="softmax has no attribute 'dim'"):
        graph.add("softmax", graph.inputs[0], dim=0)


def test_a_clone_is_equal_and_independent() -> None:
    graph = small()
    graph.updates = {0: 0}
    copy = graph.clone()
    assert structurally_equal(graph, copy, names=True)
    copy.replace_all_uses(copy.outputs[0], copy.inputs[0])
    assert not structurally_equal(graph, copy)
    assert names(graph) == ["relu", "exp", "add"]


def test_structural_equality_sees_attributes_operands_and_types() -> None:
    base = trace(lambda x: x * 2.0, "f32[4]")
    assert structurally_equal(base, trace(lambda y: y * 2.0, "f32[4]"))
    assert not structurally_equal(base, trace(lambda x: x * 2.5, "f32[4]"))
    assert not structurally_equal(base, trace(lambda x: x * 2.0, "f32[5]"))
    assert not structurally_equal(base, trace(lambda x: x + 2.0, "f32[4]"))


def test_zero_and_minus_zero_are_different_constants() -> None:
    plus = trace(lambda x: x * 0.0, "f32[4]")
    minus = trace(lambda x: x * -0.0, "f32[4]")
    assert not structurally_equal(plus, minus)


def test_a_node_remembers_the_line_that_made_it() -> None:
    graph = trace(lambda x: monograph.ops.math.exp(x), "f32[4]")
    location = graph.nodes[0].location
    assert location is not None
    assert location.file == __file__


def test_families_are_counted() -> None:
    counts = count_by_family(small())
    assert counts == {"compute": 3, "data": 2, "shape": 0, "control": 0, "memory": 0}


def test_copy_into_reads_the_arguments() -> None:
    graph = Graph("outer")
    x = graph.add_input("x", "f32[4]")
    (once,) = small().copy_into(graph, [x])
    (twice,) = small().copy_into(graph, [once])
    graph.set_outputs([twice])
    verify(graph)
    array = np.array([-1.0, 0.0, 0.5, 1.0], np.float32)
    expected = interpret(small(), interpret(small(), [array]))
    np.testing.assert_array_equal(interpret(graph, [array])[0], expected[0])
