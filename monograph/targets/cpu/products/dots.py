"""Dot instructions: products of bytes, four steps of k at a time.

    sum(k: left[m, k] * right[n, k])
    sum(j: dot_u8_i8(left[m, 4j … 4j + 3], right[n, 4j … 4j + 3]))

A word of 32 bits holds four bytes of each operand; one instruction (``Machine.byte_dot``)
multiplies them and adds them to a sum, exactly. The left operand is read where it lies, four
neighbours at a time: the channels of a pixel, a row of a matrix. The right one is weights, packed
once.

An instruction wants its left bytes signed or unsigned. Bytes of the other kind are moved by 128,
which is flipping a bit of each, and what that adds to a sum is 128 times that of the weights: the
sums are made when the weights are packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, dim_min, substitute_dim
from monograph.ir.types import bool_, i8, i32, u8
from monograph.kernel import expr as e
from monograph.kernel.contraction import (
    Contraction,
    ceiling,
    flat_position,
    with_k_ordered,
)
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Load, Reduce
from monograph.kernel.kernel import Kernel, Store
from monograph.targets.cpu.machine import DotInstruction
from monograph.targets.cpu.products.pairs import fits

STEPS_PER_DOT = 4
"""Bytes in a word."""
SIGN_BITS = 0x80808080 - (1 << 32)
"""The highest bit of each byte of a word."""
WORDS = "words"
"""The buffer of the left operand's bytes, read as words."""
SUMS = "column_sums"
"""The buffer of the sums of the weights, a column each."""


@dataclass(frozen=True)
class Dots:
    """A contraction over words of four bytes, and what it reads besides the original's inputs."""

    contraction: Contraction
    aliased: str | None
    """The input whose bytes are read as ``WORDS``; None if the left operand is packed."""
    sums: Kernel | None
    """What makes ``SUMS``; None if nothing has to be made up for."""


def in_dots(contraction: Contraction, dot: DotInstruction) -> Dots | None:
    """The contraction by an instruction; None if its operands are not bytes, or lie otherwise."""
    if contraction.reduction.dtype is not i32 or not fits(contraction.right, i8):
        return None
    stored = _bytes_read(contraction.left)
    if stored is None:
        return None
    ordered = with_k_ordered(contraction, stored, merge=True)
    image = _bytes_read(ordered.left)
    assert image is not None, "the order of k does not change what is read"
    in_place = _words_in_place(ordered, image)
    if in_place is None and len(ordered.k) != 1:
        return None
    if in_place is not None:
        words, axes, places = in_place
    else:
        words, axes, places = _words_to_pack(ordered, image)
    if image.dtype is not dot.left:
        words = e.apply("bitwise_xor", words, e.literal(SIGN_BITS, i32))
    right = word_of_bytes(tuple(_right_byte(ordered, place) for place in places))
    product = e.apply(dot.function, words, right)
    moved = 0 if image.dtype is dot.left else (128 if dot.left is u8 else -128)
    alias = (Buffer(WORDS, i32, _words_shape(image.buffer)),) if in_place is not None else ()
    found = _summed(ordered, axes, product, moved, alias)
    return Dots(
        found,
        image.buffer.name if in_place is not None else None,
        column_sums(ordered) if moved else None,
    )


def _bytes_read(left: Expr) -> Load | None:
    """The byte that a left operand is made of, if it is one that was widened."""
    if not isinstance(left, Apply) or left.function != "cast":
        return None
    (stored,) = left.operands
    if not isinstance(stored, Load) or stored.dtype not in (u8, i8):
        return None
    return stored if isinstance(stored.operands[0], Index) else None


Place = tuple[dict[Symbol, Dim], bool | Expr]
"""Where along k one byte of a word is, and whether it is inside."""


