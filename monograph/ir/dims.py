"""Symbolic tensor dimensions: ``batch``, ``2*seq+1``, ``(height+1)//2``.

A dimension is a plain ``int`` or a `SymbolicDim`. A `SymbolicDim` is always in canonical form, a
polynomial with integer coefficients over *atoms* (a `Symbol`, or a `FloorDiv`, `Mod`, `Max` or
`Min` of other dimensions), and it is interned: equal expressions are one object, so ``==`` and
``hash`` cost no more than identity. A constant result is always an ``int``, never a symbolic
constant. Every expression knows sound bounds, derived from the declared ranges of its symbols, and
simplification relies on them: bindings are expected to lie inside those ranges. Expressions are
limited in size, so that neither a hostile file nor a runaway pass can exhaust memory.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import gcd, prod
from threading import RLock
from typing import ClassVar, NoReturn, TypeAlias, TypeGuard, TypeVar, Union
from weakref import WeakValueDictionary

from monograph.errors import DimensionError
from monograph.ir import intervals
from monograph.ir.dims_text import parse_expression
from monograph.ir.intervals import Interval

MAX_TERMS = 256  # in one polynomial
MAX_ARGUMENTS = 64  # of one max or min
MAX_DEGREE = 32  # factors in one term
MAX_SIZE = 2048  # symbols and numbers in the printed form
MAX_DEPTH = 32  # atoms inside atoms; prints with at most twice as many nested parentheses
MAX_INTEGER = 10**19 - 1  # what the parser accepts, so that all that prints parses back

Dim: TypeAlias = Union[int, "SymbolicDim"]
Shape: TypeAlias = tuple[Dim, ...]
Bindings: TypeAlias = Mapping["Symbol", int]
Monomial: TypeAlias = tuple["Atom", ...]  # sorted factors; a power is a repeated factor
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]


class UnboundSymbolError(LookupError):
    """An expression was evaluated without a value for one of its symbols."""


class SymbolicDim:
    """An immutable integer expression over symbols; see the module docstring.

    Build one from a `Symbol` and ordinary arithmetic. It has no truth value, no order and no
    conversion to int, so that code which quietly assumes static shapes fails where it stands.
    """

    __slots__ = ("__weakref__", "_bounds", "_depth", "_size", "_symbols")

    _bounds: Interval
    _depth: int
    _size: int
    _symbols: tuple[Symbol, ...]

    def terms(self) -> Terms:
        """The canonical sum: (factors, coefficient) pairs, in printing order."""
        raise NotImplementedError

    def bounds(self) -> Interval:
        """Inclusive lower and upper bound, None where unbounded; exact for affine expressions."""
        return self._bounds

    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol in the expression, however deep, once each, sorted by name."""
        return self._symbols

    def substitute(self, bindings: Mapping[Symbol, Dim]) -> Dim:
        """Replace symbols, all at once, by integers or other expressions."""
        if not any(symbol in bindings for symbol in self._symbols):
            return self
        return self._substitute(bindings)

    def _substitute(self, bindings: Mapping[Symbol, Dim]) -> Dim:
        raise NotImplementedError

    def _evaluate(self, bindings: Bindings) -> int:
        raise NotImplementedError

    def __add__(self, other: Dim) -> Dim:
        return _add(self, other, 1) if _is_dim(other) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _add(self, other, -1) if _is_dim(other) else NotImplemented

    def __rsub__(self, other: int) -> Dim:
        return _add(other, self, -1) if _is_dim(other) else NotImplemented

    def __neg__(self) -> Dim:
        return _multiply(self, -1)

    def __mul__(self, other: Dim) -> Dim:
        return _multiply(self, other) if _is_dim(other) else NotImplemented

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _floordiv(self, other) if _is_dim(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> Dim:
        return _floordiv(other, self) if _is_dim(other) else NotImplemented

    def __mod__(self, other: Dim) -> Dim:
        return _mod(self, other) if _is_dim(other) else NotImplemented

    def __rmod__(self, other: int) -> Dim:
        return _mod(other, self) if _is_dim(other) else NotImplemented

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"symbolic dimension '{self}' has no truth value; ask provably_equal, "
            "provably_different, provably_at_least or provably_less instead"
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a symbolic dimension is immutable: cannot set {name!r} of '{self}'")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a symbolic dimension is immutable: cannot delete {name!r}")

    def __repr__(self) -> str:
        return str(self)


