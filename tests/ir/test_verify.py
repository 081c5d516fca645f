"""``verify`` finds every way in which a graph can be broken, and says what is wrong.

Each function below breaks a sound graph in one way, mostly behind the back of the methods that keep
it sound; ``corrupted.txt`` holds, word for word, what ``verify`` then says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from monograph.errors import GraphError
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node, Use, Value
from monograph.ir.location import Location
from monograph.ir.text import parse
from monograph.ir.types import TensorType, f32
from monograph.ir.verify import verify
from tests.ir.probe_ops import Pair, Probe, Region, Same

TEXT = """
graph @main(%x: f32[4], %y: f32[4]) -> (f32[4]) {
  %a = negate(%x) : f32[4]
  %b = add(%a, %y) : f32[4]
  %c = negate(%b) : f32[4]
  return %c
}
""".strip()
PLACE = Location("model.py", 7, "forward")

Corruption = Callable[[Graph], Graph | None]
CORRUPTIONS: dict[str, Corruption] = {}


def corruption(function: Corruption) -> Corruption:
    """Enter a function into the table, by its name."""
    CORRUPTIONS[function.__name__] = function
    return function


def read(text: str) -> Graph:
    return parse(text, source="main.ir")


def region(graph: Graph) -> Graph:
    """Add a node with a region to a graph; the region."""
    body = Graph("body")
    a = body.add_input("a", TensorType(f32, (4,)))
    node = body.create(Pair(), [a], names=["p", "q"], location=PLACE)
    body.set_outputs([node.results[0]])
    graph.create(Region(), [graph.inputs[0]], regions=[body], location=PLACE)
    return body


def messages() -> dict[str, str]:
    """What ``verify`` says of each corruption."""
    text = (Path(__file__).parent / "corrupted.txt").read_text(encoding="utf-8")
    sections = (section.partition("\n") for section in text.split("=== ")[1:])
    return {name: message.strip("\n") for name, _, message in sections}


@corruption
def erased_operand(graph: Graph) -> None:
    a, *_ = graph.nodes
    graph._unlink(a)


@corruption
def unlisted_operand(graph: Graph) -> None:
    a, b, _ = graph.nodes
    loose = Node(graph, a.op, (graph.inputs[0],), (), None)
    loose.results = (Value(a.result.type, "loose", graph, loose, 0),)
    graph.inputs[0]._uses.pop(Use(loose, 0))
    b._operands = (loose.result, b.operands[1])


@corruption
def unlisted_input(graph: Graph) -> None:
    b = graph.nodes[1]
    b._operands = (b.operands[0], Value(graph.inputs[1].type, "ghost", graph, None, 7))


@corruption
def foreign_operand(graph: Graph) -> None:
    other = read(TEXT.replace("@main", "@other"))
    b = graph.nodes[1]
    b._operands = (other.inputs[0], b.operands[1])


@corruption
def foreign_output(graph: Graph) -> None:
    other = read(TEXT.replace("@main", "@other"))
    graph._output._operands = (other.inputs[0],)


@corruption
def wrong_order(graph: Graph) -> None:
    a = graph.nodes[0]
    graph._unlink(a)
    graph._link(a, None)
    a.erased = False


@corruption
def cycle(graph: Graph) -> None:
    a = graph.nodes[0]
    c = graph.nodes[2]
    a.set_operand(0, c.result)


@corruption
def cycle_of_one(graph: Graph) -> None:
    b = graph.nodes[1]
    b.set_operand(1, b.result)


@corruption
def forgotten_use(graph: Graph) -> None:
    x = graph.inputs[0]
    x._uses.clear()


@corruption
def invented_use(graph: Graph) -> None:
    b = graph.nodes[1]
    graph.inputs[0]._uses[Use(b, 0)] = None


@corruption
def use_by_an_erased_node(graph: Graph) -> None:
    a = graph.nodes[0]
    extra = graph.create(a.op, [a.result])
    extra.location = None
    graph.erase(extra)
    a.result._uses[Use(extra, 0)] = None


@corruption
def use_beyond_the_operands(graph: Graph) -> None:
    a = graph.nodes[0]
    b = graph.nodes[1]
    a.result._uses[Use(b, 5)] = None


@corruption
def wrong_type(graph: Graph) -> None:
    graph.nodes[1].result.type = TensorType(f32, (5,))


@corruption
def refused_by_the_rule(graph: Graph) -> None:
    graph.inputs[1].type = TensorType(f32, (5,))


@corruption
def wrong_result_count(graph: Graph) -> None:
    c = graph.nodes[2]
    c.results = (*c.results, Value(c.result.type, "extra", graph, c, 1))


@corruption
def two_values_of_one_name(graph: Graph) -> None:
    graph.nodes[2].result.name = "a"


@corruption
def two_inputs_of_one_name(graph: Graph) -> None:
    graph.inputs[1].name = "x"


@corruption
def result_of_another_producer(graph: Graph) -> None:
    a = graph.nodes[0]
    c = graph.nodes[2]
    c.result.producer = a


@corruption
def result_with_the_wrong_index(graph: Graph) -> None:
    graph.nodes[0].result.index = 1


@corruption
def operand_that_its_producer_dropped(graph: Graph) -> None:
    a = graph.nodes[0]
    a.results = (Value(a.result.type, "new", graph, a, 0),)


@corruption
def input_with_a_producer(graph: Graph) -> None:
    graph.inputs[0].producer = graph.nodes[0]


@corruption
def wrong_count(graph: Graph) -> None:
    graph._count = 7


@corruption
def wrong_last(graph: Graph) -> None:
    graph._last = graph.nodes[0]


@corruption
def wrong_previous(graph: Graph) -> None:
    graph.nodes[2]._previous = graph.nodes[0]


@corruption
def circular_list(graph: Graph) -> None:
    a = graph.nodes[0]
    c = graph.nodes[2]
    c._next = a


@corruption
def erased_but_listed(graph: Graph) -> None:
    graph.nodes[1].erased = True


@corruption
def node_of_another_graph(graph: Graph) -> None:
    graph.nodes[1].graph = Graph("other")


@corruption
def update_of_a_missing_output(graph: Graph) -> None:
    graph.updates = {1: 0}


@corruption
def update_of_a_missing_input(graph: Graph) -> None:
    graph.updates = {0: 2}


@corruption
def update_of_another_type(graph: Graph) -> None:
    graph.add_input("z", TensorType(f32, (5,)))
    graph.updates = {0: 2}


@corruption
def two_updates_of_one_input(graph: Graph) -> None:
    graph.set_outputs([graph.outputs[0], graph.outputs[0]])
    graph.updates = {0: 1, 1: 1}


@corruption
def donated_out_of_range(graph: Graph) -> None:
    graph.donated = {0, 5}


@corruption
def list_attribute(graph: Graph) -> None:
    graph.create(Probe(count=1, axes=[0, 1]), [graph.inputs[0]], location=PLACE)


@corruption
def list_inside_a_tuple(graph: Graph) -> None:
    graph.create(Probe(count=1, pads=((0, 1), [2, 3])), [graph.inputs[0]], location=PLACE)


@corruption
def attribute_of_the_wrong_type(graph: Graph) -> None:
    graph.create(Probe(count="one"), [graph.inputs[0]], location=PLACE)


@corruption
def bool_for_an_int(graph: Graph) -> None:
    graph.create(Probe(count=True), [graph.inputs[0]], location=PLACE)


@corruption
def int_for_a_float(graph: Graph) -> None:
    graph.create(Probe(count=1, ratio=2), [graph.inputs[0]], location=PLACE)


@corruption
def unknown_choice(graph: Graph) -> None:
    graph.create(Probe(count=1, mode="cubic"), [graph.inputs[0]], location=PLACE)


@corruption
def symbol_with_two_ranges(graph: Graph) -> None:
    graph.add_input("z", TensorType(f32, (Symbol("n", 1, 8),)))
    graph.add_input("u", TensorType(f32, (Symbol("n"),)))


@corruption
def attribute_with_another_range(graph: Graph) -> None:
    graph.add_input("z", TensorType(f32, (Symbol("n", 1, 8),)))
    graph.create(Probe(count=1, shape=(Symbol("n"),)), [graph.inputs[0]], location=PLACE)


@corruption
def size_that_nothing_decides(graph: Graph) -> None:
    graph.add_input("z", TensorType(f32, (Symbol("n"),)))
    graph.create(Probe(count=1, shape=(Symbol("m") + 1,)), [graph.inputs[0]], location=PLACE)


@corruption
def region_with_the_wrong_parent(graph: Graph) -> None:
    region(graph).parent = graph.nodes[0]


@corruption
def region_without_a_parent(graph: Graph) -> None:
    region(graph).parent = None


@corruption
def region_used_twice(graph: Graph) -> None:
    body = region(graph)
    graph.create(Region(), [graph.inputs[0]], regions=[body], location=PLACE)


@corruption
def graph_inside_itself(graph: Graph) -> None:
    graph.create(Region(), [graph.inputs[0]], regions=[graph], location=PLACE)


@corruption
def error_inside_a_region(graph: Graph) -> None:
    region(graph).nodes[0].results[1].type = TensorType(f32, (5,))


@corruption
def region_that_reads_an_outer_value(graph: Graph) -> None:
    node = region(graph).nodes[0]
    node._operands = (graph.inputs[0],)


@corruption
def regions_too_deep(graph: Graph) -> Graph:
    for _ in range(65):
        outer = Graph("outer")
        x = outer.add_input("x", TensorType(f32, (4,)))
        outer.set_outputs([outer.create(Region(), [x], regions=[graph], location=PLACE).result])
        graph = outer
    return graph


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_broken_graph_is_refused_with_this_message(name: str) -> None:
    graph = read(TEXT)
    verify(graph)
    broken = CORRUPTIONS[name](graph) or graph
    with pytest.raises(GraphError) as caught:
        verify(broken)
    assert str(caught.value) == messages()[name]


def test_every_message_has_its_corruption() -> None:
    assert messages().keys() == CORRUPTIONS.keys()


def test_a_type_rule_that_trips_is_the_cause_of_the_error() -> None:
    graph = read(TEXT)
    x, y = graph.inputs
    graph.create(Same(), [x, y])
    y.type = TensorType(f32, (1,))
    graph.nodes[1].result.type = TensorType(f32, (4,))
    with pytest.raises(GraphError, match=r"test\.same: its type rule failed") as caught:
        verify(graph)
    assert isinstance(caught.value.__cause__, AssertionError)


def test_sound_graphs_pass() -> None:
    graph = read(TEXT)
    region(graph)
    graph.updates = {0: 1}
    graph.donated = {0, 1}
    graph.add_input("z", TensorType(f32, (Symbol("n", 2, 8),)))
    verify(graph)
    verify(graph.clone())
    verify(Graph())


def test_a_value_may_be_used_many_times() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (4,)))
    graph.set_outputs([graph.add("add", x, x), x, x])
    verify(graph)


def test_time_is_linear_in_the_uses_of_one_value() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (4,)))
    for _ in range(20_000):
        graph.add("negate", x)
    graph.set_outputs([x] * 20_000)
    start = time.process_time()
    verify(graph)
    assert time.process_time() - start < 5.0


def test_a_long_cycle_is_found_without_recursion() -> None:
    graph = Graph()
    first = value = graph.add("negate", graph.add_input("x", TensorType(f32, (4,))))
    for _ in range(20_000):
        value = graph.add("negate", value)
    first.producer.set_operand(0, value)
    with pytest.raises(GraphError, match="the graph has a cycle through %negate"):
        verify(graph)
