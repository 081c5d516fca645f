"""Attention, as an algorithm: its sizes, and formulas for the elements of its operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape
from monograph.ir.types import DType, bool_
from monograph.kernel import expr as e
from monograph.kernel.expr import Expr
from monograph.kernel.kernel import Store
from monograph.kernel.mathlib.exponential import LOG2_E

Position: TypeAlias = tuple[Expr, ...]


Formula: TypeAlias = Callable[[Position], Expr]


@dataclass(frozen=True)
class StreamedAttention:
    """An attention: its sizes, and formulas for the elements of its operands.

    A formula takes a position along ``(*batch, heads, sequence, depth)``, with key heads in the
    place of heads for ``key`` and ``value``, and keys in the place of depth for ``mask``.
    ``store`` says where an element of the result goes, in flat buffers.
    """

    name: str
    dtype: DType
    """In which it is computed."""
    batch: Shape
    heads: Dim
    shared: Dim
    """How many heads keys and values have."""
    queries: Dim
    keys: Dim
    depth: int
    value_depth: int
    scale: float
    causal: bool
    query: Formula
    key: Formula
    value: Formula
    mask: Formula | None
    store: Callable[[Position, Expr], Sequence[Store]]
    fill: float = -math.inf
    """The score of a key that a mask of bools hides."""
    gives_nan: bool = False
    """Whether a query whose scores are all -inf gives NaN; zeros otherwise."""

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """Equal for attentions that have equal loops: sizes, and each formula at any position."""
        query = (*self.batch, self.heads, self.queries)
        shared = (*self.batch, self.shared, self.keys)
        stored = self.store(anywhere((*query, self.value_depth)), e.variable("v", self.dtype))
        sizes = (*query, *shared, self.depth, self.value_depth, self.scale, self.causal)
        blind = (self.fill, self.gives_nan)
        return (
            self.name,
            self.dtype,
            len(self.batch),
            sizes,
            blind,
            self.query(anywhere((*query, self.depth))),
            self.key(anywhere((*shared, self.depth))),
            self.value(anywhere((*shared, self.value_depth))),
            None if self.mask is None else self.mask(anywhere((*query, self.keys))),
            tuple(stored),
        )

    @property
    def only_hides(self) -> bool:
        """Whether there is a mask that hides scores and leaves the others as they are."""
        return self.mask is not None and self.mask(self._any_score).dtype is bool_

    @property
    def leaves_out_hidden(self) -> bool:
        """Whether keys that a mask hides from a query are as if they were not there."""
        return self.only_hides and self.fill == -math.inf

    @cached_property
    def unit(self) -> float:
        """What scores are multiplied with until exponentials are taken of them.

        Powers of two are cheapest, so log2(e); but a mask that is added may hold the most negative
        number of all, which stays finite only as it is.
        """
        return LOG2_E if self.mask is None or self.only_hides else 1.0

    @property
    def hidden(self) -> float:
        """A score in the place of one that a mask of bools hides: finite, if ``fill`` is."""
        if self.fill == -math.inf:
            return self.fill
        return max(self.fill * self.unit, float(np.finfo(self.dtype.numpy).min))

    @property
    def masks_each_query(self) -> bool:
        """Whether a mask has a row for each query, not one for all of them."""
        place = self._any_score
        return self.mask is not None and not self.mask(place).symbols.isdisjoint(place[-2].symbols)

    @cached_property
    def _any_score(self) -> Position:
        return anywhere((*self.batch, self.heads, self.queries, self.keys))


def anywhere(shape: Shape) -> Position:
    """A position in a value, in loop variables of its own."""
    return tuple(e.index(e.axis(f"_a{k}", dim).symbol) for k, dim in enumerate(shape))
