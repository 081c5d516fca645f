"""Graphs in layers: each node below all that it reads, and weights beside their reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from docs.pictures.canvas import Canvas
from monograph.ir.graph import Graph, Node, Value
from monograph.report.families import family_of

HEIGHT = 38
HUES = {
    "contraction": "blue",
    "reduction": "orange",
    "pointwise": "green",
    "shape": "pink",
    "control": "yellow",
}
"""The colour of each family of ops."""


@dataclass
class Box:
    """A node, an input or an output, and where it is drawn."""

    title: str
    label: str
    hue: str
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0

    @property
    def top(self) -> tuple[float, float]:
        """Where arrows arrive."""
        return self.x + self.width / 2, self.y

    @property
    def bottom(self) -> tuple[float, float]:
        """Where arrows leave."""
        return self.x + self.width / 2, self.y + HEIGHT


def hue_of(node: Node) -> str:
    """The colour of a node's family."""
    return HUES.get(family_of(node.op), "plain")


def is_data(node: Node) -> bool:
    """Whether a node brings a tensor in: a weight or a constant."""
    return family_of(node.op) == "data"


def layered(graph: Graph, nodes: Iterable[Node] | None = None) -> list[list[Node]]:
    """The nodes that compute, by the longest way from an input."""
    layers: dict[Node, int] = {}
    for node in graph.nodes if nodes is None else nodes:
        if not is_data(node):
            before = [layers.get(each.producer, -1) for each in node.operands if each.producer]
            layers[node] = 1 + max(before, default=-1)
    rows: list[list[Node]] = [[] for _ in range(1 + max(layers.values(), default=-1))]
    for node, layer in layers.items():
        rows[layer].append(node)
    return rows


def place_boxes(
    rows: list[list[Node]], *, left: float, width: float, top: float, gap: float = 24
) -> dict[Node, Box]:
    """A box for each node: layers below each other, each centred between left and left + width."""
    boxes: dict[Node, Box] = {}
    for layer, row in enumerate(rows):
        made = [_box(node) for node in row]
        total = sum(box.width for box in made) + 16 * (len(made) - 1)
        x = left + (width - total) / 2
        for node, box in zip(row, made, strict=True):
            box.x, box.y = x, top + layer * (HEIGHT + gap)
            x += box.width + 16
            boxes[node] = box
    return boxes


def _box(node: Node) -> Box:
    label = ", ".join(str(value.type) for value in node.results)
    width = max(96.0, 7.6 * len(node.op.name) + 24, 6.7 * len(label) + 24)
    return Box(node.op.name, label, hue_of(node), width=width)


def draw_box(canvas: Canvas, box: Box, *, rounded: bool = False) -> None:
    """A box with a name and, below it, a type."""
    radius = HEIGHT / 2 if rounded else 4
    canvas.box(box.x, box.y, box.width, HEIGHT, box.hue, radius=radius)
    middle = box.x + box.width / 2
    canvas.text(middle, box.y + 16, box.title, anchor="middle", bold=True)
    canvas.text(middle, box.y + 31, box.label, anchor="middle", kind="faint", size=11, mono=True)


def draw_edges(
    canvas: Canvas,
    boxes: Mapping[Node, Box],
    *,
    hue: Callable[[Value, Node], str] = lambda value, node: "",
) -> None:
    """An arrow from each node to each of its readers that is drawn."""
    for node, box in boxes.items():
        for value in dict.fromkeys(node.operands):
            if value.producer in boxes:
                source = boxes[value.producer]
                canvas.curve(source.bottom, box.top, hue=hue(value, node))
