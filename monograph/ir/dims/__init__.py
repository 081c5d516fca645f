"""Symbolic tensor dimensions: ``batch``, ``2*seq+1``, ``(height+1)//2``.

A dimension is a plain ``int`` or a `SymbolicDim`. A `SymbolicDim` is always in canonical form, a
polynomial with integer coefficients over *atoms* (a `Symbol`, or a `FloorDiv`, `Mod`, `Max` or
`Min` of other dimensions), and it is interned: equal expressions are one object, so ``==`` and
``hash`` cost no more than identity. A constant result is always an ``int``, never a symbolic
constant. Every expression knows sound bounds, derived from the declared ranges of its symbols, and
simplification relies on them: bindings are expected to lie inside those ranges. What grows gets a
name, or becomes a single unknown (`Opaque`), so that long computations of sizes stay short; a total
limit keeps hostile files and runaway passes from exhausting memory.

``polynomial`` holds symbols and what ``+ - *`` make of them, ``operations`` what polynomials cannot
express, ``definitions`` names for what grows, ``proofs`` what holds for every binding, ``binding``
the way from symbols to values and back, ``likely`` what cost models plan with, ``text`` the parser.
"""

from __future__ import annotations

from monograph.ir.dims.binding import (
    UnboundSymbolError,
    evaluate_dim,
    solvable_symbols,
    solve_for,
    substitute_dim,
    substitute_shape,
)
from monograph.ir.dims.likely import likely_size
from monograph.ir.dims.operations import (
    FloorDiv,
    Max,
    Min,
    Mod,
    Opaque,
    Operation,
    dim_max,
    dim_min,
    exact_quotient,
)
from monograph.ir.dims.polynomial import (
    Atom,
    Bindings,
    Dim,
    Monomial,
    Polynomial,
    Shape,
    Symbol,
    SymbolicDim,
    Terms,
    is_static,
    shape_product,
)
from monograph.ir.dims.proofs import (
    provably_at_least,
    provably_different,
    provably_equal,
    provably_less,
)
from monograph.ir.dims.text import parse_dim

__all__ = [
    "Atom",
    "Bindings",
    "Dim",
    "FloorDiv",
    "Max",
    "Min",
    "Mod",
    "Monomial",
    "Opaque",
    "Operation",
    "Polynomial",
    "Shape",
    "Symbol",
    "SymbolicDim",
    "Terms",
    "UnboundSymbolError",
    "dim_max",
    "dim_min",
    "evaluate_dim",
    "exact_quotient",
    "is_static",
    "likely_size",
    "parse_dim",
    "provably_at_least",
    "provably_different",
    "provably_equal",
    "provably_less",
    "shape_product",
    "solvable_symbols",
    "solve_for",
    "substitute_dim",
    "substitute_shape",
]
