"""Symbols, and what ``+``, ``-`` and ``*`` make of them.

A polynomial is a sum of terms, each a coefficient times a product of *atoms*. Terms and factors
stand in one order, equal terms are added up, and a sum of no terms is an int: that is the canonical
form. `intern` then sees to it that equal expressions are one object. A sum that outgrows the limits
is cut into parts that later arithmetic treats as single unknowns: see `definitions`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from threading import RLock
from typing import Any, ClassVar, NoReturn, TypeAlias, TypeGuard, TypeVar, Union
from weakref import WeakValueDictionary

from monograph.errors import DimensionError
from monograph.ir.dims import intervals
from monograph.ir.dims.definitions import let_text, merge_definitions
from monograph.ir.dims.intervals import Interval

MAX_TERMS = 256  # in one polynomial
MAX_DEGREE = 64  # factors in one term
MAX_SIZE = 512  # symbols and numbers in one polynomial; larger ones are cut into opaque parts
MAX_INLINE = 64  # symbols and numbers of an atom that prints where it stands; larger ones are named
MAX_TOTAL = 2**16  # symbols and numbers in an expression, with the definitions of all named parts
GROWN_TOTAL = MAX_TOTAL // 8  # from here on, sums of many terms are single unknowns to arithmetic
HUGE_TOTAL = MAX_TOTAL // 2  # from here on, all sums are
MAX_GROWN_TERMS = 16  # terms of a sum that arithmetic still looks into, from GROWN_TOTAL on
MAX_INTEGER = 10**19 - 1  # what the parser accepts, so that all that prints parses back

Dim: TypeAlias = Union[int, "SymbolicDim"]
Shape: TypeAlias = tuple[Dim, ...]
Bindings: TypeAlias = Mapping["Symbol", int]
Monomial: TypeAlias = tuple["Atom", ...]  # sorted factors; a power is a repeated factor
Enclosure: TypeAlias = tuple[int, tuple[Dim, ...], tuple[Dim, ...]]
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]

OPERATIONS: dict[str, Callable[..., Dim]] = {}
"""``//``, ``%`` and opaque parts, which are no matter of polynomials: `operations` enters them."""


