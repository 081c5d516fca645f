"""What tests of recognition share: operands in every order, comparison within rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import monograph.functional as F
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import interpret
from monograph.ir.types import Array
from monograph.passes.canonicalize import Canonicalize
from monograph.passes.recognize import Recognize
from monograph.passes.simplify import Simplify


class Orders:
    """Sums and products whose operands swap as the bits say; counts how many there are."""

    def __init__(self, bits: int = 0) -> None:
        self.bits = bits
        self.count = 0

    def _swap(self) -> bool:
        self.count += 1
        return bool(self.bits >> (self.count - 1) & 1)

    def add(self, a: Any, b: Any) -> Value:
        return F.add(b, a) if self._swap() else F.add(a, b)

    def mul(self, *items: Any) -> Value:
        total = items[0]
        for item in items[1:]:
            total = F.multiply(item, total) if self._swap() else F.multiply(total, item)
        return total

    def maximum(self, a: Any, b: Any) -> Value:
        return F.maximum(b, a) if self._swap() else F.maximum(a, b)


Program = Callable[..., Any]


def every_order(program: Program, *types: str) -> Iterator[Graph]:
    """The program with the operands of its commutative ops in every order."""
    first = Orders()
    yield trace(lambda *values: program(first, *values), *types)
    for bits in range(1, 2**first.count):
        yield trace(lambda *values, bits=bits: program(Orders(bits), *values), *types)


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.op.name not in ("constant", "full")]


def draw(graph: Graph, sizes: dict[str, int] | None = None) -> list[Array]:
    generator = np.random.default_rng(0)
    arrays = []
    for value in graph.inputs:
        shape = [dim if isinstance(dim, int) else (sizes or {})[str(dim)] for dim in value.shape]
        array = generator.normal(size=shape)
        numpy = value.dtype.numpy
        arrays.append(array > 0 if numpy == np.bool_ else array.astype(numpy))
    return arrays


def assert_near(before: list[Array], after: list[Array], tolerance: float = 2e-6) -> None:
    for left, right in zip(before, after, strict=True):
        assert left.dtype == right.dtype and left.shape == right.shape
        wide, other = left.astype(np.float64), right.astype(np.float64)
        scale = max(float(np.abs(wide).max(initial=0.0)), 1.0)
        np.testing.assert_allclose(other, wide, rtol=tolerance, atol=tolerance * scale)


def check(graph: Graph, expected: list[str], tolerance: float = 2e-6, **sizes: int) -> Graph:
    """Recognise, see what is left, compare; then again from the canonical, simplified graph."""
    inputs = draw(graph, sizes)
    before = interpret(graph, inputs)
    other = graph.clone()
    result = Recognize().run(graph)
    assert names(graph) == expected, f"{result.counters}\n{graph}"
    assert_near(before, interpret(graph, inputs), tolerance)
    assert not Recognize().run(graph).changed
    Canonicalize().run(other)
    Simplify().run(other)
    Recognize().run(other)
    Simplify().run(other)
    assert set(expected) <= set(names(other)), str(other)
    assert len(names(other)) <= len(expected) + 1, str(other)
    assert_near(before, interpret(other, inputs), tolerance)
    return graph
