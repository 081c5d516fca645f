"""What each chapter's picture shows. ``PICTURES`` has them by the name of the chapter's file."""

from __future__ import annotations

from collections.abc import Callable

import monograph
from docs.pictures.canvas import Canvas
from docs.pictures.layers import (
    HEIGHT,
    Box,
    draw_box,
    draw_edges,
    is_data,
    layered,
    place_boxes,
)
from examples.digits import digits
from monograph.ir.graph import Graph

IMAGES = "f32[batch, 1, 28, 28]"


def the_graph() -> str:
    """The graph of digits: every value with its type, weights beside the node that reads them."""
    graph = monograph.trace(digits, IMAGES)
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


PICTURES: dict[str, Callable[[], str]] = {
    "1-the-graph": the_graph,
}