class Polynomial(SymbolicDim):
    """Any expression that is not a single atom: a sum of coefficient × product of atoms."""

    __slots__ = ("_terms",)

    _terms: Terms

    def terms(self) -> Terms:
        return self._terms

    def _substitute(self, bindings: Mapping[Symbol, Dim]) -> Dim:
        coefficients: dict[Monomial, int] = {}
        for atoms, factor in self._terms:
            changed = tuple(atom.substitute(bindings) for atom in atoms)
            if changed == atoms:
                coefficients[atoms] = coefficients.get(atoms, 0) + factor
                continue
            product = changed[0] if len(changed) == 1 else shape_product(changed)
            for monomial, coefficient in _terms(product):
                coefficients[monomial] = coefficients.get(monomial, 0) + factor * coefficient
        return _from_coefficients(coefficients)

    def _evaluate(self, bindings: Bindings) -> int:
        return sum(
            coefficient * prod(atom._evaluate(bindings) for atom in atoms)
            for atoms, coefficient in self._terms
        )

    def __str__(self) -> str:
        return "".join(
            _term_text(atoms, coefficient, leading=index == 0)
            for index, (atoms, coefficient) in enumerate(self._terms)
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _from_coefficients, (dict(self._terms),)


class Atom(SymbolicDim):
    """An expression that the polynomial arithmetic treats as a single unknown."""

    __slots__ = ("_key",)

    # Printed text, then the ranges of the symbols in it: a total order that is the same every run.
    _key: tuple[str, tuple[int, ...]]

    def terms(self) -> Terms:
        return (((self,), 1),)

    def __str__(self) -> str:
        return self._key[0]


class Symbol(Atom):
    """A named dimension with an inclusive declared range; ``upper=None`` leaves it unbounded.

    Symbols are equal only if name and range are equal.
    """

    __slots__ = ()

    def __new__(cls, name: str, lower: int = 1, upper: int | None = None) -> Symbol:
        if not (name.isascii() and name.isidentifier()):
            raise ValueError(f"a symbol's name must be an ASCII identifier, not {name!r}")
        if lower < 0:
            raise ValueError(f"symbol {name!r}: a dimension cannot be negative, but lower={lower}")
        if upper is not None and lower > upper:
            raise ValueError(f"symbol {name!r}: the range is empty, lower={lower} > upper={upper}")
        return _intern((cls, name, lower, upper), lambda: cls._build(name, lower, upper))

    @classmethod
    def _build(cls, name: str, lower: int, upper: int | None) -> Symbol:
        symbol = object.__new__(cls)
        key = (name, (lower, -1 if upper is None else upper))
        _fill(symbol, _bounds=(lower, upper), _depth=0, _size=1, _symbols=(symbol,), _key=key)
        return symbol

    @property
    def name(self) -> str:
        return self._key[0]

    @property
    def lower(self) -> int:
        return self._key[1][0]

    @property
    def upper(self) -> int | None:
        return self._bounds[1]

    def _substitute(self, bindings: Mapping[Symbol, Dim]) -> Dim:
        return bindings.get(self, self)

    def _evaluate(self, bindings: Bindings) -> int:
        return bindings[self]

    def __reduce__(self) -> tuple[object, ...]:
        return Symbol, (self.name, self.lower, self.upper)


class Operation(Atom):
    """An atom that applies an operation to `arguments` which a polynomial cannot express."""

    __slots__ = ("arguments",)

    arguments: tuple[Dim, ...]

    # The operation itself, simplified; of integers it gives an integer.
    apply: ClassVar[Callable[..., Dim]]

    def _substitute(self, bindings: Mapping[Symbol, Dim]) -> Dim:
        return self.apply(*(substitute_dim(argument, bindings) for argument in self.arguments))

    def _evaluate(self, bindings: Bindings) -> int:
        values = (a if isinstance(a, int) else a._evaluate(bindings) for a in self.arguments)
        result = self.apply(*values)
        assert isinstance(result, int)
        return result

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).apply, self.arguments


