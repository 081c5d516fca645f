"""Choosing a kernel's schedule for a processor, by what it reads and how it strides.

Instructions work on neighbours in memory, so the vector axis is the one along which most accesses
are contiguous; threads get whole rows, or tiles of one long row; a result that will not fit in the
cache is written past it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from monograph.ir.dims import Dim, Symbol, SymbolicDim, likely_size, shape_product
from monograph.ir.types import DType
from monograph.kernel.expr import Apply, Expr, Index, Load, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel
from monograph.kernel.one_hot_sums import with_picks
from monograph.switches import is_on
from monograph.targets.cpu.loops.contiguity import (
    is_contiguous,
    leave_out_tables,
    list_accesses,
    score_axis,
    score_position,
    score_reductions,
)
from monograph.targets.cpu.loops.instruction_counts import instructions_of, work_of
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.machine import Machine

MAX_TERMS_PER_SUM = 16
"""Terms that one running sum takes before it is added to another: as many as eager's do, whose
error a longer one exceeds."""
MAX_ELEMENTS_PER_SUM = 2048
"""Elements that a running sum takes at most, whatever the vectors: its error grows with them."""
MIN_VECTOR_ELEMENTS = 4
"""Elements under which an axis is no vector's, if another one would do."""
PIXEL_CHANNELS = 4
"""Channels that are computed side by side and stored together."""
MIN_SHARED_INSTRUCTIONS = 4
"""Instructions that rows have in common from which on several are worth visiting at once."""


def choose(kernel: Kernel, machine: Machine) -> Schedule:
    """A schedule for a flat kernel."""
    kernel = with_picks(kernel)
    reductions = [expr for expr in kernel.expressions() if isinstance(expr, Reduce)]
    top = [each for each in reductions if not _inside_reduction(each)]
    chosen = _rows(kernel, machine, top) if top else _pointwise(kernel, machine)
    return chosen if is_on("vector_loops") else without_vectors(chosen)


def without_vectors(schedule: Schedule) -> Schedule:
    """The same order of axes, an element at a time."""
    return Schedule(
        schedule.order, schedule.rows, min(schedule.rows, schedule.parallel), grain=schedule.grain
    )


