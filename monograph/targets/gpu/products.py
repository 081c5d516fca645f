"""Matrix products and convolutions on tensor cores, with what is fused before and after them.

    out[m, n] = epilogue(sum(k: left[m, k] * right[k, n]))

A program computes a tile of the result: a loop over k loads a tile of each operand and multiplies
them. The operands are formulas, so a cast, a transpose, a gather or the windows of a convolution
(implicit GEMM) are computed as the tile is loaded, and nothing is stored between. The epilogue
works on the sums while they are in registers. Programs that read the same columns of the right
operand run at the same time, so that these are in the L2 cache.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol
from monograph.ir.types import DType, bf16, f16, f32, i8, i32
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction, as_contraction
from monograph.kernel.expr import Apply, Axis, Expr, Load
from monograph.kernel.kernel import Kernel
from monograph.targets.gpu.expressions import ExpressionWriter
from monograph.targets.gpu.plan import Refusal, divide_up, next_power_of_two
from monograph.targets.gpu.scalars import type_text
from monograph.targets.gpu.source import SourceWriter, TritonKernel

MIN_SIDE = 16
"""The least rows, columns and steps of k that a tensor core multiplies."""
MIN_WORTHWHILE_SIDE = 16
"""The least ones for which tiles of that size are not mostly empty."""
GROUPED_TILES = 8
"""Tiles of rows whose programs run together, so that they find the same columns in the cache."""


@dataclass(frozen=True)
class Tiles:
    """How a product is cut: rows, columns and steps of k of a tile, and what runs it."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def plan_product(kernel: Kernel, comment: tuple[str, ...]) -> TritonKernel | Refusal:
    """A kernel that is one contraction, multiplied by tensor cores."""
    contraction = as_contraction(kernel)
    if contraction is None:
        return Refusal("it is no matrix product")
    multiplied = _multiplied_dtype(contraction)
    if multiplied is None:
        return Refusal(
            f"tensor cores do not multiply what sums up to {contraction.reduction.dtype}"
        )
    sides = [contraction.m, (*contraction.outer, *contraction.n), contraction.k]
    if not all(sides):
        return Refusal("one row or one column: there is no tile to reuse operands in")
    sizes = [contraction.size(axes) for axes in sides]
    if any(isinstance(size, int) and size < MIN_WORTHWHILE_SIDE for size in sizes):
        return Refusal(f"a side of {min(s for s in sizes if isinstance(s, int))} is too short")
    return _Product(contraction, multiplied, choose_tiles(sizes, multiplied)).write(comment)


def choose_tiles(sizes: list[Dim], multiplied: DType) -> Tiles:
    """Tiles by the size of the result: large ones where there are enough of them for the chip."""
    rows, columns, depth = (s if isinstance(s, int) else 4096 for s in sizes)
    if multiplied is f32:
        return Tiles(_side(rows, 64), _side(columns, 64), _side(depth, 32), 4, 3)
    if rows * columns <= 512 * 1024:
        return Tiles(_side(rows, 64), _side(columns, 64), _side(depth, 64), 4, 4)
    return Tiles(_side(rows, 128), _side(columns, 128), _side(depth, 64), 8, 3)


def _side(size: int, most: int) -> int:
    return min(most, max(MIN_SIDE, next_power_of_two(size)))


def _multiplied_dtype(contraction: Contraction) -> DType | None:
    """The dtype that tensor cores multiply: that of all operands in memory, or f32."""
    if contraction.reduction.dtype is i32:
        both = [_without_cast(x).dtype for x in (contraction.left, contraction.right)]
        return i8 if both == [i8, i8] else None
    if contraction.reduction.dtype is not f32:
        return None
    formulas = (contraction.left, contraction.right)
    read = {x.dtype for x in e.walk(formulas) if isinstance(x, Load) and x.dtype.is_float}
    for narrow in (f16, bf16):
        if read == {narrow}:
            return narrow
    return f32


def _without_cast(formula: Expr) -> Expr:
    """What a widened operand is before it is widened."""
    is_cast = isinstance(formula, Apply) and formula.function == "cast"
    return formula.operands[0] if is_cast else formula


