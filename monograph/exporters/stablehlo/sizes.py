"""Writes symbolic sizes as StableHLO: read from the inputs, computed, handed to operations.

    %n = stablehlo.get_dimension_size %arg0, dim = 0           the input is tensor<?x4xf32>
    %m = stablehlo.multiply %n, %two                           2*n
    %s = stablehlo.concatenate %m, %four, dim = 0              the shape [2*n, 4]

The symbols are worked out where the function begins, so that regions can read them; expressions of
them where they are needed. What else the types of the inputs say of their sizes is asserted, in the
way that JAX's exports do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from monograph.errors import UnsupportedError
from monograph.exporters.stablehlo.types import integers
from monograph.ir.dims import (
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Opaque,
    Operation,
    Symbol,
    SymbolicDim,
    provably_at_least,
    provably_less,
)
from monograph.ir.types import TensorType, i32, i64

if TYPE_CHECKING:
    from monograph.exporters.stablehlo.emitter import Emitter, Term


class SizeWriter:
    """Writes the operations that give sizes, as scalars of i64; each once where it is seen."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.made: dict[Dim, Term] = {}

    def begin(self, inputs: Sequence[Term]) -> None:
        """Work out every symbol of the inputs' types, and assert what else they say."""
        measured: list[tuple[SymbolicDim, Term]] = []
        for term in inputs:
            for axis, dim in enumerate(term.type.shape):
                if isinstance(dim, SymbolicDim):
                    measured.append((dim, self._measure(term, axis)))
        pending = {symbol: None for dim, _ in measured for symbol in dim.symbols()}
        while pending:
            solved = [symbol for symbol in pending if self._solve(symbol, measured)]
            if not solved:
                names = ", ".join(symbol.name for symbol in pending)
                raise UnsupportedError(f"no input's shape tells the size {names}")
            for symbol in solved:
                del pending[symbol]
        for dim, found in measured:
            expected = self.size(dim)
            if expected is not found:
                self._assert("EQ", found, expected, f"a size is {{0}}, and {dim} is {{1}}")
        for symbol in {symbol: None for dim, _ in measured for symbol in dim.symbols()}:
            if symbol.lower:
                least = self.emitter.number(symbol.lower, i64)
                self._assert("GE", self.made[symbol], least, f"{symbol} is {{0}}, less than {{1}}")

    def size(self, dim: Dim) -> Term:
        """A dimension as a scalar."""
        found = self.made.get(dim)
        if found is None:
            found = self.made[dim] = self._work_out(dim)
        return found

    def vector(self, dims: Sequence[Dim]) -> Term:
        """Dimensions as one tensor: a shape, or bounds."""
        if all(isinstance(dim, int) for dim in dims):
            return self.emitter.literal(
                np.array(dims, np.int64).reshape(-1), TensorType(i64, (len(dims),))
            )
        parts = [self.emitter.reshape(self.size(dim), (1,)) for dim in dims]
        if len(parts) == 1:
            return parts[0]
        return self.emitter.op(
            "concatenate", parts, TensorType(i64, (len(dims),)), "dimension = 0 : i64"
        )

    def _measure(self, term: Term, axis: int) -> Term:
        attribute = f"dimension = {axis} : i64"
        size = self.emitter.op("get_dimension_size", [term], TensorType(i32, ()), attribute)
        return self.emitter.convert(size, i64)

    def _solve(self, symbol: Symbol, measured: Sequence[tuple[SymbolicDim, Term]]) -> bool:
        """The symbol from a size that is ``a * symbol + rest``, of which the rest is known."""
        for dim, found in measured:
            own = [
                (atoms, factor)
                for atoms, factor in dim.terms()
                if any(symbol in atom.symbols() for atom in atoms)
            ]
            if len(own) != 1 or own[0][0] != (symbol,):
                continue
            factor = own[0][1]
            rest = dim - factor * symbol
            if isinstance(rest, SymbolicDim) and any(s not in self.made for s in rest.symbols()):
                continue
            if rest != 0:
                found = self.emitter.binary("subtract", found, self.size(rest))
            if factor != 1:
                found = self.emitter.binary("divide", found, self.size(factor))
            self.made[symbol] = found
            return True
        return False

    def _assert(self, direction: str, a: Term, b: Term, message: str) -> None:
        holds = self.emitter.compare(direction, a, b)
        self.emitter.op_many(
            "custom_call",
            [holds, a, b],
            [],
            'call_target_name = "shape_assertion", has_side_effect = true',
            discardable=f'error_message = "{message}"',
        )

    def _work_out(self, dim: Dim) -> Term:
        if isinstance(dim, int):
            return self.emitter.number(dim, i64)
        if isinstance(dim, Symbol):
            raise UnsupportedError(
                f"the size {dim} is data, which StableHLO has no place for",
                hint="to_onnx writes sizes that data decides",
            )
        if isinstance(dim, Operation):
            return self._operate(dim)
        terms = []
        for atoms, factor in dim.terms():
            factors = [self.size(atom) for atom in atoms]
            if factor != 1 or not factors:
                factors.append(self.emitter.number(factor, i64))
            terms.append(reduce(lambda a, b: self.emitter.binary("multiply", a, b), factors))
        return reduce(lambda a, b: self.emitter.binary("add", a, b), terms)

    def _operate(self, dim: Operation) -> Term:
        arguments = [self.size(argument) for argument in dim.arguments]
        if isinstance(dim, Opaque):
            return arguments[0]
        if isinstance(dim, Max | Min):
            word = "maximum" if isinstance(dim, Max) else "minimum"
            return reduce(lambda a, b: self.emitter.binary(word, a, b), arguments)
        assert isinstance(dim, Mod | FloorDiv)
        whole, divisor = dim.arguments
        if not provably_less(0, divisor):
            raise UnsupportedError(f"the size {dim} divides by what may not be positive")
        a, b = arguments
        if provably_at_least(whole, 0):
            return self.emitter.binary("remainder" if isinstance(dim, Mod) else "divide", a, b)
        rest = self.emitter.binary("remainder", a, b)
        below = self.emitter.compare("LT", rest, self.emitter.number(0, i64))
        rest = self.emitter.select(below, self.emitter.binary("add", rest, b), rest)
        if isinstance(dim, Mod):
            return rest
        return self.emitter.binary("divide", self.emitter.binary("subtract", a, rest), b)


def is_known(dims: Sequence[Dim]) -> bool:
    """Whether all are numbers."""
    return all(isinstance(dim, int) for dim in dims)


def write_integers(dims: Sequence[Dim]) -> str:
    """Numbers as an attribute."""
    return integers(dim for dim in dims if isinstance(dim, int))
