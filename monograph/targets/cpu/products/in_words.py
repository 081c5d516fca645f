"""Products of small integers: several steps of k in a word of 32 bits, an instruction each.

    sum(k: left[m, k] * right[n, k])
    sum(j: dot_u8_i8(left[m, 4j … 4j + 3], right[n, 4j … 4j + 3]))
    sum(j: multiply_pairs(left[m, 2j … 2j + 1], right[n, 2j … 2j + 1]))

Where both operands are known to fit in the numbers that an instruction multiplies (its
``MicroKernel``), a word holds several of them, and the instruction multiplies all and adds them to
a sum, as exactly: nothing but the sum itself can wrap. The left operand is read where it lies, if
neighbours in k are neighbours there: the channels of a pixel, a row of a matrix. An image of words,
or of bytes that are to be multiplied in pairs, is copied into halves first. What lies otherwise is
put in words as it is packed.

An instruction wants its left bytes signed or unsigned. Bytes of the other kind are moved by 128,
which is flipping a bit of each, and what that adds to a sum is 128 times that of the weights: the
sums are made when the weights are packed. Everything else about the product stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, dim_min, substitute_dim
from monograph.ir.types import DType, bool_, i8, i16, i32, u8
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction, ceiling, flat_position, with_k_ordered
from monograph.kernel.expr import Axis, Buffer, Expr, Index, Load
from monograph.kernel.integer_range import fits
from monograph.kernel.kernel import Kernel, Store, write_kernel
from monograph.targets.micro_kernel import MicroKernel

SIGN_BITS = 0x80808080 - (1 << 32)
"""The highest bit of each byte of a word."""
WORDS = "words"
"""The buffer of the left operand's bytes, read as words."""
HALVED = "halved"
"""The buffer of an image of words in 16 bits."""
SUMS = "column_sums"
"""The buffer of the sums of the weights, a column each."""
AXIS_SUFFIX = {2: "p", 4: "q"}
"""What the name of an axis of words ends in, by the steps in one: pairs and quadruples."""

MoreInputs: TypeAlias = tuple[str | Kernel, ...]
"""What a product reads beyond its kernel's inputs: one of these again, by name, or what a kernel
makes of them first."""
Place: TypeAlias = tuple[dict[Symbol, Dim], Expr | None]
"""Where along k one number of a word is, and a condition that it is inside, if it may not be."""


@dataclass(frozen=True)
class Words:
    """A contraction by a micro-kernel, and what it reads besides the original's inputs."""

    contraction: Contraction
    micro: MicroKernel
    more: MoreInputs = ()


def by_micro_kernel(
    contraction: Contraction,
    micro: MicroKernel,
    small: Collection[str] = (),
    *,
    is_weight: bool = False,
) -> Words | None:
    """The contraction by an instruction; None if its operands are others, or lie otherwise.

    ``small`` are the buffers of words that are known to be small. ``is_weight`` says whether the
    right operand is packed when the program is loaded: only then is it put in words of bytes.
    """
    left, right = contraction.operands(small)
    if not micro.takes(left, right, contraction.summed):
        return None
    if micro.steps == 1:
        return Words(contraction, micro)
    if micro.steps == 2:
        return _in_pairs(contraction, micro, is_weight)
    return _in_quadruples(contraction, micro) if is_weight else None


def _in_pairs(contraction: Contraction, micro: MicroKernel, is_weight: bool) -> Words | None:
    """The contraction over words of two; an image that several axes walk through is copied."""
    stored = contraction.operands()[0].widened_load
    guide = contraction.left if stored is None else stored
    ordered = with_k_ordered(contraction, guide, merge=is_weight)
    if len(ordered.k) == 1:
        words, step, places = _to_pack(ordered, micro.steps)
        return Words(_sum_words(ordered, micro, (step,), words, places), micro)
    image = ordered.left if stored is None else ordered.operands()[0].widened_load
    if not is_weight or not isinstance(image, Load):
        return None
    found = _in_place(ordered, image, HALVED, micro.steps)
    if found is None:
        return None
    words, axes, places = found
    copy = _copy_in_halves(contraction.kernel.name, image.buffer)
    return Words(_sum_words(ordered, micro, axes, words, places, (words.buffer,)), micro, (copy,))


def _in_quadruples(contraction: Contraction, micro: MicroKernel) -> Words | None:
    """The contraction over words of four bytes, which are read as they are stored."""
    stored = contraction.operands()[0].widened_load
    if stored is None or stored.dtype not in (u8, i8):
        return None
    ordered = with_k_ordered(contraction, stored, merge=True)
    image = ordered.operands()[0].widened_load
    assert image is not None, "the order of k does not change what is read"
    in_place = _in_place(ordered, image, WORDS, micro.steps)
    if in_place is None and len(ordered.k) != 1:
        return None
    more: MoreInputs = ()
    buffers: tuple[Buffer, ...] = ()
    words: Expr
    if in_place is not None:
        words, axes, places = in_place
        more, buffers = (image.buffer.name,), (in_place[0].buffer,)
    else:
        words, step, places = _to_pack(ordered, micro.steps)
        axes = (step,)
    if image.dtype is micro.left:
        return Words(_sum_words(ordered, micro, axes, words, places, buffers), micro, more)
    words = e.apply("bitwise_xor", words, e.literal(SIGN_BITS, i32))
    columns = _columns(ordered)
    sums = Buffer(SUMS, i32, (ordered.size(columns),))
    column = e.load(sums, (e.index(flat_position(columns)),))
    moved = 128 if micro.left is u8 else -128
    lack = e.apply("multiply", column, e.literal(moved, i32))
    found = _sum_words(ordered, micro, axes, words, places, (*buffers, sums), lack)
    return Words(found, micro, (*more, column_sums(ordered)))


