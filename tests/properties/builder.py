"""What recipes share: a graph under construction, and ways to pick operands that fit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from monograph.ir.dims import Shape, Symbol, evaluate_dim, shape_product
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import Array, DType, Kind, bool_, dtype_of

LABELS = count()
"""Numbers for the names of weights; none is used twice."""
FLOATS = tuple(map(dtype_of, ("f32", "f64", "f16", "bf16")))
INTEGERS = tuple(map(dtype_of, ("i32", "i64", "u8", "i8")))
LARGEST = 2000
"""No tensor has more elements than this, whatever sizes its symbols take."""

NUMBERS = (0, 1, -1, 2, 3, -2)
REALS = (0.0, 1.0, -1.0, 2.0, 0.5, -0.0, 3.0, 1.5, -0.25, 0.1)
ODD_REALS = (np.nan, np.inf, -np.inf, 1e-40, -3e38, 1e-8)


class Unfit(Exception):
    """No operand fits: the recipe is left out."""


@dataclass
class Builder:
    """A graph, the values that operands are picked from, and a source of choices.

    ``smooth`` keeps to what finite differences can follow: f64, no special constants.
    """

    graph: Graph
    values: list[Value]
    random: random.Random
    smooth: bool = False
    depth: int = 0
    symbols: Sequence[Symbol] = field(default_factory=tuple)

    # Choices.

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def choose(self, options: Iterable[Any]) -> Any:
        listed = list(options)
        if not listed:
            raise Unfit
        return self.random.choice(listed)

    def pick(self, fits: Callable[[Value], bool] = lambda value: True) -> Value:
        """A value that fits, rather a late one than an early one."""
        fitting = [value for value in self.values if fits(value)]
        if not fitting:
            raise Unfit
        return fitting[max(self.random.randrange(len(fitting)) for _ in range(2))]

    def float(self, rank: int = 0) -> Value:
        """A float value of at least this rank."""
        return self.pick(lambda value: value.dtype in FLOATS and value.rank >= rank)

    def integer(self) -> Value:
        return self.pick(lambda value: value.dtype.is_integer)

    def number(self) -> Value:
        return self.pick(lambda value: value.dtype is not bool_)

    def boolean(self) -> Value:
        """Truth values, made by a comparison if there are none yet."""
        return self._boolean(self.values)

    def mask(self, a: Value) -> Value:
        """Truth values that broadcast with ``a``."""
        return self._boolean([b for b in self.values if broadcasts(a.shape, b.shape)])

    def _boolean(self, values: Sequence[Value]) -> Value:
        found = [value for value in values if value.dtype is bool_]
        if found and self.chance(0.8):
            return self.choose(found)
        a = self.choose(value for value in values if value.dtype is not bool_)
        return self.graph.add("less", a, self.constant(a.dtype))

    def partner(self, a: Value) -> Value:
        """A value of ``a``'s dtype whose shape broadcasts with it, or a constant."""
        fitting = [b for b in self.values if b.dtype is a.dtype and broadcasts(a.shape, b.shape)]
        if not fitting or self.chance(0.3):
            return self.constant(a.dtype, self.shape_for(a))
        return self.choose(fitting)

    def shape_for(self, a: Value) -> tuple[int, ...]:
        """A shape of known sizes that broadcasts with ``a``."""
        if self.chance(0.5):
            return ()
        known = [dim if isinstance(dim, int) and self.chance(0.8) else 1 for dim in a.shape]
        return tuple(known[self.random.randrange(len(known) + 1) :])

    def axis(self, value: Value) -> int:
        if value.rank == 0:
            raise Unfit
        return self.random.randrange(value.rank)

    def axes(self, value: Value) -> tuple[int, ...]:
        count = self.random.randint(0, value.rank)
        return tuple(sorted(self.random.sample(range(value.rank), count)))

    # Constants.

    def scalar(self, dtype: DType) -> Any:
        """An element that tells rules apart: 0, 1, -0.0, NaN, the ends of the range…"""
        if dtype is bool_:
            return self.chance(0.5)
        if dtype.is_integer:
            info = np.iinfo(dtype.numpy)
            ends = (int(info.min), int(info.max))
            number = self.choose((*NUMBERS, *ends))
            return max(number, 0) if dtype.kind is Kind.UNSIGNED else number
        if self.smooth or self.chance(0.8):
            return self.choose(REALS)
        return self.choose(ODD_REALS)

    def constant(self, dtype: DType, shape: tuple[int, ...] = ()) -> Value:
        """A constant: one element repeated, or several."""
        with np.errstate(all="ignore"):
            if self.chance(0.6):
                array = np.full(shape, self.scalar(dtype)).astype(dtype.numpy)
            else:
                size = int(np.prod(shape))
                array = np.array([self.scalar(dtype) for _ in range(size)])
                array = array.astype(dtype.numpy).reshape(shape)
        if array.size > 1 and dtype in FLOATS and self.chance(0.2):
            return self.weight(array)
        return self.graph.add_constant(array)

    def weight(self, array: Array) -> Value:
        """A weight whose name no other has, here or in a region."""
        return self.graph.add_weight(f"layer.{next(LABELS)}", array)

    # Growing.

    def grown(self, value: Any) -> list[Value]:
        """Values that a recipe made and that others may use: none that is too large."""
        made = [value] if isinstance(value, Value) else list(value)
        return [each for each in made if self.size(each.shape) <= LARGEST and each.rank <= 5]

    def size(self, shape: Shape) -> int:
        """How many elements a tensor can have when its symbols are large."""
        total = shape_product(shape)
        if isinstance(total, int):
            return total
        return evaluate_dim(total, dict.fromkeys(total.symbols(), 7))


def broadcasts(a: Shape, b: Shape) -> bool:
    """Whether two shapes surely broadcast: aligned at the right, equal or 1."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(x == y or x == 1 or y == 1 for x, y in pairs)


def last_node(graph: Graph) -> Node | None:
    return next(reversed(graph.nodes), None)


def drop_oversized(builder: Builder, before: Node | None) -> None:
    """Erase what a recipe added if some of it is too large to be worth evaluating."""
    added = []
    node = last_node(builder.graph)
    while node is not before and node is not None:
        added.append(node)
        node = node.previous
    results = [value for each in added for value in each.results]
    if all(builder.size(value.shape) <= 4 * LARGEST for value in results):
        return
    for each in added:
        builder.graph.erase(each)
    raise Unfit
