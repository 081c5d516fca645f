"""Scalar expressions: immutable, and each exists once.

A kernel computes one element at a time; these are the formulas. Equal expressions are the same
object, so comparing them is ``is``, a common subexpression is found by identity, and a kernel's
text is a faithful key for the cache.

Positions are expressions too, of dtype ``i64``. Most are polynomials in the loop variables and in
the sizes of symbolic dimensions, and those are kept as a ``Dim`` inside an ``Index``: its normal
form cancels, bounds and divides exactly. Python's operators on expressions are *index arithmetic*
(no overflow, floor division by a positive size); arithmetic on elements, which wraps and rounds,
is ``apply("add", x, y)``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape, Symbol, SymbolicDim, shape_product, substitute_dim
from monograph.ir.types import DType, bool_, i64
from monograph.kernel.layout import MemoryLayout

Number = bool | int | float
NO_SYMBOLS: frozenset[Symbol] = frozenset()


@dataclass(frozen=True)
class Buffer:
    """A piece of memory that kernels read and write, seen as an array of ``shape``.

    A ``layout`` of None means row-major. Two buffers of one name are the same memory, perhaps in
    another shape.
    """

    name: str
    dtype: DType
    shape: Shape
    layout: MemoryLayout | None = None

    def viewed(self, shape: Shape) -> Buffer | None:
        """The same memory in another shape, if strides can give it."""
        if self.layout is None:
            return Buffer(self.name, self.dtype, shape)
        layout = self.layout.viewed(self.shape, shape)
        return None if layout is None else Buffer(self.name, self.dtype, shape, layout)

    @property
    def offset(self) -> Dim:
        """Where the first element lies."""
        return 0 if self.layout is None else self.layout.offset

    def element_strides(self) -> tuple[Dim, ...]:
        """How many elements apart neighbours along each axis are."""
        if self.layout is not None:
            return self.layout.strides
        return tuple(shape_product(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def reach(self) -> Dim:
        """How many elements of memory it takes."""
        return shape_product(self.shape) if self.layout is None else self.layout.reach(self.shape)


@dataclass(frozen=True)
class Axis:
    """A loop variable and how many values it takes, from zero."""

    symbol: Symbol
    extent: Dim


def axis(name: str, extent: Dim) -> Axis:
    """A new axis; its symbol knows the largest value if the extent is known."""
    if isinstance(extent, int):
        return Axis(Symbol(name, 0, max(extent - 1, 0)), extent)
    upper = extent.bounds()[1]
    return Axis(Symbol(name, 0, None if upper is None else max(upper - 1, 0)), extent)


def linear(axes: tuple[Axis, ...]) -> Expr:
    """The position of an element among all that the axes visit, in row-major order."""
    total: Dim = 0
    for each in axes:
        total = total * each.extent + each.symbol
    return index(total)


def unflatten(axes: Sequence[Axis], place: Dim) -> dict[Symbol, Dim]:
    """Each axis in terms of the position among all that they visit: the inverse of ``linear``."""
    bindings: dict[Symbol, Dim] = {}
    for each in reversed(axes[1:]):
        bindings[each.symbol] = _remainder(place, each.extent)
        place = _quotient(place, each.extent)
    if axes:
        bindings[axes[0].symbol] = place
    return bindings


class Expr:
    """Base of all expressions. Make them with the functions below, never with a constructor."""

    __slots__ = ("__weakref__", "dtype", "operands", "symbols")
    dtype: DType
    operands: tuple[Expr, ...]
    symbols: frozenset[Symbol]
    """The loop variables and sizes that its value depends on."""

    def rebuilt(self, operands: tuple[Expr, ...]) -> Expr:
        """The same expression over other operands."""
        return self

    def __add__(self, other: Expr | Dim) -> Expr:
        return _index_operation("add", self, index(other), lambda a, b: a + b)

    def __radd__(self, other: Dim) -> Expr:
        return index(other) + self

    def __sub__(self, other: Expr | Dim) -> Expr:
        return _index_operation("subtract", self, index(other), lambda a, b: a - b)

    def __rsub__(self, other: Dim) -> Expr:
        return index(other) - self

    def __mul__(self, other: Expr | Dim) -> Expr:
        return _index_operation("multiply", self, index(other), lambda a, b: a * b)

    def __rmul__(self, other: Dim) -> Expr:
        return index(other) * self

    def __floordiv__(self, other: Expr | Dim) -> Expr:
        return _index_operation("index_divide", self, index(other), _quotient)

    def __mod__(self, other: Expr | Dim) -> Expr:
        return _index_operation("index_remainder", self, index(other), _remainder)

    def __repr__(self) -> str:
        from monograph.kernel.text import expr_text

        return expr_text(self)


class Literal(Expr):
    """A number."""

    __slots__ = ("value",)
    value: Number


class Index(Expr):
    """A position, as exact index arithmetic over loop variables and sizes."""

    __slots__ = ("dim",)
    dim: Dim


class Variable(Expr):
    """A named scalar of the loop nest: bound once by a Let, or updated by a reduction."""

    __slots__ = ("name",)
    name: str


class Load(Expr):
    """An element of a buffer; ``operands`` are its position, one along each axis."""

    __slots__ = ("buffer",)
    buffer: Buffer

    def rebuilt(self, operands: tuple[Expr, ...]) -> Expr:
        return load(self.buffer, operands)


class Apply(Expr):
    """A scalar function of its operands; ``scalar.py`` lists them with their meaning."""

    __slots__ = ("function",)
    function: str

    def rebuilt(self, operands: tuple[Expr, ...]) -> Expr:
        return apply(self.function, *operands, dtype=self.dtype)


class Reduce(Expr):
    """The combination of ``body`` over every value of ``axes``.

    ``argmax`` and ``argmin`` give the position (row-major over the axes) of the first extreme.
    """

    __slots__ = ("axes", "kind")
    kind: str
    axes: tuple[Axis, ...]

    @property
    def body(self) -> Expr:
        """What is combined."""
        return self.operands[0]

    def rebuilt(self, operands: tuple[Expr, ...]) -> Expr:
        return reduce(self.kind, self.axes, operands[0])


AnyExpr = TypeVar("AnyExpr", bound=Expr)
_INTERNED: weakref.WeakValueDictionary[tuple[object, ...], Expr] = weakref.WeakValueDictionary()


def _intern(
    cls: type[AnyExpr],
    dtype: DType,
    operands: tuple[Expr, ...],
    symbols: frozenset[Symbol],
    mark: object,
    **fields: object,
) -> AnyExpr:
    """The one expression of that class, dtype, operands and ``mark`` (what its fields say)."""
    key = (cls, dtype, tuple(map(id, operands)), mark)
    found = _INTERNED.get(key)
    if found is not None:
        assert isinstance(found, cls)
        return found
    new = cls()
    new.dtype, new.operands, new.symbols = dtype, operands, symbols
    for name, value in fields.items():
        setattr(new, name, value)
    _INTERNED[key] = new
    return new


def _union(operands: tuple[Expr, ...]) -> frozenset[Symbol]:
    return NO_SYMBOLS.union(*(operand.symbols for operand in operands))


def literal(value: Number, dtype: DType) -> Literal:
    """A number of that dtype."""
    if dtype.is_float:
        number = float(value)
        return _intern(Literal, dtype, (), NO_SYMBOLS, number.hex(), value=number)
    integer = bool(value) if dtype is bool_ else int(value)
    return _intern(Literal, dtype, (), NO_SYMBOLS, integer, value=integer)


def index(position: Expr | Dim) -> Expr:
    """A position as an expression."""
    if isinstance(position, Expr):
        return position
    symbols = frozenset(position.symbols()) if isinstance(position, SymbolicDim) else NO_SYMBOLS
    return _intern(Index, i64, (), symbols, position, dim=position)


def variable(name: str, dtype: DType) -> Variable:
    """A named scalar."""
    return _intern(Variable, dtype, (), NO_SYMBOLS, name, name=name)


def load(buffer: Buffer, position: tuple[Expr, ...]) -> Load:
    """The element at a position."""
    assert len(position) == len(buffer.shape), f"{buffer} read with {len(position)} positions"
    return _intern(Load, buffer.dtype, position, _union(position), buffer, buffer=buffer)


def apply(function: str, *operands: Expr, dtype: DType | None = None) -> Expr:
    """A scalar function of these operands; the dtype is the first operand's unless given."""
    result = operands[0].dtype if dtype is None else dtype
    return _intern(Apply, result, operands, _union(operands), function, function=function)


