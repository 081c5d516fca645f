"""Contractions: which kernels are matrix products, and how their operands are stored.

    out[m, n] = epilogue(sum(k: left[m, k] * right[n, k]))

An operand that is not read where it lies is first laid out in the order in which it will be read:
``left`` in rows, ``right`` in panels of a few vectors, zeros beyond the edge.

    packed_left[m][k, padded]              packed_right[n / columns][k][columns]

What an operand is does not matter: packing computes its formula once an element (a transpose, a
cast, a gather: the prologue). Operands that are weights are packed when the program is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, dim_min, shape_product
from monograph.ir.types import DType, bool_, f32, f64, i32
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Load, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.tiles import Segment, tile_count, tile_start

SUMMED = (f32, f64, i32)
"""What a tile sums in; narrower operands are widened as they are packed."""
GROUP = 4
"""Steps of k that a packed tile of the left operand holds side by side for each row."""
WORTHWHILE = 1 << 14
"""Multiplications from which tiles pay."""


@dataclass(frozen=True)
class Contraction:
    """A kernel that is a matrix product: the axes of each side, and the operands' formulas."""

    kernel: Kernel
    reduction: Reduce
    batch: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    """Axes of the right operand that are stored too far apart to be columns: the batch of a
    convolution, say."""
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    left: Expr
    right: Expr

    @property
    def k(self) -> tuple[Axis, ...]:
        """The axes that are summed over."""
        return self.reduction.axes

    def size(self, axes: Sequence[Axis]) -> Dim:
        """How many positions axes have together."""
        return shape_product(axis.extent for axis in axes)


def as_contraction(kernel: Kernel) -> Contraction | None:
    """The kernel as a contraction, if it is one; the side that is stored contiguously is ``n``."""
    reductions = [x for x in kernel.expressions() if isinstance(x, Reduce)]
    if len(reductions) != 1 or reductions[0].kind != "sum":
        return None
    (reduction,) = reductions
    body = reduction.body
    if not isinstance(body, Apply) or body.function != "multiply" or body.dtype not in SUMMED:
        return None
    left, right = body.operands
    axes = {axis.symbol: axis for axis in kernel.axes}
    on_left = frozenset(axes) & left.symbols
    on_right = frozenset(axes) & right.symbols
    if on_left | on_right != frozenset(axes) or not _all_stored(kernel, frozenset(axes)):
        return None
    contiguous = _contiguous_axis(kernel)
    if contiguous in on_left and contiguous not in on_right:
        left, right, on_left, on_right = right, left, on_right, on_left

    def pick(symbols: frozenset[Symbol]) -> tuple[Axis, ...]:
        return tuple(axis for axis in kernel.axes if axis.symbol in symbols)

    both = on_left & on_right
    summed = {axis.symbol for axis in reduction.axes}
    if not (summed <= left.symbols and summed <= right.symbols):
        return None
    outer, columns = _columns(kernel, pick(on_right - both))
    return Contraction(
        kernel, reduction, pick(both), outer, pick(on_left - both), columns, left, right
    )


