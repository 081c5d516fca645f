"""Writes products: a tile of the result a program, its operands' formulas loaded as tiles.

A loop over k loads a tile of each operand and multiplies them. The operands are formulas, so a
cast, a transpose, a gather or the windows of a convolution (implicit GEMM) are computed as the tile
is loaded. The axes of k are walked in the order in which the larger operand holds them; where a
step stays inside the innermost one, the others are the same for all lanes.
"""

from __future__ import annotations

from monograph.ir.dims import Dim, Symbol, likely_size
from monograph.ir.types import DType, f32
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction
from monograph.kernel.expr import Apply, Axis, Expr, Index, Literal, Load
from monograph.kernel.flatten import coefficient
from monograph.targets.gpu.cost import buffer_bytes
from monograph.targets.gpu.expressions import ExpressionWriter
from monograph.targets.gpu.plan import Configuration, divide_up
from monograph.targets.gpu.scalars import type_text
from monograph.targets.gpu.source import SourceWriter, TritonKernel


def without_cast(formula: Expr) -> Expr:
    """What a widened operand is before it is widened."""
    is_cast = isinstance(formula, Apply) and formula.function == "cast"
    return formula.operands[0] if is_cast else formula


def narrow_operand(formula: Expr, multiplied: DType) -> Expr:
    """An operand in the dtype that is multiplied."""
    bare = without_cast(formula)
    if bare.dtype is multiplied:
        return bare
    if isinstance(bare, Apply) and bare.function == "where" and bare.dtype.is_float:
        condition, yes, no = bare.operands  # padding: a load that can be masked
        return e.select(condition, narrow_operand(yes, multiplied), narrow_operand(no, multiplied))
    if isinstance(bare, Literal) and bare.value == 0:
        return e.literal(0, multiplied)
    return e.cast(formula, multiplied)


