"""Values for symbols: putting them into expressions, and finding them from a known size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from monograph.ir.dims.polynomial import (
    Bindings,
    Dim,
    Shape,
    Symbol,
    SymbolicDim,
    constant_of,
)


class UnboundSymbolError(LookupError):
    """An expression was evaluated without a value for one of its symbols."""


def substitute_dim(dim: Dim, bindings: Mapping[Symbol, Dim]) -> Dim:
    """`SymbolicDim.substitute`, passing ints through."""
    return dim if isinstance(dim, int) else dim.substitute(bindings)


def substitute_shape(shape: Shape, bindings: Mapping[Symbol, Dim]) -> Shape:
    """Substitute in every dimension of a shape."""
    return tuple(substitute_dim(dim, bindings) for dim in shape)


def evaluate_dim(dim: Dim, bindings: Bindings) -> int:
    """The integer that a dimension stands for, once every symbol in it has a value."""
    if isinstance(dim, int):
        return dim
    for symbol in dim._symbols:
        if symbol not in bindings:
            bound = ", ".join(f"{key}={value}" for key, value in bindings.items()) or "nothing"
            raise UnboundSymbolError(
                f"cannot evaluate '{dim}': symbol '{symbol}' has no value (bound: {bound})"
            )
    if not dim._definitions:
        return dim._evaluate(bindings)
    known: dict[Any, int] = dict(bindings)
    for atom in dim._definitions:  # in their order, so that none recurses into another
        known[atom] = atom._evaluate(known)
    return dim._evaluate(known)


def solve_for(dim: SymbolicDim, value: int, bindings: Bindings) -> dict[Symbol, int] | None:
    """The binding that makes `dim` equal `value`, given what is already bound.

    Returns None unless at most one symbol is unbound and `dim` is affine in it; an empty dict if
    nothing is left to bind. Raises ValueError if no integer in the symbol's range will do.
    """
    remaining = dim.substitute(bindings)
    if isinstance(remaining, int):
        if remaining != value:
            raise ValueError(f"'{dim}' is {remaining} under the known bindings, not {value}")
        return {}
    constant = constant_of(remaining)
    varying = [term for term in remaining.terms() if term[0]]
    atoms, coefficient = varying[0]
    if len(varying) > 1 or len(atoms) > 1 or not isinstance(atoms[0], Symbol):
        return None
    symbol = atoms[0]
    solution, rest = divmod(value - constant, coefficient)
    if rest:
        raise ValueError(f"no integer '{symbol}' makes '{dim}' equal {value}")
    if solution < symbol.lower or (symbol.upper is not None and solution > symbol.upper):
        declared = f"{symbol.lower}..{'' if symbol.upper is None else symbol.upper}"
        raise ValueError(
            f"'{dim}' equal to {value} needs {symbol}={solution}, "
            f"outside the declared range {declared}"
        )
    return {symbol: solution}


def solvable_symbols(dims: Iterable[Dim]) -> set[Symbol]:
    """The symbols whose values follow from those of the dimensions.

    ``n*n`` mentions ``n`` and does not tell it: only what `solve_for` can solve counts.
    """
    symbolic = [dim for dim in dims if isinstance(dim, SymbolicDim)]
    known: set[Symbol] = set()
    for _ in range(2):  # as when sizes are bound: one may follow only from a later one
        for dim in symbolic:
            unknown = [symbol for symbol in dim.symbols() if symbol not in known]
            if len(unknown) == 1 and _is_affine(dim, unknown[0]):
                known.add(unknown[0])
    return known


def _is_affine(dim: SymbolicDim, symbol: Symbol) -> bool:
    """Whether every term has the symbol as a factor of its own, once, or not at all."""
    for atoms, _ in dim.terms():
        inside = [atom for atom in atoms if symbol in atom.symbols()]
        if inside and inside != [symbol]:
            return False
    return True
