"""Reductions of rows: softmax, norms, sums, extremes, with whatever is fused around them.

A program has some rows, with the reduced elements side by side in lanes: all of a short row in one
block, a long one in a loop of blocks, once for each reduction that needs the one before it.

    x[4096, 1000] → softmax            [XBLOCK rows, RBLOCK columns] at once
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, likely_size, shape_product
from monograph.ir.types import DType, Kind, bool_, f32, f64
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Expr, Index, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel, Store
from monograph.targets.gpu.cost import H200, buffer_bytes, memory_time
from monograph.targets.gpu.expressions import ExpressionWriter, reductions_of
from monograph.targets.gpu.plan import (
    Configuration,
    Family,
    divide_up,
    next_power_of_two,
)
from monograph.targets.gpu.scalars import literal_text, type_text
from monograph.targets.gpu.source import SourceWriter, TritonKernel
from monograph.targets.plan import Refusal

MIN_LANES = 32
"""Reduced elements from which they lie in lanes instead of being walked through."""
MAX_ROW_BYTES = 32 << 10
"""Bytes of a row that are held in registers at once; longer rows are read in a loop."""
MAX_ROW_BLOCK = 16384
PROGRAM_BYTES = 8 << 10
"""Bytes of a program's block, all rows together, if rows are short."""
LOOP_BYTES = 16 << 10
"""Bytes of a block of a long row."""
WARP_BYTES = 2048
"""Bytes that a warp reads of a block: 64 a thread."""
BUSY_PROGRAMS = 1024
"""Programs that keep the chip busy."""
MIN_PIECE = 1024
"""Elements of a row from which a part of it is worth a program."""
MIN_COLUMN_PIECE = 64
"""The same where neighbouring results lie side by side."""
COLUMNS_PER_PROGRAM = 64
"""Neighbouring results to a program where those lie side by side and not what is reduced."""
COLUMN_ELEMENTS = 8192
"""Elements of a block of columns that is held at once."""

MIN_VECTOR_PRODUCT = 1 << 20
"""Elements of a matrix from which several cuts of its rows are worth measuring."""
MIN_TUNED = 20.0
"""Microseconds from which other numbers of warps are worth measuring."""

HELPER_OF = {"max": "nan_maximum", "min": "nan_minimum", "prod": "multiply"}
POSITIONS = {"argmax": "first_maximum", "argmin": "first_minimum"}
COMBINED = {
    "sum": "{x} + {y}",
    "prod": "{x} * {y}",
    "max": "nan_maximum({x}, {y})",
    "min": "nan_minimum({x}, {y})",
    "any": "{x} | {y}",
    "all": "{x} & {y}",
}