class FloorDiv(Operation):
    """``arguments[0] // arguments[1]``, rounding down as Python does."""

    __slots__ = ()

    apply = staticmethod(operator.floordiv)


class Mod(Operation):
    """``arguments[0] % arguments[1]``, with the sign of the divisor as in Python."""

    __slots__ = ()

    apply = staticmethod(operator.mod)


class Max(Operation):
    """The largest of two or more dimensions."""

    __slots__ = ()

    @staticmethod
    def apply(*arguments: Dim) -> Dim:
        return dim_max(*arguments)


class Min(Operation):
    """The smallest of two or more dimensions."""

    __slots__ = ()

    @staticmethod
    def apply(*arguments: Dim) -> Dim:
        return dim_min(*arguments)


# Questions and operations on dimensions that may be ints ------------------------------------------


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
            known = ", ".join(f"{key}={value}" for key, value in bindings.items()) or "nothing"
            raise UnboundSymbolError(
                f"cannot evaluate '{dim}': symbol '{symbol}' has no value (bound: {known})"
            )
    return dim._evaluate(bindings)


def provably_equal(a: Dim, b: Dim) -> bool:
    """Whether a and b are equal for every binding within the declared ranges."""
    return a == b or _difference_bounds(a, b) == (0, 0)


def provably_different(a: Dim, b: Dim) -> bool:
    """Whether a and b differ for every binding within the declared ranges."""
    return intervals.excludes_zero(_difference_bounds(a, b))


def provably_at_least(a: Dim, b: Dim) -> bool:
    """Whether a >= b for every binding within the declared ranges."""
    if isinstance(a, int) and isinstance(b, int):
        return a >= b
    lower, _ = _difference_bounds(a, b)
    return lower is not None and lower >= 0


def provably_less(a: Dim, b: Dim) -> bool:
    """Whether a < b for every binding within the declared ranges."""
    _, upper = _difference_bounds(a, b)
    return upper is not None and upper < 0


def shape_product(shape: Iterable[Dim]) -> Dim:
    """The number of elements of a shape: 1 for the empty shape."""
    product: Dim = 1
    for dim in shape:
        product = product * dim
    return product


def is_static(shape: Shape) -> TypeGuard[tuple[int, ...]]:
    """Whether every dimension is a plain int."""
    return all(isinstance(dim, int) for dim in shape)


def dim_max(*dims: Dim) -> Dim:
    """The largest of the dimensions; arguments that ranges prove dominated disappear."""
    return max(dims) if dims and is_static(dims) else _extremum(Max, dims)


def dim_min(*dims: Dim) -> Dim:
    """The smallest of the dimensions; arguments that ranges prove dominated disappear."""
    return min(dims) if dims and is_static(dims) else _extremum(Min, dims)


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
    constant = _constant_of(remaining)
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


def parse_dim(text: str, symbols: Mapping[str, Symbol]) -> Dim:
    """Parse what `str` prints. Anything else, or an unknown name, is a ValueError."""
    return parse_expression(text, symbols, {"max": dim_max, "min": dim_min})


# Interning ----------------------------------------------------------------------------------------

_Interned = TypeVar("_Interned", bound=SymbolicDim)
_interned: WeakValueDictionary[tuple[object, ...], SymbolicDim] = WeakValueDictionary()
_interned_lock = RLock()
"""Taken again by its own thread where a finalizer, which may run at any moment, makes a size."""