def _sum_words(
    contraction: Contraction,
    micro: MicroKernel,
    axes: tuple[Axis, ...],
    left: Expr,
    places: Sequence[Place],
    more: tuple[Buffer, ...] = (),
    lack: Expr | None = None,
) -> Contraction:
    """The contraction as a sum of what an instruction gives of words."""
    numbers = [_or_zero(e.substitute(contraction.right, at), inside) for at, inside in places]
    body = e.apply(micro.function, left, _right_word(numbers))
    return contraction.summing(axes, body, more, lack)


def _or_zero(value: Expr, inside: Expr | None) -> Expr:
    return value if inside is None else e.select(inside, value, e.literal(0, i32))


# Words -------------------------------------------------------------------------------------------


def pack_word(numbers: Sequence[Expr], dtype: DType = i32) -> Expr:
    """Several numbers in a word of this dtype, the first in its lowest bits."""
    bits = dtype.bits // len(numbers)
    word: Expr | None = None
    for place, number in enumerate(numbers):
        part = e.cast(number, dtype)
        if place < len(numbers) - 1:
            part = e.apply("bitwise_and", part, e.literal((1 << bits) - 1, dtype))
        if place:
            part = e.apply("shift_left", part, e.literal(bits * place, dtype))
        word = part if word is None else e.apply("bitwise_or", word, part)
    assert word is not None, "a word has numbers"
    return word


def _right_word(numbers: Sequence[Expr]) -> Expr:
    """A word of the right operand; pairs that fit are stored as bytes, and widened in registers."""
    if len(numbers) == 2 and all(fits(each, i8) for each in numbers):
        return e.apply("widen_pairs", pack_word(numbers, i16), dtype=i32)
    return pack_word(numbers)


def _in_place(
    contraction: Contraction, image: Load, name: str, steps: int
) -> tuple[Load, tuple[Axis, ...], list[Place]] | None:
    """Words of the image as it lies, if steps of k are neighbours in it, and aligned."""
    inner, (position,) = contraction.k[-1], image.operands
    if not isinstance(position, Index):
        return None
    if not isinstance(inner.extent, int) or inner.extent % steps:
        return None
    step = e.axis(f"{inner.symbol.name}{AXIS_SUFFIX[steps]}", inner.extent // steps)
    places: list[dict[Symbol, Dim]] = [
        {inner.symbol: step.symbol * steps + number} for number in range(steps)
    ]
    start = substitute_dim(position.dim, places[0])
    if start // steps * steps != start:
        return None
    if any(substitute_dim(position.dim, at) != start + number for number, at in enumerate(places)):
        return None
    (size,) = image.buffer.shape
    words = e.load(Buffer(name, i32, (ceiling(size, steps),)), (e.index(start // steps),))
    assert isinstance(words, Load)
    return words, (*contraction.k[:-1], step), [(at, None) for at in places]


def _to_pack(contraction: Contraction, steps: int) -> tuple[Expr, Axis, list[Place]]:
    """Words that are made of numbers wherever they lie; the last may reach beyond k."""
    (along,) = contraction.k
    depth = along.extent
    step = e.axis("_r0_0", ceiling(depth, steps))
    places: list[Place] = []
    for number in range(steps):
        at: Dim = step.symbol * steps + number
        inside: Expr | None = None
        if number and (not isinstance(depth, int) or depth % steps):
            inside = e.apply("less", e.index(at), e.index(depth), dtype=bool_)
            at = dim_min(at, depth - 1)
        places.append(({along.symbol: at}, inside))
    numbers = [e.substitute(contraction.left, at) for at, _ in places]
    return pack_word(numbers), step, places


def _copy_in_halves(name: str, image: Buffer) -> Kernel:
    """An image of words in 16 bits, border and all."""
    (size,) = image.shape
    axis = e.axis("_i_element", size)
    target = Buffer(HALVED, i16, (size,))
    position = (e.index(axis.symbol),)
    store = Store(target, position, e.cast(e.load(image, position), i16))
    return write_kernel(f"{name}_halve", (axis,), store)


# Sums of weights ---------------------------------------------------------------------------------


def _columns(contraction: Contraction) -> tuple[Axis, ...]:
    """The axes along which weights differ, but for k."""
    axes = (*contraction.batch, *contraction.outer, *contraction.n)
    return tuple(axis for axis in axes if axis.symbol in contraction.right.symbols)


def column_sums(contraction: Contraction) -> Kernel:
    """Sum the right operand of a contraction along k."""
    axes = _columns(contraction)
    renamed = tuple(e.axis(f"_i_column{k}", axis.extent) for k, axis in enumerate(axes))
    names: dict[Symbol, Dim] = {
        old.symbol: new.symbol for old, new in zip(axes, renamed, strict=True)
    }
    value = e.substitute(contraction.right, names)
    total = e.reduce("sum", contraction.k, value)
    buffer = Buffer(SUMS, i32, (contraction.size(renamed),))
    store = Store(buffer, (e.index(flat_position(renamed)),), total)
    kernel = contraction.kernel
    return write_kernel(f"{kernel.name}_{SUMS}", renamed, store, inputs=kernel.inputs)
