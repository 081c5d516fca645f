"""In-place updates: proves from a kernel's expressions which inputs its output may overwrite.

An output may take the memory of an input only if no element is read after it was written, on any
thread and in any order of vectors, tiles and pipelined rows. That holds where

- each element is written once, by one iteration: the store's position is one-to-one;
- every load of that memory, *through every buffer that names it*, is at the very position that the
  iteration writes: then no other iteration reads it, and this one reads it first.

The second point is about memory, not buffers: ``y[None] - y[0]`` reads ``y`` through two buffers
of different shapes, through one element by element and through the other at its first row.

A reduction reads many elements for each that it writes, and is never done in place.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from monograph.ir.dims import Dim, provably_at_least
from monograph.ir.dims.polynomial import bounds_of
from monograph.kernel.expr import Axis, Expr, Index, Reduce, find_loads
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel


def overwritable_inputs(kernel: Kernel, memory: Sequence[Hashable]) -> tuple[int, ...]:
    """The inputs, by number, that the only output of a flat kernel may be written over.

    ``memory`` says for each input which memory it lies in: equal ones are the same memory.
    """
    if len(kernel.stores) != 1 or kernel.stores[0].guard is not None:
        return ()
    if len(kernel.outputs) != 1:  # the others are empty, and still outputs
        return ()
    (store,) = kernel.stores
    if any(isinstance(expr, Reduce) for expr in kernel.expressions()):
        return ()
    if len(store.position) != 1 or not is_one_to_one(store.position[0], kernel.axes):
        return ()
    loads = list(find_loads(*store.position, store.value))
    found = []
    for number, buffer in enumerate(kernel.inputs):
        names = {
            other.name
            for other, place in zip(kernel.inputs, memory, strict=True)
            if place == memory[number]
        }
        reads = [load for load in loads if load.buffer.name in names]
        is_read = any(load.buffer.name == buffer.name for load in reads)
        fits = buffer.dtype.bits == store.buffer.dtype.bits and buffer.shape == store.buffer.shape
        if is_read and fits and all(load.operands == store.position for load in reads):
            found.append(number)
    return tuple(found)


def is_one_to_one(position: Expr, axes: tuple[Axis, ...]) -> bool:
    """Whether two iterations never write the same element: a mixed-radix number of the axes.

    In some order of the axes, each must step over all that those before it reach. An axis of one
    iteration may be missing.
    """
    if not isinstance(position, Index):
        return False
    strides: list[tuple[Dim, Dim]] = []
    for axis in axes:
        stride = coefficient(position.dim, axis.symbol)
        if stride is None:
            return False
        strides.append((stride, axis.extent))
    return is_mixed_radix(strides)


def is_mixed_radix(digits: Sequence[tuple[Dim, Dim]]) -> bool:
    """Whether sums of digits times their strides are all different; ``(stride, count)`` of each."""
    strides = [each for each in digits if each[1] != 1]
    reach: Dim = 1
    while strides:
        following = _next_stride(strides, reach)
        if following is None:
            return False
        strides.remove(following)
        stride, extent = following
        reach = reach + stride * (extent - 1)
    return True


def _next_stride(strides: Sequence[tuple[Dim, Dim]], reach: Dim) -> tuple[Dim, Dim] | None:
    """The axis whose stride is what others reach, or else the smallest known one beyond it."""
    for each in strides:
        if each[0] == reach:
            return each
    beyond = [each for each in strides if provably_at_least(each[0], reach)]
    return min(beyond, key=lambda each: bounds_of(each[0])[0] or 0, default=None)
