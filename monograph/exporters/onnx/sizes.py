"""Symbolic sizes at run time: the nodes that compute ``2*seq+1`` from input shapes.

A size that some tensor has as a dimension is read off it with ``Shape``. Others are worked out from
their symbols; a symbol that appears only inside an expression (an input of ``f32[2*n]``) is solved
for. In a local function, a symbol that no operand tells becomes one more input of the function.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from monograph.exporters.onnx.scope import Term
from monograph.ir.dims import (
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Opaque,
    Operation,
    Shape,
    Symbol,
    SymbolicDim,
)
from monograph.ir.types import i64

if TYPE_CHECKING:
    from monograph.exporters.onnx.emitter import Emitter


class UnknownSizeError(Exception):
    """A symbol whose value nothing in the model tells."""

    def __init__(self, symbol: Symbol) -> None:
        super().__init__(f"no input's shape tells the size {symbol}")
        self.symbol = symbol


class SizeWriter:
    """Writes the nodes that work sizes out, as vectors of one ``i64``."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.table = emitter.scope.sizes

    def vector(self, dim: Dim) -> Term:
        """A dimension as ``i64[1]``."""
        if isinstance(dim, int):
            return self.emitter.integers([dim])
        found = self.table.known(dim)
        if found is not None:
            return found
        made = self._work_out(dim, frozenset())
        if made is None:
            raise UnknownSizeError(dim.symbols()[0])
        self.table.worked_out[dim] = made
        return made

    def shape(self, shape: Shape) -> Term:
        """Dimensions as one vector: whole runs of constants, and of a tensor's shape, at once."""
        if all(isinstance(dim, int) for dim in shape):
            return self.emitter.integers([dim for dim in shape if isinstance(dim, int)])
        whole = self.table.tensor_of(shape)
        if whole is not None:
            return self._shape_of(whole, 0, len(shape), whole=True)
        parts: list[Term] = []
        position = 0
        while position < len(shape):
            part, position = self._run(shape, position)
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        return self.emitter.write("Concat", parts, [i64], {"axis": 0})[0]

    def _run(self, shape: Shape, start: int) -> tuple[Term, int]:
        """The dimensions from ``start`` on that one node gives, and where they end."""
        end = start
        while end < len(shape) and isinstance(shape[end], int):
            end += 1
        if end > start:
            known = [dim for dim in shape[start:end] if isinstance(dim, int)]
            return self.emitter.integers(known), end
        teller = self.table.teller(shape[start])
        if self.table.known(shape[start]) is not None or teller is None:
            return self.vector(shape[start]), start + 1
        name, axis = teller
        end = start + 1
        while end < len(shape) and self.table.teller(shape[end]) == (name, axis + end - start):
            end += 1
        if end == start + 1:
            return self.vector(shape[start]), end
        return self._shape_of(name, axis, axis + end - start), end

    def _shape_of(self, name: str, start: int, end: int, *, whole: bool = False) -> Term:
        attributes = {} if whole else {"start": start, "end": end}
        return self.emitter.write("Shape", [Term(name, None)], [i64], attributes)[0]

    def _work_out(self, dim: SymbolicDim, solving: frozenset[Symbol]) -> Term | None:
        """``i64[1]`` that holds a dimension; None if that takes a symbol being solved for."""
        found = self.table.known(dim)
        if found is not None:
            return found
        teller = self.table.teller(dim)
        if teller is not None:
            name, axis = teller
            return self._shape_of(name, axis, axis + 1)
        if isinstance(dim, Symbol):
            return self._symbol(dim, solving)
        if isinstance(dim, Operation):
            made = self._operation(dim, solving)
            if made is not None and not solving:
                self.table.worked_out[dim] = made
            return made
        return self._polynomial(dim, solving)

    def _symbol(self, symbol: Symbol, solving: frozenset[Symbol]) -> Term | None:
        if symbol in solving:
            return None
        for dim, (name, axis) in list(self.table.tellers()):
            if symbol in dim.symbols():
                solved = self._solve(dim, symbol, name, axis, solving | {symbol})
                if solved is not None:
                    self.table.worked_out[symbol] = solved
                    return solved
        root = self.emitter.scope.root
        if root.is_function:
            term = Term(root.names.fresh(f"size.{symbol}"), i64)
            root.sizes.worked_out[symbol] = term
            root.size_inputs[symbol] = term
            return term
        return None

    def _solve(
        self, dim: SymbolicDim, symbol: Symbol, name: str, axis: int, solving: frozenset[Symbol]
    ) -> Term | None:
        """The symbol from a dimension that is ``a * symbol + rest``."""
        own = [(atoms, a) for atoms, a in dim.terms() if any(symbol in x.symbols() for x in atoms)]
        if len(own) != 1 or own[0][0] != (symbol,):
            return None
        coefficient = own[0][1]
        rest = dim - symbol * coefficient
        total = self._shape_of(name, axis, axis + 1)
        if rest != 0:
            known = self._dim(rest, solving)
            if known is None:
                return None
            total = self._write("Sub", total, known)
        return total if coefficient == 1 else self._write("Div", total, self._int(coefficient))

    def _operation(self, dim: Operation, solving: frozenset[Symbol]) -> Term | None:
        arguments = [self._dim(argument, solving) for argument in dim.arguments]
        known = [argument for argument in arguments if argument is not None]
        if len(known) < len(arguments):
            return None
        if isinstance(dim, Opaque):
            return known[0]
        if isinstance(dim, Max | Min):
            return reduce(lambda a, b: self._write(type(dim).__name__, a, b), known)
        a, b = known
        if isinstance(dim, Mod):
            return self._write("Mod", a, b)  # of integers: with the sign of the divisor
        assert isinstance(dim, FloorDiv)
        numerator, divisor = dim.arguments
        if _at_least_zero(numerator) and _at_least_zero(divisor):
            return self._write("Div", a, b)
        return self._write("Div", self._write("Sub", a, self._write("Mod", a, b)), b)

    def _polynomial(self, dim: SymbolicDim, solving: frozenset[Symbol]) -> Term | None:
        total: Term | None = None
        for atoms, coefficient in dim.terms():
            factors = [self._work_out(atom, solving) for atom in atoms]
            known = [factor for factor in factors if factor is not None]
            if len(known) < len(factors):
                return None
            if coefficient != 1 or not known:
                known.append(self._int(coefficient))
            term = reduce(lambda a, b: self._write("Mul", a, b), known)
            total = term if total is None else self._write("Add", total, term)
        return total

    def _dim(self, dim: Dim, solving: frozenset[Symbol]) -> Term | None:
        return self._int(dim) if isinstance(dim, int) else self._work_out(dim, solving)

    def _int(self, value: int) -> Term:
        return self.emitter.constant(np.array([value]), i64)

    def _write(self, op_type: str, a: Term, b: Term) -> Term:
        return self.emitter.write(op_type, [a, b], [i64])[0]


def _at_least_zero(dim: Dim) -> bool:
    lower = dim if isinstance(dim, int) else dim.bounds()[0]
    return lower is not None and lower >= 0
