"""What a polynomial cannot express: ``//``, ``%``, ``max`` and ``min`` of dimensions.

Each is an atom of the polynomials around it, made only where no rule finds anything simpler: terms
that divide exactly are taken out, what the declared ranges decide is decided.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any, ClassVar

from monograph.errors import ZeroDivisorError
from monograph.ir.dims import intervals
from monograph.ir.dims.definitions import mark_of, merge_definitions
from monograph.ir.dims.intervals import Interval
from monograph.ir.dims.polynomial import (
    HUGE_TOTAL,
    MAX_INLINE,
    MAX_SIZE,
    MAX_TERMS,
    OPERATIONS,
    Atom,
    Dim,
    Enclosure,
    Monomial,
    Symbol,
    SymbolicDim,
    Terms,
    bounds_of,
    check_integers,
    check_total,
    constant_of,
    fill,
    from_coefficients,
    intern,
    is_static,
    merge_symbols,
    monomial_product,
    ranges_of,
    remembered,
    shorten,
    term_order,
    terms_of,
)
from monograph.ir.dims.proofs import provably_at_least, provably_less

MAX_ARGUMENTS = 32  # of one max or min; more are nested
MAX_DEPTH = 30  # atoms inside atoms; prints with at most twice as many nested parentheses


class Operation(Atom):
    """An atom that applies an operation to `arguments` which a polynomial cannot express."""

    __slots__ = ("arguments",)

    arguments: tuple[Dim, ...]

    # The operation itself, simplified; of integers it gives an integer.
    apply: ClassVar[Callable[..., Dim]]

    # The bounds of the result, from those of the arguments.
    interval: ClassVar[Callable[..., Interval]]

    @classmethod
    def text(cls, *arguments: Dim) -> str:
        """How it prints; expressions of equal text may differ in the ranges of their symbols."""
        return f"{cls.__name__.lower()}({', '.join(map(_text, arguments))})"

    def _substitute(self, bindings: Mapping[Any, Dim]) -> Dim:
        values = (a if isinstance(a, int) else a._replace(bindings) for a in self.arguments)
        return self.apply(*values)

    def _evaluate(self, bindings: Mapping[Any, int]) -> int:
        result = self.apply(*self._values(bindings))
        assert isinstance(result, int)
        return result

    def _values(self, bindings: Mapping[Any, int]) -> list[int]:
        """The arguments as integers."""
        return [a if isinstance(a, int) else a._value(bindings) for a in self.arguments]

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).apply, self.arguments


def _is_positive(dim: Dim) -> bool:
    least, _ = bounds_of(dim)
    return least is not None and least > 0


class Division(Operation):
    """A quotient or a remainder: two arguments, printed with a sign between them."""

    __slots__ = ()

    is_quotient = True
    sign: ClassVar[str]

    @classmethod
    def text(cls, *arguments: Dim) -> str:
        numerator, denominator = arguments
        terms = terms_of(numerator)
        bare_top = len(terms) == 1 and terms[0][1] >= 0
        bare_bottom = isinstance(denominator, (int, Symbol, Max, Min))
        bare_bottom = bare_bottom or (isinstance(denominator, Atom) and _is_named(denominator))
        top = _text(numerator) if bare_top else f"({_text(numerator)})"
        bottom = _text(denominator) if bare_bottom else f"({_text(denominator)})"
        return f"{top}{cls.sign}{bottom}"

    def _evaluate(self, bindings: Mapping[Any, int]) -> int:
        numerator, denominator = self._values(bindings)
        if denominator == 0:
            raise ZeroDivisorError(
                f"cannot evaluate '{self}': its divisor '{self.arguments[1]}' is zero",
                found=", ".join(f"{symbol}={bindings[symbol]}" for symbol in self._symbols),
                hint="give sizes for which the divisor is not zero",
            )
        return numerator // denominator if isinstance(self, FloorDiv) else numerator % denominator


class FloorDiv(Division):
    """``arguments[0] // arguments[1]``, rounding down as Python does."""

    __slots__ = ()

    sign = "//"
    apply = staticmethod(operator.floordiv)
    interval = staticmethod(intervals.quotient)

    def enclosure(self) -> Enclosure:
        numerator, denominator = self.arguments
        if not isinstance(denominator, int):
            return super().enclosure()
        return denominator, (numerator - (denominator - 1),), (numerator,)


