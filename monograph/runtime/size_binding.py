"""Finds the sizes of a program's symbols from the shapes of its inputs, without a word of error.

``ir.interpret.bind_inputs`` solves equations and says what does not fit. Nearly every program has
each of its symbols as a dimension of some input, so that a call with new sizes has to look there,
and to compare the other dimensions with what they are then. Whatever is not so is left to those who
explain it.
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph.ir.dims import Dim, Shape, Symbol
from monograph.ir.dims.size_table import SizeTable


class SizeBinder:
    """The sizes of ``symbols``, in order, of shapes like these."""

    def __init__(self, shapes: Sequence[Shape], symbols: Sequence[Symbol]) -> None:
        places: dict[Symbol, tuple[int, int]] = {}
        compared: list[tuple[int, int]] = []
        dims: list[Dim] = []
        for number, shape in enumerate(shapes):
            for axis, dim in enumerate(shape):
                if isinstance(dim, Symbol) and dim not in places:
                    places[dim] = number, axis
                else:
                    compared.append((number, axis))
                    dims.append(dim)
        inside = {s for dim in dims if not isinstance(dim, int) for s in dim.symbols()}
        self.is_possible = places.keys() >= inside | set(symbols)
        """Whether each symbol is a dimension by itself somewhere."""
        self._ranks = [len(shape) for shape in shapes]
        order = [*symbols, *(symbol for symbol in places if symbol not in symbols)]
        self._count = len(symbols)
        self._places = [
            (*places[symbol], symbol.lower, symbol.upper) for symbol in order if symbol in places
        ]
        self._compared = compared
        self._table = SizeTable(dims if self.is_possible else [], order)

    def sizes(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
        """The sizes; None if a shape does not fit, or if more than looking is needed."""
        if not self.is_possible or [len(shape) for shape in shapes] != self._ranks:
            return None
        found = []
        for number, axis, lower, upper in self._places:
            size = shapes[number][axis]
            if size < lower or (upper is not None and size > upper):
                return None
            found.append(size)
        expected = self._table.values(found)
        if [shapes[number][axis] for number, axis in self._compared] != expected:
            return None
        return tuple(found[: self._count])