def _renew_lock() -> None:
    """A thread that held the lock in the parent of a fork does not exist in the child."""
    global _interned_lock
    _interned_lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _intern(key: tuple[object, ...], build: Callable[[], _Interned]) -> _Interned:
    """The one live object for this key (whose first element is its class)."""
    found = _interned.get(key)
    if found is None:
        built = build()
        with _interned_lock:
            found = _interned.setdefault(key, built)
    return found  # type: ignore[return-value]  # the key names the class


def _fill(dim: SymbolicDim, **facts: object) -> None:
    """Set the slots of a new object, past the guard that keeps it immutable afterwards."""
    for name, value in facts.items():
        object.__setattr__(dim, name, value)


def _from_coefficients(coefficients: Mapping[Monomial, int]) -> Dim:
    """The canonical dimension with these terms: an int, an atom or a polynomial."""
    terms = [term for term in coefficients.items() if term[1]]
    if not terms:
        return 0
    if len(terms) == 1:
        atoms, coefficient = terms[0]
        if not atoms:
            return coefficient
        if coefficient == 1 and len(atoms) == 1:
            return atoms[0]
    terms.sort(key=_term_order)
    canonical = tuple(terms)
    return _intern((Polynomial, canonical), lambda: _build_polynomial(canonical))


def _build_polynomial(terms: Terms) -> Polynomial:
    if len(terms) > MAX_TERMS:
        raise DimensionError(f"too many terms in a symbolic dimension (more than {MAX_TERMS})")
    if len(terms[0][0]) > MAX_DEGREE:
        raise DimensionError(f"power too high in a symbolic dimension (more than {MAX_DEGREE})")
    atoms = [atom for factors, _ in terms for atom in factors]
    size = len(terms) + sum(atom._size for atom in atoms)
    _check_limits(size, (coefficient for _, coefficient in terms))
    polynomial = object.__new__(Polynomial)
    _fill(
        polynomial,
        _terms=terms,
        _bounds=_polynomial_bounds(terms),
        _depth=max(atom._depth for atom in atoms),
        _size=size,
        _symbols=_merged_symbols(atoms),
    )
    return polynomial


def _operation(kind: type[Operation], arguments: tuple[Dim, ...]) -> Operation:
    """The atom for an operation that no rule could simplify."""
    return _intern((kind, arguments), lambda: _build_operation(kind, arguments))


def _build_operation(kind: type[Operation], arguments: tuple[Dim, ...]) -> Operation:
    symbolic = [argument for argument in arguments if isinstance(argument, SymbolicDim)]
    size = len(arguments) + sum(argument._size for argument in symbolic)
    _check_limits(size, (argument for argument in arguments if isinstance(argument, int)))
    depth = 1 + max(argument._depth for argument in symbolic)
    if depth > MAX_DEPTH:
        raise DimensionError(
            f"symbolic dimension nested too deeply (more than {MAX_DEPTH} operations)"
        )
    ranges = tuple(bound for argument in symbolic for bound in _ranges(argument))
    atom = object.__new__(kind)
    _fill(
        atom,
        arguments=arguments,
        _bounds=_operation_bounds(kind, arguments),
        _depth=depth,
        _size=size,
        _symbols=_merged_symbols(symbolic),
        _key=(_operation_text(kind, arguments), ranges),
    )
    return atom


def _check_limits(size: int, integers: Iterable[int]) -> None:
    if size > MAX_SIZE:
        raise DimensionError(
            f"symbolic dimension too large (more than {MAX_SIZE} symbols and numbers)"
        )
    if any(abs(integer) > MAX_INTEGER for integer in integers):
        raise DimensionError(f"number too large in a symbolic dimension (more than {MAX_INTEGER})")


def _merged_symbols(parts: Iterable[SymbolicDim]) -> tuple[Symbol, ...]:
    return tuple(sorted({s for part in parts for s in part._symbols}, key=lambda s: s._key))


def _term_order(term: tuple[Monomial, int]) -> tuple[int, list[tuple[str, tuple[int, ...]]]]:
    """Higher degree first, then alphabetical: an order that multiplication preserves."""
    atoms = term[0]
    return -len(atoms), [atom._key for atom in atoms]