class Mod(Division):
    """``arguments[0] % arguments[1]``, with the sign of the divisor as in Python."""

    __slots__ = ()

    sign = "%"
    apply = staticmethod(operator.mod)
    interval = staticmethod(intervals.remainder)

    def enclosure(self) -> Enclosure:
        numerator, denominator = self.arguments
        if not _is_positive(denominator):
            return super().enclosure()
        least, _ = bounds_of(numerator)
        is_plain = least is not None and least >= 0
        return 1, (0,), (denominator - 1, *((numerator,) if is_plain else ()))


class Max(Operation):
    """The largest of two or more dimensions."""

    __slots__ = ()

    @staticmethod
    def apply(*arguments: Dim) -> Dim:
        return dim_max(*arguments)

    @staticmethod
    def interval(*arguments: Interval) -> Interval:
        return intervals.maximum(arguments)

    def _evaluate(self, bindings: Mapping[Any, int]) -> int:
        return max(self._values(bindings))

    def enclosure(self) -> Enclosure:
        return 1, self.arguments, ()


class Min(Operation):
    """The smallest of two or more dimensions."""

    __slots__ = ()

    @staticmethod
    def apply(*arguments: Dim) -> Dim:
        return dim_min(*arguments)

    @staticmethod
    def interval(*arguments: Interval) -> Interval:
        return intervals.minimum(arguments)

    def _evaluate(self, bindings: Mapping[Any, int]) -> int:
        return min(self._values(bindings))

    def enclosure(self) -> Enclosure:
        return 1, (), self.arguments


class Opaque(Operation):
    """A sum or product that arithmetic takes for a single unknown, since it has grown too large."""

    __slots__ = ()

    @staticmethod
    def apply(*arguments: Dim) -> Dim:
        return opaque(*arguments)

    @staticmethod
    def interval(*arguments: Interval) -> Interval:
        return arguments[0]


def opaque(dim: Dim) -> Dim:
    """The same dimension as a single unknown, if it is large: one more name, but short terms.

    The sign stays outside: what is opaque of ``-x`` cancels what is opaque of ``x``.
    """
    return dim if isinstance(dim, int) or dim._size <= MAX_INLINE else as_opaque(dim)


def as_opaque(dim: Dim) -> Dim:
    """The same dimension as a single unknown, however large it is."""
    if isinstance(dim, int | Atom):
        return dim
    if dim.terms()[0][1] < 0:
        return -as_opaque(-dim)
    return _operation(Opaque, (dim,))


def dim_max(*dims: Dim) -> Dim:
    """The largest of the dimensions; arguments that ranges prove dominated disappear."""
    return max(dims) if dims and is_static(dims) else _extremum(Max, dims)


def dim_min(*dims: Dim) -> Dim:
    """The smallest of the dimensions; arguments that ranges prove dominated disappear."""
    return min(dims) if dims and is_static(dims) else _extremum(Min, dims)


def _operation(kind: type[Operation], arguments: tuple[Dim, ...]) -> Operation:
    """The atom for an operation that no rule could simplify."""
    return intern((kind, arguments), lambda: _build_operation(kind, arguments))


def _build_operation(kind: type[Operation], arguments: tuple[Dim, ...]) -> Operation:
    check_integers(argument for argument in arguments if isinstance(argument, int))
    symbolic = [argument for argument in arguments if isinstance(argument, SymbolicDim)]
    size = len(arguments) + sum(argument._size for argument in symbolic)
    depth = 1 + max(argument._depth for argument in symbolic)
    definitions = merge_definitions(symbolic)
    total = check_total(size, definitions)
    text = kind.text(*arguments)
    ranges = tuple(bound for argument in symbolic for bound in ranges_of(argument))
    named = kind is Opaque or size > MAX_INLINE or depth > MAX_DEPTH
    atom = object.__new__(kind)
    fill(
        atom,
        arguments=arguments,
        _bounds=kind.interval(*map(bounds_of, arguments)),
        _definition=(text, size) if named else None,
        _definitions=definitions,
        _depth=0 if named else depth,
        _size=1 if named else size,
        _symbols=merge_symbols(symbolic),
        _total=total,
        _key=(mark_of(text, ranges), ()) if named else (text, ranges),
    )
    return atom


