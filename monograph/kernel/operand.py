"""Operands of a contraction: the dtypes that an element passes through on its way into a sum.

    right[n, k] = (float(stored[n, k]) - zero_point[n]) * scale[n, k / 128]

What is ``stored`` may be narrower than what is summed: weights of four bits, bytes of an image. A
target may keep that part in memory and do the rest as it reads it, with numbers that do not change
from step to step. ``multiplied`` is the narrowest dtype that holds every element: what an
instruction may be given that takes several steps of k at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, FloorDiv, Symbol
from monograph.ir.types import DType, Kind, bf16, i32
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Expr, Index, Load
from monograph.kernel.flatten import operations
from monograph.kernel.integer_range import narrowest
from monograph.kernel.scalar import cost

MAX_WIDENING_INSTRUCTIONS = 5
"""Instructions that may make an element of an operand of what is stored of it."""
BF16_ROUNDING_INSTRUCTIONS = 6
"""Instructions that rounding to bf16 takes."""
MIN_GROUP_STEPS = 16
"""Steps of k that a scale must hold for, so that reading it is seldom."""


@dataclass(frozen=True)
class Operand:
    """One side of a contraction, and the dtypes of its elements."""

    formula: Expr
    """An element as it is multiplied and summed."""
    stored: Expr
    """The part of the formula that takes the fewest bits; the rest costs little to do."""
    multiplied: DType
    """The narrowest dtype that holds every element exactly."""
    group: int | None
    """Steps of k that share a scale, where some do; None if each has its own, or all one."""

    @property
    def bits(self) -> int:
        """Bits that memory takes for an element."""
        return self.stored.dtype.bits if self.steps_per_byte > 1 else count_stored_bits(self.stored)

    @property
    def steps_per_byte(self) -> int:
        """Steps of k that can share a byte: two of four bits, which are only widened when read."""
        stored = self.stored
        if not self.is_narrow or not stored.dtype.is_integer or 8 % stored.dtype.bits:
            return 1
        readers = [x for x in e.walk((self.formula,)) if stored in x.operands]
        is_cast = all(isinstance(x, Apply) and x.function == "cast" for x in readers)
        return 8 // stored.dtype.bits if is_cast else 1

    @property
    def is_narrow(self) -> bool:
        """Whether what is stored is narrower than what is summed."""
        return self.stored is not self.formula

    @property
    def widened_load(self) -> Load | None:
        """The number in memory that an element is, if it is one that was widened and no more."""
        formula, stored = self.formula, self.stored
        is_cast = isinstance(formula, Apply) and formula.function == "cast"
        is_whole = is_cast and formula.operands == (stored,)
        is_read = isinstance(stored, Load) and isinstance(stored.operands[0], Index)
        return stored if is_whole and is_read and isinstance(stored, Load) else None

    def of_stored(self, element: Expr) -> Expr:
        """An element as it is multiplied, of what memory holds of it: all, or the narrow part."""
        if element.dtype is self.formula.dtype:
            return element
        return e.replace(self.formula, {self.stored: element})

    def of_byte(self, byte: Expr, k: Dim) -> Expr:
        """An element as it is multiplied, of the byte that steps of k share."""
        return e.replace(self.formula, {self.stored: self._part_of(byte, k)})

    def _part_of(self, byte: Expr, k: Dim) -> Expr:
        """The number at a step of k, as a word, out of the byte that holds it."""
        bits = self.stored.dtype.bits
        place = k % self.steps_per_byte * bits
        word = e.cast(byte, i32)
        if self.stored.dtype.kind is Kind.UNSIGNED:
            shifted = e.apply("shift_right", word, _word(place))
            return e.apply("bitwise_and", shifted, e.literal((1 << bits) - 1, i32))
        rest = i32.bits - bits
        highest = e.apply("shift_left", word, _word(rest - place))
        return e.apply("shift_right", highest, e.literal(rest, i32))


def operand(formula: Expr, k: Sequence[Axis], small: Collection[str] = ()) -> Operand:
    """A side of a contraction over these axes; some buffers are known to hold small integers."""
    step = k[-1].symbol
    stored = _narrow_part(formula, step)
    if formula.dtype.is_integer:
        multiplied = narrowest(formula, small)
    else:
        is_cast = isinstance(formula, Apply) and formula.operands == (stored,)
        multiplied = stored.dtype if is_cast and stored.dtype.is_float else formula.dtype
    return Operand(formula, stored, multiplied, _group(formula, step))


def _word(number: Dim) -> Expr:
    return e.literal(number, i32) if isinstance(number, int) else e.cast(e.index(number), i32)


def count_stored_bits(part: Expr) -> int:
    """Bits that memory takes for a number."""
    return max(part.dtype.bits, 8)


def _narrow_part(formula: Expr, step: Symbol) -> Expr:
    """The part of a formula that takes the fewest bits, if the rest costs little to do.

    From the whole formula inwards, as long as only one operand changes with every step of k.
    """
    part = found = formula
    spent = 0
    while isinstance(part, Apply):
        changing = {operand for operand in part.operands if step in operand.symbols}
        spent += _instructions(part)
        if len(changing) != 1 or spent > MAX_WIDENING_INSTRUCTIONS:
            break
        (part,) = changing
        if count_stored_bits(part) < count_stored_bits(found):
            found = part
    return found


def _instructions(part: Apply) -> int:
    """About how many instructions a function takes."""
    return BF16_ROUNDING_INSTRUCTIONS if part.dtype is bf16 else cost(part.function)


def _group(formula: Expr, step: Symbol) -> int | None:
    """The fewest steps that share what a formula reads, if some do and they are enough."""
    sizes = {
        atom.arguments[1]
        for part in e.walk((formula,))
        if isinstance(part, Index) and step in part.symbols
        for atom in operations(part.dim, step)
        if isinstance(atom, FloorDiv) and atom.arguments[0] is step
    }
    known = [size for size in sizes if isinstance(size, int)]
    return min((size for size in known if size >= MIN_GROUP_STEPS), default=None)