def configure_rows(kernel: Kernel) -> tuple[Configuration, ...] | Refusal:
    """Rows whose reduced elements lie in lanes."""
    space = _split_axes(kernel)
    if isinstance(space, Refusal):
        return space
    width = _bytes_read(kernel, space)
    if _rows_are_neighbours(kernel, space):
        sizes = [_column_block(extents) for extents in space.extents]
        rows = COLUMNS_PER_PROGRAM
        warps = max(4, min(8, rows * max(sizes) // 512))
    else:
        sizes = [_row_block(extents, width) for extents in space.extents]
        rows = _rows_per_program(space, max(sizes) * width)
        warps = max(1, min(16, next_power_of_two(rows * max(sizes) * width) // WARP_BYTES))
    blocks = {_block_name(k): size for k, size in enumerate(sizes)}
    total = shape_product(axis.extent for axis in space.rows)

    def configuration(rows: int, warps: int) -> Configuration:
        programs = likely_size(divide_up(total, rows))
        in_flight = rows * max(sizes) * width
        time = memory_time(buffer_bytes(kernel.buffers), programs, in_flight)
        return Configuration({"XBLOCK": rows, **blocks}, warps, 2, time)

    first = configuration(rows, warps)
    if _rows_are_neighbours(kernel, space):
        return (first,)
    if not _is_vector_product(kernel, space):
        other_warps = [2 * warps, warps // 2] if first.microseconds >= MIN_TUNED else []
        return (first, *(configuration(rows, each) for each in other_warps if 1 <= each <= 16))
    others = [(1, 4), (1, 8), (2, 8), (4, 4), (4, 8), (8, 8)]
    fitting = [pair for pair in others if pair[0] * max(sizes) * width <= MAX_ROW_BYTES]
    return (first, *(configuration(*pair) for pair in fitting if pair != (rows, warps)))


def _is_vector_product(kernel: Kernel, space: _Space) -> bool:
    """Whether long rows of a matrix become a number each: which cut is best is hard to tell."""
    if space.columns or len(space.extents) != 1:
        return False
    length, rows = (shape_product(each) for each in (space.extents[0], _extents(space.rows)))
    is_large = (
        likely_size(length) * likely_size(rows) >= MIN_VECTOR_PRODUCT
        and likely_size(rows) >= BUSY_PROGRAMS
    )
    matrices = [x for x in kernel.loads() if x.symbols & {axis.symbol for axis in space.rows}]
    return is_large and any(len(x.symbols) > 1 for x in matrices)


def _extents(axes: tuple[Axis, ...]) -> tuple[Dim, ...]:
    return tuple(axis.extent for axis in axes)


def split_rows(kernel: Kernel) -> tuple[int, ...]:
    """Parts for rows that are too few to keep the chip busy."""
    space = _split_axes(kernel)
    if isinstance(space, Refusal):
        return ()
    neighbours = _rows_are_neighbours(kernel, space)
    rows = shape_product(axis.extent for axis in space.rows)
    length = shape_product(space.extents[0])
    if not isinstance(rows, int) or not isinstance(length, int):
        return ()
    programs = -(-rows // COLUMNS_PER_PROGRAM) if neighbours else rows
    parts = next_power_of_two(BUSY_PROGRAMS // max(programs, 1))
    parts = min(parts, length // (MIN_COLUMN_PIECE if neighbours else MIN_PIECE))
    return (parts,) if parts > 1 else ()


def write_rows(
    kernel: Kernel, configuration: Configuration, comment: tuple[str, ...]
) -> TritonKernel:
    """A kernel whose reduced elements lie in lanes."""
    space = _split_axes(kernel)
    assert isinstance(space, _Space)
    return _Rows(kernel, space, configuration).write(comment)


ROWS = Family(
    "rows",
    "a program reduces whole rows, whose elements lie in its lanes",
    configure_rows,
    write_rows,
    split_rows,
)


@dataclass(frozen=True)
class _Space:
    """The axes of a kernel of rows: a program's rows, its columns, and the extents reduced over."""

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    extents: tuple[tuple[Dim, ...], ...]


def _split_axes(kernel: Kernel) -> _Space | Refusal:
    reductions = reductions_of(kernel)
    if not reductions:
        return Refusal("it has no reductions")
    for each in reductions:
        own = {axis.symbol for axis in each.axes}
        inner = (x for x in e.walk((each.body,)) if isinstance(x, Reduce))
        if any(own & x.symbols for x in inner):
            return Refusal("a reduction inside a reduction")
        length = shape_product(axis.extent for axis in each.axes)
        if isinstance(length, int) and length < MIN_LANES:
            return Refusal(f"only {length} elements are reduced: fewer than a warp has lanes")
        if each.kind not in (*COMBINED, *POSITIONS):
            return Refusal(f"no {each.kind} of a block")
    used = frozenset[Symbol]().union(*(each.symbols for each in reductions))
    rows = tuple(axis for axis in kernel.axes if axis.symbol in used)
    columns = tuple(axis for axis in kernel.axes if axis.symbol not in used)
    extents = dict.fromkeys(tuple(axis.extent for axis in each.axes) for each in reductions)
    if columns:
        extents.setdefault(tuple(axis.extent for axis in columns))
    return _Space(rows, columns, tuple(extents))


def _block_name(number: int) -> str:
    """The constant that is the size of the blocks of one of the extents."""
    return f"RBLOCK{number or ''}"


def _row_block(extents: tuple[Dim, ...], width: int) -> int:
    """How many elements of a row are reduced at a time: all of them, if they fit."""
    length = shape_product(extents)
    if isinstance(length, int):
        whole = next_power_of_two(length)
        if whole <= MAX_ROW_BLOCK and whole * width <= MAX_ROW_BYTES:
            return whole
    return min(4096, max(1024, next_power_of_two(LOOP_BYTES // width)))


def _column_block(extents: tuple[Dim, ...]) -> int:
    """How many elements of neighbouring rows are reduced at a time."""
    length = shape_product(extents)
    whole = next_power_of_two(length) if isinstance(length, int) else COLUMN_ELEMENTS
    return whole if whole * COLUMNS_PER_PROGRAM <= COLUMN_ELEMENTS else MIN_LANES


def _rows_per_program(space: _Space, row_bytes: int) -> int:
    """Several short rows, as long as there are programs enough."""
    rows = likely_size(shape_product(axis.extent for axis in space.rows))
    most = max(1, rows // H200.multiprocessors)
    return max(1, min(PROGRAM_BYTES // row_bytes, 1 << (most.bit_length() - 1)))


def _bytes_read(kernel: Kernel, space: _Space) -> int:
    """Bytes that are read for an element of a row: of all that is not the same in all rows."""
    rows = {axis.symbol for axis in space.rows}
    reduced = {axis.symbol for x in reductions_of(kernel) for axis in x.axes}
    reduced |= {axis.symbol for axis in space.columns}
    wide = [x for x in kernel.loads() if x.symbols & reduced and (x.symbols & rows or not rows)]
    return max(1, sum({x.buffer.name: x.dtype.bits // 8 for x in wide}.values()))


def _rows_are_neighbours(kernel: Kernel, space: _Space) -> bool:
    """Whether neighbouring rows, and not neighbours in a row, lie together in memory.

    What is read along rows or columns only is small beside what is read along both.
    """
    reduced = {x.axes[-1].symbol for x in reductions_of(kernel)}
    reduced |= {axis.symbol for axis in space.columns[-1:]}
    rows = {axis.symbol for axis in space.rows[-1:]}
    loads = [x.operands[0] for x in kernel.loads() if rows & x.symbols and reduced & x.symbols]
    known = [place.dim for place in loads if isinstance(place, Index)]
    along = sum(coefficient(dim, s) == 1 for dim in known for s in reduced)
    across = sum(coefficient(dim, s) == 1 for dim in known for s in rows)
    return across > along


class _Rows:
    def __init__(self, kernel: Kernel, space: _Space, configuration: Configuration) -> None:
        self.space = space
        self.configuration = configuration
        self.kernel = _with_common_axes(kernel, space)
        self.source = SourceWriter()
        self.writer = ExpressionWriter(self.kernel, self.source, "row")
        self.writer.reduce = self._reduce
        self.lanes: dict[tuple[Dim, ...], str] = {}
        """For extents that are reduced at once, the name of their lanes."""

    def write(self, comment: tuple[str, ...]) -> TritonKernel:
        rows = self.configuration.blocks["XBLOCK"]
        total = shape_product(axis.extent for axis in self.space.rows)
        kind = self.writer.index_type
        self.source.line(
            f"row = tl.program_id(0).to({kind}) * XBLOCK + tl.arange(0, XBLOCK)[:, None]"
        )
        if not (isinstance(total, int) and total % rows == 0):
            self.source.line(f"row_inside = row < {self.writer.dim(total)}")
            symbols = frozenset(axis.symbol for axis in self.space.rows)
            self.writer.masks.append((symbols, "row_inside"))
        self.writer.decode("row", self.space.rows)
        for extents in self.space.extents:
            if self._is_whole(extents):
                self._open_block(extents, self._axes(extents))
        self._load_early()
        whole = [store for store in self.kernel.stores if self._has_columns(store)]
        for store in self.kernel.stores:
            if store not in whole:
                self.writer.store(store)
        if whole:
            self._store_columns(whole)
        return self.writer.finish("rows", (divide_up(total, rows),), self.configuration, comment)

    def _load_early(self) -> None:
        """Begin to load the rows before what their use waits for.

        That is a norm that every program computes for itself, or the vector of a product.
        """
        if not all(map(self._is_whole, self.space.extents)):
            return
        reductions = reductions_of(self.kernel)
        inside = {x for each in reductions for x in e.walk((each.body,)) if x is not each}
        is_nested = any(each in inside for each in reductions)
        if not is_nested and not _is_vector_product(self.kernel, self.space):
            return
        rows = {axis.symbol for axis in self.kernel.axes}
        columns = {axis.symbol for each in reductions for axis in each.axes}
        for load in self.kernel.loads():
            if load.symbols & rows and load.symbols & columns:
                self.writer.value(load)

    # Blocks ---------------------------------------------------------------------------------------

    def _axes(self, extents: tuple[Dim, ...]) -> tuple[Axis, ...]:
        return _common_axes(self.space.extents.index(extents), extents)

    def _is_whole(self, extents: tuple[Dim, ...]) -> bool:
        """Whether all of these elements are held at once."""
        length = shape_product(extents)
        return isinstance(length, int) and length <= self._block_size(extents)

    def _block_size(self, extents: tuple[Dim, ...]) -> int:
        return self.configuration.blocks[_block_name(self.space.extents.index(extents))]

    def _suffix(self, extents: tuple[Dim, ...]) -> str:
        number = self.space.extents.index(extents)
        return "" if number == 0 else str(number)

    def _open_block(
        self, extents: tuple[Dim, ...], axes: tuple[Axis, ...], start: str = ""
    ) -> None:
        """Name the lanes of a block, and the condition that they lie inside."""
        suffix = self._suffix(extents)
        name, block = f"column{suffix}", f"RBLOCK{suffix}"
        size = self._block_size(extents)
        length = shape_product(extents)
        lanes = f"tl.arange(0, {block})[None, :]"
        self.source.line(f"{name} = {start} + {lanes}" if start else f"{name} = {lanes}")
        if not (isinstance(length, int) and length % size == 0):
            self.source.line(f"{name}_inside = {name} < {self.writer.dim(length)}")
            symbols = frozenset(axis.symbol for axis in axes)
            self.writer.masks.append((symbols, f"{name}_inside"))
        self.writer.decode(name, axes)
        self.lanes[extents] = name

    def _close_block(self, extents: tuple[Dim, ...], axes: tuple[Axis, ...]) -> None:
        del self.lanes[extents]
        symbols = frozenset(axis.symbol for axis in axes)
        self.writer.masks = [each for each in self.writer.masks if not each[0] & symbols]

    def _has_columns(self, store: Store) -> bool:
        if not self.space.columns:
            return False
        axes = self._axes(tuple(axis.extent for axis in self.space.columns))
        columns = {axis.symbol for axis in axes}
        return bool(columns & (store.position[0].symbols | store.value.symbols))

    def _store_columns(self, stores: list[Store]) -> None:
        extents = tuple(axis.extent for axis in self.space.columns)
        if self._is_whole(extents):
            for store in stores:
                self.writer.store(store)
            return
        axes = self._axes(extents)
        moving = frozenset(axis.symbol for axis in axes)
        inside = [x for store in stores for x in (*store.position, store.value)]
        with self._loop(extents, moving, inside):
            self._open_block(extents, axes, "start")
            for store in stores:
                self.writer.store(store)
            self._close_block(extents, axes)

    def _loop(
        self, extents: tuple[Dim, ...], moving: frozenset[Symbol], inside: list[Expr]
    ) -> AbstractContextManager[None]:
        """A loop over blocks of a long row."""
        length = self.writer.dim(shape_product(extents))
        block = f"RBLOCK{self._suffix(extents)}"
        return self.writer.loop(f"for start in range(0, {length}, {block}):", moving, inside)

    # Reductions -----------------------------------------------------------------------------------

    def _reduce(self, expr: Reduce) -> str:
        extents = tuple(axis.extent for axis in expr.axes)
        if self._is_whole(extents):
            return self._combine_lanes(expr, self._full_block(expr), extents)
        return self._reduce_in_loop(expr, extents)

    def _full_block(self, expr: Reduce) -> str:
        """The elements to be combined, in the shape of a whole block, neutral ones outside."""
        suffix = self._suffix(tuple(axis.extent for axis in expr.axes))
        shape = f"[XBLOCK, RBLOCK{suffix}]"
        body = self.writer.value(expr.body)
        if expr.body.dtype is bool_:
            body = f"{body}.to(tl.int32)"
        mask = self.writer.mask(frozenset(axis.symbol for axis in expr.axes))
        rows = {axis.symbol for axis in self.space.rows}
        columns = {axis.symbol for axis in expr.axes}
        if not (expr.body.symbols & columns and (expr.body.symbols & rows or not rows)):
            body = f"tl.broadcast_to({body}, {shape})"
        name = self.writer.new_name("block")
        text = f"tl.where({mask}, {body}, {neutral_text(expr)})" if mask else body
        self.source.line(f"{name} = {text}")
        return name

    def _combine_lanes(self, expr: Reduce, block: str, extents: tuple[Dim, ...]) -> str:
        if expr.kind in POSITIONS:
            return self._position_of(expr, block, extents)
        dtype = expr.body.dtype
        if expr.kind == "sum":
            text = f"tl.sum({block}, axis=1, keep_dims=True)"
            return text if dtype in (f32, f64) else f"{text}.to({type_text(dtype)})"
        if expr.kind in ("any", "all"):
            function = "tl.max" if expr.kind == "any" else "tl.min"
            return f"({function}({block}, axis=1, keep_dims=True) != 0)"
        helper = self.source.helper(HELPER_OF[expr.kind])
        return f"tl.reduce({block}, 1, {helper}, keep_dims=True)"

    def _position_of(self, expr: Reduce, block: str, extents: tuple[Dim, ...]) -> str:
        helper = self.source.helper(POSITIONS[expr.kind])
        suffix, lanes = self._suffix(extents), self.lanes[extents]
        places = f"tl.broadcast_to({lanes}.to(tl.int64), [XBLOCK, RBLOCK{suffix}])"
        best, place = self.writer.new_name("best"), self.writer.new_name("place")
        pair = f"({block}, {places})"
        self.source.line(f"{best}, {place} = tl.reduce({pair}, 1, {helper}, keep_dims=True)")
        return place

    def _reduce_in_loop(self, expr: Reduce, extents: tuple[Dim, ...]) -> str:
        """A loop over blocks of a long row: each lane combines its own, and lanes are joined."""
        suffix, axes = self._suffix(extents), expr.axes
        shape = f"[XBLOCK, RBLOCK{suffix}]"
        held = "tl.int32" if expr.body.dtype is bool_ else type_text(expr.body.dtype)
        total = self.writer.new_name("total")
        self.source.line(f"{total} = tl.full({shape}, {neutral_text(expr)}, {held})")
        place = ""
        if expr.kind in POSITIONS:
            place = self.writer.new_name("place")
            self.source.line(f"{place} = tl.full({shape}, {2**62}, tl.int64)")
        elif expr.kind in HELPER_OF:
            self.source.helper(HELPER_OF[expr.kind])
        with self._loop(extents, frozenset(axis.symbol for axis in axes), [expr.body]):
            self._open_block(extents, axes, "start")
            block = self._full_block(expr)
            if place:
                helper = self.source.helper(POSITIONS[expr.kind])
                lanes = f"tl.broadcast_to({self.lanes[extents]}.to(tl.int64), {shape})"
                call = f"{helper}({total}, {place}, {block}, {lanes})"
                self.source.line(f"{total}, {place} = {call}")
            else:
                combined = COMBINED[expr.kind].format(x=total, y=block)
                self.source.line(f"{total} = ({combined}).to({held})")
            self._close_block(extents, axes)
        if place:
            helper = self.source.helper(POSITIONS[expr.kind])
            best, at = self.writer.new_name("best"), self.writer.new_name("place")
            pair = f"({total}, {place})"
            self.source.line(f"{best}, {at} = tl.reduce({pair}, 1, {helper}, keep_dims=True)")
            return at
        return self._combine_lanes(expr, total, extents)


def _common_axes(number: int, extents: tuple[Dim, ...]) -> tuple[Axis, ...]:
    """The axes that all reductions over the same extents share."""
    return tuple(e.axis(f"_c{number}_{k}", extent) for k, extent in enumerate(extents))


def _with_common_axes(kernel: Kernel, space: _Space) -> Kernel:
    """The kernel with one set of loop variables for all reductions, and columns, of equal extents.

    So what two of them read becomes one expression, and is loaded once.
    """
    done: dict[Expr, Expr] = {}

    def visit(expr: Expr) -> Expr:
        found = done.get(expr)
        if found is None:
            operands = tuple(map(visit, expr.operands))
            found = expr if operands == expr.operands else expr.rebuilt(operands)
            if isinstance(found, Reduce):
                found = rename(found)
            done[expr] = found
        return found

    def rename(reduction: Reduce) -> Expr:
        extents = tuple(axis.extent for axis in reduction.axes)
        axes = _common_axes(space.extents.index(extents), extents)
        pairs = zip(reduction.axes, axes, strict=True)
        body = e.substitute(reduction.body, {own.symbol: axis.symbol for own, axis in pairs})
        return e.reduce(reduction.kind, axes, body)

    bindings: dict[Symbol, Dim] = {}
    if space.columns:
        extents = tuple(axis.extent for axis in space.columns)
        axes = _common_axes(space.extents.index(extents), extents)
        pairs = zip(space.columns, axes, strict=True)
        bindings = {own.symbol: axis.symbol for own, axis in pairs}
    stores = tuple(
        store.mapped(lambda expr: e.substitute(visit(expr), bindings)) for store in kernel.stores
    )
    columns = tuple(
        Axis(symbol, axis.extent)
        for axis in kernel.axes
        if isinstance(symbol := bindings.get(axis.symbol, axis.symbol), Symbol)
    )
    return replace(kernel, axes=columns, stores=stores)


def neutral_text(expr: Reduce) -> str:
    """What combines with anything to that thing."""
    if expr.kind in ("sum", "any"):
        return "0"
    if expr.kind in ("prod", "all"):
        return "1"
    return _extreme_text(expr.body.dtype, lowest=expr.kind in ("max", "argmax"))


def _extreme_text(dtype: DType, lowest: bool) -> str:
    """The lowest or the highest number of a dtype."""
    if dtype.is_float:
        return literal_text(e.literal(float("-inf") if lowest else float("inf"), dtype))
    if dtype is bool_:
        return "0" if lowest else "1"
    bits = dtype.bits - (dtype.kind is Kind.SIGNED)
    if lowest:
        return str(-(1 << bits)) if dtype.kind is Kind.SIGNED else "0"
    return str((1 << bits) - 1)
