"""Rules: what to look for in a graph, and what to put in its place.

    Rule(
        "multiply_by_one",
        pattern=lambda x: x * 1,
        replacement=lambda x: x,
        floats="exact",
    )

Guard and replacement get by name what the pattern bound (``monograph.rewrite.pattern`` says what a
pattern may hold). What such a pair cannot say is a function of the root node, made a rule by
``@rewrite``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from monograph.ir.graph import Node, Value
from monograph.ir.op import Op, Trait
from monograph.ir.types import Kind, TensorType
from monograph.ops.elementwise import ORDERED
from monograph.rewrite.constants import fill
from monograph.rewrite.match import Matcher, chain_roots
from monograph.rewrite.pattern import trace_pattern

Replacement: TypeAlias = "Value | int | float | tuple[Value, ...] | None"


class Match:
    """What a pattern found: the root node, and by name what is bound (``match.x``)."""

    __slots__ = ("bindings", "node")

    def __init__(self, node: Node, bindings: Mapping[str, Any]) -> None:
        self.node = node
        self.bindings = bindings

    @property
    def type(self) -> TensorType:
        """The type of the root's result."""
        return self.node.result.tensor

    def __getattr__(self, name: str) -> Any:
        try:
            return self.bindings[name]
        except KeyError:
            raise AttributeError(f"the pattern binds no {name!r}") from None

    def interior(self) -> set[Node]:
        """The nodes between the root and what is bound, the root among them."""
        bound = {id(value) for value in self.bindings.values()}
        found = {self.node}
        pending = list(self.node.operands)
        while pending:
            value = pending.pop()
            node = value.producer
            if node is None or node in found or id(value) in bound or not node.operands:
                continue
            found.add(node)
            pending.extend(node.operands)
        return found


class Rule:
    """A rewrite from a pattern to its replacement.

    - ``floats`` says what the rule assumes of floats: NaN, ±0, infinities, rounding. Rules that
      bend IEEE 754 have ``fast_math`` set and are off unless they are asked for.
    - ``changes_specials`` is set where the replacement may answer otherwise at NaN and infinities,
      or where the pattern overflows, as ``floats`` then says.
    - ``kinds`` are the kinds of number that the root's first operand may hold: by default all but
      complex ones, for which little of the algebra of reals is exact.
    - ``guard`` is a condition on the match, ``guard(match)``.
    - ``replacement`` is called with what its parameters name (``match`` for all of it), where new
      nodes go before the root. A number stands for a tensor of the root's type filled with it.
    - ``tolerance`` is how far, relatively, a constant may be from a literal of the pattern; short
      literals (0.5, 1, 3), which nobody writes roughly, are always met exactly.
    - ``associative`` lets sums and products match whatever their grouping and order; see
      ``monograph.rewrite.match`` for the spellings that count as a product.
    - ``single_use`` asks that nothing outside the match reads its inner values.
    """

    def __init__(
        self,
        name: str,
        *,
        pattern: Callable[..., Any],
        replacement: Callable[..., Replacement],
        floats: str,
        kinds: frozenset[Kind] = ORDERED,
        guard: Callable[[Match], bool] | None = None,
        fast_math: bool = False,
        changes_specials: bool = False,
        tolerance: float = 0.0,
        associative: bool = False,
        single_use: bool = False,
    ) -> None:
        root = trace_pattern(name, pattern)
        self.name = name
        self.floats = floats
        self.fast_math = fast_math
        self.changes_specials = changes_specials
        self.before = repr(root)
        self.roots = chain_roots(root) if associative else (type(root.op),)
        self._kinds = kinds
        self._matcher = Matcher(root, tolerance, associative)
        self._replacement = replacement
        self._arguments = tuple(inspect.signature(replacement).parameters)
        self._guard = guard
        self._single_use = single_use

    def accepts(self, cls: type[Op]) -> bool:
        """Whether nodes of this op are to be shown to the rule."""
        return issubclass(cls, self.roots)

    def matches(self, node: Node) -> Iterator[Match]:
        """Every way in which the pattern fits the node, guards not yet asked."""
        if not self._may_match(node):
            return
        for bindings in self._matcher.solutions(node):
            yield Match(node, bindings)

    def apply(self, node: Node) -> tuple[Value, ...] | None:
        """What to put in place of the node's results; None if the rule does not apply."""
        if not self._may_match(node):
            return None
        for match in self.matches(node):
            if self._guard is not None and not self._guard(match):
                continue
            if self._single_use and not _is_private(match):
                continue
            bound = {**match.bindings, "match": match}
            replacement = self._replacement(*(bound[name] for name in self._arguments))
            return as_values(node, replacement)
        return None

    def _may_match(self, node: Node) -> bool:
        """A quick look that rejects most nodes."""
        type_ = node.operands[0].type
        if not isinstance(type_, TensorType) or type_.dtype.kind not in self._kinds:
            return False
        return self._matcher.may_match(node)

    def __repr__(self) -> str:
        return f"<Rule {self.name}>"


class FunctionRule(Rule):
    """A rule that is a function of its root node; made by ``@rewrite``."""

    def __init__(
        self,
        name: str,
        function: Callable[[Any], Replacement],
        roots: tuple[type[Op], ...],
        floats: str,
        traits: Trait,
        fast_math: bool,
        changes_specials: bool,
    ) -> None:
        self.name = name
        self.floats = floats
        self.fast_math = fast_math
        self.changes_specials = changes_specials
        self.roots = roots
        self.before = inspect.getdoc(function) or name
        self._function = function
        self._traits = traits

    def accepts(self, cls: type[Op]) -> bool:
        """Whether the op is a root of the rule and has the traits that it asks for."""
        return issubclass(cls, self.roots) and self._traits in cls.traits

    def matches(self, node: Node) -> Iterator[Match]:
        """A function binds nothing: the node itself, if it is a root of this rule."""
        if self.accepts(type(node.op)):
            yield Match(node, {})

    def apply(self, node: Node) -> tuple[Value, ...] | None:
        """What the function returns for this node."""
        return as_values(node, self._function(node))


def rewrite(
    name: str,
    *,
    root: type[Op] | tuple[type[Op], ...],
    floats: str,
    traits: Trait = Trait.NONE,
    fast_math: bool = False,
    changes_specials: bool = False,
) -> Callable[[Callable[[Node], Replacement]], Rule]:
    """Make a function of a node a rule: it returns the replacement, or None to leave the node.

    ``root`` may be a base class (``Op`` for every op), and only ops with ``traits`` are shown to
    the function. New nodes go before the root.
    """
    roots = root if isinstance(root, tuple) else (root,)

    def define(function: Callable[[Node], Replacement]) -> Rule:
        return FunctionRule(name, function, roots, floats, traits, fast_math, changes_specials)

    return define


def as_values(node: Node, replacement: Replacement) -> tuple[Value, ...] | None:
    """A replacement as one value a result; None if it would leave the node as it is."""
    if replacement is None:
        return None
    if isinstance(replacement, Value):
        values: tuple[Value, ...] = (replacement,)
    elif isinstance(replacement, tuple):
        values = replacement
    else:
        values = (fill(node.result.tensor, replacement),)
    return None if values == node.results else values


def _is_private(match: Match) -> bool:
    """Whether only the match reads the values inside it."""
    interior = match.interior()
    inner = interior - {match.node}
    return all(user in interior for node in inner for value in node.results for user in value.users)
