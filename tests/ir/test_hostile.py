"""Texts made to exhaust the parser: each ends soon, in a graph or in a clear error."""

from __future__ import annotations

import time

import numpy as np
import pytest

import tests.ir.probe_ops  # noqa: F401  # some of the texts use its ops
from monograph.errors import ParseError
from monograph.ir.graph import Graph
from monograph.ir.text import parse, parse_type, print_graph
from monograph.ir.verify import verify

MILLION = 1_000_000
SECONDS = 20.0
"""Of processor time, and generous: the slowest takes two on an idle machine."""


def header(type_: str) -> str:
    return f"graph @main(%x: {type_}) -> () {{\n  return\n}}"


def body(line: str) -> str:
    return f"graph @main(%x: f32[4]) -> () {{\n  {line}\n  return\n}}"


REFUSED = {
    "one long word": ("a" * MILLION, "the text does not begin with a graph"),
    "one long name": (
        body("%y = negate(%" + "a" * MILLION + ") : f32[4]"),
        "%" + "a" * 57 + "... is not defined",
    ),
    "one long op": (body("%y = " + "a" * MILLION + "(%x) : f32[4]"), "there is no op called"),
    "one long string": (body('%y = weight("' + "a" * MILLION), "a string is not closed"),
    "one long escape": (body('%y = weight("' + "\\" * (MILLION + 1)), "a string is not closed"),
    "one long number": (
        body("%y = constant(" + "1" * MILLION + ") : f32[]"),
        "a number is too long",
    ),
    "a long exponent": (
        body("%y = constant(1e" + "1" * MILLION + ") : f32[]"),
        "a number is too long",
    ),
    "a long attribute": (
        body("%y = test.probe(%x) {count = " + "1" * MILLION + "} : f32[4]"),
        "a number is too long",
    ),
    "a long dimension": (header("f32[" + "1" * MILLION + "]"), "is not a dimension"),
    "open parentheses": ("(" * MILLION, "the text does not begin with a graph"),
    "open parentheses for inputs": ("graph @main" + "(" * MILLION, "unexpected `(` in the inputs"),
    "open braces": ("graph @main() -> () " + "{" * MILLION, "unexpected `{` in a node"),
    "open brackets in a constant": (
        body("%y = constant(" + "[" * MILLION + ") : f32[4]"),
        "lists nest too deeply",
    ),
    "open brackets in an attribute": (
        body("%y = test.probe(%x) {axes = " + "[" * MILLION),
        "lists nest too deeply",
    ),
    "open brackets in a type": (header("f32" + "[" * MILLION), "a dimension is missing"),
    "parentheses in a dimension": (
        header("f32[" + "(" * MILLION + "n" + ")" * MILLION + "]"),
        "parentheses nest too deeply",
    ),
    "minus signs in a dimension": (header("f32[" + "-" * MILLION + "n]"), "is not a dimension"),
    "sums in a dimension": (header("f32[n" + "+n" * (MILLION // 2) + "]"), "is not a dimension"),
    "products in a dimension": (
        header("f32[n" + "*n" * (MILLION // 2) + "]"),
        "is not a dimension",
    ),
    "nested types": (header("sequence<" * (MILLION // 9)), "`sequence<...>` nest too deeply"),
    "nested regions": (
        "graph @main() -> () {" + "test.region() {graph @r() -> () {" * (MILLION // 33),
        "regions nest too deeply",
    ),
    "many commas": (header("f32[" + "," * MILLION + "]"), "a dimension is missing"),
    "percent signs": ("graph @main(" + "%" * MILLION, "no name follows `%`"),
    "quotation marks": ('"' * (MILLION + 1), "the text does not begin with a graph"),
    "null characters": ("\0" * MILLION, "unexpected character `U+0000`"),
    "blank lines": ("\n" * MILLION + "?", "unexpected character `?`"),
    "comments": ("# comment\n" * (MILLION // 10), "the text does not begin with a graph"),
    "ranges": (
        "graph @main() -> () where " + ", ".join(f"s{i} <= 9" for i in range(MILLION // 14)) + " {",
        "@main has no return",
    ),
    "many results": (
        body(", ".join(f"%r{i}" for i in range(MILLION // 10)) + " = negate(%x) : f32[4]"),
        "negate: wrong number of result names",
    ),
    "many operands": (
        body("%y = negate(" + ", ".join(["%x"] * (MILLION // 4)) + ") : f32[4]"),
        "negate: wrong number of operands",
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_hostile_text_is_refused_soon(text: str, message: str) -> None:
    start = time.process_time()
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert time.process_time() - start < SECONDS
    assert message in caught.value.message
    assert len(str(caught.value)) < 2000


ACCEPTED = {
    "a long list": body(f"%y = constant([{', '.join(['1'] * 300_000)}]) : i8[300000]"),
    "a long attribute": body(
        f"%y = test.probe(%x) {{count = 1, axes = [{', '.join(['1'] * 300_000)}]}} : f32[4]"
    ),
    "many dimensions": header("f32[" + ", ".join(["1"] * 200_000) + "]"),
    "a long symbol": header("f32[" + "a" * MILLION + "]"),
    "many inputs": "graph @main("
    + ", ".join(f"%x{i}: f32[4]" for i in range(50_000))
    + ") -> () {\n  return\n}",
    "a long comment": "#" + "a" * MILLION + "\n" + header("f32[4]"),
    "many blank lines": "\n" * MILLION + header("f32[4]"),
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_large_text_is_read_soon(text: str) -> None:
    start = time.process_time()
    parse(text)
    assert time.process_time() - start < SECONDS


def test_a_splat_costs_nothing_whatever_its_size() -> None:
    text = body("%y = constant(splat 0.5) : f32[100000000000]")
    start = time.process_time()
    graph = parse(text)
    verify(graph)
    assert print_graph(parse(print_graph(graph))) == print_graph(graph)
    (node,) = graph.nodes
    assert node.op == parse(text).nodes[0].op
    assert hash(node.op) == hash(parse(text).nodes[0].op)
    assert time.process_time() - start < SECONDS


def test_a_splat_equals_the_same_constant_in_full() -> None:
    graph = Graph()
    graph.add_constant(np.full((3, 4), -0.0, np.float32))
    read = parse(body("%c = constant(splat -0.0) : f32[3, 4]"))
    assert read.nodes[0].op == graph.nodes[0].op
    assert read.nodes[0].op != parse(body("%c = constant(splat 0.0) : f32[3, 4]")).nodes[0].op


@pytest.mark.slow
def test_a_hundred_thousand_nodes_take_seconds() -> None:
    lines = [f"  %v{i + 1} = negate(%v{i}) : f32[batch, 4]\n" for i in range(100_000)]
    text = (
        f"graph @main(%v0: f32[batch, 4]) -> (f32[batch, 4]) {{\n{''.join(lines)}  return %v9\n}}"
    )
    start = time.process_time()
    graph = parse(text)
    assert time.process_time() - start < SECONDS
    start = time.process_time()
    verify(graph)
    assert time.process_time() - start < SECONDS / 2
    assert print_graph(graph) == text


def test_types_are_as_safe_as_graphs() -> None:
    with pytest.raises(ParseError, match="nest too deeply"):
        parse_type("optional<" * MILLION)
    with pytest.raises(ParseError, match="text follows the type: `]`"):
        parse_type("f32[4]]")
