"""What holds for every binding within the declared ranges of the symbols.

A difference is bounded term by term, as if its atoms had nothing to do with one another. Where that
does not tell its sign, an atom gives way to what encloses it (``Atom.enclosure``): of
``n - 5 % n`` the remainder is at most ``n - 1``, so that it is at least 1.
"""

from __future__ import annotations

from monograph.ir.dims import intervals
from monograph.ir.dims.intervals import Interval
from monograph.ir.dims.polynomial import Atom, Dim, SymbolicDim, bounds_of, remembered

MAX_RELAXED = 3  # atoms that give way to what encloses them, one after another
MAX_RELAXED_SIZE = 32  # symbols and numbers of a difference that is looked at so


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
    return _is_at_least_zero(_difference(a, b))


def provably_less(a: Dim, b: Dim) -> bool:
    """Whether a < b for every binding within the declared ranges."""
    return provably_at_least(b, a + 1)


def _difference_bounds(a: Dim, b: Dim) -> Interval:
    """The bounds of a difference; of one that is too large to be written, nothing is known."""
    difference = _difference(a, b)
    return (None, None) if difference is None else bounds_of(difference)


def _difference(a: Dim, b: Dim) -> Dim | None:
    try:
        return a - b
    except ValueError:  # it is too large to be written
        return None


def _is_at_least_zero(dim: Dim | None) -> bool:
    if dim is None or isinstance(dim, int):
        return dim is not None and dim >= 0
    lower, upper = dim.bounds()
    if lower is not None and lower >= 0:
        return True
    return (upper is None or upper >= 0) and _at_least_zero_relaxed(dim, MAX_RELAXED)


@remembered
def _at_least_zero_relaxed(dim: SymbolicDim, steps: int) -> bool:
    """Whether it follows once atoms give way to what they are at least, or at most."""
    if steps == 0 or dim._size > MAX_RELAXED_SIZE or dim.definitions():
        return False
    for atoms, coefficient in dim.terms():
        if len(atoms) != 1:
            continue
        factor, least, most = atoms[0].enclosure()
        for bound in least if coefficient > 0 else most:
            relaxed = _relax(dim, atoms[0], coefficient, factor, bound)
            lower = None if relaxed is None else bounds_of(relaxed)[0]
            if lower is not None and lower >= 0:
                return True
            if isinstance(relaxed, SymbolicDim) and _at_least_zero_relaxed(relaxed, steps - 1):
                return True
    return False


def _relax(dim: SymbolicDim, atom: Atom, coefficient: int, factor: int, bound: Dim) -> Dim | None:
    """``factor`` times a sum that is no larger than ``dim``: ``bound`` stands for the atom."""
    try:
        return factor * dim - coefficient * (factor * atom - bound)
    except ValueError:  # a number in it is too large to be written
        return None
