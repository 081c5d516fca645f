"""Facts, counts and figures: chapters 3, 4, 12 and 14."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import monograph
from docs.pictures.canvas import Canvas
from docs.pictures.models import executable, program, traced
from monograph.inspect.flops import flops
from monograph.inspect.roofline import MemoryLevel, Roofline
from monograph.inspect.traffic import bytes_moved_by_group
from monograph.ir.graph import Graph
from monograph.ir.op import Op
from monograph.passes.base import Pass
from monograph.passes.instruments import Instrument

FACETS = ("infer", "evaluate", "samples", "vjp", "decompose", "lower")
"""The methods of an op's class that a picture shows."""


def ops() -> str:
    """The ops of digits, whole and lowered, and what the block of each says."""
    nodes = [*traced().nodes, *executable().lowered.nodes]
    kinds = list(dict.fromkeys(type(node.op) for node in nodes if node.operands))
    canvas = Canvas("What the ops of digits say of themselves", 700, 56 + 26 * len(kinds) + 16)
    for column, facet in enumerate(FACETS):
        canvas.text(232 + 82 * column, 36, facet, anchor="middle", mono=True, bold=True)
    for row, kind in enumerate(kinds):
        y = 48 + 26 * row
        canvas.code(20, y + 15, kind.name)
        for column, facet in enumerate(FACETS):
            says = _has(kind, facet)
            canvas.box(195 + 82 * column, y, 74, 20, "green" if says else "plain")
            if says:
                canvas.text(232 + 82 * column, y + 15, "✓", anchor="middle", size=12)
    return canvas.svg()


def _has(kind: type[Op], facet: str) -> bool:
    """Whether a class, or a family's base, has its own method of this name."""
    own, base = getattr(kind, facet), getattr(Op, facet)
    return getattr(own, "__func__", own) is not getattr(base, "__func__", base)


def passes() -> str:
    """How many nodes the graph of digits has after each pass of O2."""
    graph = traced()
    _, report = monograph.optimize_with_report(graph)
    most = max(step.nodes_after for step in report.steps)
    canvas = Canvas("The passes of O2 on digits", 660, 44 + 20 * (len(report.steps) + 1))
    canvas.text(20, 26, "nodes after each pass of O2", bold=True)
    counts = [("as traced", len(graph), True)]
    counts += [(step.name, step.nodes_after, step.changed) for step in report.steps]
    for row, (name, count, changed) in enumerate(counts):
        y = 38 + 20 * row
        canvas.text(196, y + 13, name, size=12, anchor="end", kind="ink" if changed else "faint")
        canvas.box(206, y, 380 * count / most, 15, "blue" if changed else "plain", radius=2)
        canvas.note(216 + 380 * count / most, y + 12, str(count))
    return canvas.svg()


class _Results(Instrument):
    """What the graph computes after each pass that changed it."""

    def __init__(self, inputs: list[Any]) -> None:
        self.inputs = inputs
        self.seen: list[tuple[str, Any]] = []

    def start(self, graph: Graph) -> None:
        self.seen.append(("as traced", monograph.interpret(graph, self.inputs)[0]))

    def after(self, each: Pass, graph: Graph, seconds: float, changed: bool) -> None:
        if changed:
            self.seen.append((each.name, monograph.interpret(graph, self.inputs)[0]))


def accuracy() -> str:
    """Which passes of O2 leave the bits of the answer, and which round in another way."""
    images = np.random.default_rng(0).normal(size=(2, 1, 28, 28)).astype(np.float32)
    results = _Results([images])
    monograph.optimize_with_report(traced(), instruments=[results])
    canvas = Canvas("What each pass does to the answer of digits", 640, 44 + 34 * len(results.seen))
    canvas.text(20, 26, "the answer after each pass that changed the graph", bold=True)
    for row, (name, answer) in enumerate(results.seen):
        y = 40 + 34 * row
        canvas.code(20, y + 17, name)
        before = results.seen[row - 1][1] if row else answer
        same = np.array_equal(before, answer)
        said = "the same bits" if same else "rounded in another way"
        canvas.box(180, y, 440, 26, "green" if same else "yellow")
        canvas.text(194, y + 17, said if row else "the reference", size=12)
    return canvas.svg()


NOMINAL = Roofline("nominal", 2, 200e9, (MemoryLevel("memory", None, 25e9),))
"""Of two cores, roughly; ``monograph doctor`` measures those of a machine."""


def roofline() -> str:
    """The two roofs, and where the kernels of digits stand below them."""
    canvas = Canvas("The kernels of digits under a roofline", 700, 420)
    left, right, top, bottom = 70.0, 640.0, 40.0, 350.0
    low, high = -2.0, 3.0  # powers of ten of FLOP a byte
    floor, ceiling = 8.0, 12.0  # powers of ten of FLOP a second

    def at(intensity: float, speed: float) -> tuple[float, float]:
        x = left + (math.log10(intensity) - low) / (high - low) * (right - left)
        y = bottom - (math.log10(speed) - floor) / (ceiling - floor) * (bottom - top)
        return x, y

    bandwidth = NOMINAL.levels[0].bandwidth
    ridge = NOMINAL.flops / bandwidth
    canvas.line((left, top), (left, bottom), (right, bottom))
    for power in range(int(low), int(high) + 1):
        x, _ = at(10.0**power, 10.0**floor)
        canvas.line((x, bottom), (x, bottom + 5))
        canvas.note(x, bottom + 20, f"{10.0**power:g}", "middle")
    for power in range(int(floor), int(ceiling) + 1):
        _, y = at(1.0, 10.0**power)
        canvas.line((left - 5, y), (left, y))
        canvas.note(left - 10, y + 4, f"{10.0 ** (power - 9):g}", "end")
    canvas.note((left + right) / 2, bottom + 44, "FLOP for each byte from memory", "middle")
    canvas.note(20, 26, "GFLOP/s")
    roof = [at(10.0**low, bandwidth * 10.0**low), at(ridge, NOMINAL.flops)]
    canvas.line(*roof, at(10.0**high, NOMINAL.flops), hue="violet", wide=2.4)
    x, y = at(ridge, NOMINAL.flops)
    canvas.text(x + 60, y - 10, f"arithmetic: {NOMINAL.flops / 1e9:.0f} GFLOP/s", size=12)
    x, y = at(0.04, bandwidth * 0.04)
    canvas.text(x + 14, y + 14, f"memory: {bandwidth / 1e9:.0f} GB/s", size=12)
    points = []
    for group in program().fusions[0].groups:
        intensity = flops(group.nodes, {}) / sum(bytes_moved_by_group(group, {}))
        points.append((intensity, group.name))
    for number, (intensity, name) in enumerate(sorted(points)):
        x, y = at(intensity, min(NOMINAL.flops, bandwidth * intensity))
        canvas.box(x - 5, y - 5, 10, 10, "orange", radius=5)
        if number % 2:
            canvas.text(x + 12, y + 16, name, size=12)
        else:
            canvas.text(x - 12, y - 8, name, size=12, anchor="end")
    return canvas.svg()