def cast(operand: Expr, dtype: DType) -> Expr:
    """The operand converted to a dtype, as the op ``cast`` does."""
    if operand.dtype is dtype:
        return operand
    if isinstance(operand, Apply) and operand.function == "cast":
        inner = operand.operands[0]
        if inner.dtype is dtype and _holds(operand.dtype, dtype):
            return inner
        is_byte = inner.dtype.is_integer and inner.dtype.bits <= 8
        if is_byte and operand.dtype.bits == 16 and _holds(dtype, operand.dtype):
            return apply("cast", inner, dtype=dtype)  # floats of 16 bits hold every byte
    return apply("cast", operand, dtype=dtype)


def _holds(wider: DType, narrower: DType) -> bool:
    """Whether every float of the narrower type is one of the wider."""
    return wider.is_float and narrower.is_float and narrower.bits < 32 <= wider.bits


def select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """One of two values; both are computed."""
    if isinstance(condition, Literal):
        return yes if condition.value else no
    return yes if yes is no else apply("where", condition, yes, no, dtype=yes.dtype)


def rarely(condition: Expr, seldom: Expr, usual: Expr) -> Expr:
    """One of two values, of which the first is seldom wanted and need not be computed otherwise."""
    return apply("rarely", condition, seldom, usual, dtype=usual.dtype)


