"""Kernels that are equal up to the offsets at which they read and write.

A loop that was unrolled has a kernel for each of its steps, and those differ in one number each:

    o0[i0, i1] = tanh(b0[384*i0+i1+128] + …)
    o0[i0, i1] = tanh(b0[384*i0+i1+192] + …)

If each buffer is seen as the piece of it that the kernel touches, from the first element to the
last, they are one kernel on other addresses:

    o0[i0, i1] = tanh(b0[384*i0+i1] + …)         b0 begins at 128, or at 192
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, SymbolicDim, substitute_dim
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Index, Load, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel, Store


@dataclass(frozen=True)
class TouchedElements:
    """The elements of a flat buffer that a kernel touches, and those between them."""

    start: int
    extent: Dim


@dataclass(frozen=True)
class RebasedKernel:
    """A flat kernel on pieces of its buffers: they begin at ``starts``, by name, in elements."""

    kernel: Kernel
    starts: Mapping[str, int]


def on_pieces(kernel: Kernel, names: Collection[str]) -> RebasedKernel | None:
    """The kernel on pieces of the buffers of these names; None if all of them begin at 0.

    A buffer that is touched at a place which data decide is not cut.
    """
    if any(store.guard is not None for store in kernel.stores):
        return None
    places = _places(kernel)
    extents = _extents(kernel)
    found: dict[str, TouchedElements] = {}
    for buffer in kernel.buffers:
        if buffer.name not in names:
            continue
        piece = _find_touched(buffer, places.get(buffer.name, ()), extents)
        if piece is not None:
            found[buffer.name] = piece
    if not any(piece.start for piece in found.values()):
        return None
    starts = {name: piece.start for name, piece in found.items()}
    return RebasedKernel(_rebase(kernel, found), starts)


def without_unread(kernel: Kernel) -> tuple[Kernel, tuple[int, ...]]:
    """The kernel without the inputs that it does not read, and the numbers of those that it does.

    Buffers are named by their place, so those that are left get other names.
    """
    read = {load.buffer.name for load in kernel.loads()}
    kept = tuple(k for k, buffer in enumerate(kernel.inputs) if buffer.name in read)
    if len(kept) == len(kernel.inputs):
        return kernel, kept
    names = {kernel.inputs[old].name: kernel.inputs[new].name for new, old in enumerate(kept)}
    return _with_names(kernel, names), kept


def rename_by_position(kernel: Kernel) -> Kernel:
    """The kernel with its inputs named as all kernels' are: what was cut out of one has its names.

    Only then is packing the second operand of one kernel the same as packing the third of another.
    """
    names = {buffer.name: f"b{k}" for k, buffer in enumerate(kernel.inputs)}
    if all(old == new for old, new in names.items()):
        return kernel
    return _with_names(kernel, names)


def _with_names(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """The kernel with the inputs that have a new name, under that name."""
    loads: dict[Expr, Expr] = {}
    for load in kernel.loads():
        operands = tuple(e.replace(operand, loads) for operand in load.operands)
        loads[load] = e.load(replace(load.buffer, name=names[load.buffer.name]), operands)
    stores = tuple(store.mapped(lambda expr: e.replace(expr, loads)) for store in kernel.stores)
    inputs = tuple(replace(b, name=names[b.name]) for b in kernel.inputs if b.name in names)
    return replace(kernel, inputs=inputs, stores=stores)


def without_doubles(kernel: Kernel, written: Sequence[int]) -> tuple[Kernel, list[int]]:
    """The kernel without outputs that are the same memory as another, and filled alike.

    ``written`` says which memory each output is; what is left of it is returned too.
    """
    filled: dict[str, list[tuple[object, ...]]] = {}
    for store in kernel.stores:
        what = (store.position, store.value, store.guard)
        filled.setdefault(store.buffer.name, []).append(what)
    first: dict[int, Buffer] = {}
    doubled: set[str] = set()
    for buffer, memory in zip(kernel.outputs, written, strict=True):
        other = first.setdefault(memory, buffer)
        is_same = (other.dtype, other.shape) == (buffer.dtype, buffer.shape)
        if other is not buffer and is_same and filled.get(other.name) == filled.get(buffer.name):
            doubled.add(buffer.name)
    if not doubled:
        return kernel, list(written)
    left = [k for k, buffer in enumerate(kernel.outputs) if buffer.name not in doubled]
    outputs = tuple(kernel.outputs[k] for k in left)
    stores = tuple(store for store in kernel.stores if store.buffer.name not in doubled)
    return replace(kernel, outputs=outputs, stores=stores), [written[k] for k in left]


def _places(kernel: Kernel) -> dict[str, list[Expr]]:
    """Where each buffer is read and written, by its name."""
    found: dict[str, list[Expr]] = {}
    for load in kernel.loads():
        found.setdefault(load.buffer.name, []).append(load.operands[0])
    for store in kernel.stores:
        found.setdefault(store.buffer.name, []).append(store.position[0])
    return found


def _extents(kernel: Kernel) -> dict[Symbol, Dim]:
    """How many values each loop variable takes."""
    axes: list[Axis] = list(kernel.axes)
    for expr in kernel.expressions():
        if isinstance(expr, Reduce):
            axes += expr.axes
    return {axis.symbol: axis.extent for axis in axes}


def _find_touched(
    buffer: Buffer, places: Iterable[Expr], extents: Mapping[Symbol, Dim]
) -> TouchedElements | None:
    """From the first to the last element that is touched, if that can be told of all places."""
    ranges = [_range(place, extents) for place in places]
    known = [each for each in ranges if each is not None]
    if not known or len(known) < len(ranges):
        return None
    start = min(first for first, _ in known)
    last = _largest([last for _, last in known])
    if last is None or start < 0 or not _is_below(last, buffer.shape[0]):
        return None  # what a condition keeps from being read is no reason to move the rest
    return TouchedElements(start, last + 1 - start)


def _range(place: Expr, extents: Mapping[Symbol, Dim]) -> tuple[int, Dim] | None:
    """The first and the last position that strides lead to."""
    if not isinstance(place, Index):
        return None
    dim = place.dim
    if not isinstance(dim, SymbolicDim):
        return dim, dim
    moving = [symbol for symbol in dim.symbols() if symbol in extents]
    for symbol in moving:
        step = coefficient(dim, symbol)
        if not isinstance(step, int) or step < 0:
            return None
    first = substitute_dim(dim, dict.fromkeys(moving, 0))
    last = substitute_dim(dim, {symbol: extents[symbol] - 1 for symbol in moving})
    return (first, last) if isinstance(first, int) else None


def _largest(dims: list[Dim]) -> Dim | None:
    """The largest of positions that differ by known numbers."""
    largest, *others = dims
    for other in others:
        more = other - largest
        if not isinstance(more, int):
            return None
        largest = other if more > 0 else largest
    return largest


def _is_below(dim: Dim, limit: Dim) -> bool:
    room = limit - dim
    lowest = room.bounds()[0] if isinstance(room, SymbolicDim) else room
    return lowest is not None and lowest > 0


def _rebase(kernel: Kernel, pieces: Mapping[str, TouchedElements]) -> Kernel:
    """The kernel whose buffers are those pieces."""
    buffers = {
        buffer.name: replace(buffer, shape=(pieces[buffer.name].extent,))
        if buffer.name in pieces
        else buffer
        for buffer in kernel.buffers
    }
    done: dict[Expr, Expr] = {}

    def moved(buffer: Buffer, place: Expr) -> Expr:
        return place - pieces[buffer.name].start if buffer.name in pieces else place

    def visit(expr: Expr) -> Expr:
        found = done.get(expr)
        if found is None:
            operands = tuple(map(visit, expr.operands))
            if isinstance(expr, Load) and expr.buffer.name in pieces:
                found = e.load(buffers[expr.buffer.name], (moved(expr.buffer, operands[0]),))
            else:
                found = expr if operands == expr.operands else expr.rebuilt(operands)
            done[expr] = found
        return found

    stores = tuple(
        Store(
            buffers[store.buffer.name],
            (moved(store.buffer, visit(store.position[0])),),
            visit(store.value),
        )
        for store in kernel.stores
    )
    return replace(
        kernel,
        inputs=tuple(buffers[each.name] for each in kernel.inputs),
        outputs=tuple(buffers[each.name] for each in kernel.outputs),
        stores=stores,
    )
