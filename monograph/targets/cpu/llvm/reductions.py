"""Reductions in registers: identity, accumulation, and combining two partial results."""

from __future__ import annotations

from collections.abc import Sequence

from monograph.dataclass import dataclass
from monograph.ir.types import DType, bool_
from monograph.kernel.softmax import LARGEST_NUMBER
from monograph.targets.cpu.llvm import instructions
from monograph.targets.cpu.llvm.assembly import (
    Builder,
    Lanes,
    constant_vector,
    element_type,
    vector_type,
)
from monograph.targets.cpu.machine import DotInstruction

_FUNCTIONS = {
    "sum": "add",
    "prod": "multiply",
    "any": "logical_or",
    "all": "logical_and",
}
NOWHERE = {"i32": 2**31 - 1, "i64": 2**63 - 1}
"""The position of an argmax that has seen nothing above the lowest number: later than any."""


@dataclass(frozen=True)
class Reduction:
    """A kind of reduction over elements of one dtype."""

    kind: str
    dtype: DType
    position: str = "i64"
    """The type that positions are counted in."""

    @property
    def has_position(self) -> bool:
        """Whether it finds where, rather than how much."""
        return self.kind in ("argmax", "argmin")

    @property
    def loses_digits(self) -> bool:
        """Whether each element rounds what came before it."""
        return self.kind == "sum" and self.dtype.is_float

    def neutral(self) -> bool | int | float:
        """What combines with anything to that thing."""
        if self.kind in ("sum", "any"):
            return 0
        if self.kind in ("prod", "all"):
            return 1
        lowest = self.kind in ("max", "argmax", LARGEST_NUMBER)
        if self.dtype.is_float:
            return float("-inf") if lowest else float("inf")
        if self.dtype is bool_:
            return not lowest
        signed = self.dtype.kind.name == "SIGNED"
        bits = self.dtype.bits
        if lowest:
            return -(1 << (bits - 1)) if signed else 0
        return (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1

    def join(self, b: Builder, x: Lanes, y: Lanes) -> Lanes:
        """Two elements or partial results as one."""
        if self.kind == LARGEST_NUMBER:
            return b.select(b.compare("fcmp ogt", y, x), y, x)
        if self.kind in ("max", "min"):
            return instructions.loose_extremum(b, self.kind, self.dtype, x, y)
        name = _FUNCTIONS[self.kind]
        return instructions.FUNCTIONS[name](b, self.dtype, self.dtype, (x, y))

    def is_ahead(self, b: Builder, x: Lanes, y: Lanes) -> Lanes:
        """Whether a later element ``x`` is more extreme than ``y``; the first NaN stays."""
        functions = instructions.FUNCTIONS
        if not self.dtype.is_float:
            more = "greater" if self.kind == "argmax" else "less"
            return functions[more](b, self.dtype, bool_, (x, y))
        ahead = b.compare("fcmp ugt" if self.kind == "argmax" else "fcmp ult", x, y)
        return b.binary("and", ahead, b.compare("fcmp ord", y, y))

    def is_better(self, b: Builder, x: Lanes, at: Lanes, y: Lanes, other: Lanes) -> Lanes:
        """Whether ``x`` is more extreme than ``y``, or as extreme and earlier; NaN is extreme."""
        more = "greater" if self.kind == "argmax" else "less"
        functions = instructions.FUNCTIONS
        better = functions[more](b, self.dtype, bool_, (x, y))
        same = functions["equal"](b, self.dtype, bool_, (x, y))
        if self.dtype.is_float:
            nan_x = functions["is_nan"](b, self.dtype, bool_, (x,))
            nan_y = functions["is_nan"](b, self.dtype, bool_, (y,))
            not_y = functions["logical_not"](b, bool_, bool_, (nan_y,))
            better = b.binary("or", better, b.binary("and", nan_x, not_y))
            same = b.binary("or", same, b.binary("and", nan_x, nan_y))
        earlier = b.compare("icmp slt", at, other)
        return b.binary("or", better, b.binary("and", same, earlier))


def reduction_of(kind: str, dtype: DType, positions: int | None) -> Reduction:
    """The reduction of a kind over that many elements, if their number is known."""
    small = positions is not None and positions < NOWHERE["i32"]
    return Reduction(kind, dtype, "i32" if small else "i64")


class Partial:
    """A partial result, one a lane, written as memory; LLVM keeps it in registers.

    With ``in_memory`` it really stays there: a sum of partial sums, seldom touched, that would
    take registers from the sums it is made of.
    """

    def __init__(
        self,
        reduction: Reduction,
        entry: Builder,
        here: Builder,
        lanes: int,
        in_memory: bool = False,
    ) -> None:
        self.reduction = reduction
        self.volatile = "volatile " if in_memory else ""
        self.lanes = lanes
        self.element = element_type(reduction.dtype)
        self.type = vector_type(self.element, lanes)
        self.place = self._allocate(entry, self.type)
        neutral = instructions.literal(reduction.neutral(), reduction.dtype, lanes)
        here.line(f"store {self.volatile}{neutral}, ptr {self.place}")
        self.nan = ""
        if reduction.kind in ("max", "min") and reduction.dtype.is_float:
            self.nan = self._allocate(entry, vector_type(self.bits, lanes))
            here.line(f"store {vector_type(self.bits, lanes)} zeroinitializer, ptr {self.nan}")
        self.position = ""
        if reduction.has_position:
            counted = vector_type(reduction.position, lanes)
            self.position = self._allocate(entry, counted)
            here.line(f"store {self._nowhere()}, ptr {self.position}")

    def _nowhere(self) -> Lanes:
        counted = self.reduction.position
        return constant_vector(Lanes(str(NOWHERE[counted]), counted), self.lanes)

    @property
    def bits(self) -> str:
        """An integer as wide as an element."""
        return f"i{self.reduction.dtype.bits}"

    @staticmethod
    def _allocate(entry: Builder, type_: str) -> str:
        name = entry.function.name("acc")
        entry.line(f"{name} = alloca {type_}")
        return name

    def begin_lanes(self, entry: Builder, here: Builder, lanes: int) -> Partial:
        """Partial results of the same reduction for each lane of a vector loop."""
        return Partial(self.reduction, entry, here, lanes)

    def _load(self, b: Builder) -> Lanes:
        load = f"load {self.volatile}{self.type}, ptr {self.place}"
        return b.assign(self.element, self.lanes, load)

    def _load_position(self, b: Builder) -> Lanes:
        counted = self.reduction.position
        type_ = vector_type(counted, self.lanes)
        return b.assign(counted, self.lanes, f"load {type_}, ptr {self.position}")

    def fuse(self, b: Builder, x: Lanes, y: Lanes) -> None:
        """Add a product, rounding once."""
        result = b.intrinsic("fma", x, y, self._load(b))
        b.line(f"store {result}, ptr {self.place}")

    def add_dots(self, b: Builder, dot: DotInstruction, left: Lanes, right: Lanes) -> None:
        """Add dot products of the bytes of words, in as many parts as there are registers."""
        width = min(self.lanes, dot.widest // 4)
        total = self._load(b)
        sums = [
            _dot(b, dot, *(_part(b, each, first, width) for each in (total, left, right)))
            for first in range(0, self.lanes, width)
        ]
        b.line(f"store {_join(b, sums)}, ptr {self.place}")

    def combine(self, b: Builder, value: Lanes, position: Lanes | None, mask: Lanes | None) -> None:
        """Take one more element (in each lane under the mask)."""
        if mask is not None and self.lanes > 1:
            neutral = instructions.literal(
                self.reduction.neutral(), self.reduction.dtype, self.lanes
            )
            value = b.select(mask, value, neutral)
        if self.nan:
            self._extreme(b, value)
            return
        if position is None:
            result = self.reduction.join(b, self._load(b), value)
            b.line(f"store {self.volatile}{result}, ptr {self.place}")
            return
        if position.element != self.reduction.position:
            position = b.convert("trunc", position, self.reduction.position)
        old, at = self._load(b), self._load_position(b)
        better = self.reduction.is_ahead(b, value, old)
        b.line(f"store {b.select(better, value, old)}, ptr {self.place}")
        b.line(f"store {b.select(better, position, at)}, ptr {self.position}")

    def _extreme(self, b: Builder, value: Lanes) -> None:
        """Keep the extreme, and beside it whether there was a NaN: two short chains, not one."""
        old = self._load(b)
        order = "fcmp ogt" if self.reduction.kind == "max" else "fcmp olt"
        b.line(f"store {b.select(b.compare(order, value, old), value, old)}, ptr {self.place}")
        seen = self._load_nan(b)
        is_nan = b.convert("sext", b.compare("fcmp uno", value, value), self.bits)
        b.line(f"store {b.binary('or', seen, is_nan)}, ptr {self.nan}")

    def _load_nan(self, b: Builder) -> Lanes:
        type_ = vector_type(self.bits, self.lanes)
        return b.assign(self.bits, self.lanes, f"load {type_}, ptr {self.nan}")

    def _with_nan(self, b: Builder, value: Lanes) -> Lanes:
        """The extreme, or NaN in the lanes that saw one."""
        if not self.nan:
            return value
        zero = constant_vector(Lanes("0", self.bits), self.lanes)
        clean = b.compare("icmp eq", self._load_nan(b), zero)
        nan = instructions.literal(float("nan"), self.reduction.dtype, self.lanes)
        return b.select(clean, value, nan)

    def finish_into(self, b: Builder, whole: Partial) -> None:
        """Combine the lanes in halves, and take the result into a scalar partial result."""
        value = self._with_nan(b, self._load(b))
        position = self._load_position(b) if self.position else None
        if self.reduction.kind == "sum" and self.reduction.dtype.is_integer and value.lanes > 1:
            # Not in halves: LLVM 22 takes halves of products of bytes for one dot product of
            # AVX-512 VNNI, and forgets to add its lanes up.
            value = sum_lanes(b, value)
        while value.lanes > 1:
            low, high = halves(b, value)
            if position is None:
                value = self.reduction.join(b, low, high)
                continue
            at_low, at_high = halves(b, position)
            better = self.reduction.is_better(b, high, at_high, low, at_low)
            value = b.select(better, high, low)
            position = b.select(better, at_high, at_low)
        if position is None:
            whole.combine(b, value, None, None)
        else:
            whole.join(b, value, position)

    def join(self, b: Builder, value: Lanes, position: Lanes) -> None:
        """Take in a partial result of elements that may come before or after those seen."""
        old, at = self._load(b), self._load_position(b)
        better = self.reduction.is_better(b, value, position, old, at)
        b.line(f"store {b.select(better, value, old)}, ptr {self.place}")
        b.line(f"store {b.select(better, position, at)}, ptr {self.position}")

    def result(self, b: Builder) -> Lanes:
        """The value (or the position, for argmax) after the last element."""
        if self.position:
            found = self._load_position(b)
            unseen = b.compare("icmp eq", found, self._nowhere())
            zero = constant_vector(Lanes("0", found.element), self.lanes)
            return b.convert("zext", b.select(unseen, zero, found), "i64")
        return self._with_nan(b, self._load(b))


def sum_lanes(b: Builder, value: Lanes) -> Lanes:
    """The sum of integers in all lanes."""
    name = f"@llvm.vector.reduce.add.v{value.lanes}{value.element}"
    b.declarations.add(f"declare {value.element} {name}({value.type})")
    return b.assign(value.element, 1, f"call {value.element} {name}({value})")


def halves(b: Builder, value: Lanes) -> tuple[Lanes, Lanes]:
    """The first and the second half of the lanes."""
    half = value.lanes // 2
    parts = []
    for first in (0, half):
        numbers = ", ".join(f"i32 {k}" for k in range(first, first + half))
        mask = f"<{half} x i32> <{numbers}>"
        found = b.assign(value.element, half, f"shufflevector {value}, {value.type} poison, {mask}")
        if half == 1:
            found = b.assign(
                value.element, 1, f"extractelement <1 x {value.element}> {found.text}, i64 0"
            )
        parts.append(found)
    return parts[0], parts[1]


def _part(b: Builder, value: Lanes, first: int, count: int) -> Lanes:
    """Some neighbouring lanes; a scalar is the same in all of them."""
    if value.lanes in (1, count):
        return b.splat(value, count)
    numbers = ", ".join(f"i32 {first + k}" for k in range(count))
    mask = f"<{count} x i32> <{numbers}>"
    return b.assign(value.element, count, f"shufflevector {value}, {value.type} poison, {mask}")


def _join(b: Builder, parts: Sequence[Lanes]) -> Lanes:
    """Parts of equal width side by side."""
    width, total = parts[0].lanes, parts[0]
    for number, part in enumerate(parts[1:], 1):
        lanes = number * width
        spread = ", ".join(f"i32 {k}" if k < width else "i32 poison" for k in range(lanes))
        wide = b.assign(
            part.element,
            lanes,
            f"shufflevector {part}, {part.type} poison, <{lanes} x i32> <{spread}>",
        )
        numbers = ", ".join(f"i32 {k}" for k in range(lanes + width))
        mask = f"<{lanes + width} x i32> <{numbers}>"
        text = f"shufflevector {total}, {wide}, {mask}"
        total = b.assign(part.element, lanes + width, text)
    return total


def _dot(b: Builder, dot: DotInstruction, total: Lanes, left: Lanes, right: Lanes) -> Lanes:
    """One instruction, or three: several products a lane, added to the lane's sum."""
    lanes, count = total.lanes, dot.steps * total.lanes
    element = element_type(dot.left)
    parts_type = vector_type(element, count)
    if dot.pairs:
        return b.binary("add", total, _dot_in_pairs(b, dot, left, right))
    name = f"@{dot.name(lanes)}"
    b.declarations.add(f"declare {total.type} {name}({total.type}, {parts_type}, {parts_type})")
    split = [b.assign(element, count, f"bitcast {each} to {parts_type}") for each in (left, right)]
    arguments = ", ".join(map(str, (total, *split)))
    return b.assign(total.element, lanes, f"call {total.type} {name}({arguments})")


def _dot_in_pairs(b: Builder, dot: DotInstruction, left: Lanes, right: Lanes) -> Lanes:
    """Sums of two products in 16 bits, then of two of those in 32."""
    lanes = left.lanes
    bytes_type, pairs_type = vector_type("i8", 4 * lanes), vector_type("i16", 2 * lanes)
    words_type = vector_type("i32", lanes)
    split = [b.assign("i8", 4 * lanes, f"bitcast {each} to {bytes_type}") for each in (left, right)]
    multiply, add_up = f"@{dot.name(lanes)}", f"@{dot.pairs}"
    b.declarations.add(f"declare {pairs_type} {multiply}({bytes_type}, {bytes_type})")
    b.declarations.add(f"declare {words_type} {add_up}({pairs_type}, {pairs_type})")
    arguments = ", ".join(map(str, split))
    pairs = b.assign("i16", 2 * lanes, f"call {pairs_type} {multiply}({arguments})")
    ones = constant_vector(Lanes("1", "i16"), 2 * lanes)
    return b.assign("i32", lanes, f"call {words_type} {add_up}({pairs}, {ones})")