def _words_in_place(
    contraction: Contraction, image: Load
) -> tuple[Expr, tuple[Axis, ...], list[Place]] | None:
    """Words of the image as it lies, if four steps of k are neighbours in it, and aligned."""
    inner, (position,) = contraction.k[-1], image.operands
    assert isinstance(position, Index)
    if not isinstance(inner.extent, int) or inner.extent % STEPS_PER_DOT:
        return None
    step = e.axis(f"{inner.symbol.name}q", inner.extent // STEPS_PER_DOT)
    places: list[dict[Symbol, Dim]] = [
        {inner.symbol: step.symbol * STEPS_PER_DOT + byte} for byte in range(STEPS_PER_DOT)
    ]
    start = substitute_dim(position.dim, places[0])
    if start // STEPS_PER_DOT * STEPS_PER_DOT != start:
        return None
    if any(substitute_dim(position.dim, at) != start + byte for byte, at in enumerate(places)):
        return None
    words = e.load(
        Buffer(WORDS, i32, _words_shape(image.buffer)), (e.index(start // STEPS_PER_DOT),)
    )
    return words, (*contraction.k[:-1], step), [(at, True) for at in places]


def _words_shape(image: Buffer) -> tuple[Dim, ...]:
    (size,) = image.shape
    return (ceiling(size, STEPS_PER_DOT),)


def _words_to_pack(
    contraction: Contraction, image: Load
) -> tuple[Expr, tuple[Axis, ...], list[Place]]:
    """Words that are made of bytes wherever they lie; the last may reach beyond k."""
    (along,) = contraction.k
    depth = along.extent
    step = e.axis("_r0_0", ceiling(depth, STEPS_PER_DOT))
    places: list[Place] = []
    for byte in range(STEPS_PER_DOT):
        at: Dim = step.symbol * STEPS_PER_DOT + byte
        inside: bool | Expr = True
        if byte and (not isinstance(depth, int) or depth % STEPS_PER_DOT):
            inside = e.apply("less", e.index(at), e.index(depth), dtype=bool_)
            at = dim_min(at, depth - 1)
        places.append(({along.symbol: at}, inside))
    loads = [e.cast(e.substitute(image, at), i32) for at, _ in places]
    return word_of_bytes(loads), (step,), places


def _right_byte(contraction: Contraction, place: Place) -> Expr:
    """The right operand at one of four steps of k: zero beyond the last."""
    at, inside = place
    value = e.substitute(contraction.right, at)
    return value if isinstance(inside, bool) else e.select(inside, value, e.literal(0, i32))


def word_of_bytes(numbers: Sequence[Expr]) -> Expr:
    """Four numbers in the bytes of a word, the first in the lowest."""
    word: Expr | None = None
    for place, number in enumerate(numbers):
        byte = e.cast(number, i32)
        if place < STEPS_PER_DOT - 1:
            byte = e.apply("bitwise_and", byte, e.literal(0xFF, i32))
        if place:
            byte = e.apply("shift_left", byte, e.literal(8 * place, i32))
        word = byte if word is None else e.apply("bitwise_or", word, byte)
    assert word is not None, "a word has bytes"
    return word


def _summed(
    contraction: Contraction,
    axes: tuple[Axis, ...],
    product: Expr,
    moved: int,
    more: tuple[Buffer, ...],
) -> Contraction:
    """The contraction as a sum of dots of bytes that were moved, which may read ``more``."""
    reduction = e.reduce("sum", axes, product)
    assert isinstance(reduction, Reduce)
    kernel = contraction.kernel
    total: Expr = reduction
    if moved:
        sums = Buffer(SUMS, i32, (contraction.size(_columns(contraction)),))
        column = e.load(sums, (e.index(flat_position(_columns(contraction))),))
        added = e.apply("multiply", column, e.literal(moved, i32))
        total = e.apply("subtract", reduction, added)
        more = (*more, sums)
    known: dict[Expr, Expr] = {contraction.reduction: total}
    stores = tuple(
        Store(s.buffer, s.position, e.replace(s.value, known), s.guard) for s in kernel.stores
    )
    inputs = (*kernel.inputs, *more)
    made = replace(kernel, inputs=inputs, stores=stores)
    left, right = product.operands
    return replace(contraction, kernel=made, reduction=reduction, left=left, right=right)


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
    read = {x.buffer.name for x in e.walk((value,)) if isinstance(x, Load)}
    inputs = tuple(b for b in contraction.kernel.inputs if b.name in read)
    total = e.reduce("sum", contraction.k, value)
    buffer = Buffer(SUMS, i32, (contraction.size(renamed),))
    store = Store(buffer, (e.index(flat_position(renamed)),), total)
    return Kernel(f"{contraction.kernel.name}_{SUMS}", inputs, (buffer,), renamed, (store,))
