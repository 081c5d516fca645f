"""Persistent matrix products: one program per multiprocessor, each computing many tiles.

    for program in range(program_id, tiles, PROGRAMS):
        total = sum of left_tiles[…] @ right_tiles[…]      read by the copy engine (TMA)
        result_tiles[…] = epilogue(total)                  while the next tile's operands are read

Tiles are read and written through tensor descriptors: the chip computes addresses, and what lies
outside is read as zero and not written. A tile is stored in two halves of its columns, so that the
epilogue needs half of the registers. Descriptors take memory that the runtime gives (Triton's
global scratch, 128 bytes for each descriptor of a program).
"""

from __future__ import annotations

from monograph.ir.dims import Dim, likely_size
from monograph.kernel.contraction import Contraction
from monograph.kernel.expr import Axis, Expr, Index, Load
from monograph.kernel.kernel import Store
from monograph.targets.gpu.plan import divide_up
from monograph.targets.gpu.product_writer import ProductWriter, narrow_operand
from monograph.targets.gpu.scalars import type_text
from monograph.targets.gpu.source import TritonKernel

ALIGNMENT = 16
"""Bytes that the steps between rows are multiples of."""


def is_described(contraction: Contraction, left: Expr, right: Expr) -> bool:
    """Whether descriptors can read both operands of a product, and write its results."""
    if contraction.batch or contraction.outer:
        return False
    if not len(contraction.m) == len(contraction.n) == len(contraction.k) == 1:
        return False
    (row,), (column,), (k,) = contraction.m, contraction.n, contraction.k
    if not all(isinstance(axis.extent, int) for axis in (row, column, k)):
        return False
    operands = describe_matrix(left, row, k), describe_matrix(right, k, column)
    stores = [is_described_store(each, row, column) for each in contraction.kernel.stores]
    return None not in operands and all(stores)


def describe_matrix(operand: Expr, row: Axis, column: Axis) -> tuple[int, bool] | None:
    """How many elements apart lines of a matrix in memory are, and whether these are its columns.

    None if it is not one that the copy engine can read.
    """
    if not isinstance(operand, Load) or not isinstance(operand.operands[0], Index):
        return None
    place = operand.operands[0].dim
    for across, along, is_transposed in ((row, column, False), (column, row, True)):
        step = _line_step(place, across, along, operand.dtype.bits // 8)
        if step is not None:
            return step, is_transposed
    return None


def is_described_store(store: Store, row: Axis, column: Axis) -> bool:
    """Whether the copy engine can write the results."""
    (place,) = store.position
    if store.guard is not None or not isinstance(place, Index):
        return False
    width = store.value.dtype.bits // 8
    return width > 1 and _line_step(place.dim, row, column, width) is not None


def _line_step(place: Dim, across: Axis, along: Axis, width: int) -> int | None:
    """The step between lines, if a position is ``step * across + along``, aligned."""
    assert isinstance(along.extent, int)
    step = along.extent
    if step * width % ALIGNMENT or place != across.symbol * step + along.symbol:
        return None
    return step


class PersistentWriter(ProductWriter):
    """Writes a product whose programs stay and compute many tiles (``persistent``)."""

    def write(self, comment: tuple[str, ...]) -> TritonKernel:
        product, line, dim = self.contraction, self.source.line, self.writer.dim
        (row,), (column,), (k,) = product.m, product.n, product.k
        left, right = (narrow_operand(x, self.multiplied) for x in (product.left, product.right))
        self._describe("left_tiles", left, row, k, "ROWS", "DEPTH")
        self._describe("right_tiles", right, k, column, "DEPTH", "COLUMNS")
        for store in product.kernel.stores:
            self._describe_result(store.buffer.name, row, column)
        tiles_m, tiles_n = divide_up(row.extent, self.rows), divide_up(column.extent, self.columns)
        count = likely_size(tiles_m * tiles_n)
        programs = self.configuration.blocks["PROGRAMS"]
        header = f"for program in tl.range(tl.program_id(0), {count}, PROGRAMS, flatten=True):"
        with self.source.loop(header):
            self._place_tile(tiles_m, tiles_n)
            line(f"total = tl.zeros([ROWS, COLUMNS], {type_text(product.reduction.dtype)})")
            with self.source.loop(f"for start in range(0, {dim(k.extent)}, DEPTH):"):
                one = self._read("left_tiles", left, (row, k), ("tile_m * ROWS", "start"))
                other = self._read("right_tiles", right, (k, column), ("start", "tile_n * COLUMNS"))
                line(f"total = tl.dot({one}, {other}, total)")
            self._side("row", "tile_m * ROWS + tl.arange(0, ROWS)[:, None]", (row,), self.rows)
            line("halves = tl.permute(tl.reshape(total, [ROWS, 2, COLUMNS // 2]), [0, 2, 1])")
            line("half0, half1 = tl.split(halves)")
            for number in range(2):
                self._store_half(number, column)
        return self.writer.finish(
            "persistent", (min(programs, count),), self.configuration, comment
        )

    def _describe(
        self, name: str, operand: Expr, row: Axis, column: Axis, rows: str, columns: str
    ) -> None:
        """A descriptor of an operand as it lies in memory."""
        found = describe_matrix(operand, row, column)
        assert found is not None and isinstance(operand, Load)
        step, is_transposed = found
        shape, block = [row.extent, column.extent], [rows, columns]
        if is_transposed:
            shape, block = shape[::-1], block[::-1]
        self._make_descriptor(name, operand.buffer.name, shape, step, block)

    def _describe_result(self, buffer: str, row: Axis, column: Axis) -> None:
        shape = [row.extent, column.extent]
        block = ["ROWS", "COLUMNS // 2"]
        self._make_descriptor(f"{buffer}_tiles", buffer, shape, likely_size(column.extent), block)

    def _make_descriptor(
        self, name: str, buffer: str, shape: list[Dim], step: int, block: list[str]
    ) -> None:
        sizes = ", ".join(map(self.writer.dim, shape))
        strides = f"strides=[{step}, 1]"
        text = f"{buffer}, shape=[{sizes}], {strides}, block_shape=[{', '.join(block)}]"
        self.source.line(f"{name} = tl.make_tensor_descriptor({text})")

    def _read(
        self, name: str, operand: Expr, axes: tuple[Axis, Axis], place: tuple[str, str]
    ) -> str:
        """A tile of an operand; one that lies in memory by columns is turned."""
        found = describe_matrix(operand, *axes)
        assert found is not None
        first, second = reversed(place) if found[1] else place
        return f"{name}.load([{first}, {second}])" + (".T" if found[1] else "")

    def _store_half(self, number: int, column: Axis) -> None:
        """The epilogue of half of a tile's columns."""
        writer, half = self.writer, self.columns // 2
        start = "tile_n * COLUMNS" + (" + COLUMNS // 2" if number else "")
        writer.scopes.append({})
        kept = list(writer.masks)
        lanes = f"{start} + tl.arange(0, COLUMNS // 2)[None, :]"
        self._side("column", lanes, (column,), half)
        writer.name_value(self.contraction.reduction, f"half{number}")
        for store in self.contraction.kernel.stores:
            value = writer.value(store.value)
            kind = type_text(store.value.dtype)
            place = f"[tile_m * ROWS, {start}]"
            self.source.line(f"{store.buffer.name}_tiles.store({place}, ({value}).to({kind}))")
        writer.masks = kept
        writer.scopes.pop()