class _Product:
    def __init__(self, contraction: Contraction, multiplied: DType, tiles: Tiles) -> None:
        self.contraction = contraction
        self.multiplied = multiplied
        self.tiles = tiles
        self.source = SourceWriter()
        self.writer = ExpressionWriter(contraction.kernel, self.source, "row")

    def write(self, comment: tuple[str, ...]) -> TritonKernel:
        product, line = self.contraction, self.source.line
        rows = product.size(product.m)
        columns = product.size((*product.outer, *product.n))
        tiles_m, tiles_n = divide_up(rows, self.tiles.rows), divide_up(columns, self.tiles.columns)
        self._place_tile(tiles_m, tiles_n)
        if product.batch:
            line(f"batch = tl.program_id(1).to({self.writer.index_type})")
            self.writer.decode("batch", product.batch)
        self._side("row", "tile_m * ROWS + tl.arange(0, ROWS)[:, None]", product.m, rows)
        right = (*product.outer, *product.n)
        self._side("column", "tile_n * COLUMNS + tl.arange(0, COLUMNS)[None, :]", right, columns)
        held = type_text(product.reduction.dtype)
        line(f"total = tl.zeros([ROWS, COLUMNS], {held})")
        self._multiply()
        self.writer.name_value(product.reduction, "total")
        for store in product.kernel.stores:
            self.writer.store(store)
        grid = (tiles_m * tiles_n, *([product.size(product.batch)] if product.batch else []))
        blocks = {
            "ROWS": self.tiles.rows,
            "COLUMNS": self.tiles.columns,
            "DEPTH": self.tiles.depth,
            "GROUPED": GROUPED_TILES,
        }
        tiles = self.tiles
        return self.writer.finish("product", grid, blocks, comment, tiles.warps, tiles.stages)

    def _place_tile(self, tiles_m: Dim, tiles_n: Dim) -> None:
        """Which tile this program computes."""
        line, kind = self.source.line, self.writer.index_type
        line("program = tl.program_id(0)")
        line(f"tiles_m, tiles_n = {self.writer.dim(tiles_m)}, {self.writer.dim(tiles_n)}")
        line("first = program // (GROUPED * tiles_n) * GROUPED")
        line("grouped = tl.minimum(tiles_m - first, GROUPED)")
        line("within = program % (GROUPED * tiles_n)")
        line(f"tile_m = (first + within % grouped).to({kind})")
        line(f"tile_n = (within // grouped).to({kind})")

    def _side(self, name: str, text: str, axes: tuple[Axis, ...], size: Dim) -> None:
        """The lanes along one side of the tile."""
        side = self.tiles.rows if name == "row" else self.tiles.columns
        self.source.line(f"{name} = {text}")
        if not (isinstance(size, int) and size % side == 0):
            self.source.line(f"{name}_inside = {name} < {self.writer.dim(size)}")
            symbols = frozenset(axis.symbol for axis in axes)
            self.writer.masks.append((symbols, f"{name}_inside"))
        self.writer.decode(name, axes)

    def _multiply(self) -> None:
        """The loop over k."""
        product = self.contraction
        depth = product.size(product.k)
        moving = frozenset(axis.symbol for axis in product.k)
        formulas = [self._operand(product.left), self._operand(product.right)]
        header = f"for start in range(0, {self.writer.dim(depth)}, DEPTH):"
        with self.writer.loop(header, moving, formulas):
            left = self._tile(formulas[0], "[None, :]", "[ROWS, DEPTH]", depth)
            right = self._tile(formulas[1], "[:, None]", "[DEPTH, COLUMNS]", depth)
            exact = ', input_precision="ieee"' if self.multiplied is f32 else ""
            kind = f", out_dtype={type_text(product.reduction.dtype)}"
            self.source.line(f"total = tl.dot({left}, {right}, total{exact}{kind})")

    def _operand(self, formula: Expr) -> Expr:
        """A formula in the dtype that is multiplied."""
        bare = _without_cast(formula)
        return bare if bare.dtype is self.multiplied else e.cast(formula, self.multiplied)

    def _tile(self, formula: Expr, lanes: str, shape: str, depth: Dim) -> str:
        """A tile of an operand; zeros beyond the last step of k."""
        writer, line = self.writer, self.source.line
        line(f"k = start + tl.arange(0, DEPTH){lanes}")
        axes = self.contraction.k
        symbols = frozenset[Symbol](axis.symbol for axis in axes)
        kept = [each for each in writer.masks if not each[0] & symbols]
        cut = not (isinstance(depth, int) and depth % self.tiles.depth == 0)
        writer.masks = list(kept)
        if cut:
            line(f"k_inside = k < {writer.dim(depth)}")
            writer.masks.append((symbols, "k_inside"))
        writer.scopes.append({})
        writer.decode("k", axes)
        value = writer.value(formula)
        writer.scopes.pop()
        writer.masks = kept
        if cut and not isinstance(formula, Load):
            value = f"tl.where(k_inside, {value}, 0)"
        name = writer.new_name("tile")
        kind = type_text(self.multiplied)
        line(f"{name} = tl.broadcast_to({value}, {shape}).to({kind})")
        return name