class ProductWriter:
    """Writes a product whose programs compute a tile each."""

    def __init__(
        self,
        contractions: tuple[Contraction, ...],
        multiplied: DType,
        configuration: Configuration,
    ) -> None:
        self.contractions = contractions
        self.contraction = contraction = contractions[0]
        self.multiplied = multiplied
        self.configuration = configuration
        self.rows = configuration.blocks["ROWS"]
        self.columns = configuration.blocks["COLUMNS"]
        self.depth = configuration.blocks["DEPTH"]
        self.k = _k_in_order(contraction)
        self.source = SourceWriter()
        self.writer = ExpressionWriter(contraction.kernel, self.source, "row")

    def write(self, comment: tuple[str, ...]) -> TritonKernel:
        product, line = self.contraction, self.source.line
        rows = product.size(product.m)
        columns = product.size((*product.outer, *product.n))
        tiles_m, tiles_n = divide_up(rows, self.rows), divide_up(columns, self.columns)
        line("program = tl.program_id(0)")
        if product.batch:
            tiles = self.writer.dim(tiles_m * tiles_n)
            line(f"batch = (program // {tiles}).to({self.writer.index_type})")
            line(f"program = program % {tiles}")
            self.writer.decode("batch", product.batch)
        self._place_tile(tiles_m, tiles_n)
        self._side("row", "tile_m * ROWS + tl.arange(0, ROWS)[:, None]", product.m, self.rows)
        right = (*product.outer, *product.n)
        lanes = "tile_n * COLUMNS + tl.arange(0, COLUMNS)[None, :]"
        self._side("column", lanes, right, self.columns)
        held = type_text(product.reduction.dtype)
        for total in self.totals:
            line(f"{total} = tl.zeros([ROWS, COLUMNS], {held})")
        self._multiply()
        for total, each in zip(self.totals, self.contractions, strict=True):
            self.writer.name_value(each.reduction, total)
        for store in product.kernel.stores:
            self.writer.store(store)
        grid = (tiles_m * tiles_n * product.size(product.batch),)
        return self.writer.finish("product", grid, self.configuration, comment)

    def _place_tile(self, tiles_m: Dim, tiles_n: Dim) -> None:
        """Which tile a program computes."""
        line, kind = self.source.line, self.writer.index_type
        line(f"tiles_m, tiles_n = {self.writer.dim(tiles_m)}, {self.writer.dim(tiles_n)}")
        line("first = program // (GROUPED * tiles_n) * GROUPED")
        line("grouped = tl.minimum(tiles_m - first, GROUPED)")
        line("within = program % (GROUPED * tiles_n)")
        line(f"tile_m = (first + within % grouped).to({kind})")
        line(f"tile_n = (within // grouped).to({kind})")

    def _side(self, name: str, text: str, axes: tuple[Axis, ...], side: int) -> None:
        """The lanes along one side of the tile."""
        size = self.contraction.size(axes)
        self.source.line(f"{name} = {text}")
        if not (isinstance(size, int) and size % side == 0):
            self.source.line(f"{name}_inside = {name} < {self.writer.dim(size)}")
            symbols = frozenset(axis.symbol for axis in axes)
            self.writer.masks.append((symbols, f"{name}_inside"))
        self.writer.decode(name, axes)

    @property
    def totals(self) -> list[str]:
        """The names of the sums of each contraction."""
        return ["total" + (str(k) if k else "") for k in range(len(self.contractions))]

    def _multiply(self) -> None:
        """The loop over k."""
        product = self.contraction
        depth = product.size(product.k)
        moving = frozenset(axis.symbol for axis in product.k)
        sides = (product.left, *(each.right for each in self.contractions))
        left, *rights = (narrow_operand(x, self.multiplied) for x in sides)
        exact = ', input_precision="ieee"' if self.multiplied is f32 else ""
        kind = f", out_dtype={type_text(product.reduction.dtype)}"
        header = f"for start in range(0, {self.writer.dim(depth)}, DEPTH):"
        with self.writer.loop(header, moving, [left, *rights]):
            tile = self._tile(left, "[None, :]", "[ROWS, DEPTH]", depth)
            for total, right in zip(self.totals, rights, strict=True):
                other = self._tile(right, "[:, None]", "[DEPTH, COLUMNS]", depth)
                self.source.line(f"{total} = tl.dot({tile}, {other}, {total}{exact}{kind})")

    def _tile(self, formula: Expr, lanes: str, shape: str, depth: Dim) -> str:
        """A tile of an operand; zeros beyond the last step of k."""
        writer, line = self.writer, self.source.line
        symbols = frozenset[Symbol](axis.symbol for axis in self.k)
        kept = [each for each in writer.masks if not each[0] & symbols]
        cut = not (isinstance(depth, int) and depth % self.depth == 0)
        writer.masks = list(kept)
        writer.scopes.append({})
        *outer, inner = self.k
        if outer and isinstance(inner.extent, int) and inner.extent % self.depth == 0:
            line(f"outer = start // {inner.extent} + {writer.unit_lane}")
            writer.decode("outer", outer)
            line(f"within = tl.multiple_of(start % {inner.extent}, DEPTH)")
            line(f"inner = within + tl.arange(0, DEPTH){lanes}")
            writer.decode("inner", (inner,))
        else:
            line(f"k = start + tl.arange(0, DEPTH){lanes}")
            if cut:
                line(f"k_inside = k < {writer.dim(depth)}")
                writer.masks.append((symbols, "k_inside"))
            writer.decode("k", self.k)
        value = writer.value(formula)
        writer.scopes.pop()
        writer.masks = kept
        if cut and not isinstance(formula, Load):
            value = f"tl.where(k_inside, {value}, 0)"
        name = writer.new_name("tile")
        kind = type_text(self.multiplied)
        line(f"{name} = tl.broadcast_to({value}, {shape}).to({kind})")
        return name


def _k_in_order(contraction: Contraction) -> tuple[Axis, ...]:
    """The axes of k in the order in which the larger operand holds them."""
    loads = list(e.find_loads(contraction.left, contraction.right))
    if not loads:
        return contraction.k
    largest = max(loads, key=lambda x: buffer_bytes((x.buffer,)))

    def distance(axis: Axis) -> int:
        return abs(_step(largest.operands[0], axis.symbol) or 0)

    return tuple(sorted(contraction.k, key=distance, reverse=True))


def _step(place: Expr, symbol: Symbol) -> int | None:
    """How far a position moves when a loop variable does, the edges of images left out."""
    if symbol not in place.symbols:
        return 0
    if isinstance(place, Index):
        step = coefficient(place.dim, symbol)
        return step if isinstance(step, int) else None
    if not isinstance(place, Apply):
        return None
    steps = [_step(x, symbol) for x in place.operands]
    match place.function:
        case "add":
            return None if None in steps else sum(x or 0 for x in steps)
        case "multiply":
            y = place.operands[1]
            scaled = isinstance(y, Index) and isinstance(y.dim, int) and steps[0] is not None
            return (steps[0] or 0) * likely_size(y.dim) if scaled and isinstance(y, Index) else None
        case "where":
            return next((step for step in steps[1:] if step), None)
        case _:
            return None
