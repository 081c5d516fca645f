"""Row passes: one pass over a row, and what passes over the same row share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, shape_product
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Expr, Index, Literal, Load, Reduce, Variable
from monograph.kernel.scalar import cost
from monograph.kernel.softmax import without_lower_bound
from monograph.targets.cpu.nests.loop_nest import Write


@dataclass
class Visit:
    """One pass over ``axes``: reductions that are taken further and values that are written."""

    axes: tuple[Axis, ...]
    reductions: list[tuple[Variable, str, Expr]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def roots(self) -> tuple[Expr, ...]:
        """Everything that is computed on the way."""
        combined = tuple(value for _, _, value in self.reductions)
        return combined + tuple(write.value for write in self.writes)

    def rewrite(self, replacements: Mapping[Expr, Expr]) -> None:
        """Compute other expressions in place of these."""
        self.reductions = [
            (variable, kind, e.replace(value, replacements))
            for variable, kind, value in self.reductions
        ]
        self.writes = [
            Write(w.buffer, w.offset, e.replace(w.value, replacements), w.streaming)
            for w in self.writes
        ]


def size_of(axes: tuple[Axis, ...]) -> Dim:
    """How many elements a visit comes by."""
    return shape_product(axis.extent for axis in axes)


def rename_axes(first: tuple[Axis, ...], other: tuple[Axis, ...]) -> dict[Symbol, Dim] | None:
    """How an element of one visit is called in another that goes through the row in its order."""
    if first == other:
        return {}
    if len(first) != 1 or size_of(first) != size_of(other):
        return None
    position = e.linear(other)
    return {first[0].symbol: position.dim} if isinstance(position, Index) else None


def worth_keeping(first: Visit, later: Sequence[tuple[Visit, Mapping[Symbol, Dim]]]) -> list[Expr]:
    """The largest formulas that several visits compute, if reading back is cheaper."""
    own = {axis.symbol for axis in first.axes}
    again = [(set(e.walk(visit.roots())), names) for visit, names in later]
    chosen: list[Expr] = []
    covered: set[Expr] = set()
    for expr in reversed(list(e.walk(first.roots()))):
        if expr in covered or not isinstance(expr, Apply) or not own <= expr.symbols:
            continue
        if not any(e.substitute(expr, names) in found for found, names in again):
            continue
        parts = list(e.walk((expr,)))
        if any(isinstance(x, Reduce) for x in parts):
            continue
        covered.update(parts)
        along = [x for x in parts if own & x.symbols]
        if _work(along) >= 8 or sum(isinstance(x, Load) for x in along) > 1:
            chosen.append(expr)
    return chosen


def multiply_by_reciprocals(
    visit: Visit, sums: Collection[Expr], small: Collection[Expr] = ()
) -> None:
    """Divide once a row instead of once an element, where the divisor is the same for all.

    Only by what has a reciprocal that is neither subnormal nor infinite (a softmax's sum, a square
    root): ``0 / 1e-40`` is 0, but ``0 * (1 / 1e-40)`` is NaN. Sums that may be ``small`` have one
    where 1 stands for those that are less.
    """
    own = {axis.symbol for axis in visit.axes}
    replaced: dict[Expr, Expr] = {}
    for expr in e.walk(visit.roots()):
        if not isinstance(expr, Apply) or expr.function != "divide":
            continue
        numerator, divisor = expr.operands
        if own & divisor.symbols or not own & numerator.symbols:
            continue
        is_root = isinstance(divisor, Apply) and divisor.function == "sqrt"
        if not is_root and divisor not in sums and not _is_at_least_one(divisor, small):
            continue
        one = e.literal(1.0, expr.dtype)
        inverse = e.apply("divide", one, divisor)
        replaced[expr] = e.apply("multiply", e.replace(numerator, replaced), inverse)
    if replaced:
        visit.rewrite(replaced)


def _is_at_least_one(divisor: Expr, sums: Collection[Expr]) -> bool:
    """Whether it is one of some sums, and 1 or more where that is less."""
    total = without_lower_bound(divisor)
    if total is divisor or total not in sums:
        return False
    bound = divisor.operands[1]
    return isinstance(bound, Literal) and float(bound.value) >= 1.0


def _work(parts: Iterable[Expr]) -> int:
    """About what computing these takes, in vector instructions."""
    total = 0
    for each in parts:
        if isinstance(each, Apply):
            total += cost(each.function)
        elif isinstance(each, Load):
            total += 2
    return total
