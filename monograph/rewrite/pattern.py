"""The language of patterns.

A pattern is a Python function, run once on pattern variables, so that it reads like the algebra
that it states: ``lambda x: x * 1``. A parameter stands for any value (the same value wherever it
occurs), a number for a constant filled with it, ``AnyConstant("c")`` for any constant, and an op
whose attribute is a ``Capture`` for that op with whatever attribute it has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.build import Tracer
from monograph.ir.op import Op
from monograph.ir.types import bf16
from monograph.rewrite.constants import round_to


class Pattern(Tracer):
    """Something that stands for values. Applying an op to it makes a larger pattern."""

    __slots__ = ()

    def apply(self, op: Op, operands: Sequence[Any]) -> OpPattern:
        """The pattern of the op applied to these operands."""
        return OpPattern(op, tuple(map(as_pattern, operands)))


@dataclass(frozen=True, eq=False, slots=True)
class Variable(Pattern):
    """Any value; the same one wherever the variable occurs."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, slots=True)
class AnyConstant(Pattern):
    """Any constant (the value itself is bound, not its contents)."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, slots=True)
class Literal(Pattern):
    """A constant filled with this number."""

    number: int | float | complex

    @property
    def is_short(self) -> bool:
        """Whether every float dtype holds it exactly (0.5, 1, 3): nobody writes those roughly."""
        if isinstance(self.number, complex):
            return False
        return round_to(self.number, bf16) == self.number

    def __repr__(self) -> str:
        return repr(self.number)


@dataclass(frozen=True, eq=False, slots=True)
class OpPattern(Pattern):
    """The result of an op with one result; attributes that are a ``Capture`` are free."""

    op: Op
    operands: tuple[Pattern, ...]

    def __repr__(self) -> str:
        attributes = [f"{name}={value}" for name, value in self.op.attributes().items()]
        return f"{self.op.name}({', '.join([*map(repr, self.operands), *attributes])})"


@dataclass(frozen=True, slots=True)
class Capture:
    """Stands in a pattern for an attribute; what it is in the graph is bound to ``name``."""

    name: str

    def __str__(self) -> str:
        return self.name


def capture(name: str) -> Any:
    """A ``Capture`` typed so that it fits any attribute: ``Transpose(capture("p"))(x)``."""
    return Capture(name)


def as_pattern(operand: Any) -> Pattern:
    """An operand of a pattern: patterns as they are, numbers as literals."""
    if isinstance(operand, Pattern):
        return operand
    if isinstance(operand, int | float | complex):
        return Literal(operand)
    raise InputError(
        "a pattern is made of variables and numbers",
        expected="a pattern variable, AnyConstant or a number",
        found=repr(operand),
    )


def trace_pattern(name: str, pattern: Callable[..., Any]) -> OpPattern:
    """The pattern that a function states; ``name`` is the rule's, for the error message."""
    root = pattern(*map(Variable, inspect.signature(pattern).parameters))
    if not isinstance(root, OpPattern):
        raise InputError(
            f"the pattern of rule {name!r} has no op at its root",
            expected="an op applied to pattern variables",
            found=repr(root),
        )
    return root
