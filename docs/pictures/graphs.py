"""Pictures of graphs: chapters 1, 2, 5 and 13."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import numpy as np

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
from docs.pictures.models import SIXTEEN, traced
from examples.digits import digits
from monograph import functional as F
from monograph.ir.graph import Graph, Node, Value


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


def _ends(canvas: Canvas, graph: Graph, boxes: Mapping[Node, Box]) -> None:
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


def gradients() -> str:
    """Forward downwards on the left, backward upwards on the right, what it reads dashed."""
    forward = monograph.trace(lambda x: F.sum(F.exp(x) * x), "f64[n]")
    graph = monograph.value_and_grad(forward)
    first, second = graph.nodes[: len(forward)], graph.nodes[len(forward) :]
    down, up = layered(graph, first), layered(graph, second)
    height = 62 * (len(up) + 1) + 40
    canvas = Canvas("A loss and its gradient", 640, height)
    boxes = place_boxes(down, left=20, width=200, top=40 + 62)
    for node, box in place_boxes(up, left=300, width=320, top=0).items():
        box.y = height - 76 - box.y
        boxes[node] = box
    canvas.text(120, 28, "forward", anchor="middle", bold=True)
    canvas.text(460, 28, "backward", anchor="middle", bold=True)
    given = Box("x", str(graph.inputs[0].type), "plain", x=70, y=40, width=100)
    for node, box in boxes.items():
        for value in dict.fromkeys(node.operands):
            source = given if value.producer is None else boxes.get(value.producer)
            if source is None:
                continue
            _step_edge(canvas, source, box, is_forward=node in first, crosses=source.x < 240)
    draw_box(canvas, given, rounded=True)
    for box in boxes.values():
        draw_box(canvas, box)
    (gradient,) = graph.outputs[1:]
    top = boxes[gradient.producer].y
    canvas.note(460, top - 8, "the gradient by x", "middle")
    canvas.note(120, boxes[first[-1]].y + HEIGHT + 16, "the loss", "middle")
    return canvas.svg()


def _step_edge(
    canvas: Canvas, source: Box, target: Box, *, is_forward: bool, crosses: bool
) -> None:
    """Downwards in the forward part, upwards in the backward one, dashed from one to the other."""
    if is_forward:
        canvas.curve(source.bottom, target.top)
    elif crosses:
        start = (source.x + source.width, source.y + HEIGHT / 2)
        canvas.line(start, (target.x, target.y + HEIGHT / 2), dashed=True, arrow=True)
    else:
        canvas.line(source.top, target.bottom, arrow=True)


def quantization() -> str:
    """The quantized graph of digits: which values are bytes, and which are floats."""
    graph = traced(SIXTEEN)
    generator = np.random.default_rng(0)
    batches = [generator.normal(size=(16, 1, 28, 28)).astype(np.float32) for _ in range(2)]
    profile = monograph.quantize.profile(graph, batches)
    quantized = monograph.quantize(graph, profile)
    path = [node for node in quantized.nodes if _reads_activations(node)]
    rows = layered(quantized, path)
    canvas = Canvas("digits in eight bits", 560, 62 * (len(rows) + 2) + 8)
    boxes = place_boxes(rows, left=20, width=320, top=16 + 62)
    for node, box in boxes.items():
        box.hue = "yellow" if _is_byte(node.result) else "blue"
    _ends(canvas, quantized, boxes)
    draw_edges(canvas, boxes)
    for node, box in boxes.items():
        draw_box(canvas, box)
        bits = [v.producer.operands[0].dtype for v in node.operands[1:] if _is_weight(v)]
        if bits:
            names = " and ".join(str(each) for each in bits)
            canvas.note(352, box.y + HEIGHT / 2 + 4, f"weights in {names}")
    for y, hue, words in ((20, "yellow", "bytes"), (42, "blue", "floats, in the graph")):
        canvas.box(352, y, 14, 14, hue)
        canvas.note(374, y + 12, words)
    return canvas.svg()


def _is_byte(value: Value) -> bool:
    return value.dtype.bits == 8


def _is_weight(value: Value) -> bool:
    """Whether a value is a stored integer that is scaled."""
    maker = value.producer
    return maker is not None and maker.op.name == "dequantize" and not _reads_activations(maker)


def _reads_activations(node: Node) -> bool:
    """Whether the image has a part in it."""
    seen: list[Value] = list(node.operands)
    while seen:
        value = seen.pop()
        if value.producer is None:
            return True
        seen.extend(value.producer.operands)
    return False
