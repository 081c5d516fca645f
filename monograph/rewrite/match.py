"""Matching a pattern against a graph, by backtracking.

Operands of commutative ops are tried in every order. A rule that is *associative* also sees sums
and products apart from their grouping: ``(0.5 * x) * y`` and ``(y * 0.5) * x`` are both the three
factors ``0.5, x, y``. A product may be spelled in other ways, and each counts as its factors:

    a / c  (c constant)   a, 1/c            a - c  (c constant)   a, -c
    square(a)             a, a              -a                    a, -1
    power(a, 3)           a, a, a

The work is bounded: a pattern that cannot decide in ``MAX_STEPS`` steps does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.graph import Node, Value
from monograph.ir.op import Op, Trait
from monograph.ops.data import Constant, Full
from monograph.ops.elementwise import Add, Divide, Multiply, Negate, Power, Subtract
from monograph.ops.math import Square
from monograph.rewrite.constants import SPREADING, equals, is_constant, real_splat, splat
from monograph.rewrite.pattern import (
    AnyConstant,
    Capture,
    Literal,
    OpPattern,
    Pattern,
    Variable,
)

MAX_STEPS = 5_000
MAX_POWER = 4


@dataclass(frozen=True, slots=True)
class ImpliedNumber:
    """A constant that the graph implies but does not hold: the 0.5 of ``x / 2``."""

    value: float


Term: TypeAlias = Value | ImpliedNumber
Bindings: TypeAlias = dict[str, Any]


class Matcher:
    """Finds a pattern at a node."""

    def __init__(self, root: OpPattern, tolerance: float, associative: bool) -> None:
        self._root = root
        self._tolerance = tolerance
        self._associative = associative
        self._needs = () if associative else _needs(root)

    def solutions(self, node: Node) -> Iterator[Bindings]:
        """What the pattern's names are bound to, for each way in which it fits."""
        search = _Search(self._tolerance, self._associative)
        for _ in search.match(self._root, node.results[0]):
            yield dict(search.bindings)

    def may_match(self, node: Node) -> bool:
        """Whether the operands come from ops that the pattern needs; rejects most nodes."""
        if len(node.results) != 1:
            return False
        for needed in self._needs:
            for operand in node.operands:
                if operand.producer is not None and isinstance(operand.producer.op, needed):
                    break
            else:
                return False
        return True


class _Search:
    """One search: the bindings so far, undone as it backtracks."""

    def __init__(self, tolerance: float, associative: bool) -> None:
        self.bindings: Bindings = {}
        self._tolerance = tolerance
        self._associative = associative
        self._steps = 0

    def match(self, pattern: Pattern, term: Term) -> Iterator[None]:
        """Succeed once for each way in which the pattern fits the term."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            return
        if isinstance(pattern, Literal):
            if self._is_literal(pattern, term):
                yield
        elif isinstance(term, ImpliedNumber):
            return
        elif isinstance(pattern, Variable):
            yield from self._bind(pattern.name, term)
        elif isinstance(pattern, AnyConstant):
            if is_constant(term):
                yield from self._bind(pattern.name, term)
        elif isinstance(pattern, OpPattern):
            yield from self._match_op(pattern, term)

    def _is_literal(self, pattern: Literal, term: Term) -> bool:
        element = term.value if isinstance(term, ImpliedNumber) else splat(term)
        tolerance = 0.0 if pattern.is_short else self._tolerance
        return element is not None and equals(element, pattern.number, tolerance)

    def _bind(self, name: str, item: object) -> Iterator[None]:
        if name in self.bindings:
            bound = self.bindings[name]
            if bound is item or (not isinstance(item, Value) and bound == item):
                yield
            return
        self.bindings[name] = item
        yield
        del self.bindings[name]

    def _match_op(self, pattern: OpPattern, value: Value) -> Iterator[None]:
        chain = _CHAINS.get(type(pattern.op)) if self._associative else None
        if chain is not None:
            yield from self._match_chain(_pattern_terms(pattern), value, chain)
            return
        node = value.producer
        if node is None or type(node.op) is not type(pattern.op) or len(node.results) != 1:
            return
        if len(node.operands) != len(pattern.operands):
            return
        for _ in self._match_attributes(pattern.op, node.op, pattern.op.attribute_names):
            if pattern.op.has(Trait.COMMUTATIVE):
                yield from self._assign(_specific_first(pattern.operands), node.operands)
            else:
                yield from self._match_all(pattern.operands, node.operands)

    def _match_attributes(self, pattern: Op, op: Op, names: Sequence[str]) -> Iterator[None]:
        if not names:
            yield
            return
        wanted, found = getattr(pattern, names[0]), getattr(op, names[0])
        if isinstance(wanted, Capture):
            for _ in self._bind(wanted.name, found):
                yield from self._match_attributes(pattern, op, names[1:])
        elif type(wanted) is type(found) and wanted == found:
            yield from self._match_attributes(pattern, op, names[1:])

    def _match_all(self, patterns: Sequence[Pattern], terms: Sequence[Term]) -> Iterator[None]:
        """Each pattern against the term in its own place."""
        if not patterns:
            yield
            return
        for _ in self.match(patterns[0], terms[0]):
            yield from self._match_all(patterns[1:], terms[1:])

    def _assign(self, patterns: Sequence[Pattern], terms: Sequence[Term]) -> Iterator[None]:
        """The patterns against the terms in every order."""
        if not patterns:
            yield
            return
        for index, term in enumerate(terms):
            if any(term is earlier for earlier in terms[:index]):
                continue
            for _ in self.match(patterns[0], term):
                yield from self._assign(patterns[1:], (*terms[:index], *terms[index + 1 :]))

    def _match_chain(
        self, patterns: Sequence[Pattern], value: Value, expand: Expansion
    ) -> Iterator[None]:
        for terms in _cuts(value, len(patterns), expand):
            yield from self._assign(patterns, terms)


Expansion: TypeAlias = Callable[[Term], tuple[Term, ...]]


def chain_roots(root: OpPattern) -> tuple[type[Op], ...]:
    """The ops that an associative pattern's root may be: a product may end in a division."""
    if isinstance(root.op, Multiply):
        return (Multiply, Divide)
    if isinstance(root.op, Add):
        return (Add, Subtract)
    return (type(root.op),)


