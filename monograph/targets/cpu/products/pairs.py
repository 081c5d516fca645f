"""Products of 16-bit integers, two steps of k to an instruction.

    sum(k: left[m, k] * right[n, k])
    sum(j: multiply_pairs(left[m, 2j] | left[m, 2j + 1] << 16, right[n, 2j] | …))

Where both operands are known to fit in 16 bits, a word of 32 holds two of them, and one instruction
multiplies both and adds them up: twice what a product of words does, and as exact, since nothing
but the sum itself can wrap. A right operand that fits in 8 bits can be stored as pairs of bytes,
and is widened in registers. Everything else about the product stays as it is.

The pixels of an image are read where they lie, so a convolution's left operand is an image of words
too: that of 16 bits, two channels of which are one word.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from monograph.ir.dims import Dim, Symbol, dim_min, substitute_dim
from monograph.ir.types import Array, DType, Kind, bool_, i8, i16, i32
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction, ceiling, decoded
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Literal, Load, Reduce
from monograph.kernel.kernel import Kernel, Store

Range = tuple[int, int]
"""The least and the greatest number that a formula can be."""
SMALL_WORD_RANGE: Range = (-512, 511)
"""What words are within that are called small: bytes less a zero point, and such less another."""
COPY = "halved"
"""The buffer of an image in 16 bits."""


def in_pairs(contraction: Contraction, small: Collection[str] = ()) -> Contraction | None:
    """The contraction over pairs of its steps; None if its operands may not fit in 16 bits.

    ``small`` are the buffers of words that are known to be ``SMALL_WORD_RANGE``.
    """
    if not _has_small_operands(contraction, small):
        return None
    left, right = contraction.left, contraction.right
    depth = contraction.size(contraction.k)
    step = e.axis("_r0_0", ceiling(depth, 2))
    words = e.apply(
        "multiply_pairs",
        _words(_pair(left, contraction, step.symbol, depth), i32),
        _right_words(_pair(right, contraction, step.symbol, depth), step.symbol, depth),
    )
    return _summed(contraction, (step,), words)


def image_in_pairs(
    contraction: Contraction, small: Collection[str]
) -> tuple[Kernel, Contraction] | None:
    """The same of windows over an image: what copies it into 16 bits, and the product of words.

    None if the innermost steps of k are not neighbours in the image, two by two.
    """
    image, inner = contraction.left, contraction.k[-1]
    if not isinstance(image, Load) or not _has_small_operands(contraction, small):
        return None
    (place,) = image.operands
    if not isinstance(place, Index) or not _is_even(inner.extent):
        return None
    step = e.axis(f"{inner.symbol.name}p", inner.extent // 2)
    first: dict[Symbol, Dim] = {inner.symbol: step.symbol * 2}
    second: dict[Symbol, Dim] = {inner.symbol: step.symbol * 2 + 1}
    start = substitute_dim(place.dim, first)
    if start + 1 != substitute_dim(place.dim, second) or start // 2 * 2 != start:
        return None
    (size,) = image.buffer.shape
    copy = _copied(contraction.kernel.name, image.buffer, size)
    words = Buffer(COPY, i32, (ceiling(size, 2),))
    low, high = (e.substitute(contraction.right, each) for each in (first, second))
    left = e.load(words, (e.index(start // 2),))
    body = e.apply("multiply_pairs", left, _small_words((low, high)))
    return copy, _summed(contraction, (*contraction.k[:-1], step), body, (words,))


def _copied(name: str, image: Buffer, size: Dim) -> Kernel:
    """An image of words in 16 bits, border and all."""
    axis = e.axis("_i_element", size)
    target = Buffer(COPY, i16, (size,))
    position = (e.index(axis.symbol),)
    store = Store(target, position, e.cast(e.load(image, position), i16))
    return Kernel(f"{name}_halve", (image,), (target,), (axis,), (store,))


def _summed(
    contraction: Contraction, axes: tuple[Axis, ...], body: Expr, more: tuple[Buffer, ...] = ()
) -> Contraction:
    """The contraction as the sum of another product, which may read ``more``."""
    reduction = e.reduce("sum", axes, body)
    assert isinstance(reduction, Reduce)
    kernel = contraction.kernel
    known: dict[Expr, Expr] = {contraction.reduction: reduction}
    stores = tuple(
        Store(s.buffer, s.position, e.replace(s.value, known), s.guard) for s in kernel.stores
    )
    inputs = (*kernel.inputs, *more)
    paired = replace(kernel, inputs=inputs, stores=stores)
    left, right = body.operands
    return replace(contraction, kernel=paired, reduction=reduction, left=left, right=right)


def _has_small_operands(contraction: Contraction, small: Collection[str]) -> bool:
    """Whether words are summed, and both operands fit in half of one."""
    operands = contraction.left, contraction.right
    summed = contraction.reduction.dtype is i32
    return summed and all(fits(operand, i16, small) for operand in operands)


def _pair(formula: Expr, contraction: Contraction, step: Symbol, depth: Dim) -> tuple[Expr, Expr]:
    """A formula at both positions of a pair; beyond the last, that one again."""
    first, second = step * 2, step * 2 + 1
    if not _is_even(depth):
        second = dim_min(second, depth - 1)
    low, high = (decoded(formula, contraction.k, place) for place in (first, second))
    return low, high


def _right_words(pair: tuple[Expr, Expr], step: Symbol, depth: Dim) -> Expr:
    """Words of the right operand: bytes that are widened, if they fit; zero beyond the last."""
    low, high = pair
    if not _is_even(depth):
        inside = e.apply("less", e.index(step * 2 + 1), e.index(depth), dtype=bool_)
        high = e.select(inside, high, e.literal(0, i32))
    return _small_words((low, high))


def _small_words(pair: tuple[Expr, Expr]) -> Expr:
    """Words of two numbers: made of bytes that are widened, if they fit."""
    if not all(fits(each, i8) for each in pair):
        return _words(pair, i32)
    return e.apply("widen_pairs", _words(pair, i16), dtype=i32)


def _words(pair: tuple[Expr, Expr], dtype: DType) -> Expr:
    """Two numbers in the halves of a word."""
    low, high = (e.cast(each, dtype) for each in pair)
    half = dtype.bits // 2
    mask = e.literal((1 << half) - 1, dtype)
    shifted = e.apply("shift_left", high, e.literal(half, dtype))
    return e.apply("bitwise_or", e.apply("bitwise_and", low, mask), shifted)


def _is_even(size: Dim) -> bool:
    return isinstance(size, int) and size % 2 == 0


def fits(formula: Expr, dtype: DType, small: Collection[str] = ()) -> bool:
    """Whether an integer formula is within a dtype's range, where some buffers are small."""
    return _is_within(_range(formula, small), _limits(dtype))


