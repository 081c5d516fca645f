"""Positions in a loop nest: the index arithmetic of scalars and of vectors.

A position is a polynomial of loop variables (``ir.dims``). It is computed in the outermost scope
that knows them, once; along the vector axis it is that of the first lane, or differs from lane to
lane where each lane's own is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, FloorDiv, Max, Min, Mod, Opaque, Operation, Symbol, SymbolicDim
from monograph.ir.types import i64
from monograph.kernel.expr import Expr, Index
from monograph.kernel.flatten import coefficient
from monograph.targets.cpu.llvm import instructions
from monograph.targets.cpu.llvm.assembly import INDEX, Builder, Lanes, constant_vector
from monograph.targets.cpu.nests.loop_nest import LoopNest


@dataclass
class Scope:
    """A loop body, or the code just before a loop: what is bound there and computed there."""

    builder: Builder
    symbols: dict[Symbol, Lanes]
    values: dict[Expr, Lanes] = field(default_factory=dict)
    changing: dict[Expr, Lanes] = field(default_factory=dict)
    """Values that hold for the statement that is being emitted, and not for the next one."""
    variables: dict[str, Lanes] = field(default_factory=dict)
    dims: dict[Dim, Lanes] = field(default_factory=dict)
    is_open: bool = True
    """False while a loop inside it is emitted: nothing can be added before that loop then."""
    is_conditional: bool = False
    """Whether it may not run at all: nothing that belongs to it is computed outside."""
    may_be_empty: bool = False
    """Whether it belongs to a loop that may have no turns: what it reads is not read outside."""


@dataclass(frozen=True)
class Vector:
    """The vector loop that is being emitted: its axis, lanes, and the mask of the remainder."""

    symbol: Symbol
    width: int
    mask: Lanes | None
    is_aligned: bool = True
    """Whether it begins at a multiple of its width, as all but the last one do."""
    in_pairs: bool = False
    """Whether lanes are even elements first, then odd ones (`bfloat`)."""


class PositionEmitter:
    """Emits the positions of one loop nest."""

    nest: LoopNest
    scopes: list[Scope]
    vector: Vector | None

    @property
    def here(self) -> Builder:
        """Where the current scope's next instruction goes."""
        return self.scopes[-1].builder

    def _index_value(self, expr: Index) -> Lanes:
        """A position as a number; along the vector axis it differs from lane to lane."""
        vector = self.vector
        if vector is None or vector.symbol not in expr.symbols:
            return self.dim(expr.dim)
        step = coefficient(expr.dim, vector.symbol)
        if isinstance(step, int):
            lanes = ", ".join(f"i64 {k * step}" for k in range(vector.width))
            first = self.here.splat(self.dim(expr.dim), vector.width)
            return self.here.binary("add", first, Lanes(f"<{lanes}>", INDEX, vector.width))
        return self._vector_dim(expr.dim)

    def narrow_position(self, expr: Expr) -> Lanes | None:
        """A position along the vector axis in 32 bits, if all its values fit.

        Those are half as wide, and one instruction makes floats of them.
        """
        vector = self.vector
        if vector is None or not isinstance(expr, Index) or vector.symbol not in expr.symbols:
            return None
        step = coefficient(expr.dim, vector.symbol)
        low, high = expr.dim.bounds() if isinstance(expr.dim, SymbolicDim) else (None, None)
        if not isinstance(step, int) or low is None or high is None:
            return None
        beyond = vector.width * abs(step)  # the lanes of the last vector reach past the end
        if low - beyond < -(1 << 31) or high + beyond >= 1 << 31:
            return None
        first = self.here.splat(self.here.convert("trunc", self.dim(expr.dim), "i32"), vector.width)
        lanes = ", ".join(f"i32 {k * step}" for k in range(vector.width))
        return self.here.binary("add", first, Lanes(f"<{lanes}>", "i32", vector.width))

    def dim(self, dim: Dim) -> Lanes:
        """Index arithmetic on scalars (of the first lane, along the vector axis)."""
        if isinstance(dim, int):
            return Lanes(str(dim), INDEX)
        for scope in reversed(self.scopes):
            if dim in scope.dims:
                return scope.dims[dim]
        for atom in dim.definitions():
            self.dim(atom)  # in their order, so that none recurses into another
        found = self._dim(dim, self._symbol, self.dim, 1)
        self.scopes[-1].dims[dim] = found
        return found

    def _vector_dim(self, dim: Dim) -> Lanes:
        """Index arithmetic lane by lane."""
        assert self.vector is not None
        width = self.vector.width
        if isinstance(dim, int):
            return constant_vector(Lanes(str(dim), INDEX), width)
        if self.vector.symbol not in dim.symbols():
            return self.here.splat(self.dim(dim), width)
        return self._dim(dim, self._symbol_lanes, self._vector_dim, width)

    def _symbol(self, symbol: Symbol) -> Lanes:
        for scope in reversed(self.scopes):
            if symbol in scope.symbols:
                return scope.symbols[symbol]
        raise AssertionError(f"{symbol} is not bound in {self.nest.name}\n{self.nest}")

    def _symbol_lanes(self, symbol: Symbol) -> Lanes:
        assert self.vector is not None
        width = self.vector.width
        first = self.here.splat(self._symbol(symbol), width)
        if symbol is not self.vector.symbol:
            return first
        lanes = ", ".join(f"i64 {k}" for k in range(width))
        return self.here.binary("add", first, Lanes(f"<{lanes}>", INDEX, width))

    def _dim(
        self,
        dim: SymbolicDim,
        of_symbol: Callable[[Symbol], Lanes],
        recur: Callable[[Dim], Lanes],
        lanes: int,
    ) -> Lanes:
        b = self.here
        if isinstance(dim, Symbol):
            return of_symbol(dim)
        if isinstance(dim, Operation):
            return self._operation(dim, [recur(argument) for argument in dim.arguments])
        total: Lanes | None = None
        for atoms, factor in dim.terms():
            term: Lanes | None = None
            for atom in atoms:
                value = recur(atom)
                term = value if term is None else b.binary("mul nsw", term, value)
            scale = constant_vector(Lanes(str(factor), INDEX), lanes)
            if term is None:
                term = scale
            elif factor != 1:
                term = b.binary("mul nsw", term, scale)
            total = term if total is None else b.binary("add nsw", total, term)
        return total if total is not None else constant_vector(Lanes("0", INDEX), lanes)

    def _operation(self, dim: Operation, arguments: list[Lanes]) -> Lanes:
        b = self.here
        if isinstance(dim, Opaque):
            return arguments[0]
        if isinstance(dim, Max | Min):
            word = "smax" if isinstance(dim, Max) else "smin"
            result = arguments[0]
            for argument in arguments[1:]:
                result = b.intrinsic(word, result, argument)
            return result
        numerator = dim.arguments[0]
        low = numerator if isinstance(numerator, int) else numerator.bounds()[0]
        positive = low is not None and low >= 0
        assert isinstance(dim, FloorDiv | Mod)
        if positive:
            word = "udiv" if isinstance(dim, FloorDiv) else "urem"
            return b.binary(word, arguments[0], instructions.positive_size(b, arguments[1]))
        name = "index_divide" if isinstance(dim, FloorDiv) else "index_remainder"
        return instructions.FUNCTIONS[name](b, i64, i64, tuple(arguments))


