"""Symbolic sizes in a torch program: read from a tensor's shape, or computed from such sizes.

A size that only an expression tells (an input of ``f32[2*n]``) is solved for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

from monograph.errors import UnsupportedError
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


class SizeEmitter:
    """Knows which tensor has which size; writes calls that read or compute them."""

    def __init__(self, call: Callable[..., torch.fx.Node]) -> None:
        self.call = call
        self.tellers: dict[SymbolicDim, tuple[torch.fx.Node, int]] = {}
        self.made: dict[SymbolicDim, Any] = {}

    def learn(self, shape: Shape, term: torch.fx.Node) -> None:
        """Remember the sizes of a tensor that is there now."""
        for axis, dim in enumerate(shape):
            if isinstance(dim, SymbolicDim):
                self.tellers.setdefault(dim, (term, axis))

    def size(self, dim: Dim) -> Any:
        """An int, or the node that gives the size."""
        if isinstance(dim, int):
            return dim
        if dim not in self.made:
            self.made[dim] = self._work_out(dim)
        return self.made[dim]

    def _work_out(self, dim: SymbolicDim) -> Any:
        teller = self.tellers.get(dim)
        if teller is not None:
            return self.call(torch.ops.aten.sym_size, *teller)
        if isinstance(dim, Symbol):
            return self._solve(dim)
        if isinstance(dim, Operation):
            return self._operate(dim)
        terms = []
        for atoms, coefficient in dim.terms():
            factors = [self.size(atom) for atom in atoms]
            if coefficient != 1 or not factors:
                factors.append(coefficient)
            terms.append(reduce(self._binary(operator.mul), factors))
        return reduce(self._binary(operator.add), terms)

    def _operate(self, dim: Operation) -> Any:
        arguments = [self.size(argument) for argument in dim.arguments]
        if isinstance(dim, Opaque):
            return arguments[0]
        if isinstance(dim, Max | Min):
            return reduce(self._binary(max if isinstance(dim, Max) else min), arguments)
        assert isinstance(dim, Mod | FloorDiv)
        return self.call(operator.mod if isinstance(dim, Mod) else operator.floordiv, *arguments)

    def _solve(self, symbol: Symbol) -> Any:
        """The symbol from a size that is ``a * symbol + rest``, of which the rest is known."""
        for dim, teller in self.tellers.items():
            own = [
                (atoms, a) for atoms, a in dim.terms() if any(symbol in x.symbols() for x in atoms)
            ]
            if len(own) != 1 or own[0][0] != (symbol,):
                continue
            coefficient = own[0][1]
            rest = dim - symbol * coefficient
            total = self.call(torch.ops.aten.sym_size, *teller)
            if rest != 0:
                total = self.call(operator.sub, total, self.size(rest))
            return total if coefficient == 1 else self.call(operator.floordiv, total, coefficient)
        raise UnsupportedError(f"no input's shape tells the size {symbol}")

    def _binary(self, function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        return lambda a, b: self.call(function, a, b)