def _text(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else dim._text()


def _size(dim: Dim) -> int:
    return 1 if isinstance(dim, int) else dim._size


def _is_long(arguments: Sequence[Dim]) -> bool:
    """Whether arguments are beyond the limits of one operation, and some can be made shorter."""
    sizes = [_size(argument) for argument in arguments]
    return sum(sizes) > 2 * MAX_SIZE and max(sizes) > MAX_INLINE


def _is_named(atom: Atom) -> bool:
    return atom._definition is not None


# Division -----------------------------------------------------------------------------------------


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
    divisor = terms_of(denominator)
    if len(divisor) > 1:
        exact = _exact_quotient(numerator, divisor)
        return (0, numerator) if exact is None else (exact, 0)
    quotients = {term: _term_quotient(term, divisor[0]) for term in terms_of(numerator)}
    remainder = dict(term for term, quotient in quotients.items() if quotient is None)
    quotient = dict(quotient for quotient in quotients.values() if quotient is not None)
    return from_coefficients(quotient), from_coefficients(remainder)


def _exact_quotient(numerator: Dim, divisor: Terms) -> Dim | None:
    """Polynomial long division, leading term by leading term; None if anything remains."""
    remaining = {atoms: coefficient for atoms, coefficient in terms_of(numerator) if coefficient}
    quotient: dict[Monomial, int] = {}
    while remaining:
        leading = min(remaining.items(), key=term_order)
        step = _term_quotient(leading, divisor[0])
        if step is None or len(quotient) == MAX_TERMS:
            return None
        quotient[step[0]] = step[1]
        for atoms, coefficient in divisor:
            product = monomial_product(atoms, step[0])
            difference = remaining.pop(product, 0) - coefficient * step[1]
            if difference:
                remaining[product] = difference
    return from_coefficients(quotient)


def exact_quotient(numerator: Dim, denominator: Dim) -> Dim:
    """``numerator // denominator`` of what is known to divide, where the divisor is not zero.

    Unlike ``//``, which keeps ``2*a*b//(2*a)`` since a may be zero, it gives ``b``.
    """
    exact = _exact_quotient(numerator, terms_of(denominator))
    return numerator // denominator if exact is None else exact


@remembered
def _floordiv(numerator: Dim, denominator: Dim) -> Dim:
    numerator, denominator = shorten(numerator), shorten(denominator)
    if isinstance(denominator, int):
        return _floordiv_by_integer(numerator, denominator)
    if not intervals.excludes_zero(denominator._bounds):
        return _operation(FloorDiv, (numerator, denominator))
    quotient, remainder = _split(numerator, denominator)
    if provably_at_least(remainder, 0) and provably_less(remainder, denominator):
        return quotient
    return quotient + _fold_or_atom(FloorDiv, remainder, denominator)


def _floordiv_by_integer(numerator: Dim, divisor: int) -> Dim:
    if divisor == 0:
        raise ZeroDivisorError(f"division of symbolic dimension '{numerator}' by zero")
    if divisor < 0:
        return -numerator // -divisor
    if isinstance(numerator, int):
        return numerator // divisor
    constant = constant_of(numerator)
    varying = {atoms: coefficient for atoms, coefficient in numerator.terms() if atoms}
    whole, rest = _split(from_coefficients(varying), divisor)
    whole += constant // divisor
    if isinstance(rest, int):
        return whole
    return whole + _floordiv_indivisible(rest, constant % divisor, divisor)


def _floordiv_indivisible(rest: SymbolicDim, constant: int, divisor: int) -> Dim:
    """``(rest + constant) // divisor``, of terms none of which the divisor divides."""
    common = gcd(divisor, *(coefficient for _, coefficient in rest.terms()))
    if common > 1:  # (2*a+1)//4 is a//2
        reduced = (
            from_coefficients(_reduce_coefficients(dict(rest.terms()), common)) + constant // common
        )
        return _floordiv_by_integer(reduced, divisor // common)
    if all(coefficient < 0 for _, coefficient in rest.terms()):  # -(-a//2) is (a+1)//2
        return -_floordiv_by_integer(divisor - 1 - constant - rest, divisor)
    return _floordiv_rest(rest + constant, divisor)


def _reduce_coefficients(coefficients: Mapping[Monomial, int], divisor: int) -> dict[Monomial, int]:
    return {atoms: coefficient // divisor for atoms, coefficient in coefficients.items()}


def _floordiv_rest(numerator: Dim, divisor: int) -> Dim:
    """Floor division once nothing more can be taken out, but for a nested one."""
    (atoms, coefficient), *others = terms_of(numerator)
    if coefficient == 1 and len(atoms) == 1 and all(not factors for factors, _ in others):
        inner = atoms[0]
        if isinstance(inner, FloorDiv) and isinstance(inner.arguments[1], int):
            top, bottom = inner.arguments[0], inner.arguments[1]  # (a//2+1)//3 is (a+2)//6
            return (top + bottom * constant_of(numerator)) // (bottom * divisor)
    return _fold_or_atom(FloorDiv, numerator, divisor)


def _fold_or_atom(kind: type[Operation], numerator: Dim, denominator: Dim) -> Dim:
    lower, upper = kind.interval(bounds_of(numerator), bounds_of(denominator))
    if lower is not None and lower == upper:
        return lower
    return _operation(kind, (numerator, denominator))


@remembered
def _mod(numerator: Dim, denominator: Dim) -> Dim:
    numerator, denominator = shorten(numerator), shorten(denominator)
    if isinstance(denominator, int):
        return _mod_by_integer(numerator, denominator)
    if not intervals.excludes_zero(denominator._bounds):
        return _operation(Mod, (numerator, denominator))
    _, remainder = _split(numerator, denominator)
    if provably_at_least(remainder, 0) and provably_less(remainder, denominator):
        return remainder
    return _fold_or_atom(Mod, remainder, denominator)


def _mod_by_integer(numerator: Dim, divisor: int) -> Dim:
    if divisor == 0:
        raise ZeroDivisorError(f"symbolic dimension '{numerator}' modulo zero")
    if divisor < 0:
        return -(-numerator % -divisor)
    # Coefficients keep their sign, (-n)%4 staying itself, but the constant is made positive.
    reduced = {
        m: c % divisor if c > 0 or not m else -(-c % divisor) for m, c in terms_of(numerator)
    }
    remainder = from_coefficients(reduced)
    if isinstance(remainder, int):
        return remainder
    lower, upper = FloorDiv.interval(bounds_of(remainder), (divisor, divisor))
    if lower is not None and lower == upper:
        return remainder - lower * divisor
    return _operation(Mod, (remainder, divisor))


OPERATIONS.update({"//": _floordiv, "%": _mod, "opaque": opaque, "as opaque": as_opaque})


# Maximum and minimum ------------------------------------------------------------------------------


@remembered
def _extremum(kind: type[Operation], dims: tuple[Dim, ...]) -> Dim:
    """The symbolic half of `dim_max` and `dim_min`."""
    if not dims:
        raise ValueError(f"{kind.__name__.lower()} of no dimensions")
    dims = tuple(shorten(dim) for dim in dims)
    compared = next((set(dim.arguments) for dim in dims if isinstance(dim, kind)), set())

    def dominates(a: Dim, b: Dim) -> bool:
        if a in compared and b in compared:
            return False
        return provably_at_least(a, b) if kind is Max else provably_at_least(b, a)

    unique = sorted(set(_flatten(kind, dims)), key=_argument_order)
    if len(unique) > MAX_ARGUMENTS:
        half = MAX_ARGUMENTS // 2
        parts = (tuple(unique[k : k + half]) for k in range(0, len(unique), half))
        return kind.apply(*(kind.apply(*part) for part in parts))
    kept: list[Dim] = []
    for dim in unique:
        if not any(dominates(other, dim) for other in kept):
            kept = [other for other in kept if not dominates(dim, other)] + [dim]
    if len(kept) > 1 and _is_long(kept):
        return kind.apply(*map(opaque, kept))
    return kept[0] if len(kept) == 1 else _operation(kind, tuple(kept))


def _flatten(kind: type[Operation], dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """max(max(a, b), c) as max(a, b, c), if that is not too long."""
    flat = tuple(
        x
        for dim in dims
        for x in (dim.arguments if isinstance(dim, kind) and dim._total <= HUGE_TOTAL else (dim,))
    )
    return flat if len(flat) <= MAX_ARGUMENTS else dims


def _argument_order(dim: Dim) -> tuple[bool, str, tuple[int, ...]]:
    """Expressions alphabetically, then the constant."""
    if isinstance(dim, int):
        return True, str(dim), ()
    return False, dim._text(), ranges_of(dim)