def is_multiple(dim: Dim, elements: int, vector: Symbol) -> bool:
    """Whether a position is a multiple of ``elements`` whenever the vector's start is."""
    if isinstance(dim, int):
        return dim % elements == 0
    for atoms, factor in dim.terms():
        if factor % elements and not (factor == 1 and atoms == (vector,)):
            return False
    return True


def runs_of(offset: Expr, vector: Vector) -> tuple[int, int] | None:
    """The lanes of a vector as runs of neighbours: how long, and how far from one to the next.

    Of a position ``d * (lane // n) + lane % n + …`` the runs are n long and d apart.
    """
    if not isinstance(offset, Index) or not vector.is_aligned or isinstance(offset.dim, int):
        return None
    lane = vector.symbol
    varying = [
        (atoms, k) for atoms, k in offset.dim.terms() if any(lane in a.symbols() for a in atoms)
    ]
    lengths: set[Dim] = set()
    factors: dict[type, int] = {}
    for atoms, factor in varying:
        if len(atoms) != 1 or not isinstance(atoms[0], FloorDiv | Mod) or type(atoms[0]) in factors:
            return None
        numerator, length = atoms[0].arguments
        if numerator is not lane:
            return None
        lengths.add(length)
        factors[type(atoms[0])] = factor
    if len(lengths) != 1 or factors.get(Mod) != 1 or FloorDiv not in factors:
        return None
    (length,) = lengths
    if not isinstance(length, int) or vector.width % length:
        return None
    return length, factors[FloorDiv]