def _ranges(dim: SymbolicDim) -> tuple[int, ...]:
    """The ranges of the symbols in printing order: tells apart expressions of equal text."""
    return tuple(bound for atoms, _ in dim.terms() for atom in atoms for bound in atom._key[1])


# Arithmetic ---------------------------------------------------------------------------------------

# The layers of a model repeat the same few expressions: remembered, they cost a dictionary look-up.
_remembered = lru_cache(maxsize=1024)


def _is_dim(value: object) -> bool:
    return isinstance(value, (int, SymbolicDim))


def _terms(dim: Dim) -> Terms:
    return (((), dim),) if isinstance(dim, int) else dim.terms()


def _constant_of(dim: Dim) -> int:
    atoms, coefficient = _terms(dim)[-1]
    return 0 if atoms else coefficient


@_remembered
def _add(left: Dim, right: Dim, factor: int) -> Dim:
    """``left + factor * right``."""
    coefficients = dict(_terms(left))
    for atoms, coefficient in _terms(right):
        coefficients[atoms] = coefficients.get(atoms, 0) + factor * coefficient
    return _from_coefficients(coefficients)


@_remembered
def _multiply(left: SymbolicDim, right: Dim) -> Dim:
    if isinstance(right, int):
        return left if right == 1 else _from_coefficients({m: c * right for m, c in left.terms()})
    if len(left.terms()) * len(right.terms()) > 16 * MAX_TERMS:
        raise DimensionError(f"too many terms in a symbolic dimension (more than {MAX_TERMS})")
    coefficients: dict[Monomial, int] = {}
    for left_atoms, left_coefficient in left.terms():
        for right_atoms, right_coefficient in right.terms():
            atoms = _monomial_product(left_atoms, right_atoms)
            product = left_coefficient * right_coefficient
            coefficients[atoms] = coefficients.get(atoms, 0) + product
    return _from_coefficients(coefficients)


def _monomial_product(left: Monomial, right: Monomial) -> Monomial:
    return tuple(sorted(left + right, key=lambda atom: atom._key))


def _term_quotient(
    term: tuple[Monomial, int], divisor: tuple[Monomial, int]
) -> tuple[Monomial, int] | None:
    """``term / divisor`` if it is a term again, else None."""
    if term[1] % divisor[1]:
        return None
    atoms = list(term[0])
    for atom in divisor[0]:
        if atom not in atoms:
            return None
        atoms.remove(atom)
    return tuple(atoms), term[1] // divisor[1]


def _split(numerator: Dim, denominator: Dim) -> tuple[Dim, Dim]:
    """Quotient and remainder, ``numerator == quotient * denominator + remainder``.

    By a single term, every term that divides exactly goes into the quotient. By a longer
    polynomial it is all or nothing, since ``a//(a+1)`` is simpler than ``1+(-1)//(a+1)``.
    """
    divisor = _terms(denominator)
    if len(divisor) > 1:
        exact = _exact_quotient(numerator, divisor)
        return (0, numerator) if exact is None else (exact, 0)
    quotients = {term: _term_quotient(term, divisor[0]) for term in _terms(numerator)}
    remainder = dict(term for term, quotient in quotients.items() if quotient is None)
    quotient = dict(quotient for quotient in quotients.values() if quotient is not None)
    return _from_coefficients(quotient), _from_coefficients(remainder)


def _exact_quotient(numerator: Dim, divisor: Terms) -> Dim | None:
    """Polynomial long division, leading term by leading term; None if anything remains."""
    remaining = {atoms: coefficient for atoms, coefficient in _terms(numerator) if coefficient}
    quotient: dict[Monomial, int] = {}
    while remaining:
        leading = min(remaining.items(), key=_term_order)
        step = _term_quotient(leading, divisor[0])
        if step is None or len(quotient) == MAX_TERMS:
            return None
        quotient[step[0]] = step[1]
        for atoms, coefficient in divisor:
            product = _monomial_product(atoms, step[0])
            difference = remaining.pop(product, 0) - coefficient * step[1]
            if difference:
                remaining[product] = difference
    return _from_coefficients(quotient)


