"""Integer arithmetic on positions and sizes, folded into index arithmetic.

    take(x, 4 * arange(247)[:, None] + arange(16))

    b0[checked(where(4 * i0 + i1 < 0, 4 * i0 + i1 + 1000, 4 * i0 + i1), 1000)]     as data
    b0[4 * i0 + i1]                                                             as a position

As data each lane has an index of its own, which is checked and gathered. As a polynomial its bounds
are known: nothing is left to be checked, and neighbours are read as neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monograph.ir.dims import Dim, SymbolicDim
from monograph.ir.types import bool_, i64
from monograph.kernel import expr as e
from monograph.kernel.expr import Expr, Index, Literal

MAX_EXACT = 1 << 62
"""What no number may exceed that is computed exactly here and would wrap around as data."""
MAX_FACTOR = 1 << 14
"""A factor that no size in memory, below 2**48, overflows with."""

_EXACT: dict[str, Callable[[Dim, Dim], Dim]] = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
}
_COMPARED: dict[str, Callable[[int | None, int | None], bool | None]] = {
    # Of the bounds of a difference; None where they do not decide it.
    "less": lambda low, high: _decide(high is not None and high < 0, low is not None and low >= 0),
    "greater_equal": lambda low, high: _decide(
        low is not None and low >= 0, high is not None and high < 0
    ),
    "greater": lambda low, high: _decide(
        low is not None and low > 0, high is not None and high <= 0
    ),
    "less_equal": lambda low, high: _decide(
        high is not None and high <= 0, low is not None and low > 0
    ),
}
_CHOSEN = ("maximum", "minimum")
_FUNCTIONS = frozenset((*_EXACT, *_COMPARED, *_CHOSEN))


def apply_to_positions(function: str, operands: Sequence[Expr]) -> Expr | None:
    """A function of two positions as a position, or as a truth that their bounds decide."""
    if len(operands) != 2 or function not in _FUNCTIONS:
        return None
    if not any(isinstance(each, Index) for each in operands):
        return None
    left, right = map(_dim, operands)
    if left is None or right is None:
        return None
    if function in _CHOSEN:
        larger = _larger(left, right)
        if larger is None:
            return None
        return operands[larger if function == "maximum" else 1 - larger]
    if function in _COMPARED:
        holds = _COMPARED[function](*_bounds(left - right))
        return None if holds is None else e.literal(holds, bool_)
    found = _EXACT[function](left, right)
    return e.index(found) if _is_exact(found) else None


def is_inside(position: Expr, size: Dim) -> bool:
    """Whether a position is known to lie in ``range(size)``."""
    if not isinstance(position, Index):
        return False
    lowest = _bounds(position.dim)[0]
    highest = _bounds(position.dim - size)[1]
    return lowest is not None and lowest >= 0 and highest is not None and highest < 0


def _dim(expr: Expr) -> Dim | None:
    if expr.dtype is not i64:
        return None
    if isinstance(expr, Index):
        return expr.dim
    return int(expr.value) if isinstance(expr, Literal) else None


def _bounds(dim: Dim) -> tuple[int | None, int | None]:
    return dim.bounds() if isinstance(dim, SymbolicDim) else (dim, dim)


def _is_exact(dim: Dim) -> bool:
    """Whether arithmetic that wraps around gives the same."""
    low, high = _bounds(dim)
    if low is not None and high is not None:
        return low > -MAX_EXACT and high < MAX_EXACT
    assert isinstance(dim, SymbolicDim)
    return all(len(atoms) <= 1 and abs(factor) <= MAX_FACTOR for atoms, factor in dim.terms())


def _larger(left: Dim, right: Dim) -> int | None:
    """0 or 1: which of two positions is at least the other, if that is known."""
    low, high = _bounds(left - right)
    if low is not None and low >= 0:
        return 0
    return 1 if high is not None and high <= 0 else None


def _decide(holds: bool, fails: bool) -> bool | None:
    return holds if holds or fails else None
