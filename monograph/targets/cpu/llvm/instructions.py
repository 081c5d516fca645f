"""Each basic scalar function as LLVM instructions, on scalars and vectors alike.

Every function is total: integers divide by zero to zero and never trap, shifts past the width are
defined, a float out of an integer's range saturates. The results are the interpreter's, bit for
bit.
"""

from __future__ import annotations

from collections.abc import Callable

from monograph.ir.types import DType, Kind, bf16, bool_, f16, f32, f64, integer_limits
from monograph.kernel.expr import Apply, Expr, Literal
from monograph.targets.cpu.llvm import bfloat
from monograph.targets.cpu.llvm.assembly import (
    Builder,
    Lanes,
    constant_vector,
    element_type,
    number,
    vector_type,
)

Emit = Callable[[Builder, DType, DType, tuple[Lanes, ...]], Lanes]
"""(builder, dtype of the operands, dtype of the result, operands) → result."""

FUNCTIONS: dict[str, Emit] = {}


def _emits(*names: str) -> Callable[[Emit], Emit]:
    def register(emit: Emit) -> Emit:
        FUNCTIONS.update(dict.fromkeys(names, emit))
        return emit

    return register


def literal(value: bool | int | float, dtype: DType, lanes: int = 1) -> Lanes:
    """A number of a dtype in every lane."""
    element = element_type(dtype)
    return constant_vector(Lanes(number(value, element), element), lanes)


def _like(value: bool | int | float, operand: Lanes) -> Lanes:
    """A number of the operand's type."""
    return constant_vector(Lanes(number(value, operand.element), operand.element), operand.lanes)


# Arithmetic ---------------------------------------------------------------------------------------

_ARITHMETIC = {
    "add": ("fadd", "add", "or"),
    "subtract": ("fsub", "sub", "xor"),
    "multiply": ("fmul", "mul", "and"),
}


