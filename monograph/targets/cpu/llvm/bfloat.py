"""bf16 in registers: to f32 and back, in the order of memory or as the halves of words.

A bf16 is the upper half of an f32. Sixteen of them in memory order need two shuffles to become two
registers of f32, and two more to go back. Where a vector loop only converts, computes and stores,
no lane has to know its place, so the loop keeps the even elements in the first half of its lanes
and the odd ones in the second: eight words then hold sixteen elements, a shift makes f32 of the
lower halves, a mask of the upper ones, and one blend puts both back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from monograph.ir.dims import Symbol
from monograph.ir.types import bf16, bool_, f64
from monograph.kernel.expr import Apply, Expr, Index, Load, Variable, walk
from monograph.kernel.flatten import coefficient
from monograph.targets.cpu.llvm.assembly import Builder, Lanes, constant_vector, vector_type
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    Let,
    Loop,
    LoopNest,
    Prefetch,
    Statement,
    Write,
)

CONVERSIONS = ("cast", "convert")
UPPER_HALF = -(1 << 16)


def widen(b: Builder, x: Lanes) -> Lanes:
    """The f32 that bf16s stand for."""
    wide = b.convert("zext", x, "i32")
    return b.convert("bitcast", b.binary("shl", wide, _number(16, wide)), "float")


def narrow(b: Builder, x: Lanes, short_nans: bool = False) -> Lanes:
    """f32 as the nearest bf16, of two the even one; a NaN stays one."""
    bits = _round_bits(b, x, short_nans)
    return b.convert("trunc", b.binary("lshr", bits, _number(16, bits)), "i16")


def widen_pairs(b: Builder, x: Lanes) -> Lanes:
    """bf16s in the order of memory as f32: even ones first, then odd ones."""
    half = x.lanes // 2
    words = b.assign("i32", half, f"bitcast {x} to {vector_type('i32', half)}")
    even = b.binary("shl", words, _number(16, words))
    odd = b.binary("and", words, _number(UPPER_HALF, words))
    return b.convert("bitcast", _shuffle(b, even, odd, range(x.lanes)), "float")


def narrow_pairs(b: Builder, x: Lanes, short_nans: bool = False) -> Lanes:
    """f32, even ones first, as bf16s in the order of memory."""
    half = x.lanes // 2
    bits = _round_bits(b, x, short_nans)
    even = _shuffle(b, bits, bits, range(half))
    odd = _shuffle(b, bits, bits, range(half, x.lanes))
    low = b.binary("lshr", even, _number(16, even))
    type_ = vector_type("i16", x.lanes)
    first, second = (b.assign("i16", x.lanes, f"bitcast {y} to {type_}") for y in (low, odd))
    order = (lane + (x.lanes if lane % 2 else 0) for lane in range(x.lanes))
    return _shuffle(b, first, second, order)


def _round_bits(b: Builder, x: Lanes, short_nans: bool = False) -> Lanes:
    """The bits of f32, rounded where the upper half ends; all ones for a NaN.

    A NaN of which the lower half is 0 stays one by itself: nothing is carried into its upper half.
    """
    bits = b.convert("bitcast", x, "i32")
    odd = b.binary("and", b.binary("lshr", bits, _number(16, bits)), _number(1, bits))
    rounded = b.binary("add", b.binary("add", bits, _number(0x7FFF, bits)), odd)
    if short_nans:
        return rounded
    is_nan = b.convert("sext", b.compare("fcmp uno", x, x), "i32")
    return b.binary("or", rounded, is_nan)


def _number(value: int, like: Lanes) -> Lanes:
    return constant_vector(Lanes(str(value), like.element), like.lanes)


def _shuffle(b: Builder, x: Lanes, y: Lanes, lanes: Iterable[int]) -> Lanes:
    order = list(lanes)
    numbers = ", ".join(f"i32 {lane}" for lane in order)
    mask = f"<{len(order)} x i32> <{numbers}>"
    return b.assign(x.element, len(order), f"shufflevector {x}, {y}, {mask}")


def has_short_nans(nest: LoopNest) -> bool:
    """Whether the lower half of every f32 that is NaN is 0 in a nest.

    Those that arithmetic makes are such, and those that bf16s bring in.
    """
    floats = [b for b in nest.inputs if not b.dtype.is_integer and b.dtype is not bool_]
    if any(b.dtype is not bf16 for b in floats):
        return False
    roots = tuple(_roots(nest.body))
    return not any(isinstance(x, Apply) and x.function == "bitcast" for x in walk(roots))


# Which loops --------------------------------------------------------------------------------------


def are_pairs(body: Sequence[Statement], symbol: Symbol, width: int) -> bool:
    """Whether the lanes of a vector loop may stand in pairs: all that varies in it is bf16.

    Whatever is read or written along the axis is contiguous bf16, and no formula asks where a lane
    is or computes with a bf16 as it is stored.
    """
    if width < 4 or width % 2:
        return False  # halves of one lane are no vectors
    roots = tuple(_roots(body))
    has_any = any(isinstance(x, Load) and x.dtype is bf16 for x in walk(roots))
    return has_any and all(_may_pair(each, symbol) for each in body)


def _roots(body: Sequence[Statement]) -> Iterator[Expr]:
    for statement in body:
        if isinstance(statement, Loop):
            yield from _roots(statement.body)
        elif isinstance(statement, Let | Combine | Write):
            yield statement.value


def _may_pair(statement: Statement, symbol: Symbol) -> bool:
    match statement:
        case Let(_, value):
            return value.dtype is not bf16 and _in_pairs(value, symbol)
        case Combine(_, kind, value, _):
            is_placed = kind in ("argmax", "argmin") or value.dtype is bf16
            return not is_placed and _in_pairs(value, symbol)
        case Write(buffer, offset, value, _):
            return buffer.dtype is bf16 and _is_along(offset, symbol) and _in_pairs(value, symbol)
        case Loop():
            return all(_may_pair(each, symbol) for each in statement.body)
        case Accumulator() | Prefetch():
            return True
        case _:
            return False


def _in_pairs(value: Expr, symbol: Symbol) -> bool:
    """Whether a formula gives each lane its own, wherever that lane stands."""
    waiting, seen = [value], set[Expr]()
    while waiting:
        expr = waiting.pop()
        if expr in seen:
            continue
        seen.add(expr)
        if isinstance(expr, Load):
            if _is_the_same(expr.operands[0], symbol):
                continue
            if expr.dtype is not bf16 or not _is_along(expr.operands[0], symbol):
                return False
            continue
        if isinstance(expr, Index) and symbol in expr.symbols:
            return False
        if not _is_plain(expr):
            return False
        waiting += expr.operands
    return True


def _is_plain(expr: Expr) -> bool:
    """Whether a formula's bf16s are only converted."""
    if not isinstance(expr, Apply):
        return not isinstance(expr, Variable) or expr.dtype is not bf16
    dtypes = {expr.dtype, *(each.dtype for each in expr.operands)}
    if bf16 not in dtypes:
        return True
    return expr.function in CONVERSIONS and f64 not in dtypes


def _is_the_same(offset: Expr, symbol: Symbol) -> bool:
    """Whether every lane reads the same element."""
    is_varied = any(isinstance(x, Variable) for x in walk((offset,)))
    return symbol not in offset.symbols and not is_varied


def _is_along(offset: Expr, symbol: Symbol) -> bool:
    """Whether lanes are neighbours in memory."""
    is_sum = isinstance(offset, Apply) and offset.function == "add"
    parts = offset.operands if is_sum else (offset,)
    varied = [part for part in parts if not _is_the_same(part, symbol)]
    if len(varied) != 1 or not isinstance(varied[0], Index):
        return False
    return coefficient(varied[0].dim, symbol) == 1
