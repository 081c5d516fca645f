"""A drawing of one graph as SVG, without a browser: for notebooks, slides and reviews.

Nodes stand in layers, each below all that it reads (the longest way from an input counts); within a
layer they are ordered by where their neighbours are, a few sweeps down and up. The report's own
drawing of thousands of nodes is laid out in the browser (``page/src/layout.ts``).
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from monograph.dataclass import dataclass
from monograph.ir.graph import Graph, Node, Value
from monograph.report.families import family_of

SWEEPS = 8
HEIGHT = 36
GAP_BESIDE = 18
GAP_BELOW = 26
MARGIN = 16
MAX_LABEL_CHARACTERS = 34

COLORS: Mapping[str, tuple[str, str]] = {
    "contraction": ("#0072b2", "#e8f2f9"),
    "reduction": ("#d55e00", "#fcefe6"),
    "pointwise": ("#009e73", "#e6f5f0"),
    "shape": ("#b8609a", "#f9eff5"),
    "data": ("#8a939c", "#ffffff"),
    "control": ("#b58900", "#faf4e0"),
    "memory": ("#4aa3d8", "#e9f4fb"),
    "other": ("#6b5b95", "#f0eef5"),
}
"""Outline and inside of each family of ops: hues that most people tell apart."""


@dataclass
class Box:
    """Something drawn: an input, a node or an output."""

    title: str
    label: str
    family: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    layer: int = 0
    x: float = 0.0

    @property
    def width(self) -> float:
        """Pixels, by the longer of its two lines."""
        return max(84.0, 7.4 * len(self.title) + 20, 6.3 * len(self.label) + 20)


def graph_svg(graph: Graph) -> str:
    """The drawing. Weights and constants are left out: they are most of a model's nodes."""
    boxes = _boxes(graph)
    edges = _edges(boxes)
    layers = _layers(boxes, edges)
    _order(layers, edges)
    _place(layers)
    width = max((box.x + box.width for box in boxes), default=0) + MARGIN
    height = len(layers) * (HEIGHT + GAP_BELOW) + 2 * MARGIN - GAP_BELOW
    lines = [_line(source, target) for source, target in edges]
    title = html.escape(f"graph {graph.name}: {len(graph)} nodes")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" font-family="sans-serif">'
        f"<title>{title}</title>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<g fill="none" stroke="#a9b2bc">{"".join(lines)}</g>'
        f"{''.join(map(_draw, boxes))}</svg>"
    )


def _boxes(graph: Graph) -> list[Box]:
    inputs = [
        Box("input", _short(f"%{value.name}: {value.type}"), "data", (), (value,))
        for value in graph.inputs
    ]
    outputs = [
        Box("output", _short(f"%{value.name}"), "data", (value,), ()) for value in graph.outputs
    ]
    nodes = [_box(node) for node in graph.nodes if family_of(node.op) != "data"]
    return [*inputs, *nodes, *outputs]


def _box(node: Node) -> Box:
    types = ", ".join(str(value.type) for value in node.results)
    return Box(node.op.name, _short(types), family_of(node.op), node.operands, node.results)


def _short(text: str) -> str:
    return text if len(text) <= MAX_LABEL_CHARACTERS else f"{text[: MAX_LABEL_CHARACTERS - 1]}…"


def _edges(boxes: Sequence[Box]) -> list[tuple[Box, Box]]:
    maker = {value: box for box in boxes for value in box.results}
    return [
        (maker[value], box)
        for box in boxes
        for value in dict.fromkeys(box.operands)
        if value in maker
    ]


def _layers(boxes: Sequence[Box], edges: Sequence[tuple[Box, Box]]) -> list[list[Box]]:
    """Boxes by their distance from what reads nothing; boxes come in an order of evaluation."""
    for source, target in edges:  # sorted by target, so that a source's layer is final
        target.layer = max(target.layer, source.layer + 1)
    layers: list[list[Box]] = [[] for _ in range(1 + max((b.layer for b in boxes), default=-1))]
    for box in boxes:
        layers[box.layer].append(box)
    return layers


def _order(layers: list[list[Box]], edges: Sequence[tuple[Box, Box]]) -> None:
    """Sort each layer by the mean place of its neighbours, downwards and upwards in turn."""
    above: dict[int, list[Box]] = {}
    below: dict[int, list[Box]] = {}
    for source, target in edges:
        above.setdefault(id(target), []).append(source)
        below.setdefault(id(source), []).append(target)
    for sweep in range(SWEEPS):
        neighbours = above if sweep % 2 == 0 else below
        _place(layers)
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            place = {id(box): _mean(neighbours.get(id(box), [box])) for box in layer}
            layer.sort(key=lambda box: place[id(box)])
            _place_layer(layer, max(sum(b.width + GAP_BESIDE for b in each) for each in layers))


def _mean(boxes: Sequence[Box]) -> float:
    return sum(box.x + box.width / 2 for box in boxes) / len(boxes)


def _place(layers: Sequence[Sequence[Box]]) -> None:
    """Centre every layer."""
    widest = max((sum(b.width + GAP_BESIDE for b in layer) for layer in layers), default=0.0)
    for layer in layers:
        _place_layer(layer, widest)


def _place_layer(layer: Sequence[Box], widest: float) -> None:
    x = MARGIN + (widest - sum(box.width + GAP_BESIDE for box in layer)) / 2
    for box in layer:
        box.x = x
        x += box.width + GAP_BESIDE


def _top(box: Box) -> float:
    return MARGIN + box.layer * (HEIGHT + GAP_BELOW)


def _line(source: Box, target: Box) -> str:
    x0, y0 = source.x + source.width / 2, _top(source) + HEIGHT
    x1, y1 = target.x + target.width / 2, _top(target)
    bend = (y1 - y0) / 2
    return (
        f'<path d="M{x0:.1f},{y0:.1f} C{x0:.1f},{y0 + bend:.1f} {x1:.1f},{y1 - bend:.1f} '
        f'{x1:.1f},{y1:.1f}"/>'
    )


def _draw(box: Box) -> str:
    outline, inside = COLORS[box.family]
    x, y = box.x, _top(box)
    radius = HEIGHT / 2 if box.title in ("input", "output") and box.family == "data" else 4
    return (
        f"<g><title>{html.escape(f'{box.title} {box.label}')}</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{HEIGHT}" rx="{radius}" '
        f'fill="{inside}" stroke="{outline}"/>'
        f'<text x="{x + 10:.1f}" y="{y + 15:.1f}" font-size="12" font-weight="600" '
        f'fill="#1b1f24">{html.escape(box.title)}</text>'
        f'<text x="{x + 10:.1f}" y="{y + 29:.1f}" font-size="10.5" font-family="monospace" '
        f'fill="#57606a">{html.escape(box.label)}</text></g>'
    )
