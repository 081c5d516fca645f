"""Loops of depthwise convolutions: results in registers, shared inputs loaded once.

    parallel p < rows of the result:
      for tile < columns / 7:
        vector c < channels:
          s0 … s6 = 0
          for kh < 3:                              # taps of one row, column by column of the input
            s0 += x[0] * w[0]
            s0 += x[1] * w[1]; s1 += x[1] * w[0]   # neighbours share what is read
            …
          out[0] … out[6] = epilogue(s0) … epilogue(s6)

That is where channels lie together: vectors run along them, tiles along the columns. Where an image
stays row-major (an input of the graph whose result is an output), vectors run along the columns and
tiles along the rows. Taps have to be in range, which the layout's border sees to. The weights are
packed beforehand, in the order in which they are read.

Channels of an image are computed block by block (``depthwise.BLOCK_BYTES``), in bands of rows:
threads that share an image then each have some of its rows, as in the products before and after it.

Other convolutions are contractions, whose left operand is the image as it lies (``contract``), or
are computed by Winograd's method (``winograd``), which is asked first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.ir.dims import (
    Dim,
    Shape,
    Symbol,
    dim_min,
    is_static,
    likely_size,
    shape_product,
    substitute_dim,
)
from monograph.ir.graph import Value
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Index
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel, Store, write_kernel
from monograph.kernel.layout import MemoryLayout
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.convolutions.depthwise import Depthwise, as_depthwise
from monograph.targets.cpu.loops.nest import substitute_statement
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    Loop,
    LoopKind,
    LoopNest,
    Prefetch,
    Statement,
    Write,
)
from monograph.targets.cpu.plans.plan import GroupRequest, KernelRequest, Launchable
from monograph.targets.plan import KernelPlan, Refusal

BANDS_PER_IMAGE = (4, 3, 2)
"""Into how many bands the rows of an image are cut, if they can be."""
MIN_LANES = 4
"""Lanes of the shortest vectors that a short row is read in."""
MAX_WHOLE_ROW_TAPS = 25
"""Taps up to which a short row is read in whole, shorter vectors."""


def plan_depthwise(builder: ProgramBuilder, request: KernelRequest) -> Launchable | Refusal:
    """A convolution of each channel by itself, if the kernel is one."""
    depthwise = as_depthwise(request.flat)
    if depthwise is None:
        return Refusal("it is no convolution of each channel by itself")
    names = tuple(buffer.name for buffer in request.flat.inputs)
    reason = "each channel is convolved by itself, and neighbours share what they read"
    return DepthwisePlan(KernelPlan("depthwise", reason), request.group, depthwise, names)


@dataclass(frozen=True)
class DepthwisePlan(Launchable):
    """A convolution of each channel by itself, and the names of what it reads."""

    group: Group
    depthwise: Depthwise
    names: tuple[str, ...]

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Pack the weights, and convolve."""
        slots = dict(zip(self.names, read, strict=True))
        _launch(builder, self.group, self.depthwise, None, slots, written)


def plan_planes(builder: ProgramBuilder, request: GroupRequest) -> Launchable | Refusal:
    """The same of a row-major image, each channel of which is given its border on the way."""
    flat, values, wanted = request.flat, request.inputs, request.wanted
    if not wanted:
        return Refusal("it reads no image in another layout")
    depthwise = as_depthwise(flat)
    if depthwise is None or depthwise.has_channels_last or len(wanted) != 1:
        return Refusal("it is no convolution of each channel of one image")
    if depthwise.is_narrow:
        return Refusal("its border may hold another number than zero")
    ((x, layout),) = wanted.items()
    name = flat.inputs[values.index(x)].name
    plane = as_plane(depthwise, x.shape, layout, builder.machine)
    if plane is None or depthwise.image.buffer.name != name:
        return Refusal("a channel with its border is too large to copy")
    if depthwise.reads_image_again:
        return Refusal("it also reads the image where it has no border")
    reason = "each channel of a row-major image is given its border on the way"
    layouts = {x.name: layout}
    planned = KernelPlan("depthwise planes", reason, scratch=(plane.target,), layouts=layouts)
    names = tuple(buffer.name for buffer in flat.inputs)
    return PlanesPlan(planned, request.group, depthwise, plane, names, tuple(values))