def reduce(kind: str, axes: tuple[Axis, ...], body: Expr) -> Expr:
    """The combination of ``body`` over the axes."""
    dtype = i64 if kind in ("argmax", "argmin") else body.dtype
    symbols = body.symbols - {each.symbol for each in axes}
    sizes = NO_SYMBOLS.union(
        *(each.extent.symbols() for each in axes if isinstance(each.extent, SymbolicDim))
    )
    return _intern(Reduce, dtype, (body,), symbols | sizes, (kind, axes), kind=kind, axes=axes)


def _remainder(position: Dim, size: Dim) -> Dim:
    """An axis of no elements is never visited: a position along it may as well be 0."""
    return 0 if size == 0 else position % size


def _quotient(position: Dim, size: Dim) -> Dim:
    return 0 if size == 0 else position // size


def _index_operation(name: str, left: Expr, right: Expr, exact: Callable[[Dim, Dim], Dim]) -> Expr:
    if isinstance(left, Index) and isinstance(right, Index):
        return index(exact(left.dim, right.dim))
    if isinstance(right, Index) and right.dim == (1 if name in _UNIT_ONE else 0):
        return left if name != "index_remainder" else index(0)
    if isinstance(left, Index) and left.dim == {"add": 0, "multiply": 1}.get(name):
        return right
    return apply(name, left, right, dtype=i64)


_UNIT_ONE = ("multiply", "index_divide", "index_remainder")


def walk(roots: tuple[Expr, ...]) -> Iterator[Expr]:
    """Every expression that the roots reach, once, operands first."""
    seen: set[Expr] = set()
    stack: list[Expr | None] = [*reversed(roots)]  # None: the operands of the next one are done
    while stack:
        expr = stack.pop()
        if expr is None:
            done = stack.pop()
            assert done is not None
            yield done
        elif expr not in seen:
            seen.add(expr)
            if expr.operands:
                stack += (expr, None, *reversed(expr.operands))
            else:
                yield expr


def find_loads(*roots: Expr) -> Iterator[Load]:
    """Every distinct element that formulas read, those at the positions of others included."""
    return (expr for expr in walk(roots) if isinstance(expr, Load))


def substitute(root: Expr, bindings: Mapping[Symbol, Dim]) -> Expr:
    """The expression with loop variables replaced, except where a reduction binds them itself."""
    done: dict[Expr, Expr] = {}
    changed = frozenset(bindings)

    def visit(expr: Expr) -> Expr:
        found = done.get(expr)
        if found is not None:
            return found
        if not (expr.symbols & changed):
            return expr
        if isinstance(expr, Index):
            new: Expr = index(substitute_dim(expr.dim, bindings))
        elif isinstance(expr, Reduce):
            new = _substitute_reduction(expr, bindings)
        else:
            new = expr.rebuilt(tuple(visit(operand) for operand in expr.operands))
        done[expr] = new
        return new

    return visit(root)


def _substitute_reduction(expr: Reduce, bindings: Mapping[Symbol, Dim]) -> Expr:
    own = {each.symbol for each in expr.axes}
    free = {symbol: dim for symbol, dim in bindings.items() if symbol not in own}
    axes = tuple(Axis(each.symbol, substitute_dim(each.extent, free)) for each in expr.axes)
    return reduce(expr.kind, axes, substitute(expr.body, free))


def replace(root: Expr, replacements: Mapping[Expr, Expr]) -> Expr:
    """The expression with whole subexpressions replaced."""
    done: dict[Expr, Expr] = dict(replacements)

    def visit(expr: Expr) -> Expr:
        found = done.get(expr)
        if found is not None:
            return found
        operands = tuple(visit(operand) for operand in expr.operands)
        new = expr if operands == expr.operands else expr.rebuilt(operands)
        done[expr] = new
        return new

    return visit(root)
