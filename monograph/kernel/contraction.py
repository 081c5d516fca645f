"""Contractions over packed operands: one register tile, any matrix product.

    out[m, n] = epilogue(sum(k: left[m, k] * right[n, k]))

Both operands are first laid out in the order in which they will be read: ``left`` in panels of a
few rows, ``right`` in panels of a few vectors, zeros beyond the edges. The product then walks
through two panels from front to back, keeping a tile of the result in registers, and the epilogue
(bias, activation, residual) is computed of the tile before it is stored.

    packed_left[m / rows][k][rows]         packed_right[n / columns][k][columns]

What an operand is does not matter: packing computes its formula once an element (a transpose, a
cast, a gather: the prologue). Operands that are weights are packed when the program is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monograph.ir.dims import Dim, Symbol, dim_min, shape_product
from monograph.ir.types import DType, bool_, f32, f64
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.schedule import Schedule

PARTIAL = 256
"""Products that one running sum takes before it is added to another."""
WORTHWHILE = 1 << 14
"""Multiplications from which packing pays."""


@dataclass(frozen=True)
class Tile:
    """How many rows and columns of the result are computed together."""

    rows: int
    columns: int


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


@dataclass(frozen=True)
class PackedContraction:
    """The kernels of a contraction: packing either side, then the product.

    ``product`` reads the packed left and right operands first, then the inputs of the original
    kernel whose numbers are in ``epilogue_inputs``.
    """

    left: Kernel
    right: Kernel
    product: Kernel
    schedule: Schedule
    epilogue_inputs: tuple[int, ...]


def as_contraction(kernel: Kernel) -> Contraction | None:
    """The kernel as a contraction, if it is one; the side that is stored contiguously is ``n``."""
    reductions = [x for x in kernel.expressions() if isinstance(x, Reduce)]
    if len(reductions) != 1 or reductions[0].kind != "sum":
        return None
    (reduction,) = reductions
    body = reduction.body
    if not isinstance(body, Apply) or body.function != "multiply" or body.dtype not in (f32, f64):
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
    """The axis along which the first store is contiguous."""
    place = kernel.stores[0].position[0]
    if not isinstance(place, Index):
        return None
    for axis in reversed(kernel.axes):
        if coefficient(place.dim, axis.symbol) == 1:
            return axis.symbol
    return None


def pack(contraction: Contraction, tile: Tile) -> PackedContraction:
    """The kernels that compute a contraction in tiles."""
    dtype = contraction.reduction.dtype
    rows = contraction.size(contraction.m)
    columns = contraction.size(contraction.n)
    depth = contraction.size(contraction.k)
    batch = contraction.batch
    outside = (*batch, *contraction.outer)
    left_buffer = _panels("left", contraction, batch, rows, depth, tile.rows, dtype)
    right_buffer = _panels("right", contraction, outside, columns, depth, tile.columns, dtype)
    left = _packing(
        contraction, contraction.left, batch, contraction.m, rows, tile.rows, left_buffer
    )
    right = _packing(
        contraction, contraction.right, outside, contraction.n, columns, tile.columns, right_buffer
    )
    product, schedule = _product(contraction, tile, left_buffer, right_buffer)
    read = {load.buffer.name for load in product.loads()}
    inputs = contraction.kernel.inputs
    kept = tuple(k for k, buffer in enumerate(inputs) if buffer.name in read)
    signature = (left_buffer, right_buffer, *(inputs[k] for k in kept))
    named = Kernel(product.name, signature, product.outputs, product.axes, product.stores)
    return PackedContraction(left, right, named, schedule, kept)


def _panels(
    name: str,
    contraction: Contraction,
    batch: tuple[Axis, ...],
    size: Dim,
    depth: Dim,
    width: int,
    dtype: DType,
) -> Buffer:
    count = _ceiling(size, width)
    total = shape_product((contraction.size(batch), count, depth, width))
    return Buffer(name, dtype, (total,))


def _ceiling(size: Dim, width: int) -> Dim:
    return (size + width - 1) // width


def _packing(
    contraction: Contraction,
    formula: Expr,
    batch: tuple[Axis, ...],
    axes: tuple[Axis, ...],
    size: Dim,
    width: int,
    buffer: Buffer,
) -> Kernel:
    """Store one operand in panels: ``[batch][panel][k][width]``."""
    panel = e.axis("_i_panel", _ceiling(size, width))
    depth = e.axis("_i_depth", contraction.size(contraction.k))
    lane = e.axis("_i_lane", width)
    place = panel.symbol * width + lane.symbol
    whole = isinstance(size, int) and size % width == 0
    inside = place if whole else dim_min(place, size - 1)
    value = decoded(formula, axes, inside)
    value = decoded(value, contraction.k, depth.symbol)
    if not whole:
        condition = e.apply("less", e.index(place), e.index(size), dtype=bool_)
        value = e.select(condition, value, e.literal(0.0, value.dtype))
    space = (*batch, panel, depth, lane)
    store = Store(buffer, (e.linear(space),), value)
    name = f"{contraction.kernel.name}_pack_{buffer.name}"
    read = {x.buffer.name for x in e.walk((value,)) if isinstance(x, e.Load)}
    inputs = tuple(b for b in contraction.kernel.inputs if b.name in read)
    return Kernel(name, inputs, (buffer,), space, (store,))


def _product(
    contraction: Contraction, tile: Tile, left: Buffer, right: Buffer
) -> tuple[Kernel, Schedule]:
    """The product of panels, with the epilogue, and how it is scheduled."""
    rows, columns = contraction.size(contraction.m), contraction.size(contraction.n)
    depth = contraction.size(contraction.k)
    batch, outside = contraction.batch, (*contraction.batch, *contraction.outer)
    column_panel = e.axis("_i_column", _ceiling(columns, tile.columns))
    row_panel = e.axis("_i_row", _ceiling(rows, tile.rows))
    whole = isinstance(columns, int) and columns % tile.columns == 0
    left_over = columns - column_panel.symbol * tile.columns
    width = tile.columns if whole else dim_min(tile.columns, left_over)
    lane = Axis(Symbol("_i_lane", 0, tile.columns - 1), width)
    summed = e.axis("_r0_0", depth)
    n_place = column_panel.symbol * tile.columns + lane.symbol
    stores = []
    for copy in range(tile.rows):
        m_place = row_panel.symbol * tile.rows + copy
        at_left = _panel_offset(batch, row_panel, depth, tile.rows, summed.symbol, copy)
        at_right = _panel_offset(
            outside, column_panel, depth, tile.columns, summed.symbol, lane.symbol
        )
        body = e.apply("multiply", e.load(left, (at_left,)), e.load(right, (at_right,)))
        known: dict[Expr, Expr] = {contraction.reduction: e.reduce("sum", (summed,), body)}
        guard = None
        if not (isinstance(rows, int) and rows % tile.rows == 0):
            guard = e.apply("less", e.index(m_place), e.index(rows), dtype=bool_)
        for store in contraction.kernel.stores:
            value = _placed(e.replace(store.value, known), contraction, m_place, n_place)
            position = _placed(store.position[0], contraction, m_place, n_place)
            stores.append(Store(store.buffer, (position,), value, guard))
    kernel = contraction.kernel
    axes = (*outside, column_panel, row_panel, lane)
    product = Kernel(kernel.name, kernel.inputs, kernel.outputs, axes, tuple(stores))
    order = tuple(axis.symbol for axis in axes)
    schedule = Schedule(
        order,
        rows=len(order),
        parallel=len(outside) + 1,
        vector=(lane.symbol,),
        width=tile.columns,
        partial=PARTIAL,
    )
    return product, schedule


def _placed(expr: Expr, contraction: Contraction, m_place: Dim, n_place: Dim) -> Expr:
    """A formula of the original axes at a position of the tiles."""
    return decoded(decoded(expr, contraction.m, m_place), contraction.n, n_place)


def _panel_offset(
    batch: tuple[Axis, ...], panel: Axis, depth: Dim, width: int, k: Symbol, lane: Dim
) -> Expr:
    flat: Dim = 0
    for axis in (*batch, panel):
        flat = flat * axis.extent + axis.symbol
    return e.index((flat * depth + k) * width + lane)


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