@dataclass(frozen=True)
class PlanesPlan(Launchable):
    """A convolution of channels that are copied with their border, and the values that it reads."""

    group: Group
    depthwise: Depthwise
    plane: Plane
    names: tuple[str, ...]
    values: tuple[Value, ...]

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Pack the weights, copy the channels, and convolve."""
        slots = {n: builder.slot(v) for n, v in zip(self.names, self.values, strict=True)}
        _launch(builder, self.group, self.depthwise, self.plane, slots, written)


def _launch(
    builder: ProgramBuilder,
    group: Group,
    depthwise: Depthwise,
    plane: Plane | None,
    slots: dict[str, int],
    outputs: Sequence[int],
) -> None:
    """Pack the weights, and convolve."""
    in_pairs = "multiply_pairs" in builder.machine.dots
    depthwise = replace(depthwise, in_pairs=in_pairs)
    packing = pack_weight(depthwise)
    (buffer,) = packing.outputs
    read = tuple(slots[each.name] for each in packing.inputs)
    slots[buffer.name] = builder.packed(group, flatten(packing), read)
    nest = depthwise_nest(depthwise, buffer, builder.machine, plane)
    count = choose_tile(depthwise, builder.machine)
    along = "channels in vectors" if depthwise.has_channels_last else "columns in vectors"
    group.joined.append(f"each channel is convolved by itself: {along}, {count} at a time beside")
    built = builder.built_nest(group, nest, how=f"each channel by itself, {along}")
    builder.launch_built(built, group, [slots[each.name] for each in nest.inputs], outputs)


def pack_weight(depthwise: Depthwise) -> Kernel:
    """Store the weights in the order in which they are read: ``[taps][channels]``, or as given."""
    axes = depthwise.weight_axes()
    renamed = tuple(e.axis(f"_i_tap{k}", axis.extent) for k, axis in enumerate(axes))
    names: dict[Symbol, Dim] = {
        old.symbol: new.symbol for old, new in zip(axes, renamed, strict=True)
    }
    value = e.substitute(depthwise.tap(), names)
    kernel = depthwise.kernel
    buffer = Buffer("taps", value.dtype, (_size(axes),))
    store = Store(buffer, (e.linear(renamed),), value)
    return write_kernel(f"{kernel.name}_pack_taps", renamed, store, inputs=kernel.inputs)


def find_shared_taps(depthwise: Depthwise) -> Axis:
    """The side of the window along which neighbours in a tile read the same elements."""
    step = depthwise.steps(depthwise.tile)

    def distinct(axis: Axis) -> float:
        assert isinstance(axis.extent, int)
        own = depthwise.steps(axis)
        places = {k * step + tap * own for k, tap in product(range(4), range(axis.extent))}
        return len(places) / axis.extent

    return min(reversed(depthwise.taps), key=distinct)


def choose_tile(depthwise: Depthwise, machine: Machine) -> int:
    """How many neighbours are computed together.

    Their sums, a row of taps and an element of the input have to fit in registers; the last tile
    begins early enough to be whole, so little should be computed twice.
    """
    taps = find_shared_taps(depthwise).extent
    assert isinstance(taps, int)
    room = max(4, min(8, machine.registers - 3 - min(taps, 5)))
    count = depthwise.tile.extent
    if not isinstance(count, int):
        return 4

    def time(size: int) -> float:
        return -(-count // size) * (size * (taps + 0.5) + taps + 1)

    return min(range(1, min(room, count) + 1), key=lambda size: (time(size), -size))


@dataclass(frozen=True)
class Plane:
    """One channel of an image with a border, in a buffer of its own, and where it comes from."""

    source: Buffer
    target: Buffer
    base: Dim
    """Where the channel begins in the source."""
    height: int
    width: int
    pitch: int
    """How far apart the rows of the target are."""
    lead: int
    """Zeros before its first element."""


def as_plane(
    depthwise: Depthwise, shape: Shape, layout: MemoryLayout, machine: Machine
) -> Plane | None:
    """A channel of a row-major image of ``shape`` that is read in a bordered ``layout``."""
    if layout.order != (0, 1, 2, 3) or not is_static(shape) or not is_static(layout.strides):
        return None
    *_, height, width = shape
    _, whole, pitch, _ = layout.strides
    size = layout.offset + whole
    element = depthwise.image.dtype.bits // 8
    if not isinstance(size, int) or size * element > machine.costs.plane_bytes:
        return None
    if not _stays_in(depthwise, whole, size):
        return None
    image = depthwise.image.buffer
    base: Dim = 0
    for axis in depthwise.outer:
        base = base + axis.symbol * (depthwise.steps(axis) // whole * height * width)
    source = Buffer(image.name, image.dtype, (shape_product(shape),))
    target = Buffer("plane", image.dtype, (size,))
    lead = size - whole
    return Plane(source, target, base, height, width, pitch, lead)


def _stays_in(depthwise: Depthwise, whole: int, size: int) -> bool:
    """Whether the outer axes go from plane to plane, and the others never leave one.

    Rows of all images may be one axis: with borders, the next image can begin where a row would.
    """
    if any(depthwise.steps(axis) % whole for axis in depthwise.outer):
        return False
    (place,) = depthwise.image.operands
    inner = (depthwise.tile, depthwise.lane, *depthwise.taps)
    if not isinstance(place, Index) or not all(isinstance(axis.extent, int) for axis in inner):
        return False
    ends: dict[Symbol, Dim] = {axis.symbol: axis.extent - 1 for axis in inner}
    ends |= {axis.symbol: 0 for axis in depthwise.outer}
    last = substitute_dim(place.dim, ends)
    return isinstance(last, int) and last < size


def _fill_plane(plane: Plane, lanes: int) -> tuple[Statement, ...]:
    """Copy a channel, row by row, and write the zeros around it."""
    zero = e.literal(0, plane.target.dtype)
    row, column = e.axis("_i_y", plane.height), e.axis("_i_x", plane.width)
    there = plane.lead + row.symbol * plane.pitch
    here = plane.base + row.symbol * plane.width + column.symbol
    element = e.load(plane.source, (e.index(here),))
    short = min(lanes, max(MIN_LANES, 1 << plane.width.bit_length() - 1))
    copy = _vectors(column, short, (Write(plane.target, e.index(there + column.symbol), element),))
    gap = tuple(
        Write(plane.target, e.index(there + each), zero) for each in range(plane.width, plane.pitch)
    )
    edge = Symbol("_i_edge", 0, None)
    below = plane.lead + plane.height * plane.pitch
    (size,) = plane.target.shape

    def cleared(start: int, extent: Dim) -> Statement:
        write = Write(plane.target, e.index(start + edge), zero)
        return Loop(edge, 0, extent, (write,), LoopKind.VECTOR, lanes)

    return (
        cleared(0, plane.lead),
        Loop(row.symbol, 0, plane.height, (copy, *gap)),
        cleared(below, size - below),
    )


def depthwise_nest(
    depthwise: Depthwise, weight: Buffer, machine: Machine, plane: Plane | None = None
) -> LoopNest:
    """The loops of a convolution with packed weights, of an image as it lies or plane by plane."""
    if plane is not None:
        own: dict[Symbol, Dim] = {axis.symbol: 0 for axis in depthwise.outer}
        place = e.substitute(depthwise.image.operands[0], own)
        depthwise = replace(depthwise, image=e.load(plane.target, (place,)))
    count = choose_tile(depthwise, machine)
    tiles = e.axis("_i_tile", _ceiling(depthwise.tile.extent, count))
    lanes = machine.vector_bytes * 8 // depthwise.reduction.dtype.bits
    tiled = tuple(_tile(depthwise, weight, _places(depthwise.tile, tiles, count)))
    block, body = _lane_loop(depthwise, lanes, tiled)
    *images, row = depthwise.outer or (e.axis("_i_row", 1),)
    band, row, row_place = _bands(depthwise, row)
    body = substitute_statement(body, row_place)
    leading: tuple[Axis, ...] = (*images, band, block, tiles, row)
    if block.extent == 1:
        leading = (*images, row, tiles)
        body = substitute_statement(body, {block.symbol: 0})
    work = count * likely_size(depthwise.lane.extent) * likely_size(_size(depthwise.taps)) // lanes
    work //= likely_size(block.extent)
    statements: tuple[Statement, ...] = (body,)
    whole = isinstance(depthwise.tile.extent, int) and depthwise.tile.extent % count == 0
    if not whole or plane is not None:  # what is computed twice belongs to one thread
        leading = tuple(axis for axis in leading if axis is not tiles)
        statements = (Loop(tiles.symbol, 0, tiles.extent, statements),)
        work *= likely_size(tiles.extent)
    read = depthwise.image.buffer
    scratch: tuple[Buffer, ...] = ()
    if plane is not None:
        statements = (*_fill_plane(plane, lanes), *statements)
        read, scratch = plane.source, (plane.target,)
    parallel = e.axis("_p", _size(leading))
    kernel = depthwise.kernel
    kept = _epilogue_reads(depthwise)
    places = e.unflatten(leading, parallel.symbol)
    return LoopNest(
        kernel.name,
        (weight, read, *(b for b in kernel.inputs if b.name in kept and b.name != read.name)),
        kernel.outputs,
        scratch,
        kernel.sizes,
        parallel.symbol,
        parallel.extent,
        _portion(parallel.extent, max(1, machine.costs.task_instructions // max(work, 1))),
        tuple(substitute_statement(each, places) for each in statements),
    )


def _bands(depthwise: Depthwise, row: Axis) -> tuple[Axis, Axis, Mapping[Symbol, Dim]]:
    """The rows as bands and rows of a band, where channels are taken in blocks, and their places.

    A band reads a few rows of the next one, so it has more than four times as many as a window.
    """
    once = Axis(Symbol("_i_band", 0, 0), 1)
    if not depthwise.has_blocks or not isinstance(row.extent, int):
        return once, row, {}
    step = depthwise.steps(row)
    taps = max(likely_size(axis.extent) for axis in depthwise.taps if depthwise.steps(axis) == step)
    sizes = [(count, row.extent // count) for count in BANDS_PER_IMAGE if row.extent % count == 0]
    count, size = next((each for each in sizes if each[1] > 4 * taps), (1, row.extent))
    if count == 1:
        return once, row, {}
    band, within = e.axis("_i_band", count), e.axis("_i_within", size)
    return band, within, {row.symbol: band.symbol * size + within.symbol}


def _portion(total: Dim, grain: int) -> int:
    """The grain as an even number of equal portions, so that two threads end together."""
    if not isinstance(total, int) or 2 * total <= grain:
        return grain
    pairs = -(-total // (2 * grain))
    return -(-total // (2 * pairs))


def _lane_loop(
    depthwise: Depthwise, lanes: int, tiled: tuple[Statement, ...]
) -> tuple[Axis, Statement]:
    """The loop over vectors, and the axis of the blocks of channels that it takes one of.

    A window's rows are read again for the next row of the result: a few channels of a few columns
    are followed down the image, so that they are found in the first cache.
    """
    lane, extent = depthwise.lane, depthwise.lane.extent
    once = Axis(Symbol("_i_block", 0, 0), 1)
    if not depthwise.has_channels_last:
        return once, _vectors(lane, _row_lanes(depthwise, lanes), tiled)
    if not depthwise.has_blocks:
        return once, Loop(lane.symbol, 0, extent, tiled, LoopKind.VECTOR, lanes)
    channels = depthwise.block_channels
    block = e.axis("_i_block", _ceiling(extent, channels))
    start = block.symbol * channels
    whole = isinstance(extent, int) and extent % channels == 0
    part = channels if whole else dim_min(channels, extent - start)
    return block, Loop(lane.symbol, start, part, tiled, LoopKind.VECTOR, lanes)


def _row_lanes(depthwise: Depthwise, lanes: int) -> int:
    """Lanes of the vectors along a row: a short one is read in halves rather than in parts.

    With many taps side by side, half as many instructions are worth an empty lane.
    """
    taps, extent = likely_size(_size(depthwise.taps)), depthwise.lane.extent
    few = taps <= MAX_WHOLE_ROW_TAPS or depthwise.steps(depthwise.lane) != 1
    while few and isinstance(extent, int) and lanes > MIN_LANES and extent < lanes:
        lanes //= 2
    return lanes


def _vectors(lane: Axis, lanes: int, tiled: tuple[Statement, ...]) -> Statement:
    """Whole vectors along a row; the last begins early enough to be whole."""
    extent = lane.extent
    if not isinstance(extent, int) or extent % lanes == 0 or extent < lanes:
        return Loop(lane.symbol, 0, extent, tiled, LoopKind.VECTOR, lanes)
    vector = e.axis("_i_vector", _ceiling(extent, lanes))
    start = dim_min(vector.symbol * lanes, extent - lanes)
    one = Loop(lane.symbol, start, lanes, tiled, LoopKind.VECTOR, lanes)
    return Loop(vector.symbol, 0, vector.extent, (one,))


def _epilogue_reads(depthwise: Depthwise) -> set[str]:
    """The buffers that are read besides the image and the weights."""
    done = e.variable("done", depthwise.reduction.dtype)
    known: Mapping[Expr, Expr] = {depthwise.reduction: done}
    values = tuple(e.replace(store.value, known) for store in depthwise.kernel.stores)
    return {load.buffer.name for load in e.find_loads(*values)}


def _size(axes: Sequence[Axis]) -> Dim:
    return shape_product(axis.extent for axis in axes)


def _ceiling(size: Dim, width: int) -> Dim:
    return (size + width - 1) // width


def _places(axis: Axis, tile: Axis, count: int) -> list[Dim]:
    """The positions of a tile; the last one begins early enough to be whole."""
    start: Dim = tile.symbol * count
    extent = axis.extent
    least = extent if isinstance(extent, int) else extent.bounds()[0] or 0
    if least < count:  # there may be fewer than a tile: the last stands for those beyond
        return [dim_min(start + each, extent - 1) for each in range(count)]
    if not isinstance(extent, int) or extent % count:
        start = dim_min(start, extent - count)
    return [start + each for each in range(count)]


def _tile(depthwise: Depthwise, weight: Buffer, places: Sequence[Dim]) -> list[Statement]:
    """Statements that compute one vector of each place in a tile."""
    reduction = depthwise.reduction
    sums = [e.variable(f"s{k}", reduction.dtype) for k in range(len(places))]
    statements: list[Statement] = [Accumulator(each, "sum") for each in sums]
    shared = find_shared_taps(depthwise)
    body: tuple[Statement, ...] = tuple(
        Combine(sums[k], "sum", depthwise.product(element, tap), e.index(0))
        for element, tap, k in _products(depthwise, weight, shared, places)
    )
    others = [axis for axis in depthwise.taps if axis is not shared]
    for axis in reversed(others):
        body = (Loop(axis.symbol, 0, axis.extent, body),)
    if not others:
        body = (Loop(Symbol("_r_once", 0, 0), 0, 1, body),)
    if depthwise.has_blocks and len(others) == 1:
        statements += _prefetch_next_row(depthwise, others[0], shared, places)
    statements += body
    known_at = depthwise.tile.symbol
    for place, total in zip(places, sums, strict=True):
        known: Mapping[Expr, Expr] = {reduction: total}
        at: Mapping[Symbol, Dim] = {known_at: place}
        for store in depthwise.kernel.stores:
            value = e.substitute(e.replace(store.value, known), at)
            statements.append(Write(store.buffer, e.substitute(store.position[0], at), value))
    return statements


def _prefetch_next_row(
    depthwise: Depthwise, down: Axis, shared: Axis, places: Sequence[Dim]
) -> list[Statement]:
    """Ask for the row of the image that the next row of the result reads and this one does not.

    A block of channels is a short piece of memory in each column, which no processor foresees.
    """
    assert isinstance(down.extent, int) and isinstance(shared.extent, int)
    step, own = depthwise.steps(depthwise.tile), depthwise.steps(shared)
    columns: dict[int, dict[Symbol, Dim]] = {}
    for (k, place), tap in product(enumerate(places), range(shared.extent)):
        at: dict[Symbol, Dim] = {depthwise.tile.symbol: place, shared.symbol: tap}
        columns.setdefault(k * step + tap * own, at)
    image, (position,) = depthwise.image.buffer, depthwise.image.operands
    return [
        Prefetch(image, e.substitute(position, {**at, down.symbol: down.extent}))
        for at in columns.values()
    ]


def _products(
    depthwise: Depthwise, weight: Buffer, shared: Axis, places: Sequence[Dim]
) -> list[tuple[Expr, Expr, int]]:
    """What is multiplied along one side of the window, for which place, ordered by what is read."""
    assert isinstance(shared.extent, int)
    flat = e.linear(depthwise.weight_axes())
    step, own = depthwise.steps(depthwise.tile), depthwise.steps(shared)
    found: list[tuple[int, int, Expr, Expr]] = []
    for (k, place), tap in product(enumerate(places), range(shared.extent)):
        at: dict[Symbol, Dim] = {depthwise.tile.symbol: place, shared.symbol: tap}
        element = e.substitute(depthwise.image, at)
        factor = e.load(weight, (e.substitute(flat, {shared.symbol: tap}),))
        found.append((k * step + tap * own, k, element, factor))
    found.sort(key=lambda each: each[:2])
    return [(element, factor, k) for _, k, element, factor in found]