def is_small(formula: Expr, small: Collection[str] = ()) -> bool:
    """Whether an integer formula is always within ``SMALL_WORD_RANGE``, where some buffers are."""
    return _is_within(_range(formula, small), SMALL_WORD_RANGE)


def holds_small(numbers: Array) -> bool:
    """Whether all of these are within ``SMALL_WORD_RANGE``."""
    return numbers.size == 0 or _is_within(
        (int(numbers.min()), int(numbers.max())), SMALL_WORD_RANGE
    )


def _is_within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _range(formula: Expr, small: Collection[str]) -> Range:
    """Bounds of an integer formula, by the types that it reads and what it does with them."""
    known: dict[Expr, Range] = {}
    for part in e.walk((formula,)):
        if _is_integer(part.dtype):
            known[part] = _range_of(part, small, known)
    return known[formula]


def _range_of(formula: Expr, small: Collection[str], known: Mapping[Expr, Range]) -> Range:
    """Bounds of a formula whose operands' bounds are known."""
    limits = _limits(formula.dtype)
    if isinstance(formula, Literal):
        return int(formula.value), int(formula.value)
    if isinstance(formula, Load) and formula.buffer.name in small:
        return SMALL_WORD_RANGE
    if not isinstance(formula, Apply):
        return limits
    operands = [known[each] for each in formula.operands if each in known]
    found = limits
    match formula.function:
        case "cast" if operands:
            found = operands[0]
        case "add":
            found = operands[0][0] + operands[1][0], operands[0][1] + operands[1][1]
        case "subtract":
            found = operands[0][0] - operands[1][1], operands[0][1] - operands[1][0]
        case "negate":
            found = -operands[0][1], -operands[0][0]
        case "where":
            found = min(x[0] for x in operands[-2:]), max(x[1] for x in operands[-2:])
    return found if _is_within(found, limits) else limits


def _is_integer(dtype: DType) -> bool:
    return dtype.is_integer or dtype is bool_


def _limits(dtype: DType) -> Range:
    if dtype is bool_:
        return 0, 1
    if dtype.kind is Kind.SIGNED:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1