@_remembered
def _floordiv(numerator: Dim, denominator: Dim) -> Dim:
    if isinstance(denominator, int):
        return _floordiv_by_integer(numerator, denominator)
    if not intervals.excludes_zero(denominator._bounds):
        return _operation(FloorDiv, (numerator, denominator))
    quotient, remainder = _split(numerator, denominator)
    if provably_at_least(remainder, 0) and provably_less(remainder, denominator):
        return quotient
    return quotient + _fixed_or_atom(FloorDiv, remainder, denominator)


def _floordiv_by_integer(numerator: Dim, divisor: int) -> Dim:
    if divisor == 0:
        raise ZeroDivisionError(f"division of symbolic dimension '{numerator}' by zero")
    if divisor < 0:
        return -numerator // -divisor
    if isinstance(numerator, int):
        return numerator // divisor
    constant = _constant_of(numerator)
    varying = {atoms: coefficient for atoms, coefficient in numerator.terms() if atoms}
    common = gcd(divisor, *varying.values())
    if common == divisor:
        return _from_coefficients(_reduced(varying, common)) + constant // divisor
    if common > 1:  # (2*a+1)//4 is a//2
        reduced = _from_coefficients(_reduced(varying, common)) + constant // common
        return _floordiv_by_integer(reduced, divisor // common)
    if all(coefficient < 0 for coefficient in varying.values()):  # -(-a//2) is (a+1)//2
        return -_floordiv_by_integer(divisor - 1 - numerator, divisor)
    whole, rest = _split(_from_coefficients(varying), divisor)
    rest += constant % divisor
    return whole + constant // divisor + _floordiv_rest(rest, divisor)


def _reduced(coefficients: Mapping[Monomial, int], divisor: int) -> dict[Monomial, int]:
    return {atoms: coefficient // divisor for atoms, coefficient in coefficients.items()}


def _floordiv_rest(numerator: Dim, divisor: int) -> Dim:
    """Floor division once nothing more can be taken out, but for a nested one."""
    (atoms, coefficient), *others = _terms(numerator)
    if coefficient == 1 and len(atoms) == 1 and all(not factors for factors, _ in others):
        inner = atoms[0]
        if isinstance(inner, FloorDiv) and isinstance(inner.arguments[1], int):
            top, bottom = inner.arguments[0], inner.arguments[1]  # (a//2+1)//3 is (a+2)//6
            return (top + bottom * _constant_of(numerator)) // (bottom * divisor)
    return _fixed_or_atom(FloorDiv, numerator, divisor)


def _fixed_or_atom(kind: type[Operation], numerator: Dim, denominator: Dim) -> Dim:
    lower, upper = _operation_bounds(kind, (numerator, denominator))
    if lower is not None and lower == upper:
        return lower
    return _operation(kind, (numerator, denominator))


@_remembered
def _mod(numerator: Dim, denominator: Dim) -> Dim:
    if isinstance(denominator, int):
        return _mod_by_integer(numerator, denominator)
    if not intervals.excludes_zero(denominator._bounds):
        return _operation(Mod, (numerator, denominator))
    _, remainder = _split(numerator, denominator)
    if provably_at_least(remainder, 0) and provably_less(remainder, denominator):
        return remainder
    return _fixed_or_atom(Mod, remainder, denominator)


def _mod_by_integer(numerator: Dim, divisor: int) -> Dim:
    if divisor == 0:
        raise ZeroDivisionError(f"symbolic dimension '{numerator}' modulo zero")
    if divisor < 0:
        return -(-numerator % -divisor)
    # Coefficients keep their sign, (-n)%4 staying itself, but the constant is made positive.
    reduced = {m: c % divisor if c > 0 or not m else -(-c % divisor) for m, c in _terms(numerator)}
    remainder = _from_coefficients(reduced)
    if isinstance(remainder, int):
        return remainder
    lower, upper = _operation_bounds(FloorDiv, (remainder, divisor))
    if lower is not None and lower == upper:
        return remainder - lower * divisor
    return _operation(Mod, (remainder, divisor))


@_remembered
def _extremum(kind: type[Operation], dims: tuple[Dim, ...]) -> Dim:
    """The symbolic half of `dim_max` and `dim_min`."""
    if not dims:
        raise ValueError(f"{kind.__name__.lower()} of no dimensions")

    def dominates(a: Dim, b: Dim) -> bool:
        return provably_at_least(a, b) if kind is Max else provably_at_least(b, a)

    flat: list[Dim] = []
    for dim in dims:
        flat.extend(dim.arguments if isinstance(dim, kind) else (dim,))
    unique = sorted(set(flat), key=_argument_order)
    if len(unique) > MAX_ARGUMENTS:
        raise DimensionError(f"too many terms in one max or min (more than {MAX_ARGUMENTS})")
    kept: list[Dim] = []
    for dim in unique:
        if not any(dominates(other, dim) for other in kept):
            kept = [other for other in kept if not dominates(dim, other)] + [dim]
    return kept[0] if len(kept) == 1 else _operation(kind, tuple(kept))


def _argument_order(dim: Dim) -> tuple[bool, str, tuple[int, ...]]:
    """Expressions alphabetically, then the constant."""
    if isinstance(dim, int):
        return True, str(dim), ()
    return False, str(dim), _ranges(dim)


# Bounds ------------------------------------------------------------------------------------------


def _difference_bounds(a: Dim, b: Dim) -> Interval:
    """The bounds of a difference; of one that is too large to be written, nothing is known."""
    try:
        return _bounds(a - b)
    except ValueError:
        return None, None


def _bounds(dim: Dim) -> Interval:
    return (dim, dim) if isinstance(dim, int) else dim._bounds


def _polynomial_bounds(terms: Terms) -> Interval:
    lower: int | None = 0
    upper: int | None = 0
    for atoms, coefficient in terms:
        product: Interval = (1, 1)
        for atom in atoms:
            product = intervals.product(product, atom._bounds)
        low, high = product if coefficient > 0 else product[::-1]
        lower = None if lower is None or low is None else lower + coefficient * low
        upper = None if upper is None or high is None else upper + coefficient * high
    return lower, upper


def _operation_bounds(kind: type[Operation], arguments: tuple[Dim, ...]) -> Interval:
    bounds = [_bounds(argument) for argument in arguments]
    if kind is Max:
        return intervals.maximum(bounds)
    if kind is Min:
        return intervals.minimum(bounds)
    divide = intervals.quotient if kind is FloorDiv else intervals.remainder
    return divide(*bounds)


# Printing -----------------------------------------------------------------------------------------


def _term_text(atoms: Monomial, coefficient: int, *, leading: bool) -> str:
    sign = "-" if coefficient < 0 else "" if leading else "+"
    factors = [] if abs(coefficient) == 1 and atoms else [str(abs(coefficient))]
    minus_binds_tighter = leading and coefficient < 0
    for atom in atoms:
        bare = not isinstance(atom, (FloorDiv, Mod)) or not (factors or minus_binds_tighter)
        factors.append(str(atom) if bare else f"({atom})")
    return sign + "*".join(factors)


def _operation_text(kind: type[Operation], arguments: tuple[Dim, ...]) -> str:
    if kind is Max or kind is Min:
        return f"{kind.__name__.lower()}({', '.join(map(str, arguments))})"
    numerator, denominator = arguments
    terms = _terms(numerator)
    bare_top = len(terms) == 1 and terms[0][1] >= 0
    bare_bottom = isinstance(denominator, (int, Symbol, Max, Min))
    top = str(numerator) if bare_top else f"({numerator})"
    bottom = str(denominator) if bare_bottom else f"({denominator})"
    return f"{top}{'//' if kind is FloorDiv else '%'}{bottom}"
