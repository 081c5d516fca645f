"""Complex numbers that are only moved: copied as one element of eight bytes, not as a pair.

    o[i, 0] = b[j, 0];  o[i, 1] = b[j, 1]        of f32

    o[i] = b[j]                                  of i64, in the same memory

What is transposed, gathered, padded or joined is not computed with, so its bits may mean anything.
Whole pieces are neighbours in memory, which every other float is not: they are loaded as vectors
and turned in registers.
"""

from __future__ import annotations

from dataclasses import replace

from monograph.ir.types import f32, i64
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Buffer, Expr, Literal, Load
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.layout import MemoryLayout

REAL, IMAGINARY = (e.index(part) for part in range(2))


def move_whole_numbers(kernel: Kernel) -> Kernel:
    """The kernel with its numbers in one piece each, if they are complex and only moved."""
    reals, imaginaries = kernel.stores[::2], kernel.stores[1::2]
    if not imaginaries or len(reals) != len(imaginaries):
        return kernel
    stores = []
    for real, imaginary in zip(reals, imaginaries, strict=True):
        store = _join_stores(real, imaginary)
        if store is None:
            return kernel
        stores.append(store)
    moved = replace(kernel, stores=tuple(stores))
    loads = list(moved.loads())
    split = {each.name for each in kernel.inputs if _is_pair(each)}
    if any(load.buffer.name in split and load.dtype is not i64 for load in loads):
        return kernel  # something is computed with a part: it says what is moved
    inputs = tuple(_whole(each) if each.name in split else each for each in kernel.inputs)
    return replace(moved, inputs=inputs, outputs=tuple(map(_whole, kernel.outputs)))


def _join_stores(real: Store, imaginary: Store) -> Store | None:
    """Two stores of neighbouring parts as one of the whole."""
    buffer = real.buffer
    if imaginary.buffer != buffer or not _are_parts(buffer, real.position, imaginary.position):
        return None
    value = _join_parts(real.value, imaginary.value)
    return None if value is None else Store(_whole(buffer), real.position[:-1], value)


def _join_parts(real: Expr, imaginary: Expr) -> Expr | None:
    """What both parts are copies of: an element, a choice between two of them, or nothing (0)."""
    if isinstance(real, Load) and isinstance(imaginary, Load):
        buffer = real.buffer
        same = imaginary.buffer == buffer
        if not same or not _are_parts(buffer, real.operands, imaginary.operands):
            return None
        return e.load(_whole(buffer), real.operands[:-1])
    if isinstance(real, Literal) and isinstance(imaginary, Literal):
        zero = e.literal(0.0, f32)
        return e.literal(0, i64) if real is imaginary is zero else None
    if not _is_choice(real) or not _is_choice(imaginary):
        return None
    if real.operands[0] is not imaginary.operands[0]:
        return None
    yes, no = map(_join_parts, real.operands[1:], imaginary.operands[1:])
    return None if yes is None or no is None else e.select(real.operands[0], yes, no)


def _is_choice(x: Expr) -> bool:
    return isinstance(x, Apply) and x.function == "where"


def _are_parts(buffer: Buffer, real: tuple[Expr, ...], imaginary: tuple[Expr, ...]) -> bool:
    """Whether positions are those of the two parts of one number."""
    if not _is_pair(buffer) or (real[-1], imaginary[-1]) != (REAL, IMAGINARY):
        return False
    return real[:-1] == imaginary[:-1]


def _is_pair(buffer: Buffer) -> bool:
    """Whether a buffer may hold complex numbers, each as two neighbouring floats."""
    return buffer.dtype is f32 and buffer.shape[-1:] == (2,) and buffer.element_strides()[-1] == 1


def _whole(buffer: Buffer) -> Buffer:
    """The same memory, a number in each element."""
    layout = buffer.layout
    if layout is not None:
        span = None if layout.span is None else layout.span // 2
        strides = tuple(stride // 2 for stride in layout.strides[:-1])
        layout = MemoryLayout(strides, layout.offset // 2, span)
    return Buffer(buffer.name, i64, buffer.shape[:-1], layout)
