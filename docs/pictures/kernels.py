"""Fusion, schedules and tiles: chapters 6 to 8."""

from __future__ import annotations

from typing import Any

from docs.pictures.canvas import Canvas
from docs.pictures.layers import HEIGHT, draw_box, draw_edges, layered, place_boxes
from docs.pictures.models import program
from monograph.ir.graph import Node
from monograph.ir.op import Trait
from monograph.targets.cpu.nests.text import nest_text

LINE = 17


def fusion() -> str:
    """The groups of the lowered graph, with the reasons for their bounds."""
    groups = program().fusions[0].groups
    owner = {node: number for number, group in enumerate(groups) for node in group.nodes}
    order = sorted(owner, key=lambda node: owner[node])  # stable: groups run in this order
    rows = layered(order[0].graph, order)
    canvas = Canvas("Which nodes of digits share a kernel", 780, 58 * len(rows) + 4 * 14 + 16)
    boxes = place_boxes(rows, left=110, width=170, top=24, gap=20)
    for node, box in boxes.items():
        box.y += 14 * owner[node]
        if _is_read_beside(node):
            box.x -= 88
    for number, group in enumerate(groups):
        inside = [boxes[node] for node in group.nodes]
        top, bottom = min(b.y for b in inside) - 8, max(b.y for b in inside) + HEIGHT + 8
        canvas.box(12, top, 286, bottom - top, dashed=True, radius=8)
        canvas.text(312, top + 14, f"{number}  {group.name}", bold=True)
        reasons = [f"+ {each}" for each in group.joined] + [f"− {each}" for each in group.apart]
        for index, reason in enumerate(dict.fromkeys(reasons)):
            kind = "text-green" if reason.startswith("+") else "text-orange"
            canvas.text(312, top + 32 + index * 15, reason, size=11, kind=kind)
    draw_edges(canvas, boxes)
    for box in boxes.values():
        draw_box(canvas, box)
    return canvas.svg()


def _is_read_beside(node: Node) -> bool:
    """Whether it reduces a row that the node after it reads as well."""
    return node.op.has(Trait.REDUCTION) and not node.op.has(Trait.WINDOW)


def schedules() -> str:
    """The loops of the softmax kernel, each around what it repeats."""
    lines = nest_text(program().kernels[-1].nest).splitlines()
    canvas = Canvas("The loop nest of the softmax of digits", 640, 0)
    y = 14 + LINE
    canvas.text(20, y, lines[0].rstrip(":"), mono=True, size=11, kind="faint")
    y, _ = _nested(canvas, lines, 1, y + 10)
    canvas.height = int(y) + 12
    return canvas.svg()


HUES = {"parallel": "violet", "vector": "blue", "for": "green"}


def _nested(canvas: Canvas, lines: list[str], first: int, y: float) -> tuple[float, int]:
    """Draw lines of one depth from ``first`` on, loops as boxes; returns the end and next line."""
    depth = _depth(lines[first])
    at = first
    while at < len(lines) and _depth(lines[at]) == depth:
        line = lines[at].strip()
        x, at = 20 + (depth - 1) * 20, at + 1
        if not line.endswith(":"):
            canvas.text(x + 4, y + LINE - 4, line, mono=True, size=12)
            y += LINE
            continue
        place = len(canvas.parts)
        end, at = _nested(canvas, lines, at, y + LINE + 10)
        inside, canvas.parts[place:] = canvas.parts[place:], []
        hue = HUES[line.split()[0]]
        canvas.box(
            x, y + 2, canvas.width - 20 - 2 * (depth - 1) * 10 - x, end - y + 4, hue, radius=6
        )
        canvas.text(x + 10, y + LINE + 2, line.rstrip(":"), mono=True, size=12, bold=True)
        canvas.parts += inside
        y = end + 12
    return y, at


def _depth(line: str) -> int:
    return (len(line) - len(line.lstrip())) // 2


def products() -> str:
    """The register tiles of the linear layer and of the convolution."""
    canvas = Canvas("Tiles of the linear layer and of the convolution", 750, 560)
    planned = {each.group: each for each in program().planned}
    _linear(canvas, planned["dot_general_add"].plan.choice)
    _conv(canvas, planned["conv_relu"].plan.choice)
    return canvas.svg()


def _linear(canvas: Canvas, tiling: Any) -> None:
    """The images' features times the weights: blocks of k, and tiles of rows and columns."""
    rows, k, columns, scale = 16, 1568, 10, 11
    blocks = -(-k // tiling.depth)
    left, top, right = 24.0, 168.0, 500.0
    end = right + tiling.columns * scale
    canvas.text(20, 26, "linear: [16, 1568] × [1568, 10]", bold=True)
    canvas.note(left, top - 24, "the features of 16 images,")
    canvas.note(left, top - 9, f"in {blocks} blocks of {k // blocks} along k")
    canvas.note(right - 10, 60, "the weights, packed into a panel", "end")
    canvas.note(right - 10, 75, f"of {tiling.columns} columns, {columns} of them used", "end")
    width, height = 434 / blocks, 110 / blocks
    for block in range(blocks):
        hue = "plain" if block else "yellow"
        canvas.box(left + block * width, top, width, rows * scale, hue, radius=0)
        canvas.box(right, 40 + block * height, end - right, height, hue, radius=0)
    y = top
    tiles = [segment.rows for segment in tiling.rows for _ in range(segment.count)]
    for number, high in enumerate(tiles):
        hue = "plain" if number else "blue"
        canvas.box(right, y, end - right, high * scale, hue, radius=0)
        canvas.note(end + 10, y + high * scale / 2 + 4, f"{high} rows")
        y += high * scale
    canvas.line((right + columns * scale, top), (right + columns * scale, y), dashed=True)
    registers = tiling.height * (tiling.columns // 8)
    sums = f"{tiling.height} × {tiling.columns} sums in {registers} vector registers"
    canvas.note(end, y + 20, f"blue: one register tile, {sums}", "end")


def _conv(canvas: Canvas, tiling: Any) -> None:
    """Neighbouring windows of the image times the kernel of each channel."""
    tile, top, scale, left, right = tiling.height, 420.0, 15, 24.0, 500.0
    title = "conv: a pixel is a row, its 3 × 3 window the k, a channel a column"
    canvas.text(20, 392, title, bold=True)
    for row in range(5):
        for column in range(20):
            hue = "yellow" if row < 3 and column < tile + 2 else "plain"
            x, y = left + column * scale, top + row * scale
            canvas.box(x, y, scale, scale, hue, radius=0)
    canvas.note(left, top + 5 * scale + 18, f"the pixels that {tile} neighbouring windows read")
    canvas.line((left + 20 * scale + 14, top + 38), (right - 14, top + 38), arrow=True)
    end = right + tiling.columns * 11
    for row in range(tile):
        canvas.box(right, top - 20 + row * 11, end - right, 11, "blue", radius=0)
    canvas.note(end + 10, top + 30, f"{tile} rows ×")
    canvas.note(end + 10, top + 46, f"{tiling.columns} channels")