class SymbolicDim:
    """An immutable integer expression over symbols; see the docstring of the package.

    Build one from a `Symbol` and ordinary arithmetic. It has no truth value, no order and no
    conversion to int, so that code which quietly assumes static shapes fails where it stands.
    """

    __slots__ = ("__weakref__", "_bounds", "_definitions", "_depth", "_size", "_symbols", "_total")

    _bounds: Interval
    _definitions: tuple[Atom, ...]  # the named atoms inside, each after those that it refers to
    _depth: int
    _size: int
    _symbols: tuple[Symbol, ...]
    _total: int  # its size, and that of the definitions of all named atoms inside

    def terms(self) -> Terms:
        """The canonical sum: (factors, coefficient) pairs, in printing order."""
        raise NotImplementedError

    def bounds(self) -> Interval:
        """Inclusive lower and upper bound, None where unbounded; exact for affine expressions."""
        return self._bounds

    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol in the expression, however deep, once each, sorted by name."""
        return self._symbols

    def definitions(self) -> tuple[Atom, ...]:
        """The named atoms inside (see `definitions`), each after those that it refers to."""
        return self._definitions

    def substitute(self, bindings: Mapping[Symbol, Dim]) -> Dim:
        """Replace symbols, all at once, by integers or other expressions."""
        if not any(symbol in bindings for symbol in self._symbols):
            return self
        if not self._definitions:
            return self._substitute(bindings)
        known: dict[Any, Dim] = dict(bindings)
        for atom in self._definitions:  # in their order, so that none recurses into another
            known[atom] = atom._replace(known)
        return self._substitute(known)

    def _substitute(self, bindings: Mapping[Any, Dim]) -> Dim:
        """The result, of values for the symbols and for every named atom inside."""
        raise NotImplementedError

    def _evaluate(self, bindings: Mapping[Any, int]) -> int:
        """The value, of those of the symbols and of every named atom inside."""
        raise NotImplementedError

    def _replace(self, bindings: Mapping[Any, Dim]) -> Dim:
        """`_substitute`, if there is anything to replace."""
        if not any(symbol in bindings for symbol in self._symbols):
            return self
        return self._substitute(bindings)

    def _value(self, bindings: Mapping[Any, int]) -> int:
        """`_evaluate`, but that the value of a named atom is looked up."""
        return self._evaluate(bindings)

    def _text(self) -> str:
        """The printed form, but that the marks of named atoms stand for them."""
        raise NotImplementedError

    def _list_definitions(self) -> tuple[Atom, ...]:
        """The named atoms that must be defined before `_text` can be read."""
        return self._definitions

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
        return OPERATIONS["//"](self, other) if _is_dim(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> Dim:
        return OPERATIONS["//"](other, self) if _is_dim(other) else NotImplemented

    def __mod__(self, other: Dim) -> Dim:
        return OPERATIONS["%"](self, other) if _is_dim(other) else NotImplemented

    def __rmod__(self, other: int) -> Dim:
        return OPERATIONS["%"](other, self) if _is_dim(other) else NotImplemented

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"symbolic dimension '{self}' has no truth value; ask provably_equal, "
            "provably_different, provably_at_least or provably_less instead"
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a symbolic dimension is immutable: cannot set {name!r} of '{self}'")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a symbolic dimension is immutable: cannot delete {name!r}")

    def __copy__(self) -> SymbolicDim:
        return self

    def __deepcopy__(self, memo: object) -> SymbolicDim:
        return self

    def __str__(self) -> str:
        definitions = self._list_definitions()
        return let_text(self, definitions) if definitions else self._text()

    def __repr__(self) -> str:
        return str(self)


class Polynomial(SymbolicDim):
    """Any expression that is not a single atom: a sum of coefficient × product of atoms."""

    __slots__ = ("_terms",)

    _terms: Terms

    def terms(self) -> Terms:
        return self._terms

    def _substitute(self, bindings: Mapping[Any, Dim]) -> Dim:
        coefficients: dict[Monomial, int] = {}
        for atoms, factor in self._terms:
            changed = tuple(atom._replace(bindings) for atom in atoms)
            if changed == atoms:
                coefficients[atoms] = coefficients.get(atoms, 0) + factor
                continue
            product = changed[0] if len(changed) == 1 else shape_product(changed)
            for monomial, coefficient in terms_of(product):
                coefficients[monomial] = coefficients.get(monomial, 0) + factor * coefficient
        return from_coefficients(coefficients)

    def _evaluate(self, bindings: Mapping[Any, int]) -> int:
        total = 0
        for atoms, value in self._terms:  # plain loops: sums of generators take twice as long
            for atom in atoms:
                value *= atom._value(bindings)
            total += value
        return total

    def _text(self) -> str:
        return "".join(
            _term_text(atoms, coefficient, leading=index == 0)
            for index, (atoms, coefficient) in enumerate(self._terms)
        )

    def __reduce__(self) -> tuple[object, ...]:
        return from_coefficients, (dict(self._terms),)


class Atom(SymbolicDim):
    """An expression that the polynomial arithmetic treats as a single unknown."""

    __slots__ = ("_definition", "_key")

    # Printed text, then the ranges of the symbols in it: a total order that is the same every run.
    _key: tuple[str, tuple[int, ...]]

    # If it is too large to be printed where it stands: its text and the size of that.
    _definition: tuple[str, int] | None

    # Whether it needs parentheses between other factors.
    is_quotient: ClassVar[bool] = False

    def terms(self) -> Terms:
        return (((self,), 1),)

    def enclosure(self) -> Enclosure:
        """What relates it to its parts: a factor, and what ``factor*self`` is at least, at most."""
        return 1, (), ()

    def _text(self) -> str:
        return self._key[0]

    def _list_definitions(self) -> tuple[Atom, ...]:
        return self._definitions if self._definition is None else (*self._definitions, self)

    def _replace(self, bindings: Mapping[Any, Dim]) -> Dim:
        if self._definition is not None and self in bindings:
            return bindings[self]
        return super()._replace(bindings)

    def _value(self, bindings: Mapping[Any, int]) -> int:
        return self._evaluate(bindings) if self._definition is None else bindings[self]


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
        return intern((cls, name, lower, upper), lambda: cls._build(name, lower, upper))

    @classmethod
    def _build(cls, name: str, lower: int, upper: int | None) -> Symbol:
        symbol = object.__new__(cls)
        key = (name, (lower, -1 if upper is None else upper))
        fill(symbol, _bounds=(lower, upper), _depth=0, _size=1, _symbols=(symbol,), _key=key)
        fill(symbol, _definition=None, _definitions=(), _total=1)
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

    def _substitute(self, bindings: Mapping[Any, Dim]) -> Dim:
        return bindings.get(self, self)

    def _evaluate(self, bindings: Mapping[Any, int]) -> int:
        return bindings[self]

    _value = _evaluate

    def __reduce__(self) -> tuple[object, ...]:
        return Symbol, (self.name, self.lower, self.upper)


def shape_product(shape: Iterable[Dim]) -> Dim:
    """The number of elements of a shape: 1 for the empty shape."""
    product: Dim = 1
    for dim in shape:
        product = product * dim
    return product


def is_static(shape: Shape) -> TypeGuard[tuple[int, ...]]:
    """Whether every dimension is a plain int."""
    return all(isinstance(dim, int) for dim in shape)


# Interning ----------------------------------------------------------------------------------------

Interned = TypeVar("Interned", bound=SymbolicDim)
_interned: WeakValueDictionary[tuple[object, ...], SymbolicDim] = WeakValueDictionary()
_interned_lock = RLock()
"""Taken again by its own thread where a finalizer, which may run at any moment, makes a size."""


def _renew_lock() -> None:
    """A thread that held the lock in the parent of a fork does not exist in the child."""
    global _interned_lock
    _interned_lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def intern(key: tuple[object, ...], build: Callable[[], Interned]) -> Interned:
    """The one live object for this key (whose first element is its class)."""
    found = _interned.get(key)
    if found is None:
        built = build()
        with _interned_lock:
            found = _interned.setdefault(key, built)
    return found  # type: ignore[return-value]  # the key names the class


def fill(dim: SymbolicDim, **facts: object) -> None:
    """Set the slots of a new object, past the guard that keeps it immutable afterwards."""
    for name, value in facts.items():
        object.__setattr__(dim, name, value)


def from_coefficients(coefficients: Mapping[Monomial, int]) -> Dim:
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
    terms.sort(key=term_order)
    canonical = tuple(terms)
    found = _interned.get((Polynomial, canonical))
    if found is not None:
        return found
    if _is_large(canonical):
        return _in_opaque_parts(canonical)
    return intern((Polynomial, canonical), lambda: _build_polynomial(canonical))


def _build_polynomial(terms: Terms) -> Polynomial:
    check_integers(coefficient for _, coefficient in terms)
    atoms = [atom for factors, _ in terms for atom in factors]
    size = _size_of(terms)
    definitions = merge_definitions(atoms)
    total = check_total(size, definitions)
    polynomial = object.__new__(Polynomial)
    fill(
        polynomial,
        _terms=terms,
        _bounds=intervals.widen_to_short_ends(_polynomial_bounds(terms)),
        _definitions=definitions,
        _depth=max(atom._depth for atom in atoms),
        _size=size,
        _symbols=merge_symbols(atoms),
        _total=total,
    )
    return polynomial


def check_integers(integers: Iterable[int]) -> None:
    """Refuse a number that could not be parsed back; no size of a tensor is as large."""
    if any(abs(integer) > MAX_INTEGER for integer in integers):
        raise DimensionError(f"number too large in a symbolic dimension (more than {MAX_INTEGER})")


def check_total(size: int, definitions: Iterable[Atom]) -> int:
    """The size with the definitions of all parts; what could not be parsed back is refused."""
    total = size + sum(atom._definition[1] for atom in definitions if atom._definition is not None)
    if total > MAX_TOTAL:
        raise DimensionError(
            f"symbolic dimension too large (more than {MAX_TOTAL} symbols and numbers)"
        )
    return total


def _size_of(terms: Terms) -> int:
    return len(terms) + sum(atom._size for factors, _ in terms for atom in factors)


def _is_large(terms: Terms) -> bool:
    """Whether a sum is beyond the limits of one polynomial; terms of most factors come first."""
    return len(terms) > MAX_TERMS or len(terms[0][0]) > MAX_DEGREE or _size_of(terms) > MAX_SIZE


def _in_opaque_parts(terms: Terms) -> Dim:
    """A sum that is too large for a polynomial, as a sum of opaque parts of it.

    Which parts depends on the terms alone, so that equal sums stay equal. The constant stays
    outside, for rules that look at it.
    """
    total: Dim = 0
    part: dict[Monomial, int] = {}
    size = 0
    for atoms, coefficient in terms:
        factors = _with_opaque_powers(atoms)
        length = 1 + sum(atom._size for atom in factors)
        if part and (size + length > MAX_SIZE // 2 or len(part) == MAX_TERMS // 2 or not factors):
            total += OPERATIONS["opaque"](from_coefficients(part))
            part, size = {}, 0
        part[factors] = part.get(factors, 0) + coefficient
        size += length
    last = from_coefficients(part)
    return total + (last if () in part else OPERATIONS["opaque"](last))


def _with_opaque_powers(atoms: Monomial) -> Monomial:
    """The factors of a term; where they are too many, or too long, products of them are opaque."""
    while len(atoms) > MAX_DEGREE or sum(atom._size for atom in atoms) > MAX_SIZE // 2:
        count = 2
        while _size_of(((atoms[:count], 1),)) <= MAX_INLINE:
            count += 1
        product = OPERATIONS["opaque"](from_coefficients({atoms[:count]: 1}))
        atoms = monomial_product(atoms[count:], tuple(terms_of(product)[0][0]))
    return atoms


def merge_symbols(parts: Iterable[SymbolicDim]) -> tuple[Symbol, ...]:
    """The symbols of all parts, once each, sorted."""
    return tuple(sorted({s for part in parts for s in part._symbols}, key=lambda s: s._key))


def term_order(term: tuple[Monomial, int]) -> tuple[int, list[tuple[str, tuple[int, ...]]]]:
    """Higher degree first, then alphabetical: an order that multiplication preserves."""
    atoms = term[0]
    return -len(atoms), [atom._key for atom in atoms]


def ranges_of(dim: SymbolicDim) -> tuple[int, ...]:
    """The ranges of the symbols in printing order: tells apart expressions of equal text."""
    return tuple(bound for atoms, _ in dim.terms() for atom in atoms for bound in atom._key[1])


# Arithmetic ---------------------------------------------------------------------------------------

# The layers of a model repeat the same few expressions: remembered, they cost a dictionary look-up.
remembered = lru_cache(maxsize=1024)


def _is_dim(value: object) -> bool:
    return isinstance(value, (int, SymbolicDim))


def terms_of(dim: Dim) -> Terms:
    """`SymbolicDim.terms`, of ints too."""
    return (((), dim),) if isinstance(dim, int) else dim.terms()


def constant_of(dim: Dim) -> int:
    """The term without factors: 1 of ``2*seq+1``."""
    atoms, coefficient = terms_of(dim)[-1]
    return 0 if atoms else coefficient


def shorten(dim: Dim) -> Dim:
    """An operand of arithmetic: a sum is one unknown where the expression has grown very large.

    A long computation of sizes then grows by a few numbers a step, and never beyond the limit. The
    constant stays outside. What is shortened once is short, so that equal operands stay equal.
    """
    if isinstance(dim, int) or dim._total <= GROWN_TOTAL:
        return dim
    constant = constant_of(dim)
    varying = [term for term in dim.terms() if term[0]]
    if len(varying) <= (1 if dim._total > HUGE_TOTAL else MAX_GROWN_TERMS):
        return dim
    unknown = OPERATIONS["as opaque"](from_coefficients(dict(varying)))
    return from_coefficients({**dict(terms_of(unknown)), (): constant})


@remembered
def _add(left: Dim, right: Dim, factor: int) -> Dim:
    """``left + factor * right``."""
    if not (isinstance(left, int) or isinstance(right, int)):
        left, right = shorten(left), shorten(right)
    coefficients = dict(terms_of(left))
    for atoms, coefficient in terms_of(right):
        coefficients[atoms] = coefficients.get(atoms, 0) + factor * coefficient
    return from_coefficients(coefficients)


def dim_sum(dims: Iterable[Dim]) -> Dim:
    """The sum of many dimensions, in one go."""
    coefficients: dict[Monomial, int] = {}
    for dim in dims:
        for atoms, coefficient in terms_of(dim):
            coefficients[atoms] = coefficients.get(atoms, 0) + coefficient
    return from_coefficients(coefficients)


@remembered
def _multiply(left: SymbolicDim, right: Dim) -> Dim:
    if isinstance(right, int):
        return left if right == 1 else from_coefficients({m: c * right for m, c in left.terms()})
    left, right = _shorten_factor(left, right), _shorten_factor(right, left)
    if len(left.terms()) * len(right.terms()) > 16 * MAX_TERMS:
        opaque = OPERATIONS["opaque"]
        return opaque(left) * opaque(right)  # each is now short enough, or a single unknown
    coefficients: dict[Monomial, int] = {}
    for left_atoms, left_coefficient in left.terms():
        for right_atoms, right_coefficient in right.terms():
            atoms = monomial_product(left_atoms, right_atoms)
            product = left_coefficient * right_coefficient
            coefficients[atoms] = coefficients.get(atoms, 0) + product
    return from_coefficients(coefficients)


def _shorten_factor(factor: SymbolicDim, other: SymbolicDim) -> SymbolicDim:
    """A factor, as one unknown where the expression has grown and the product has many terms."""
    has_grown = max(factor._total, other._total) > GROWN_TOTAL
    if not has_grown or len(factor.terms()) * len(other.terms()) <= MAX_GROWN_TERMS:
        return factor
    found = OPERATIONS["as opaque"](factor)
    assert isinstance(found, SymbolicDim)
    return found


def monomial_product(left: Monomial, right: Monomial) -> Monomial:
    """The factors of both, in order."""
    return tuple(sorted(left + right, key=lambda atom: atom._key))


# Bounds and text ----------------------------------------------------------------------------------


def bounds_of(dim: Dim) -> Interval:
    """`SymbolicDim.bounds`, of ints too."""
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


def _term_text(atoms: Monomial, coefficient: int, *, leading: bool) -> str:
    sign = "-" if coefficient < 0 else "" if leading else "+"
    factors = [] if abs(coefficient) == 1 and atoms else [str(abs(coefficient))]
    minus_binds_tighter = leading and coefficient < 0
    for atom in atoms:
        is_quotient = atom.is_quotient and atom._definition is None
        bare = not is_quotient or not (factors or minus_binds_tighter)
        factors.append(atom._text() if bare else f"({atom._text()})")
    return sign + "*".join(factors)
