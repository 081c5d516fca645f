"""What rule tests share: operands at the edges of each dtype, and comparison bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from monograph.frontends.trace import trace
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import DTYPES, Array, Kind

EDGES = 16


def operand(dtype: str, turn: int) -> Array:
    """Sixteen elements of a dtype, its special values among them, rotated by ``turn``."""
    kind = DTYPES[dtype].kind
    numpy = DTYPES[dtype].numpy
    if kind is Kind.BOOL:
        values = np.arange(EDGES) % 3 == 0
    elif kind is Kind.FLOAT:
        facts = ml_dtypes.finfo(numpy)
        tiny, most = float(facts.smallest_subnormal), float(facts.max)
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, most, -most]
        special += [float(facts.tiny), 1.0, -1.0, 1.5, -2.5, 0.3, -7.0]
        values = np.array(special)
    else:
        facts = ml_dtypes.iinfo(numpy)
        low, high = int(facts.min), int(facts.max)
        values = np.array([low, low + 1, high, high - 1, 0, 1, 2, 3] * 2, dtype=object)
    with np.errstate(all="ignore"):
        return np.roll(values, 5 * turn).astype(numpy)


def same(before: Array, after: Array) -> bool:
    """Equal bit for bit, but that any NaN equals any other."""
    if before.dtype != after.dtype or before.shape != after.shape:
        return False
    if before.dtype.kind in "biu" or before.dtype.name.startswith(("int", "uint")):
        return bool((before == after).all())
    left, right = before.astype(np.float64), after.astype(np.float64)
    equal = (left == right) & (np.signbit(left) == np.signbit(right))
    return bool((equal | (np.isnan(left) & np.isnan(right))).all())


@dataclass(frozen=True)
class Case:
    """A program in which a rule must fire; ``shapes`` are those of its operands."""

    function: Callable[..., Any]
    dtypes: tuple[str, ...] = ("f32",)
    shapes: tuple[tuple[int, ...], ...] = ((EDGES,),)

    def graph(self, dtype: str) -> Graph:
        """The program, traced on operands of one dtype."""
        types = [f"{dtype}[{', '.join(map(str, shape))}]" for shape in self.shapes]
        return trace(self.function, *types)

    def operands(self, dtype: str) -> list[Array]:
        """Operands full of special values."""
        return [np.resize(operand(dtype, turn), shape) for turn, shape in enumerate(self.shapes)]


def outputs(graph: Graph, operands: list[Array]) -> list[Array]:
    """What the graph computes of the operands it has inputs for."""
    return [np.asarray(output) for output in interpret(graph, operands)]
