"""What each chapter's picture shows. ``PICTURES`` has them by the name of the chapter's file."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from docs.pictures.canvas import Canvas
from docs.pictures.kernels import fusion, products, schedules
from docs.pictures.layers import (
    HEIGHT,
    Box,
    draw_box,
    draw_edges,
    is_data,
    layered,
    place_boxes,
)
from docs.pictures.memory import cache_and_artifacts, dynamic_shapes, memory_and_threads
from docs.pictures.models import traced
from examples.digits import digits
from monograph.ir.graph import Graph


def the_graph() -> str:
    """The graph of digits: every value with its type, weights beside the node that reads them."""
    graph = traced()
    rows = layered(graph)
    canvas = Canvas("The graph of digits", 520, 62 * (len(rows) + 2) + 8)
    boxes = place_boxes(rows, left=250, width=260, top=16 + 62)
    _ends(canvas, graph, boxes)
    draw_edges(canvas, boxes)
    for node, box in boxes.items():
        draw_box(canvas, box)
        weights = [each for each in node.operands if each.producer and is_data(each.producer)]
        for index, weight in enumerate(weights):
            y = box.y + HEIGHT / 2 + (index - (len(weights) - 1) / 2) * 15
            label = f"{weight.name}: {weight.type}"
            canvas.text(196, y + 4, label, kind="faint", size=11, mono=True, anchor="end")
            canvas.line((202, y), (220, y), (box.x - 2, box.y + HEIGHT / 2))
    return canvas.svg()


def _ends(canvas: Canvas, graph: Graph, boxes: dict) -> None:
    """The inputs above their readers, the outputs below their makers."""
    for value in graph.inputs:
        readers = [boxes[use.node] for use in value.uses if use.node in boxes]
        box = Box(
            value.name, str(value.type), "plain", width=max(120, 6.7 * len(str(value.type)) + 24)
        )
        box.x, box.y = readers[0].x + readers[0].width / 2 - box.width / 2, readers[0].y - 62
        draw_box(canvas, box, rounded=True)
        canvas.curve(box.bottom, readers[0].top)
    for value in graph.outputs:
        maker = boxes[value.producer]
        box = Box("result", str(value.type), "plain", width=120, y=maker.y + 62)
        box.x = maker.x + maker.width / 2 - 60
        draw_box(canvas, box, rounded=True)
        canvas.curve(maker.bottom, box.top)


def frontends() -> str:
    """The lines of digits, and the nodes that each left behind."""
    lines, first = inspect.getsourcelines(digits)
    graph = traced()
    made: dict[int, list[str]] = {}
    for node in graph.nodes:
        if node.location is not None and 0 <= node.location.line - first < len(lines):
            made.setdefault(node.location.line - first, []).append(node.op.name)
    canvas = Canvas("What each line of digits leaves behind", 860, 30 * len(lines) + 20)
    for number, line in enumerate(lines):
        y = 30 + 30 * number
        canvas.code(20, y, line.rstrip())
        names = made.get(number, [])
        for place, name in enumerate(dict.fromkeys(names)):
            x, count = 660 + 98 * place, names.count(name)
            canvas.box(x, y - 15, 92, 22, "plain" if name == "weight" else "blue")
            label = name if count == 1 else f"{count} {name}s"
            canvas.text(x + 46, y, label, size=12, anchor="middle")
        if names:
            start = 30 + 7.3 * len(line.rstrip())
            canvas.line((start, y - 4), (652, y - 4), dashed=True, arrow=True)
    return canvas.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "1-the-graph": the_graph,
    "2-frontends": frontends,
    "6-fusion": fusion,
    "7-kernels-and-schedules": schedules,
    "8-products-and-convolutions": products,
    "9-memory-and-threads": memory_and_threads,
    "10-dynamic-shapes": dynamic_shapes,
    "11-cache-and-artifacts": cache_and_artifacts,
}