def _arithmetic(name: str) -> Emit:
    on_floats, on_integers, on_bools = _ARITHMETIC[name]

    def emit(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
        instruction = on_floats if dtype.is_float else on_bools if dtype is bool_ else on_integers
        return b.binary(instruction, *operands)

    return emit


for _name in _ARITHMETIC:
    FUNCTIONS[_name] = _arithmetic(_name)


@_emits("divide")
def _divide(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    assert dtype.is_float
    return b.binary("fdiv", *operands)


@_emits("negate")
def _negate(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    (x,) = operands
    if dtype.is_float:
        return b.assign(x.element, x.lanes, f"fneg {x}")
    return b.binary("sub", _like(0, x), x)


@_emits("fma")
def _fma(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    if not dtype.is_float:
        return b.binary("add", b.binary("mul", operands[0], operands[1]), operands[2])
    return b.intrinsic("fma", *operands)


@_emits("sqrt")
def _sqrt(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    return b.intrinsic("sqrt", operands[0])


def _safe_divisor(b: Builder, dtype: DType, x: Lanes, y: Lanes) -> tuple[Lanes, Lanes]:
    """A divisor that never traps (1 instead of 0, and of -1 at the lowest number), and y == 0."""
    zero = b.compare("icmp eq", y, _like(0, y))
    bad = zero
    if dtype.kind is Kind.SIGNED:
        lowest = b.compare("icmp eq", x, _like(-(1 << (dtype.bits - 1)), x))
        minus = b.compare("icmp eq", y, _like(-1, y))
        bad = b.binary("or", zero, b.binary("and", lowest, minus))
    return b.select(bad, _like(1, y), y), zero


@_emits("truncate_divide")
def _truncate_divide(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    x, y = operands
    if dtype.is_float:
        return b.intrinsic("trunc", b.binary("fdiv", x, y))
    divisor, zero = _safe_divisor(b, dtype, x, y)
    instruction = "sdiv" if dtype.kind is Kind.SIGNED else "udiv"
    return b.select(zero, _like(0, x), b.binary(instruction, x, divisor))


@_emits("fmod")
def _fmod(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    x, y = operands
    if dtype.is_float:
        return b.binary("frem", x, y)
    divisor, zero = _safe_divisor(b, dtype, x, y)
    instruction = "srem" if dtype.kind is Kind.SIGNED else "urem"
    return b.select(zero, _like(0, x), b.binary(instruction, x, divisor))


@_emits("frem")
def _frem(b: Builder, _: DType, __: DType, operands: tuple[Lanes, ...]) -> Lanes:
    return b.binary("frem", *operands)


def positive_size(b: Builder, size: Lanes) -> Lanes:
    """A size to divide by: that of an empty dimension is 0, and nothing is read there anyway."""
    return b.intrinsic("smax", size, _like(1, size)) if size.text.startswith("%") else size


@_emits("index_divide")
def _index_divide(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    x, y = operands[0], positive_size(b, operands[1])
    quotient = b.binary("sdiv", x, y)
    remainder = b.binary("sub", x, b.binary("mul", quotient, y))
    below = b.compare("icmp slt", remainder, _like(0, x))
    return b.binary("add", quotient, b.convert("sext", below, x.element))


@_emits("index_remainder")
def _index_remainder(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    x, y = operands[0], positive_size(b, operands[1])
    remainder = b.binary("srem", x, y)
    below = b.compare("icmp slt", remainder, _like(0, x))
    return b.select(below, b.binary("add", remainder, y), remainder)


def _extremum(name: str) -> Emit:
    """The op: a NaN wins, and of two zeros +0.0 is the larger."""
    word = "max" if name == "maximum" else "min"

    def emit(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
        x, y = operands
        if not dtype.is_float:
            return loose_extremum(b, word, dtype, x, y)
        if not x.text.startswith("%"):
            x, y = y, x
        if y.text.startswith("%") or y.text == _like(float("nan"), y).text:
            return b.intrinsic(name, x, y)
        keeps = _comparison_with(y, word)  # the literal is not NaN: one comparison is enough
        return b.select(b.compare(f"fcmp {keeps}", x, y), x, y)

    return emit


def _comparison_with(bound: Lanes, word: str) -> str:
    """The comparison under which ``x`` is kept against a literal, zeros and NaN included."""
    or_equal = bound.text == _like(-0.0 if word == "max" else 0.0, bound).text
    return ("ug" if word == "max" else "ul") + ("e" if or_equal else "t")


def loose_extremum(b: Builder, word: str, dtype: DType, x: Lanes, y: Lanes) -> Lanes:
    """What reductions combine with: a NaN wins, and of two zeros either one."""
    if dtype is bool_:
        return b.binary("or" if word == "max" else "and", x, y)
    if not dtype.is_float:
        sign = "s" if dtype.kind is Kind.SIGNED else "u"
        return b.intrinsic(f"{sign}{word}", x, y)
    better = b.compare("fcmp ogt" if word == "max" else "fcmp olt", y, x)
    chosen = b.select(better, y, x)  # x if it is NaN
    return b.select(b.compare("fcmp uno", y, y), y, chosen)


for _name in ("maximum", "minimum"):
    FUNCTIONS[_name] = _extremum(_name)


@_emits("copysign")
def _copysign(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    return b.intrinsic("copysign", *operands)


# Rounding -----------------------------------------------------------------------------------------


@_emits("abs")
def _abs(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    (x,) = operands
    if dtype.is_float:
        return b.intrinsic("fabs", x)
    if dtype.kind is not Kind.SIGNED:
        return x
    negative = b.compare("icmp slt", x, _like(0, x))
    return b.select(negative, b.binary("sub", _like(0, x), x), x)


@_emits("sign")
def _sign(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    (x,) = operands
    if dtype is bool_:
        return x
    zero, one, minus = _like(0, x), _like(1, x), _like(-1, x)
    if dtype.is_float:
        neither = b.select(b.compare("fcmp uno", x, x), x, zero)  # +0.0 for both zeros
        up = b.select(b.compare("fcmp ogt", x, zero), one, neither)
        return b.select(b.compare("fcmp olt", x, zero), minus, up)
    if dtype.kind is not Kind.SIGNED:
        return b.select(b.compare("icmp ne", x, zero), one, zero)
    up = b.select(b.compare("icmp sgt", x, zero), one, zero)
    return b.select(b.compare("icmp slt", x, zero), minus, up)


def _rounding(intrinsic: str) -> Emit:
    def emit(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
        return b.intrinsic(intrinsic, operands[0]) if dtype.is_float else operands[0]

    return emit


FUNCTIONS["floor"] = _rounding("floor")
FUNCTIONS["ceil"] = _rounding("ceil")
FUNCTIONS["trunc"] = _rounding("trunc")
FUNCTIONS["round"] = _rounding("rint")


# Comparison and logic -----------------------------------------------------------------------------

_COMPARISONS = {
    "equal": ("oeq", "eq"),
    "not_equal": ("une", "ne"),
    "less": ("olt", "lt"),
    "less_equal": ("ole", "le"),
    "greater": ("ogt", "gt"),
    "greater_equal": ("oge", "ge"),
}


def _comparison(name: str) -> Emit:
    on_floats, on_integers = _COMPARISONS[name]

    def emit(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
        if dtype.is_float:
            return b.compare(f"fcmp {on_floats}", *operands)
        sign = (
            ""
            if len(on_integers) == 2 and name in ("equal", "not_equal")
            else ("s" if dtype.kind is Kind.SIGNED else "u")
        )
        return b.compare(f"icmp {sign}{on_integers}", *operands)

    return emit


for _name in _COMPARISONS:
    FUNCTIONS[_name] = _comparison(_name)


def truth(b: Builder, dtype: DType, x: Lanes) -> Lanes:
    """Whether a number is not zero (NaN is true)."""
    if dtype is bool_:
        return x
    return b.compare("fcmp une" if dtype.is_float else "icmp ne", x, _like(0, x))


def _logical(instruction: str) -> Emit:
    def emit(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
        return b.binary(instruction, *(truth(b, dtype, x) for x in operands))

    return emit


FUNCTIONS["logical_and"] = _logical("and")
FUNCTIONS["logical_or"] = _logical("or")
FUNCTIONS["logical_xor"] = _logical("xor")


@_emits("logical_not")
def _logical_not(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    x = truth(b, dtype, operands[0])
    return b.binary("xor", x, _like(True, x))


@_emits("is_nan")
def _is_nan(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    (x,) = operands
    if not dtype.is_float:
        return literal(False, bool_, x.lanes)
    return b.compare("fcmp uno", x, x)


@_emits("is_inf")
def _is_inf(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    (x,) = operands
    if not dtype.is_float:
        return literal(False, bool_, x.lanes)
    return b.compare("fcmp oeq", b.intrinsic("fabs", x), _like(float("inf"), x))


@_emits("is_finite")
def _is_finite(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    (x,) = operands
    if not dtype.is_float:
        return literal(True, bool_, x.lanes)
    return b.compare("fcmp olt", b.intrinsic("fabs", x), _like(float("inf"), x))


def _bitwise(instruction: str) -> Emit:
    def emit(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
        return b.binary(instruction, *operands)

    return emit


FUNCTIONS["bitwise_and"] = _bitwise("and")
FUNCTIONS["bitwise_or"] = _bitwise("or")
FUNCTIONS["bitwise_xor"] = _bitwise("xor")


@_emits("bitwise_not")
def _bitwise_not(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    (x,) = operands
    return b.binary("xor", x, _like(True if dtype is bool_ else -1, x))


def _shift(name: str) -> Emit:
    def emit(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
        x, y = operands
        inside = b.compare("icmp ult", y, _like(dtype.bits, y))
        distance = b.select(inside, y, _like(0, y))
        if name == "shift_left":
            return b.select(inside, b.binary("shl", x, distance), _like(0, x))
        if dtype.kind is Kind.SIGNED:
            emptied = b.binary("ashr", x, _like(dtype.bits - 1, x))
            return b.select(inside, b.binary("ashr", x, distance), emptied)
        return b.select(inside, b.binary("lshr", x, distance), _like(0, x))

    return emit


FUNCTIONS["shift_left"] = _shift("shift_left")
FUNCTIONS["shift_right"] = _shift("shift_right")


# Choice and conversion ----------------------------------------------------------------------------


@_emits("where")
def _where(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    condition, yes, no = operands
    return b.select(condition, yes, no)


@_emits("bitcast")
def _bitcast(b: Builder, dtype: DType, result: DType, operands: tuple[Lanes, ...]) -> Lanes:
    return b.convert("bitcast", operands[0], element_type(result))


@_emits("multiply_pairs")
def _multiply_pairs(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    """The halves of each word multiplied and added up, as processors do in one instruction."""
    lanes = operands[0].lanes
    halves = [_split(b, each, "i16") for each in operands]
    wide = [b.convert("sext", each, "i32") for each in halves]
    products = b.binary("mul", *wide)
    even, odd = (_every_second(b, products, first, lanes) for first in (0, 1))
    return b.binary("add", even, odd)


@_emits("dot_u7_i8")
@_emits("dot_u8_i8")
def _dot_u8_i8(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    """Unsigned bytes times signed ones, four of each word, as other instructions do it."""
    return _dot_bytes(b, operands, ("zext", "sext"))


@_emits("dot_i8_i8")
def _dot_i8_i8(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    """Signed bytes, four of each word, as other instructions do it."""
    return _dot_bytes(b, operands, ("sext", "sext"))


def _dot_bytes(b: Builder, operands: tuple[Lanes, ...], extend: tuple[str, str]) -> Lanes:
    lanes = operands[0].lanes
    parts = []
    for words, how in zip(operands, extend, strict=True):
        split = b.assign("i8", 4 * lanes, f"bitcast {words} to {vector_type('i8', 4 * lanes)}")
        parts.append(b.convert(how, split, "i32"))
    products = b.binary("mul", *parts)
    chosen = [_stride_lanes(b, products, first, 4, lanes) for first in range(4)]
    return b.binary("add", b.binary("add", *chosen[:2]), b.binary("add", *chosen[2:]))


@_emits("widen_pairs")
def _widen_pairs(b: Builder, dtype: DType, _: DType, operands: tuple[Lanes, ...]) -> Lanes:
    """Words of two bytes as words of two numbers of 16 bits."""
    (x,) = operands
    wide = b.convert("sext", _split(b, x, "i8"), "i16")
    return b.assign("i32", x.lanes, f"bitcast {wide} to {vector_type('i32', x.lanes)}")


def _split(b: Builder, words: Lanes, half: str) -> Lanes:
    """The halves of words, side by side, the lower one first."""
    lanes = 2 * words.lanes
    return b.assign(half, lanes, f"bitcast {words} to {vector_type(half, lanes)}")


def _every_second(b: Builder, x: Lanes, first: int, lanes: int) -> Lanes:
    """Lanes ``first``, ``first + 2`` and so on."""
    return _stride_lanes(b, x, first, 2, lanes)


def _stride_lanes(b: Builder, x: Lanes, first: int, step: int, lanes: int) -> Lanes:
    """Lanes ``first``, ``first + step`` and so on."""
    if lanes == 1:
        return b.assign(x.element, 1, f"extractelement {x}, i64 {first}")
    order = ", ".join(f"i32 {first + step * lane}" for lane in range(lanes))
    mask = f"<{lanes} x i32> <{order}>"
    return b.assign(x.element, lanes, f"shufflevector {x}, {x.type} poison, {mask}")


@_emits("convert")
def _convert(b: Builder, dtype: DType, result: DType, operands: tuple[Lanes, ...]) -> Lanes:
    (x,) = operands
    if dtype.is_float and not result.is_float:
        signed = result.kind is Kind.SIGNED
        return b.convert("fptosi" if signed else "fptoui", x, element_type(result))
    return cast(b, x, dtype, result)


@_emits("cast")
def _cast(b: Builder, dtype: DType, result: DType, operands: tuple[Lanes, ...]) -> Lanes:
    return cast(b, operands[0], dtype, result)


def cast(b: Builder, x: Lanes, dtype: DType, result: DType) -> Lanes:
    """A number in another dtype, as the op ``cast`` defines it."""
    if dtype is result:
        return x
    if result is bool_:
        if dtype is bf16:
            return truth(b, f32, bfloat.widen(b, x))
        return truth(b, dtype, x)
    if dtype is bf16:
        return cast(b, bfloat.widen(b, x), f32, result)
    if result is bf16:
        return bfloat.narrow(b, cast(b, x, dtype, f32)) if dtype is not f64 else _f64_to_bf16(b, x)
    target = element_type(result)
    if dtype.is_float and result.is_float:
        if dtype is f64 and result is f16:
            return b.convert("fptrunc", _round_to_odd(b, x), target)
        if result is f16 and x.lanes == 1:
            # LLVM would round the sign of a copysign to f16 as well, by a function of libgcc's.
            x = b.intrinsic("arithmetic.fence", x)
        if result.bits < dtype.bits:
            return b.convert("fptrunc", x, target)
        widened = b.convert("fpext", x, target)
        # LLVM would compare the halves themselves, and make masks of words of those of half words.
        is_half = dtype is f16 and widened.lanes > 1
        return b.intrinsic("arithmetic.fence", widened) if is_half else widened
    if dtype.is_float and 8 <= result.bits <= 16:
        return _to_small_integer(b, x, dtype, result)
    if dtype.is_float:
        sign = "s" if result.kind is Kind.SIGNED else "u"
        return b.intrinsic(f"fpto{sign}i.sat", x, element=target)
    if result.is_float:
        wide = result if result is not f16 else f32
        instruction = "sitofp" if dtype.kind is Kind.SIGNED else "uitofp"
        number_ = b.convert(instruction, x, element_type(wide))
        return b.convert("fptrunc", number_, target) if wide is not result else number_
    if result.bits > dtype.bits or dtype is bool_:
        return b.convert("sext" if dtype.kind is Kind.SIGNED else "zext", x, target)
    return b.convert("trunc", x, target) if result.bits < dtype.bits else x


def _to_small_integer(b: Builder, x: Lanes, dtype: DType, result: DType) -> Lanes:
    """Hold a float within the range first, which it can say exactly, and convert it as a word.

    A vector converts at once this way, where the saturating conversion goes lane by lane.
    """
    wide = x if dtype.bits >= 32 else b.convert("fpext", x, "float")
    low, high = integer_limits(result)
    words = b.convert("fptosi", _clamp(b, wide, low, high), "i32")
    return b.convert("trunc", _zero_if_nan(b, wide, words, low), element_type(result))


def _clamp(b: Builder, x: Lanes, low: int, high: int) -> Lanes:
    """A float within bounds; NaN becomes the lower one."""
    for bound, keeps in ((low, "ogt"), (high, "olt")):
        limit = _like(float(bound), x)
        x = b.select(b.compare(f"fcmp {keeps}", x, limit), x, limit)
    return x


def _zero_if_nan(b: Builder, x: Lanes, words: Lanes, low: int) -> Lanes:
    """Words that were made of floats, of which NaN became ``low``."""
    if low == 0:
        return words
    return b.select(b.compare("fcmp ord", x, x), words, _like(0, words))


def match_rounding(expr: Expr) -> tuple[Expr, int] | None:
    """What ``cast(round(x))`` or ``cast(round(x) + z)`` to a small integer is of: x, and z."""
    is_small = expr.dtype.is_integer and 8 <= expr.dtype.bits <= 16
    if not isinstance(expr, Apply) or expr.function != "cast" or not is_small:
        return None
    (part,), added = expr.operands, 0
    low, high = integer_limits(expr.dtype)
    if isinstance(part, Apply) and part.function == "add":
        part, literal_ = part.operands
        if not isinstance(literal_, Literal) or not low <= literal_.value <= high:
            return None
        added = int(literal_.value)
        if added != literal_.value:
            return None
    if not isinstance(part, Apply) or part.function != "round" or part.dtype is not f32:
        return None
    return part.operands[0], added


def round_to_whole(b: Builder, x: Lanes, added: int, dtype: DType) -> Lanes:
    """``cast(round(x) + added)`` for f32: held within the range, then rounded as it is converted.

    Both orders agree, since the bounds are whole numbers.
    """
    low, high = integer_limits(dtype)
    words = b.intrinsic("lrint", _clamp(b, x, low - added, high - added), element="i32")
    if added:
        words = b.binary("add", words, _like(added, words))
    return b.convert("trunc", _zero_if_nan(b, x, words, low), element_type(dtype))


def _f64_to_bf16(b: Builder, x: Lanes) -> Lanes:
    return bfloat.narrow(b, _round_to_odd(b, x))


def _round_to_odd(b: Builder, x: Lanes) -> Lanes:
    """f64 to f32 with the lost bits or-ed into the last one, so that a second rounding is right."""
    near = b.convert("fptrunc", x, "float")
    back = b.convert("fpext", near, "double")
    bits = b.convert("bitcast", near, "i32")
    exact = b.compare("fcmp ueq", back, x)
    too_far = b.compare("fcmp ogt", b.intrinsic("fabs", back), b.intrinsic("fabs", x))
    down = b.select(too_far, b.binary("sub", bits, _like(1, bits)), bits)
    odd = b.binary("or", down, _like(1, bits))
    return b.convert("bitcast", b.select(exact, bits, odd), "float")