def _pointwise(kernel: Kernel, machine: Machine) -> Schedule:
    symbols = tuple(axis.symbol for axis in kernel.axes)
    if not symbols:
        return Schedule((), 0, 0)
    extents = {axis.symbol: axis.extent for axis in kernel.axes}
    along_pixels = _schedule_pixels(kernel, machine, extents)
    if along_pixels is not None:
        return along_pixels
    vector = _vector_axis(kernel, symbols, extents)
    order = (*(s for s in symbols if s is not vector), vector)
    width = _width(kernel, machine, extents[vector], {vector})
    outer = likely_size(shape_product(extents[s] for s in order[:-1]))
    inner = likely_size(extents[vector])
    if width > inner > 2:
        width //= 2  # the last elements once more, and no mask: that takes longer
    tile = (
        machine.costs.task_elements
        if inner >= 2 * machine.costs.task_elements and outer < 256
        else 0
    )
    crossed = _find_crossed_axis(kernel, order, extents)
    jam: tuple[tuple[Symbol, int], ...] = ()
    block: tuple[Symbol, int] | None = None
    if crossed is not None:
        axis, dtype = crossed
        width = machine.vector_bytes * 8 // max(dtype.bits, 32)
        tile = width * _choose_transposed_squares(kernel, vector, axis, width, machine)
        jam = ((axis, width),)
        block = (
            axis,
            _squares(extents[axis], width, machine.costs.line_bytes // dtype.numpy.itemsize),
        )
    else:
        jam = _sharing(kernel, machine, order, extents)
    rows = machine.costs.line_bytes if crossed is not None else 1
    scattered = crossed is None and any(
        score_position(at, vector) < 0 for at, _, _ in list_accesses(kernel)
    )
    at_once = 1 if scattered else min(width, _lanes(kernel, machine, {vector}))
    per_iteration = rows * work_of(kernel) * (tile or inner) // at_once
    return Schedule(
        order,
        rows=len(order) - 1,
        parallel=len(order) - 1,
        vector=(vector,),
        width=width,
        tile=tile,
        block=block,
        along_tiles=crossed is not None and order[-2] is crossed[0],
        jam=jam,
        prefetch_bytes=machine.costs.prefetch_bytes
        if crossed is None and _needs_prefetch(kernel, machine)
        else 0,
        streaming=_streaming(kernel, machine),
        grain=max(1, machine.costs.task_instructions // max(per_iteration, 1)),
    )


def _schedule_pixels(
    kernel: Kernel, machine: Machine, extents: dict[Symbol, Dim]
) -> Schedule | None:
    """Vectors along the pixels of an image, where its channels are read apart and stored together.

    The few channels of each pixel are computed side by side, and one store interleaves them.
    """
    places = [store.position[0] for store in kernel.stores]
    steps = [
        {s: coefficient(place.dim, s) for s in extents} if isinstance(place, Index) else {}
        for place in places
    ]

    def is_everywhere(symbol: Symbol, step: int) -> bool:
        return all(each.get(symbol) == step for each in steps)

    few = (s for s, n in extents.items() if n == PIXEL_CHANNELS and is_everywhere(s, 1))
    channel = next(few, None)
    vector = next((s for s in extents if is_everywhere(s, PIXEL_CHANNELS)), None)
    if channel is None or vector is None or likely_size(extents[vector]) < MIN_VECTOR_ELEMENTS:
        return None
    read = [score_position(load.operands[0], vector) for load in leave_out_tables(kernel.loads())]
    if min(read, default=0) < 0 or max(read, default=0) == 0:
        return None
    order = (*(s for s in extents if s not in (channel, vector)), channel, vector)
    lanes = _lanes(kernel, machine, {vector})
    per_row = PIXEL_CHANNELS * work_of(kernel) * likely_size(extents[vector]) // lanes
    return Schedule(
        order,
        rows=len(order) - 1,
        parallel=len(order) - 2,
        vector=(vector,),
        width=lanes,
        jam=((channel, PIXEL_CHANNELS),),
        grain=max(1, machine.costs.task_instructions // max(per_row, 1)),
    )


def _needs_prefetch(kernel: Kernel, machine: Machine) -> bool:
    """Whether elements come from memory, and so much is done that the processor asks too late.

    Not in squares: little is left along their vector axis, and the next block is elsewhere.
    """
    return (
        _from_memory(kernel, machine)
        and work_of(kernel) > machine.costs.self_prefetching_instructions
    )


def _vector_axis(kernel: Kernel, symbols: tuple[Symbol, ...], extents: dict[Symbol, Dim]) -> Symbol:
    """The axis along which most is contiguous, unless that is too short to fill a vector."""
    found = {s: score_axis(kernel, s) for s in symbols}
    long = [s for s in symbols if likely_size(extents[s]) >= MIN_VECTOR_ELEMENTS or found[s] <= 0]
    if not any(found[s] > 0 or is_contiguous(kernel, s) for s in long):
        long = list(symbols)
    return max(long, key=lambda s: (found[s], symbols.index(s)))


def _find_crossed_axis(
    kernel: Kernel, order: tuple[Symbol, ...], extents: dict[Symbol, Dim]
) -> tuple[Symbol, DType] | None:
    """The axis along which something is contiguous that the vector axis strides through.

    A square of both is then visited at once, a cache line long, so that each line is read once and
    turned in registers.
    """
    *others, vector = order
    for position, dtype, _ in list_accesses(kernel):
        if score_position(position, vector) >= 0:
            continue
        for symbol in others:
            if score_position(position, symbol) > 0 and likely_size(extents[symbol]) >= 8:
                return symbol, dtype
    return None


def _choose_transposed_squares(
    kernel: Kernel, vector: Symbol, axis: Symbol, width: int, machine: Machine
) -> int:
    """Squares side by side: no more than the first cache keeps the lines of until all is read.

    Lines a power of two apart fall on few of its sets. Where those that are written do so too,
    long runs of them are worth more, above all if others are read beside them.
    """
    most = (
        machine.costs.far_transposed_squares
        if _from_memory(kernel, machine, machine.costs.far_cache_multiple)
        else machine.costs.transposed_squares
    )

    def room(position: Expr, symbol: Symbol, dtype: DType) -> int:
        step = coefficient(position.dim, symbol) if isinstance(position, Index) else None
        if not isinstance(step, int) or step == 0:
            return most * width
        distance = math.gcd(machine.costs.set_bytes, step * dtype.numpy.itemsize)
        return (
            machine.costs.set_bytes
            // max(distance, machine.costs.line_bytes)
            * max(1, machine.l1 // machine.costs.set_bytes)
        )

    read = [room(load.operands[0], vector, load.dtype) for load in kernel.loads()]
    stores = [room(each.position[0], axis, each.buffer.dtype) for each in kernel.stores]
    if min(stores) >= machine.costs.transposed_squares * width:
        return max(1, min(most, min(read, default=most * width) // width))
    is_beside = any(score_position(load.operands[0], vector) > 0 for load in kernel.loads())
    if most > machine.costs.transposed_squares and is_beside:
        return machine.costs.aliased_transposed_squares
    return machine.costs.transposed_squares if _streaming(kernel, machine) else most


def _squares(extent: Dim, width: int, line: int) -> int:
    """Squares of a block, a cache line at least; the last square is not alone in its block.

    It may then begin early enough to be whole.
    """
    least = max(1, line // width)
    if not isinstance(extent, int) or extent % width == 0:
        return least
    squares = -(-extent // width)
    return next((size for size in range(max(least, 2), squares) if squares % size != 1), squares)


def _sharing(
    kernel: Kernel, machine: Machine, order: tuple[Symbol, ...], extents: dict[Symbol, Dim]
) -> tuple[tuple[Symbol, int], ...]:
    """Several rows at once, where much that is computed along a row is the same in each of them.

    Positions of samples, tables of sines, checked indices: they are computed once for all.
    """
    *outer, vector = order
    if not outer:
        return ()
    row, along = outer[-1], [x for x in kernel.expressions() if vector in x.symbols]
    shared = [x for x in along if row not in x.symbols]
    own = sum(map(instructions_of, along)) - sum(map(instructions_of, shared))
    if (
        sum(map(instructions_of, shared)) < MIN_SHARED_INSTRUCTIONS
        or own > machine.costs.spilling_instructions
    ):
        return ()
    extent = extents[row]
    for copies in (8, 7, 6, 5, 4, 3, 2):
        if (
            isinstance(extent, int)
            and extent % copies == 0
            and copies * own <= 2 * machine.costs.spilling_instructions
        ):
            return ((row, copies),)
    return ()


def _rows(kernel: Kernel, machine: Machine, reductions: list[Reduce]) -> Schedule:
    extents = {axis.symbol: axis.extent for axis in kernel.axes}
    used = frozenset().union(*(each.symbols for each in reductions))
    rows = [s for s in extents if s in used]
    inner = [s for s in extents if s not in used]
    along_row = score_reductions(reductions)
    # What is stored once a long row does not matter beside what is read along it.
    longest = max(
        (likely_size(each.axes[-1].extent) for each in reductions if each.axes), default=1
    )
    stores = longest < machine.vector_bytes // 4
    ragged = _find_ragged(kernel)
    across = {s: score_axis(kernel, s, stores) for s in rows if s not in ragged}
    best = max(across, key=lambda s: (across[s], rows.index(s)), default=None)
    is_wide = best is not None and likely_size(extents[best]) >= machine.vector_bytes // 4
    if best is not None and not inner and extents[best] != 1:
        # Windows that overlap lie along both: neighbouring ones need no sum over lanes.
        overlaps = is_wide and across[best] == along_row > 0
        if across[best] > along_row or overlaps:
            return _across(kernel, machine, rows, best, reductions)
    if best is not None and inner and is_wide and across[best] > max(along_row, 0):
        return _columns(kernel, machine, rows, best, inner, reductions)
    vector = {each.axes[-1].symbol for each in reductions if each.axes}
    vector |= set(inner[-1:])
    # Registers hold more partial results where nothing is written on the way.
    width = _width(
        kernel,
        machine,
        longest,
        vector,
        machine.costs.spilling_instructions if inner else 2 * machine.costs.spilling_instructions,
    )
    per_row = work_of(kernel) * _row_size(reductions) // min(width, _lanes(kernel, machine, vector))
    jam = _jam(kernel, reductions, rows, extents) if not inner else ()
    pipelined = machine.costs.pipelined_rows if _pipelines_rows(kernel, machine, rows, inner) else 0
    if pipelined and not _has_halves(kernel):
        width = min(width, 2 * machine.vector_bytes // 4)  # of two rows at a time
    hides = rows and not pipelined and _hides_reading(kernel, machine)
    prefetch = rows[-1] if hides else None
    return Schedule(
        (*rows, *inner),
        rows=len(rows),
        parallel=len(rows),
        vector=tuple(sorted(vector, key=lambda s: s.name)),
        width=width,
        jam=jam,
        cache_row=True,
        prefetch=prefetch,
        pipelined_rows=pipelined,
        softmax_block=(
            machine.costs.softmax_block_elements
            if _is_far_apart(kernel, machine, reductions)
            else 0
        ),
        prefetch_bytes=machine.costs.prefetch_bytes
        if _from_memory(kernel, machine) and _finds_places(reductions)
        else 0,
        streaming=_streaming(
            kernel, machine, 1 if prefetch is None else machine.costs.prefetched_share
        ),
        grain=max(1, machine.costs.task_instructions // max(per_row * max(pipelined, 1), 1)),
    )


def _find_ragged(kernel: Kernel) -> frozenset[Symbol]:
    """What the length of a reduction depends on: rows of several lengths are no lanes of a loop."""
    extents = (
        axis.extent
        for expr in kernel.expressions()
        if isinstance(expr, Reduce)
        for axis in expr.axes
    )
    return frozenset().union(*(x.symbols() for x in extents if isinstance(x, SymbolicDim)))


def _is_far_apart(kernel: Kernel, machine: Machine, reductions: list[Reduce]) -> bool:
    """Whether a row with a largest element is so long that the caches forget where it began.

    Of halves the second cache holds more; what takes time there is to convert them.
    """
    if not any(each.kind == "max" and each.dtype.is_float for each in reductions):
        return False
    size = 4 * _row_size(reductions)
    return size > machine.costs.kept_row_bytes if _has_halves(kernel) else 8 * size >= machine.l2


def _pipelines_rows(
    kernel: Kernel, machine: Machine, rows: list[Symbol], inner: list[Symbol]
) -> bool:
    """Whether memory is what takes time, and each row fits in a core's own cache with the next.

    Rows begin with a cache line, since a loop that reads another row as well has no time to look
    for one; and there are enough of them to share out.
    """
    if (
        not rows
        or not inner
        or work_of(kernel) > machine.costs.spilling_instructions
        or not _streaming(kernel, machine)
    ):
        return False
    if len(kernel.stores) > 1:  # two rows past the cache at once do not get there whole
        return False
    extents = {axis.symbol: axis.extent for axis in kernel.axes}
    length, last = shape_product(extents[s] for s in inner), extents[inner[-1]]
    if (
        not isinstance(length, int)
        or not isinstance(last, int)
        or last < machine.costs.pipelined_rows * machine.costs.line_bytes // 4
    ):
        return False
    lengths = [last * buffer.dtype.numpy.itemsize for buffer in kernel.outputs]
    if any(nbytes % machine.costs.line_bytes for nbytes in lengths) or 8 * length > machine.l2:
        return False
    return (
        likely_size(shape_product(extents[s] for s in rows))
        >= machine.costs.pipelined_rows * machine.costs.pipelined_rows
    )


def _across(
    kernel: Kernel, machine: Machine, rows: list[Symbol], vector: Symbol, reductions: list[Reduce]
) -> Schedule:
    """Neighbouring rows in one vector: their elements are next to each other in memory."""
    extents = {axis.symbol: axis.extent for axis in kernel.axes}
    order = (*(s for s in rows if s is not vector), vector)
    width = _width(kernel, machine, extents[vector], {vector})
    if (
        work_of(kernel) <= machine.costs.memory_bound_instructions
        and likely_size(extents[vector]) >= 16 * width
    ):
        # Whole cache lines, several at a time: each row is far from the next.
        width *= 4 if len(reductions) == 1 else 2
    per_tile = work_of(kernel) * _row_size(reductions)
    jam: tuple[tuple[Symbol, int], ...] = ()
    if any(_is_contraction(each) for each in reductions) and len(order) > 1:
        candidate = order[-2]
        if likely_size(extents[candidate]) >= 4:
            jam = ((candidate, 4),)
            width = min(width, 2 * machine.vector_bytes // 4)
    return Schedule(
        order,
        rows=len(order),
        parallel=len(order) - 1,
        vector=(vector,),
        width=width,
        tile=width,
        along_tiles=bool(jam),
        jam=jam,
        partial=MAX_TERMS_PER_SUM,
        streaming=frozenset(),
        grain=max(1, machine.costs.task_instructions // max(per_tile, 1)),
    )


def _columns(
    kernel: Kernel,
    machine: Machine,
    rows: list[Symbol],
    vector: Symbol,
    inner: list[Symbol],
    reductions: list[Reduce],
) -> Schedule:
    """Rows that lie across memory, and are written along: a vector of neighbouring ones at once."""
    extents = {axis.symbol: axis.extent for axis in kernel.axes}
    order = (*(s for s in rows if s is not vector), vector, *inner)
    width = _width(kernel, machine, extents[vector], {vector})
    length = _row_size(reductions)
    is_long = not _is_at_most(
        reductions, min(MAX_ELEMENTS_PER_SUM, machine.costs.kept_row_bytes // (4 * width))
    )
    return Schedule(
        order,
        rows=len(rows),
        parallel=len(rows) - 1,
        vector=(vector,),
        width=width,
        tile=width,
        partial=MAX_TERMS_PER_SUM if is_long else 0,
        cache_row=not is_long,
        streaming=_streaming(kernel, machine),
        grain=max(1, machine.costs.task_instructions // max(work_of(kernel) * length, 1)),
    )


def _jam(
    kernel: Kernel, reductions: list[Reduce], rows: list[Symbol], extents: dict[Symbol, Dim]
) -> tuple[tuple[Symbol, int], ...]:
    """Several outputs of a contraction at once, so that what they share is read once."""
    if not rows or not any(_is_contraction(each) for each in reductions):
        return ()
    last = rows[-1]
    return ((last, 4),) if likely_size(extents[last]) >= 4 else ()


def _is_contraction(reduction: Reduce) -> bool:
    body = reduction.body
    return reduction.kind == "sum" and isinstance(body, Apply) and body.function == "multiply"


def _inside_reduction(reduction: Reduce) -> bool:
    return any(symbol.name.startswith("_r") for symbol in reduction.symbols)


def _width(
    kernel: Kernel,
    machine: Machine,
    extent: Dim,
    along: Collection[Symbol],
    heavy: int | None = None,
) -> int:
    """Lanes: a few registers' worth, fewer where much is computed of each element."""
    lanes = _lanes(kernel, machine, along)
    width = lanes * (2 if work_of(kernel) > (heavy or machine.costs.spilling_instructions) else 4)
    size = likely_size(extent)
    while width > lanes and width > size:
        width //= 2
    while width > 1 and width >= 2 * size:
        width //= 2
    return max(width, 1)


def _lanes(kernel: Kernel, machine: Machine, along: Collection[Symbol]) -> int:
    """How many elements one instruction computes with."""
    bits = max((d.bits for d in _list_lane_dtypes(kernel, along)), default=32)
    return machine.vector_bytes * 8 // max(bits, 32)


def _list_lane_dtypes(kernel: Kernel, along: Collection[Symbol]) -> Iterable[DType]:
    """The dtypes of what differs from lane to lane."""
    for expr in kernel.expressions():
        if expr.symbols.isdisjoint(along):
            continue
        is_number = isinstance(expr, Apply) and not expr.function.startswith("index_")
        if is_number or isinstance(expr, Load):
            yield expr.dtype


def _row_size(reductions: list[Reduce]) -> int:
    return max(
        (likely_size(shape_product(axis.extent for axis in each.axes)) for each in reductions),
        default=1,
    )


def _is_at_most(reductions: list[Reduce], length: int) -> bool:
    """Whether no reduction is ever longer, whatever the symbolic sizes turn out to be."""
    for each in reductions:
        dim = shape_product(axis.extent for axis in each.axes)
        upper = dim if isinstance(dim, int) else dim.bounds()[1]
        if upper is None or upper > length:
            return False
    return True


def _hides_reading(kernel: Kernel, machine: Machine) -> bool:
    """Whether inputs come from memory, and so much is computed that the next row comes meanwhile.

    Where little is, the processor's own prefetching does better; halves are converted too.
    """
    return _from_memory(kernel, machine) and (
        _has_halves(kernel) or work_of(kernel) > machine.costs.spilling_instructions
    )


def _has_halves(kernel: Kernel) -> bool:
    """Whether floats are converted as they are read."""
    return any(b.dtype.is_float and b.dtype.bits < 32 for b in kernel.inputs)


def _from_memory(kernel: Kernel, machine: Machine, times: int = 1) -> bool:
    """Whether more is read than a core's own cache holds (so many times over)."""
    sizes = [likely_size(shape_product(b.shape)) * (b.dtype.bits // 8) for b in kernel.inputs]
    return sum(sizes) > times * machine.l2


def _finds_places(reductions: list[Reduce]) -> bool:
    """Whether a reduction takes several instructions an element: it looks for a position."""
    return any(each.kind in ("argmax", "argmin") for each in reductions)


def _least(dim: Dim) -> int:
    return dim if isinstance(dim, int) else max(dim.bounds()[0] or 0, 0)


def _streaming(kernel: Kernel, machine: Machine, share: int = 1) -> frozenset[str]:
    """Outputs so large that nobody would find them in the cache, or in such a share of it."""
    sizes = {b.name: _least(shape_product(b.shape)) * (b.dtype.bits // 8) for b in kernel.buffers}
    room = machine.l3 // share
    if sum(sizes.values()) <= room:
        return frozenset()
    return frozenset(b.name for b in kernel.outputs if sizes[b.name] > room // 4)