def _columns(kernel: Kernel, axes: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """The last axes that are stored as one, and those before them."""
    place = kernel.stores[0].position[0]
    if not isinstance(place, Index) or not axes:
        return (), axes
    first = len(axes) - 1
    while first > 0:
        outer, inner = axes[first - 1], axes[first]
        step, small = coefficient(place.dim, outer.symbol), coefficient(place.dim, inner.symbol)
        if step is None or small is None or step != small * inner.extent:
            break
        first -= 1
    return axes[:first], axes[first:]


def _all_stored(kernel: Kernel, axes: frozenset[Symbol]) -> bool:
    """Whether every store has an element for each position."""
    return all(axes <= store.position[0].symbols for store in kernel.stores)


def _contiguous_axis(kernel: Kernel) -> Symbol | None:
    """The axis along which the first store is contiguous, or goes in the shortest steps."""
    place = kernel.stores[0].position[0]
    if not isinstance(place, Index):
        return None
    steps = [(coefficient(place.dim, axis.symbol), axis.symbol) for axis in reversed(kernel.axes)]
    known = [(step, symbol) for step, symbol in steps if isinstance(step, int) and step > 0]
    return min(known, key=lambda each: each[0])[1] if known else None


def k_steps(formula: Expr, contraction: Contraction) -> tuple[Dim, ...] | None:
    """How far each axis of k moves through an array; None if the formula is not one's element."""
    if not isinstance(formula, Load) or formula.dtype is not contraction.reduction.dtype:
        return None
    (place,) = formula.operands
    if not isinstance(place, Index):
        return None
    steps = []
    for axis in contraction.k:
        step = coefficient(place.dim, axis.symbol)
        if step is None:
            return None
        steps.append(step)
    return tuple(steps)


def runs_along_k(contraction: Contraction) -> bool:
    """Whether the left operand is made of arrays that k, one axis, walks through one by one."""
    if len(contraction.k) != 1:
        return False
    (along,) = contraction.k
    return _runs_along(contraction.left, along)


def runs_across_k(contraction: Contraction) -> bool:
    """Whether the left operand's rows, one axis, lie side by side at each step of k."""
    if len(contraction.k) != 1 or len(contraction.m) != 1:
        return False
    (row,) = contraction.m
    return not runs_along_k(contraction) and _runs_along(contraction.left, row)


def _runs_along(formula: Expr, axis: Axis) -> bool:
    """Whether what is read along an axis, if that matters, lies one by one in memory."""
    places = [x.operands[0] for x in e.walk((formula,)) if isinstance(x, Load)]
    known = [coefficient(x.dim, axis.symbol) for x in places if isinstance(x, Index)]
    return len(known) == len(places) and 1 in known and all(step in (0, 1) for step in known)


def steps_together(contraction: Contraction) -> int:
    """Steps of k that a packed tile holds side by side for each row, as they lie in memory."""
    return GROUP if runs_along_k(contraction) else 1


def with_k_ordered(contraction: Contraction, guide: Expr, merge: bool) -> Contraction:
    """The contraction with the axes of k in the order in which an operand holds them.

    With ``merge``, those that it holds without a gap become one: the other operand is packed
    beforehand, and divides as it needs.
    """
    steps = k_steps(guide, contraction)
    if steps is None:
        return contraction
    known_steps = [step for step in steps if isinstance(step, int)]
    if len(known_steps) != len(steps):
        return contraction
    order = sorted(zip(contraction.k, known_steps, strict=True), key=lambda x: x[1], reverse=True)
    axes: list[tuple[Axis, int]] = []
    left, right = contraction.left, contraction.right
    for axis, step in order:
        if merge and axes and axes[-1][1] == step * axis.extent:
            outer = axes.pop()[0]
            joined = e.axis(axis.symbol.name, outer.extent * axis.extent)
            left, right = (decoded(x, (outer, axis), joined.symbol) for x in (left, right))
            axes.append((joined, step))
        else:
            axes.append((axis, step))
    ordered = tuple(axis for axis, _ in axes)
    body = contraction.reduction.body.rebuilt((left, right))
    reduction = e.reduce("sum", ordered, body)
    kernel = contraction.kernel
    known: dict[Expr, Expr] = {contraction.reduction: reduction}
    stores = tuple(
        Store(s.buffer, s.position, e.replace(s.value, known), s.guard) for s in kernel.stores
    )
    assert isinstance(reduction, Reduce)
    renamed = Kernel(kernel.name, kernel.inputs, kernel.outputs, kernel.axes, stores)
    return replace(contraction, kernel=renamed, reduction=reduction, left=left, right=right)


@dataclass(frozen=True)
class Pieces:
    """A contraction as several over parts of k, and the kernel that adds them up.

    ``rest`` reads the inputs of the original kernel whose numbers are in ``rest_inputs``, then the
    partial products.
    """

    parts: Kernel
    rest: Kernel
    rest_inputs: tuple[int, ...]


def in_pieces(contraction: Contraction, count: int) -> Pieces | None:
    """The contraction cut along k; None if no axis of k has ``count`` equal parts."""
    kernel, reduction = contraction.kernel, contraction.reduction
    known = [axis for axis in reduction.axes if isinstance(axis.extent, int)]
    cut = next((axis for axis in known if axis.extent % count == 0), None)
    if cut is None:
        return None
    piece = e.axis("_i_piece", count)
    short = e.axis(f"{cut.symbol.name}p", cut.extent // count)
    bindings: dict[Symbol, Dim] = {cut.symbol: piece.symbol * short.extent + short.symbol}
    axes = tuple(short if axis is cut else axis for axis in reduction.axes)
    partial = e.reduce("sum", axes, e.substitute(reduction.body, bindings))
    along = _contiguous_axis(kernel)
    order = sorted(kernel.axes, key=lambda axis: axis.symbol is along)
    size = shape_product((count, *(axis.extent for axis in order)))
    buffer = Buffer("pieces", reduction.dtype, (size,))
    store = Store(buffer, (e.index(flat_position((piece, *order))),), partial)
    parts = Kernel(kernel.name, kernel.inputs, (buffer,), (piece, *order), (store,))
    over = e.axis("_r0_0", count)
    element = e.load(buffer, (e.index(flat_position((over, *order))),))
    replaced: dict[Expr, Expr] = {reduction: e.reduce("sum", (over,), element)}
    stores = tuple(Store(s.buffer, s.position, e.replace(s.value, replaced)) for s in kernel.stores)
    unnamed = Kernel(kernel.name, (), kernel.outputs, kernel.axes, stores)
    read = {load.buffer.name for load in unnamed.loads()}
    kept = tuple(k for k, each in enumerate(kernel.inputs) if each.name in read)
    inputs = (*(kernel.inputs[k] for k in kept), buffer)
    return Pieces(parts, Kernel(kernel.name, inputs, kernel.outputs, kernel.axes, stores), kept)


def rows_of(contraction: Contraction) -> Kernel:
    """Store the left operand in rows: ``[batch][m][k]``, padded to ``row_stride``."""
    depth = contraction.size(contraction.k)
    stride = row_stride(depth)
    rows = contraction.size(contraction.m)
    row, k = e.axis("_i_row", rows), e.axis("_i_depth", depth)
    value = decoded(contraction.left, contraction.m, row.symbol)
    value = decoded(value, contraction.k, k.symbol)
    batch = contraction.batch
    place = (flat_position(batch) * rows + row.symbol) * stride + k.symbol
    size = shape_product((contraction.size(batch), rows, stride))
    buffer = Buffer("left", value.dtype, (size,))
    return _packing(contraction, buffer, (*batch, row, k), place, value)


def tiles_of(
    contraction: Contraction, height: int, depth: int, segments: Sequence[Segment] = ()
) -> Kernel:
    """Store the left operand as it is read: ``[batch][k / depth][tile][depth][height]``.

    Steps of k come in groups of ``GROUP``, each row's side by side, so that packing copies vectors.
    A tile of fewer rows is followed by those of the next, and rows beyond the last repeat it. The
    operand must be an array that k, one axis of a multiple of ``GROUP`` steps, walks through. Where
    the rows of each step lie side by side instead, they stay so, and the last tiles, if they are
    lower, begin with rows before their own: as many as are missing.
    """
    (along,) = contraction.k
    rows, together = contraction.size(contraction.m), steps_together(contraction)
    tile, group = (
        e.axis("_i_tile", tile_count(segments, height, rows)),
        e.axis("_i_group", along.extent // together),
    )
    row, steps = e.axis("_i_row", height), (e.axis("_i_step", GROUP),) * (together == GROUP)
    step = flat_position(steps)
    k = group.symbol * together + step
    first = tile_start(segments, height, tile.symbol)
    whole = isinstance(rows, int) and rows % height == 0 and len(segments) < 2
    place = first + row.symbol
    if not whole and together == GROUP:
        place = dim_min(place, rows - 1)
    elif not whole:
        place = dim_min(first, rows - height) + row.symbol
    value = decoded(contraction.left, contraction.m, place)
    value = e.substitute(value, {along.symbol: k})
    rounds = ceiling(along.extent, depth)
    groups = depth // together
    batch = flat_position(contraction.batch)
    begin = (batch * rounds + group.symbol // groups) * tile.extent + tile.symbol
    inside = tile_place(begin, depth, height, group.symbol % groups, row.symbol, step, together)
    size = shape_product((contraction.size(contraction.batch), rounds, tile.extent, depth, height))
    buffer = Buffer("left", value.dtype, (size,))
    space = (*contraction.batch, tile, group, row, *steps)
    return _packing(contraction, buffer, space, inside, value)


def tile_place(
    begin: Dim, depth: int, height: int, group: Dim, row: Dim, step: Dim, together: int = GROUP
) -> Dim:
    """Where the ``begin``-th of all tiles holds a step of one of its groups."""
    return begin * depth * height + (group * height + row) * together + step


@dataclass(frozen=True)
class Tiles:
    """How the rows of a whole array lie in tiles, as ``tiles_of`` stores them."""

    segments: tuple[Segment, ...]
    height: int
    rows: Dim
    steps: int
    depth: int
    """Steps of k in a round."""
    dtype: DType
    source: DType
    """What the array holds, which may be narrower."""

    @property
    def buffer(self) -> Buffer:
        """All tiles."""
        rounds = -(-self.steps // self.depth)
        size = shape_product((rounds, self.count, self.depth, self.height))
        return Buffer("tiles", self.dtype, (size,))

    @property
    def count(self) -> Dim:
        """How many tiles cover the rows."""
        return tile_count(self.segments, self.height, self.rows)

    def place(self, tile: Dim, row: int, column: Dim, lane: Symbol) -> Dim:
        """Where an element of a row of a tile lies: ``lane`` beyond a column that begins a group.

        No lane goes beyond the round in which the column is.
        """
        begin = column // self.depth * self.count + tile
        group = column % self.depth // GROUP + lane // GROUP
        return tile_place(begin, self.depth, self.height, group, row, lane % GROUP)


def tiles_read(
    contraction: Contraction, height: int, depth: int, segments: tuple[Segment, ...]
) -> Tiles | None:
    """The tiles of a left operand that is all of an array, one row after the other."""
    rows, steps = contraction.size(contraction.m), contraction.size(contraction.k)
    left = contraction.left
    if isinstance(left, Apply) and left.function == "cast":
        (left,) = left.operands
    if not isinstance(steps, int) or not isinstance(left, Load):
        return None
    if contraction.batch or not segments or not _has_rows(left.operands[0], contraction, "k"):
        return None
    return Tiles(segments, height, rows, steps, depth, contraction.left.dtype, left.dtype)


def can_store_tiles(contraction: Contraction, tiles: Tiles, width: int) -> bool:
    """Whether a result that is computed ``width`` columns at a time can be stored so."""
    store, *others = contraction.kernel.stores
    if others or contraction.batch or contraction.outer or store.value.dtype is not tiles.source:
        return False
    sizes = contraction.size(contraction.m), contraction.size(contraction.n)
    if sizes != (tiles.rows, tiles.steps):
        return False
    if tiles.steps % width or tiles.depth % width or width % GROUP:
        return False
    return _has_rows(store.position[0], contraction, "n")


def _has_rows(place: Expr, contraction: Contraction, along: str) -> bool:
    """Whether an array that is read or stored is rows of ``k`` or ``n``, one after the other."""
    axes = contraction.k if along == "k" else contraction.n
    row, column = Symbol("_row", 0, None), Symbol("_column", 0, None)
    found = decoded(decoded(place, contraction.m, row), axes, column)
    whole = row * contraction.size(axes) + column
    return isinstance(found, Index) and found.dim == whole


def panels_of(contraction: Contraction, columns: int, part: Expr | None = None) -> Kernel:
    """Store the right operand in panels: ``[outside][n / columns][k][columns]``.

    With a ``part`` they hold that of its formula, and the rest is done when they are read.
    """
    size, depth = contraction.size(contraction.n), contraction.size(contraction.k)
    panel, k = e.axis("_i_panel", ceiling(size, columns)), e.axis("_i_depth", depth)
    lane = e.axis("_i_lane", columns)
    column = panel.symbol * columns + lane.symbol
    whole = isinstance(size, int) and size % columns == 0
    inside = column if whole else dim_min(column, size - 1)
    formula = contraction.right if part is None else part
    value = decoded(formula, contraction.n, inside)
    value = decoded(value, contraction.k, k.symbol)
    if not whole:
        condition = e.apply("less", e.index(column), e.index(size), dtype=bool_)
        value = e.select(condition, value, e.literal(0, value.dtype))
    outside = (*contraction.batch, *contraction.outer)
    stored = (*outside, panel, k, lane)
    buffer = Buffer("right", value.dtype, (contraction.size(stored),))
    space = (*outside, k, panel, lane) if _is_along(value, lane.symbol) else stored
    return _packing(contraction, buffer, space, flat_position(stored), value)


def _is_along(value: Expr, symbol: Symbol) -> bool:
    """Whether neighbours along an axis are neighbours in memory."""
    return isinstance(value, Load) and (
        isinstance(value.operands[0], Index) and coefficient(value.operands[0].dim, symbol) == 1
    )


def _packing(
    contraction: Contraction, buffer: Buffer, space: tuple[Axis, ...], place: Dim, value: Expr
) -> Kernel:
    read = {x.buffer.name for x in e.walk((value,)) if isinstance(x, Load)}
    inputs = tuple(b for b in contraction.kernel.inputs if b.name in read)
    store = Store(buffer, (e.index(place),), value)
    name = f"{contraction.kernel.name}_pack_{buffer.name}"
    return Kernel(name, inputs, (buffer,), space, (store,))


def row_stride(depth: Dim) -> Dim:
    """How far apart packed rows are: an odd number of cache lines, so that they share no set."""
    return (depth + 31) // 32 * 32 + 16


def ceiling(size: Dim, width: Dim) -> Dim:
    """How many groups of ``width`` hold ``size``."""
    return (size + width - 1) // width


def flat_position(axes: Sequence[Axis]) -> Dim:
    """The position among all that the axes visit."""
    place: Dim = 0
    for axis in axes:
        place = place * axis.extent + axis.symbol
    return place


def decoded(expr: Expr, axes: tuple[Axis, ...], place: Dim) -> Expr:
    """A formula whose axes are all given by one flat position.

    Where a subscript walks through several axes in one stride, the flat position is used as it
    is; division is left for those that do not.
    """
    if not axes:
        return expr
    if len(axes) == 1:
        return e.substitute(expr, {axes[0].symbol: place})
    done: dict[Expr, Expr] = {}

    def visit(part: Expr) -> Expr:
        found = done.get(part)
        if found is None:
            if isinstance(part, Index):
                found = e.index(_decoded_dim(part.dim, axes, place))
            else:
                operands = tuple(visit(operand) for operand in part.operands)
                found = part if operands == part.operands else part.rebuilt(operands)
            done[part] = found
        return found

    return visit(expr)


def _decoded_dim(dim: Dim, axes: tuple[Axis, ...], place: Dim) -> Dim:
    """Index arithmetic over axes as arithmetic over their flat position."""
    if isinstance(dim, int) or not any(axis.symbol in dim.symbols() for axis in axes):
        return dim
    groups: list[tuple[Symbol, Dim]] = []
    for axis in axes:
        step = coefficient(dim, axis.symbol)
        if groups and step is not None:
            outer = coefficient(dim, groups[-1][0])
            if outer is not None and outer == step * axis.extent:
                dim = dim.substitute({groups[-1][0]: 0}) if not isinstance(dim, int) else dim
                groups[-1] = (axis.symbol, groups[-1][1] * axis.extent)
                continue
        groups.append((axis.symbol, axis.extent))
    bindings: dict[Symbol, Dim] = {}
    rest = place
    for number, (symbol, extent) in reversed(list(enumerate(groups))):
        bindings[symbol] = rest if number == 0 else rest % extent
        rest = rest if number == 0 else rest // extent
    return dim if isinstance(dim, int) else dim.substitute(bindings)