def _cuts(term: Term, count: int, expand: Expansion) -> Iterator[tuple[Term, ...]]:
    """Every way to see a term as the sum or product of ``count`` terms."""
    if count == 1:
        yield (term,)
        return
    parts = expand(term)
    if 2 <= len(parts) <= count:
        yield from _cut_parts(parts, count, expand)


def _cut_parts(
    parts: tuple[Term, ...], count: int, expand: Expansion
) -> Iterator[tuple[Term, ...]]:
    if len(parts) == 1:
        yield from _cuts(parts[0], count, expand)
        return
    for first_count in range(1, count - len(parts) + 2):
        for first in _cuts(parts[0], first_count, expand):
            for rest in _cut_parts(parts[1:], count - first_count, expand):
                yield (*first, *rest)


def factors(term: Term) -> tuple[Term, ...]:
    """The factors of a product, as it is spelled at this term; () if it is not a product."""
    node = term.producer if isinstance(term, Value) else None
    if node is None:
        return ()
    if isinstance(node.op, Multiply):
        return node.operands
    if isinstance(node.op, Square):
        return node.operands * 2
    if isinstance(node.op, Negate):
        return (node.operands[0], ImpliedNumber(-1.0))
    if isinstance(node.op, Divide):
        return _quotient(*node.operands)
    if isinstance(node.op, Power):
        return _power(*node.operands)
    return ()


def summands(term: Term) -> tuple[Term, ...]:
    """The terms of a sum, as it is spelled at this term; () if it is not a sum."""
    node = term.producer if isinstance(term, Value) else None
    if node is None:
        return ()
    if isinstance(node.op, Add):
        return node.operands
    if isinstance(node.op, Subtract):
        return _difference(*node.operands)
    return ()


def _quotient(dividend: Value, divisor: Value) -> tuple[Term, ...]:
    number = real_splat(divisor)
    return () if not number else (dividend, ImpliedNumber(1.0 / number))


def _difference(a: Value, b: Value) -> tuple[Term, ...]:
    number = real_splat(b)
    return () if number is None else (a, ImpliedNumber(-number))


def _power(base: Value, exponent: Value) -> tuple[Term, ...]:
    number = real_splat(exponent)
    if number is None or number not in range(2, MAX_POWER + 1):
        return ()
    return (base,) * int(number)


_CHAINS: dict[type[Op], Expansion] = {Multiply: factors, Add: summands}


def _pattern_terms(pattern: OpPattern) -> tuple[Pattern, ...]:
    """A pattern's own chain, flat, the most specific terms first."""
    terms: list[Pattern] = []
    pending: list[Pattern] = [pattern]
    while pending:
        term = pending.pop()
        if isinstance(term, OpPattern) and type(term.op) is type(pattern.op):
            pending.extend(term.operands)
        else:
            terms.append(term)
    return _specific_first(terms)


def _specific_first(patterns: Sequence[Pattern]) -> tuple[Pattern, ...]:
    order = (OpPattern, Literal, AnyConstant, Variable)
    return tuple(sorted(patterns, key=lambda pattern: order.index(type(pattern))))


def _needs(root: OpPattern) -> tuple[tuple[type[Op], ...], ...]:
    """For each operand of the root that cannot be just anything: the ops that may produce it."""
    needs: list[tuple[type[Op], ...]] = []
    for operand in root.operands:
        if isinstance(operand, OpPattern):
            needs.append((type(operand.op),))
        elif isinstance(operand, Literal | AnyConstant):
            needs.append((Constant, Full, *SPREADING))
    return tuple(needs)
