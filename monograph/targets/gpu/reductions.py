"""Reductions: softmax, norms, sums, extremes, with whatever is fused around them.

``plan_rows`` gives each program some rows, with the reduced elements side by side in lanes: all of
a short row in one block, a long one in a loop of blocks, once for each reduction that needs the one
before it. ``plan_sequential`` gives each lane one result and lets it walk through what it reduces:
for windows of a few elements, and for reductions inside reductions.

    rows         x[4096, 1000] → softmax            [XBLOCK rows, RBLOCK columns] at once
    sequential   max_pool 3×3, sums of 8 columns    BLOCK results, a loop of 9
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, shape_product
from monograph.ir.types import DType, Kind, bool_, f32, f64
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Expr, Index, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel, Store
from monograph.targets.gpu.expressions import ExpressionWriter, reductions_of
from monograph.targets.gpu.plan import Refusal, divide_up, next_power_of_two, warps_for
from monograph.targets.gpu.pointwise import BLOCK_ELEMENTS
from monograph.targets.gpu.scalars import literal_text, type_text
from monograph.targets.gpu.source import SourceWriter, TritonKernel

MIN_LANES = 32
"""Reduced elements from which they lie in lanes instead of being walked through."""
MAX_ROW_BLOCK = 8192
"""Elements of a row that are held in registers at once; longer rows are read in a loop."""
LOOP_BLOCK = 2048
TILE_ELEMENTS = 2048
"""Elements of a program's block, all rows together, if rows are short."""
COLUMNS = 64
"""Neighbouring results to a program where those lie side by side and not what is reduced."""

_HELPERS = {"max": "nan_maximum", "min": "nan_minimum", "prod": "multiply"}
_POSITIONS = {"argmax": "first_maximum", "argmin": "first_minimum"}
_COMBINED = {
    "sum": "{x} + {y}",
    "prod": "{x} * {y}",
    "max": "nan_maximum({x}, {y})",
    "min": "nan_minimum({x}, {y})",
    "any": "{x} | {y}",
    "all": "{x} & {y}",
}


def plan_rows(kernel: Kernel, comment: tuple[str, ...]) -> TritonKernel | Refusal:
    """A kernel whose reduced elements lie in lanes."""
    space = _split_axes(kernel)
    if isinstance(space, Refusal):
        return space
    return _Rows(kernel, space).write(comment)


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
        if each.kind not in (*_COMBINED, *_POSITIONS):
            return Refusal(f"no {each.kind} of a block")
    used = frozenset[Symbol]().union(*(each.symbols for each in reductions))
    rows = tuple(axis for axis in kernel.axes if axis.symbol in used)
    columns = tuple(axis for axis in kernel.axes if axis.symbol not in used)
    extents = dict.fromkeys(tuple(axis.extent for axis in each.axes) for each in reductions)
    if columns:
        extents.setdefault(tuple(axis.extent for axis in columns))
    return _Space(rows, columns, tuple(extents))


