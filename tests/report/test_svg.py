"""Drawings of graphs for notebooks."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import monograph
from monograph import functional as F

SVG = "{http://www.w3.org/2000/svg}"


def test_every_node_that_computes_is_drawn_below_what_it_reads() -> None:
    graph = monograph.trace(lambda x, w: F.relu(x @ w) + x, "f32[4, 4]", "f32[4, 4]")
    root = ET.fromstring(graph.svg())
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts.count("input") == 2 and texts.count("output") == 1
    heights = {
        group.findtext(f"{SVG}text"): float(rect.get("y", "0"))
        for group in root.iter(f"{SVG}g")
        if (rect := group.find(f"{SVG}rect")) is not None
    }
    assert heights["input"] < heights["matmul"] < heights["relu"] < heights["add"]
    assert heights["add"] < heights["output"]


def test_boxes_of_one_layer_do_not_overlap() -> None:
    graph = monograph.trace(lambda x: (F.relu(x), F.exp(x), F.tanh(x), F.sqrt(x)), "f32[4, 4]")
    root = ET.fromstring(graph.svg())
    layers: dict[str, list[tuple[float, float]]] = {}
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        if rect is not None:
            span = (float(rect.get("x", "0")), float(rect.get("width", "0")))
            layers.setdefault(rect.get("y", ""), []).append(span)
    for spans in layers.values():
        spans.sort()
        for (left, width), (right, _) in itertools.pairwise(spans):
            assert left + width < right


def test_a_large_graph_is_counted_in_a_notebook() -> None:
    def deep(x: monograph.Value) -> monograph.Value:
        for _ in range(300):
            x = F.relu(x) + 1.0
        return x

    shown = monograph.trace(deep, "f32[4]")._repr_html_()
    assert "<table>" in shown and "relu" in shown and "<svg" not in shown


def test_an_empty_graph_can_be_drawn() -> None:
    assert ET.fromstring(monograph.Graph("empty").svg()).tag == f"{SVG}svg"
