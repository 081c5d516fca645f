"""Positions in a loop nest: the index arithmetic of scalars and of vectors.

A position is a polynomial of loop variables (``ir.dims``). It is computed in the outermost scope
that knows them, once; along the vector axis it is that of the first lane, or differs from lane to
lane where each lane's own is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial

from monograph.dataclass import dataclass
from monograph.ir.dims import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Opaque,
    Operation,
    Symbol,
    SymbolicDim,
)
from monograph.ir.types import i64
from monograph.kernel.expr import Expr, Index
from monograph.kernel.flatten import coefficient
from monograph.targets.cpu.llvm import instructions
from monograph.targets.cpu.llvm.assembly import INDEX, Builder, Lanes, constant_vector
from monograph.targets.cpu.nests.loop_nest import LoopNest

Term = tuple[int, tuple[Atom, ...], int]
"""A scope, by its number, in which atoms are known, and a number to multiply them by."""


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
    sums: dict[tuple[object, ...], Lanes] = field(default_factory=dict)
    """Products, sums that positions begin with, and places in memory, by what they are made of."""
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
        """Index arithmetic on scalars (of the first lane, along the vector axis).

        The terms of a sum are added in the order in which loops make them known, the outermost
        first, so that what a loop does not change is computed before it, and what positions begin
        with alike is computed once. LLVM would find both, and takes most of its time to do so.
        """
        if isinstance(dim, int):
            return Lanes(str(dim), INDEX)
        for scope in reversed(self.scopes):
            if dim in scope.dims:
                return scope.dims[dim]
        if isinstance(dim, Symbol):
            found = self._symbol(dim)
        elif isinstance(dim, Operation):
            for atom in dim.definitions():
                self.dim(atom)  # in their order, so that none recurses into another
            with self._outermost(dim.symbols()):
                found = self._operation(dim, [self.dim(each) for each in dim.arguments])
                self.scopes[-1].dims[dim] = found
        else:
            found = self.sum(self.terms(dim))
        self.scopes[-1].dims[dim] = found
        return found

    def terms(self, dim: SymbolicDim) -> list[Term]:
        """The terms of a sum, those of outer loops first and the number last."""
        for atom in dim.definitions():
            self.dim(atom)  # in their order, so that none recurses into another
        found = [(self._symbol_level(_symbols_of(atoms)), atoms, k) for atoms, k in dim.terms()]
        return sorted(found, key=lambda term: (not term[1], term[0]))

    def sum(self, terms: Sequence[Term]) -> Lanes:
        """Terms in their order, added where each is known; what sums begin with is kept."""
        _, atoms, factor = terms[0]
        total = self._term(atoms, factor)
        prefix: tuple[object, ...] = (atoms, factor)
        kept = self.scopes
        for level, atoms, factor in terms[1:]:
            prefix = (*prefix, atoms, factor)
            self.scopes = kept[: level + 1] if atoms else self.scopes
            total = self.once(prefix, partial(self._add, total, atoms, factor))
        self.scopes = kept
        return total

    def _add(self, total: Lanes, atoms: tuple[Atom, ...], factor: int) -> Lanes:
        return self.here.binary("add nsw", total, self._term(atoms, factor))

    def once(self, key: tuple[object, ...], emit: Callable[[], Lanes]) -> Lanes:
        """What is known under a key in this scope or around it; otherwise emitted here."""
        for scope in reversed(self.scopes):
            if key in scope.sums:
                return scope.sums[key]
        found = emit()
        self.scopes[-1].sums[key] = found
        return found

    def _term(self, atoms: tuple[Atom, ...], factor: int) -> Lanes:
        """A product of atoms and a number."""
        if not atoms:
            return Lanes(str(factor), INDEX)
        with self._outermost(_symbols_of(atoms)):
            return self.once((atoms, factor), partial(self._product, atoms, factor))

    def _product(self, atoms: tuple[Atom, ...], factor: int) -> Lanes:
        product, *others = [self.dim(atom) for atom in atoms]
        for other in others:
            product = self.here.binary("mul nsw", product, other)
        if factor == 1:
            return product
        return self.here.binary("mul nsw", product, Lanes(str(factor), INDEX))

    @contextmanager
    def _outermost(self, symbols: Iterable[Symbol]) -> Iterator[None]:
        """Emit where all of these symbols are known."""
        kept = self.scopes
        self.scopes = kept[: self._symbol_level(symbols) + 1]
        yield
        self.scopes = kept

    def _symbol_level(self, symbols: Iterable[Symbol]) -> int:
        """The outermost scope in which these symbols are known, and that may still grow."""
        names = frozenset(symbols)
        level = len(self.scopes) - 1
        while level and not self.scopes[level].is_conditional:
            if not self.scopes[level].symbols.keys().isdisjoint(names):
                break
            level -= 1
        return next(k for k in range(level, len(self.scopes)) if self.scopes[k].is_open)

    def _vector_dim(self, dim: Dim) -> Lanes:
        """Index arithmetic lane by lane."""
        assert self.vector is not None
        width, b = self.vector.width, self.here
        if isinstance(dim, int):
            return constant_vector(Lanes(str(dim), INDEX), width)
        if self.vector.symbol not in dim.symbols():
            return b.splat(self.dim(dim), width)
        if isinstance(dim, Symbol):
            return self._symbol_lanes(dim)
        if isinstance(dim, Operation):
            return self._operation(dim, [self._vector_dim(each) for each in dim.arguments])
        total: Lanes | None = None
        for atoms, factor in dim.terms():
            term = constant_vector(Lanes(str(factor), INDEX), width)
            if atoms:
                product, *others = [self._vector_dim(atom) for atom in atoms]
                for other in others:
                    product = b.binary("mul nsw", product, other)
                term = product if factor == 1 else b.binary("mul nsw", product, term)
            total = term if total is None else b.binary("add nsw", total, term)
        assert total is not None, "a sum has terms"
        return total

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


def _symbols_of(atoms: Iterable[Atom]) -> frozenset[Symbol]:
    return frozenset(symbol for atom in atoms for symbol in atom.symbols())


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
