"""The text form: what prints, and that it parses back to an equal graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from monograph.errors import ParseError
from monograph.ir.compare import structurally_equal
from monograph.ir.dims import Symbol, dim_max
from monograph.ir.graph import Graph
from monograph.ir.location import Location
from monograph.ir.op import Op
from monograph.ir.text import (
    describe,
    parse,
    parse_type,
    print_graph,
    print_node,
)
from monograph.ir.text.attributes import attribute_types
from monograph.ir.types import (
    DTYPES,
    Device,
    DType,
    Layout,
    OptionalType,
    Quantization,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
    bool_,
    f16,
    f32,
    i8,
    i64,
    string,
)
from tests.ir.probe_ops import Branch, Mode, Pair, Probe, Region, Sequence_, Sink, round_trip

BATCH = Symbol("batch")
SEQ = Symbol("seq", 2, 512)


def line_of(graph: Graph, index: int = 0) -> str:
    return print_node(graph.nodes[index])


def probe(**attributes: Any) -> str:
    """The attributes of a probe, as printed; they must survive the round trip."""
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (4,)))
    op = Probe(count=1, **attributes)
    graph.add_input("sizes", TensorType(f32, tuple(op.symbols())))
    graph.create(op, [x])
    graph.set_outputs([x])
    round_trip(graph)
    return line_of(graph).removeprefix("%test.probe = test.probe(%x) ").removesuffix(" : f32[4]")


# Whole graphs.


def test_a_graph_prints_as_documented() -> None:
    graph = Graph("mlp")
    batch = Symbol("batch", 1, 64)
    x = graph.add_input("x", TensorType(f32, (batch, 4)))
    w = graph.add_input("w", TensorType(f32, (4, 3)), donate=True)
    scale = graph.add_constant(0.5, f32)
    weight = graph.add_weight("layer.0.weight", np.zeros((4, 3), np.float32))
    y = graph.add("add", x, graph.add("multiply", x, scale))
    new = graph.add("add", w, weight)
    graph.set_outputs([y, new])
    graph.updates[1] = 1
    digest = weight.op.data.digest
    assert print_graph(graph) == (
        "graph @mlp(%x: f32[batch, 4], %w: f32[4, 3] donated) -> (f32[batch, 4], f32[4, 3])"
        " where batch <= 64 updates (1: 1) {\n"
        "  %c = constant(0.5) : f32[]\n"
        f'  %layer.0.weight = weight("layer.0.weight", "{digest}") : f32[4, 3]\n'
        "  %multiply = multiply(%x, %c) : f32[batch, 4]\n"
        "  %add = add(%x, %multiply) : f32[batch, 4]\n"
        "  %add_1 = add(%w, %layer.0.weight) : f32[4, 3]\n"
        "  return %add, %add_1\n"
        "}"
    )
    again = round_trip(graph)
    assert again.updates == {1: 1}
    assert again.donated == {1}


def test_a_graph_of_nothing() -> None:
    graph = Graph("nothing")
    assert print_graph(graph) == "graph @nothing() -> () {\n  return\n}"
    round_trip(graph)


def test_several_results_and_none() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (4,)))
    first, second = Pair()(x)
    Sink()(second)
    graph.set_outputs([first, first])
    assert line_of(graph, 0) == "%test.pair, %test.pair_1 = test.pair(%x) : f32[4], f32[4]"
    assert line_of(graph, 1) == "test.sink(%test.pair_1)"
    round_trip(graph)


def test_comments_and_spacing_do_not_matter() -> None:
    text = """
    # A comment.
    graph @main ( %x : f32[ batch ,4 ] )  ->  ( f32[batch, 4] )  # another
    {
      %y=negate(%x):f32[batch, 4]   # and one more
      return %y }
    """
    assert print_graph(parse(text)) == (
        "graph @main(%x: f32[batch, 4]) -> (f32[batch, 4]) {\n"
        "  %y = negate(%x) : f32[batch, 4]\n"
        "  return %y\n"
        "}"
    )


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("x", "%x"),
        ("0", "%0"),
        ("encoder.layers.0/attention-1_q", "%encoder.layers.0/attention-1_q"),
        ("input:0", "%input:0"),
        ("a::b", "%a::b"),
        ("odd name", '%"odd name"'),
        ("", '%""'),
        ("ends:", '%"ends:"'),
        ("a->b", '%"a->b"'),
        ("ends-", '%"ends-"'),
        ('quo"te\\', '%"quo\\"te\\\\"'),
        ("line\nbreak", '%"line\\nbreak"'),
        ("naïve", '%"naïve"'),
        ("\u2028\x7f\ud800", '%"\\u2028\\u007f\\ud800"'),
    ],
)
def test_names(name: str, printed: str) -> None:
    graph = Graph(name)
    x = graph.add_input(name, TensorType(f32, (4,)))
    y = graph.create(Pair(), [x], names=["a", f"{name}."]).results[1]
    graph.set_outputs([y])
    text = print_graph(graph)
    assert text.startswith(f"graph @{printed[1:]}({printed}: f32[4])")
    assert round_trip(graph).name == name


def test_symbols_are_declared_only_where_their_range_is_unusual() -> None:
    graph = Graph()
    free, positive = Symbol("free", 0), Symbol("exact", 8, 8)
    graph.add_input("x", TensorType(f32, (BATCH, SEQ, free, positive)))
    assert print_graph(graph).startswith(
        "graph @main(%x: f32[batch, seq, free, exact]) -> ()"
        " where 2 <= seq <= 512, 0 <= free, 8 <= exact <= 8 {"
    )
    assert round_trip(graph).symbols() == graph.symbols()


def test_ranges_hold_in_regions_too() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (4,)))
    body = Graph("body")
    inner = body.add_input("a", TensorType(f32, (SEQ,)))
    body.set_outputs([inner])
    graph.set_outputs([graph.create(Region(), [x], regions=[body]).result])
    assert " where 2 <= seq <= 512 {" in print_graph(graph)
    round_trip(graph)


def test_regions_nest() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (4,)))
    graph.set_outputs(
        [graph.create(Branch(flag=True), [x], regions=[_region(3), _region(0)]).result]
    )
    assert print_graph(graph).split("\n")[1:6] == [
        "  %test.branch = test.branch(%x) {flag = true} : f32[4] {",
        "    graph @depth3(%a: f32[4]) -> (f32[4]) {",
        "      %test.region = test.region(%a) : f32[4] {",
        "        graph @depth2(%a: f32[4]) -> (f32[4]) {",
        "          %test.region = test.region(%a) : f32[4] {",
    ]
    again = round_trip(graph)
    node = again.nodes[0]
    assert [region.parent for region in node.regions] == [node, node]
    assert print_node(node) == "%test.branch = test.branch(%x) {flag = true} : f32[4] {...}"


def test_regions_nest_as_deep_as_the_limit() -> None:
    graph = _region(64)
    assert structurally_equal(parse(print_graph(graph)), graph)
    with pytest.raises(ParseError, match="regions nest too deeply"):
        parse(print_graph(_region(65)))


def _region(depth: int) -> Graph:
    graph = Graph(f"depth{depth}")
    value = graph.add_input("a", TensorType(f32, (4,)))
    if depth:
        value = graph.create(Region(), [value], regions=[_region(depth - 1)]).result
    graph.set_outputs([value])
    return graph


# Types.

TYPES: list[tuple[ValueType, str]] = [
    (TensorType(f32, ()), "f32[]"),
    (TensorType(f32, (0, 3)), "f32[0, 3]"),
    (TensorType(f32, (2**63 - 1,)), "f32[9223372036854775807]"),
    (TensorType(i64, (BATCH, 4)), "i64[batch, 4]"),
    (TensorType(f32, (2 * BATCH + 1, (BATCH + 1) // 2)), "f32[2*batch+1, (batch+1)//2]"),
    (TensorType(f32, (dim_max(BATCH, 4), BATCH % 3)), "f32[max(batch, 4), batch%3]"),
    (TensorType(f32, (Symbol("f32"), Symbol("inf"))), "f32[f32, inf]"),
    (TensorType(f32, (1, 3, 8, 8), Layout((0, 2, 3, 1))), "f32[1, 3, 8, 8]<0,2,3,1>"),
    (TensorType(f32, (1, 32), Layout((0, 1), ((1, 16), (0, 2)))), "f32[1, 32]<0,1;1:16,0:2>"),
    (TensorType(f32, (), Layout(())), "f32[]<>"),
    (TensorType(f16, (4,), device=Device("gpu", 1)), "f16[4]@gpu:1"),
    (TensorType(i8, (4,), quantization=Quantization((0.5,), (3,))), "i8[4]!q(0.5; 3)"),
    (
        TensorType(
            i8, (2, 2), Layout((1, 0)), Device("cpu"), Quantization((1e-05, 2.0), (0, -1), 0)
        ),
        "i8[2, 2]<1,0>@cpu:0!q(1e-05, 2.0; 0, -1; 0)",
    ),
    (UnrankedType(f32), "f32[*]"),
    (SequenceType(TensorType(string, (BATCH,))), "sequence<string[batch]>"),
    (OptionalType(SequenceType(UnrankedType(i64))), "optional<sequence<i64[*]>>"),
    (OptionalType(TensorType(f32, (4,), Layout((0,)))), "optional<f32[4]<0>>"),
]


@pytest.mark.parametrize(("type_", "text"), TYPES, ids=[text for _, text in TYPES])
def test_types(type_: ValueType, text: str) -> None:
    assert str(type_) == text
    assert parse_type(text, {}) == type_
    graph = Graph()
    x = graph.add_input("x", type_)
    graph.set_outputs([graph.create(Sequence_(), [x]).result])
    round_trip(graph)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES.keys())
def test_every_dtype_has_a_type(dtype: DType) -> None:
    assert parse_type(f"{dtype.name}[2, n]", {}) == TensorType(dtype, (2, Symbol("n")))


def test_parse_type_uses_the_symbols_it_is_given() -> None:
    given = {"seq": SEQ}
    assert parse_type("f32[seq, batch]", given) == TensorType(f32, (SEQ, BATCH))
    assert given == {"seq": SEQ}


# Attributes.


@pytest.mark.parametrize(
    ("attributes", "printed"),
    [
        ({}, "{count = 1}"),
        ({"ratio": 0.5, "label": ""}, "{count = 1}"),
        ({"ratio": 1.0}, "{count = 1, ratio = 1.0}"),
        ({"ratio": 1e-05}, "{count = 1, ratio = 1e-05}"),
        ({"ratio": -0.0}, "{count = 1, ratio = -0.0}"),
        ({"ratio": math.inf}, "{count = 1, ratio = inf}"),
        ({"ratio": -math.inf}, "{count = 1, ratio = -inf}"),
        ({"ratio": math.nan}, "{count = 1, ratio = nan}"),
        ({"flag": True}, "{count = 1, flag = true}"),
        ({"label": 'a "b"\n\\'}, '{count = 1, label = "a \\"b\\"\\n\\\\"}'),
        ({"label": "true"}, '{count = 1, label = "true"}'),
        ({"value": 1 + 2j}, "{count = 1, value = 1.0+2.0j}"),
        ({"value": complex(-0.0, -0.0)}, "{count = 1, value = -0.0-0.0j}"),
        ({"value": complex(math.inf, math.nan)}, "{count = 1, value = inf+nanj}"),
        ({"dtype": bool_}, "{count = 1, dtype = bool}"),
        ({"size": 2 * BATCH + 1}, "{count = 1, size = 2*batch+1}"),
        ({"size": 1 - BATCH}, "{count = 1, size = -batch+1}"),
        ({"size": Symbol("none")}, "{count = 1, size = (none)}"),
        ({"size": Symbol("f32")}, "{count = 1, size = (f32)}"),
        ({"shape": (BATCH, 4, (BATCH + 1) // 2)}, "{count = 1, shape = [batch, 4, (batch+1)//2]}"),
        ({"shape": (dim_max(BATCH, 4), SEQ)}, "{count = 1, shape = [max(batch, 4), seq]}"),
        ({"axes": (0, -1, 2**62)}, "{count = 1, axes = [0, -1, 4611686018427387904]}"),
        ({"ratios": (1.0, 0.1)}, "{count = 1, ratios = [1.0, 0.1]}"),
        ({"pads": ((0, 1), (2, 3))}, "{count = 1, pads = [[0, 1], [2, 3]]}"),
        ({"limit": 6.0}, "{count = 1, limit = 6.0}"),
        ({"mode": "linear"}, '{count = 1, mode = "linear"}'),
        ({"rounding": Mode.CEIL}, '{count = 1, rounding = "ceil"}'),
        ({"device": Device("gpu", 2)}, "{count = 1, device = @gpu:2}"),
        ({"type": TensorType(f32, (BATCH, 4))}, "{count = 1, type = f32[batch, 4]}"),
        ({"type": SequenceType(UnrankedType(f32))}, "{count = 1, type = sequence<f32[*]>}"),
        ({"layout": Layout((1, 0), ((0, 4),))}, "{count = 1, layout = <1,0;0:4>}"),
        ({"quantization": Quantization((0.5,), (0,))}, "{count = 1, quantization = !q(0.5; 0)}"),
    ],
)
def test_attributes(attributes: dict[str, Any], printed: str) -> None:
    assert probe(**attributes) == printed


@pytest.mark.parametrize(
    ("written", "attributes"),
    [
        ("ratio = 1", {"ratio": 1.0}),
        ("value = 2", {"value": 2 + 0j}),
        ("ratios = [1, 2.5]", {"ratios": (1.0, 2.5)}),
        ("limit = 6", {"limit": 6.0}),
        ("limit = none", {"limit": None}),
        ("axes = []", {"axes": ()}),
        ("axes = [1, 2,]", {"axes": (1, 2)}),
        ("device = @gpu", {"device": Device("gpu")}),
        ("size = seq - seq + 4", {"size": 4}),
    ],
)
def test_literals_become_the_declared_type(written: str, attributes: dict[str, Any]) -> None:
    text = f"graph @g(%x: f32[4]) -> () {{\n  test.probe(%x) {{{written}, count = 7}}\n  return\n}}"
    text = text.replace("test.probe(%x)", "%y = test.probe(%x)").replace(
        "\n  return", " : f32[4]\n  return"
    )
    assert parse(text).nodes[0].op == Probe(count=7, **attributes)


def test_attributes_that_have_no_syntax_print_but_do_not_parse() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (4,)))
    graph.create(Probe(count=object()), [x])  # type: ignore[arg-type]  # that is the point
    assert 'count = opaque "<object object at ' in print_graph(graph)
    with pytest.raises(ParseError, match="an opaque value cannot be read back"):
        parse(print_graph(graph))


def test_the_declared_types_of_every_op_resolve() -> None:
    import monograph.ops  # noqa: F401  # fills the registry
    from monograph.ir.op import registry

    def resolve(cls: type[Op]) -> object:
        return attribute_types(cls)

    for cls in registry().values():
        assert set(resolve(cls)) == set(cls.attribute_names)  # type: ignore[call-overload]


# Locations, single nodes.


def test_locations_survive_when_asked_for() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (4,)))
    places = [
        Location("file.py", 12, "forward", "encoder.0"),
        Location("file.py", 13),
        Location('odd "file".py', 14, "<lambda>"),
        Location("file.py", 15, "", "decoder"),
        None,
    ]
    for place in places:
        graph.create(Sink(), [x]).location = place
    body = Graph("body")
    graph.create(Region(), [], regions=[body]).location = places[1]
    text = print_graph(graph, locations=True)
    assert text.split("\n")[1:8] == [
        '  test.sink(%x) loc("file.py":12 in "forward" scope "encoder.0")',
        '  test.sink(%x) loc("file.py":13)',
        '  test.sink(%x) loc("odd \\"file\\".py":14 in "<lambda>")',
        '  test.sink(%x) loc("file.py":15 scope "decoder")',
        "  test.sink(%x) loc(unknown)",
        '  test.region() loc("file.py":13) {',
        "    graph @body() -> () {",
    ]
    again = parse(text)
    assert [node.location for node in again.nodes] == [*places, places[1]]
    assert print_graph(again, locations=True) == text


def test_nodes_without_a_location_are_located_in_the_text() -> None:
    graph = parse("graph @g() -> () {\n\n  test.sink()\n  return\n}", source="model.ir")
    assert graph.nodes[0].location == Location("model.ir", 3)


def test_describe_shows_the_neighbours() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(f32, (4,)))
    for _ in range(3):
        x = graph.add("negate", x)
    graph.set_outputs([x])
    first, second, third = graph.nodes
    lines = [print_node(node) for node in graph.nodes]
    assert describe(first) == f"> {lines[0]}\n  {lines[1]}"
    assert describe(second) == f"  {lines[0]}\n> {lines[1]}\n  {lines[2]}"
    assert describe(third) == f"  {lines[1]}\n> {lines[2]}"
    assert describe(graph.output_node) == f"  {lines[2]}\n> return %negate_2"


def test_a_single_node_leaves_long_contents_out() -> None:
    graph = Graph()
    graph.add_constant(np.arange(100))
    assert line_of(graph) == '%c = constant(base64 "...") : i64[100]'