class _Rows:
    def __init__(self, kernel: Kernel, space: _Space) -> None:
        self.space = space
        self.kernel = _with_common_axes(kernel, space)
        self.source = SourceWriter()
        self.writer = ExpressionWriter(self.kernel, self.source, "row")
        self.writer.reduce = self._reduce
        self.blocks: dict[str, int] = {}
        self.lanes: dict[tuple[Dim, ...], str] = {}
        """For extents that are reduced at once, the name of their lanes."""

    def write(self, comment: tuple[str, ...]) -> TritonKernel:
        longest = max(map(self._block_for, self.space.extents))
        rows = self._rows_per_program(longest)
        self.blocks["XBLOCK"] = rows
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
        whole = [store for store in self.kernel.stores if self._has_columns(store)]
        for store in self.kernel.stores:
            if store not in whole:
                self.writer.store(store)
        if whole:
            self._store_columns(whole)
        grid = (divide_up(total, rows),)
        warps = warps_for(rows * longest)
        return self.writer.finish("rows", grid, self.blocks, comment, warps)

    # Blocks ---------------------------------------------------------------------------------------

    def _axes(self, extents: tuple[Dim, ...]) -> tuple[Axis, ...]:
        return _common_axes(self.space.extents.index(extents), extents)

    def _is_whole(self, extents: tuple[Dim, ...]) -> bool:
        """Whether all of these elements are held at once."""
        length = shape_product(extents)
        return isinstance(length, int) and length <= MAX_ROW_BLOCK

    def _block_for(self, extents: tuple[Dim, ...]) -> int:
        length = shape_product(extents)
        if isinstance(length, int) and length <= MAX_ROW_BLOCK:
            return next_power_of_two(length)
        return LOOP_BLOCK if not self._rows_are_neighbours() else MIN_LANES

    def _rows_per_program(self, longest: int) -> int:
        if not self.space.rows:
            return 1
        if self._rows_are_neighbours():
            return COLUMNS
        return max(1, TILE_ELEMENTS // longest) if longest < TILE_ELEMENTS else 1

    def _rows_are_neighbours(self) -> bool:
        """Whether neighbouring rows, and not neighbours in a row, lie together in memory."""
        reduced = {a.symbol for x in self.space.extents for a in self._axes(x)[-1:]}
        rows = {axis.symbol for axis in self.space.rows[-1:]}
        loads = [x.operands[0] for x in self.kernel.loads()]
        known = [place.dim for place in loads if isinstance(place, Index)]
        along = sum(coefficient(dim, s) == 1 for dim in known for s in reduced)
        across = sum(coefficient(dim, s) == 1 for dim in known for s in rows)
        return across > along

    def _suffix(self, extents: tuple[Dim, ...]) -> str:
        number = self.space.extents.index(extents)
        return "" if number == 0 else str(number)

    def _open_block(
        self, extents: tuple[Dim, ...], axes: tuple[Axis, ...], start: str = ""
    ) -> None:
        """Name the lanes of a block, and the condition that they lie inside."""
        suffix = self._suffix(extents)
        name, block = f"column{suffix}", f"RBLOCK{suffix}"
        size = self._block_for(extents)
        self.blocks[block] = size
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
        if expr.kind in _POSITIONS:
            return self._position_of(expr, block, extents)
        dtype = expr.body.dtype
        if expr.kind == "sum":
            text = f"tl.sum({block}, axis=1, keep_dims=True)"
            return text if dtype in (f32, f64) else f"{text}.to({type_text(dtype)})"
        if expr.kind in ("any", "all"):
            function = "tl.max" if expr.kind == "any" else "tl.min"
            return f"({function}({block}, axis=1, keep_dims=True) != 0)"
        helper = self.source.helper(_HELPERS[expr.kind])
        return f"tl.reduce({block}, 1, {helper}, keep_dims=True)"

    def _position_of(self, expr: Reduce, block: str, extents: tuple[Dim, ...]) -> str:
        helper = self.source.helper(_POSITIONS[expr.kind])
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
        self.blocks[f"RBLOCK{suffix}"] = self._block_for(extents)
        held = "tl.int32" if expr.body.dtype is bool_ else type_text(expr.body.dtype)
        total = self.writer.new_name("total")
        self.source.line(f"{total} = tl.full({shape}, {neutral_text(expr)}, {held})")
        place = ""
        if expr.kind in _POSITIONS:
            place = self.writer.new_name("place")
            self.source.line(f"{place} = tl.full({shape}, {2**62}, tl.int64)")
        elif expr.kind in _HELPERS:
            self.source.helper(_HELPERS[expr.kind])
        with self._loop(extents, frozenset(axis.symbol for axis in axes), [expr.body]):
            self._open_block(extents, axes, "start")
            block = self._full_block(expr)
            if place:
                helper = self.source.helper(_POSITIONS[expr.kind])
                lanes = f"tl.broadcast_to({self.lanes[extents]}.to(tl.int64), {shape})"
                call = f"{helper}({total}, {place}, {block}, {lanes})"
                self.source.line(f"{total}, {place} = {call}")
            else:
                combined = _COMBINED[expr.kind].format(x=total, y=block)
                self.source.line(f"{total} = ({combined}).to({held})")
            self._close_block(extents, axes)
        if place:
            helper = self.source.helper(_POSITIONS[expr.kind])
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
    return Kernel(kernel.name, kernel.inputs, kernel.outputs, columns, stores)


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


def plan_sequential(kernel: Kernel, comment: tuple[str, ...]) -> TritonKernel | Refusal:
    """A kernel whose lanes each walk through what they reduce."""
    if not reductions_of(kernel):
        return Refusal("it has no reductions")
    source = SourceWriter()
    writer = ExpressionWriter(kernel, source, "offset", rank=1)
    writer.reduce = lambda expr: _walk(writer, expr)
    total = shape_product(axis.extent for axis in kernel.axes)
    source.line(f"offset = tl.program_id(0).to({writer.index_type}) * BLOCK + tl.arange(0, BLOCK)")
    source.line(f"inside = offset < {writer.dim(total)}")
    writer.masks.append((frozenset(axis.symbol for axis in kernel.axes), "inside"))
    writer.decode("offset", kernel.axes)
    for store in kernel.stores:
        writer.store(store)
    block = BLOCK_ELEMENTS // 4
    return writer.finish("sequential", (divide_up(total, block),), {"BLOCK": block}, comment)


def _walk(writer: ExpressionWriter, expr: Reduce) -> str:
    """A loop over the reduced elements, one at a time, in every lane."""
    source, dtype = writer.source, expr.body.dtype
    held = type_text(dtype)
    counter, total = writer.new_name("r"), writer.new_name("total")
    source.line(f"{total} = tl.full([BLOCK], {neutral_text(expr)}, {held})")
    place = ""
    if expr.kind in _POSITIONS:
        place = writer.new_name("place")
        source.helper(_POSITIONS[expr.kind])
        source.line(f"{place} = tl.full([BLOCK], {2**62}, tl.int64)")
    elif expr.kind in ("max", "min") and dtype.is_float:
        source.helper(_HELPERS[expr.kind])
    length = writer.dim(shape_product(axis.extent for axis in expr.axes))
    moving = frozenset(axis.symbol for axis in expr.axes)
    with writer.loop(f"for {counter} in range(0, {length}):", moving, [expr.body]):
        writer.decode(counter, expr.axes)
        body = f"tl.broadcast_to({writer.value(expr.body)}, [BLOCK])"
        if place:
            at = f"tl.full([BLOCK], 0, tl.int64) + {counter}"
            call = f"{_POSITIONS[expr.kind]}({total}, {place}, {body}, {at})"
            source.line(f"{total}, {place} = {call}")
        else:
            source.line(f"{total} = ({_combine(expr, total, body)}).to({held})")
    return place or total


def _combine(expr: Reduce, x: str, y: str) -> str:
    if expr.kind in ("max", "min") and not expr.body.dtype.is_float:
        return f"tl.{expr.kind}imum({x}, {y})"
    return _COMBINED[expr.kind].format(x=x, y=y)
