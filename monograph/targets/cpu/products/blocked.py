"""Blockwise-scaled integer products: 4-bit weights are unpacked in registers.

    parallel p < panels of columns:
      for tile < rows / ROWS:
        vector lane < columns:
          t0 … t3 = 0                                        # f32
          for b < blocks:
            s0 … s3 = 0                                      # i32, exact
            for j < words of a block:
              low, high = word & 0x0f0f0f0f, word >> 4 & 0x0f0f0f0f
              s0 += dot(low, left[row 0]); s0 += dot(high, left[row 0, next])      # each row so
            t0 += (s0 - point * sum of left[row 0]) * (scale * step[row 0])
          out = t0 … t3

An instruction multiplies four bytes and adds them to a sum (``Machine.byte_dot``). It takes weights
as unsigned numbers: signed ones are stored with an offset, which the zero point takes back, and a
zero point costs one sum of each block of activations, which all columns share.

    words[panel][block][j][lane]: the low halves of its bytes are k 8j … 8j + 3, the high ones the
    next four; words of bytes hold four.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.ir.dims import Dim, Symbol, dim_min, is_static, shape_product
from monograph.ir.graph import Node
from monograph.ir.types import DType, f32, i8, i32, u8
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Variable
from monograph.kernel.flatten import flatten
from monograph.kernel.kernel import Kernel, Store, write_kernel
from monograph.ops.blocked_linear import BlockedLinear
from monograph.targets.cpu.machine import DotInstruction, Machine
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    Let,
    Loop,
    LoopNest,
    Statement,
    Write,
)
from monograph.targets.cpu.plans.plan import Launchable
from monograph.targets.cpu.products.in_words import pack_word
from monograph.targets.cpu.products.tile_terms import in_lanes, less
from monograph.targets.plan import KernelPlan

if TYPE_CHECKING:
    from monograph.targets.cpu.assemble.program_builder import ProgramBuilder

LOW_HALVES = 0x0F0F0F0F
"""The low four bits of each byte of a word."""
BYTES_PER_WORD = 4
"""Bytes of a word."""
PANEL_VECTORS = 2
"""Vectors of columns in a panel: enough sums to hide the time that an instruction takes."""
MAX_TILE_ROWS = 4
"""Rows that share an unpacked word."""


@dataclass(frozen=True)
class BlockedProduct:
    """The sizes of a product, and how its operands are stored."""

    rows: Dim
    outputs: int
    blocks: int
    block: int
    weight: DType
    has_points: bool
    columns: int
    """Columns of a panel."""
    tile: int
    """Rows of a tile."""
    dot: DotInstruction
    task_multiplications: int
    """Multiplications that are worth handing to a thread."""

    @property
    def bits(self) -> int:
        """The width of a stored weight."""
        return self.weight.bits

    @property
    def words(self) -> int:
        """Words of a block of one column."""
        return self.block * self.bits // 32

    @property
    def panels(self) -> int:
        """How many panels hold all columns."""
        return -(-self.outputs // self.columns)

    @property
    def offset(self) -> int:
        """What is added to weights so that the instruction takes them."""
        if self.bits == 4:
            return 0 if self.weight.name.startswith("u") else 8
        return 0 if self.weight is self.dot.left else (128 if self.dot.left is u8 else -128)

    @property
    def needs_sums(self) -> bool:
        """Whether the sums of blocks of activations are read."""
        return self.has_points or self.offset != 0

    def __str__(self) -> str:
        tile = f"tile({self.tile} rows, {self.columns} columns) block({self.block} of k)"
        return f"{tile} unpack({self.weight} to bytes in registers)"


def plan_blocked_linear(machine: Machine, group: Group, node: Node) -> Launchable | None:
    """The plan of a blocked product; None where no instruction multiplies bytes."""
    dot = machine.small_byte_dot()
    if dot is None or node.operands[2].dtype.bits > widest_blocked_weights(machine):
        return None
    product = make_blocked_product(node, machine, dot)
    reason = "small integers are multiplied four to an instruction, and scaled once a block"
    return BlockedPlan(KernelPlan("blocked product", reason, product), group, node, product)


@dataclass(frozen=True)
class BlockedPlan(Launchable):
    """A node that is a blocked product, and its tiles."""

    group: Group
    node: Node
    product: BlockedProduct

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Pack, sum and multiply."""
        _launch(builder, self.group, self.node, self.product)


def widest_blocked_weights(machine: Machine) -> int:
    """Bits of the widest weights that it multiplies by an instruction."""
    if machine.byte_dot() is not None:
        return 8
    return 0 if machine.small_byte_dot() is None else 4


def make_blocked_product(node: Node, machine: Machine, dot: DotInstruction) -> BlockedProduct:
    """What a node multiplies, and in which tiles."""
    assert isinstance(node.op, BlockedLinear)
    x, _, weight, *rest = (value.tensor for value in node.operands)
    outputs, inputs = weight.static_shape()
    rows = shape_product(x.shape[:-1])
    fits = MAX_TILE_ROWS if machine.registers >= 32 else MAX_TILE_ROWS // 2
    tile = min(fits, max(1, rows)) if isinstance(rows, int) else fits
    columns = PANEL_VECTORS * machine.vector_bytes // 4
    blocks, has_points = inputs // node.op.block, len(rest) > 1
    sizes = (rows, outputs, blocks, node.op.block)
    task = machine.costs.product.task_multiplications
    return BlockedProduct(*sizes, weight.dtype, has_points, columns, tile, dot, task)


def _launch(builder: ProgramBuilder, group: Group, node: Node, product: BlockedProduct) -> None:
    """Pack the weights and their parameters, sum the activations, and multiply."""
    x, step, weight, scale, *point = (builder.slot(value) for value in node.operands)

    def packed(kernel: Kernel, *read: int) -> int:
        return builder.packed(group, flatten(kernel), read)

    slots = [x, step, packed(pack_words(product), weight), packed(pack_scales(product), scale)]
    if product.needs_sums:
        slots.append(packed(sum_activations(product), x))
    if product.has_points:
        slots.append(packed(pack_points(product), point[0]))
    nest = make_blocked_nest(f"{group.name}_blocked", product)
    built = builder.built_nest(group, nest, how=str(product))
    builder.launch_built(built, group, slots, [builder.slot(node.result)])


# What is made of the operands first --------------------------------------------------------------


def pack_words(product: BlockedProduct) -> Kernel:
    """The weights as words, in panels: ``[panel][block][j][lane]``."""
    size = (product.outputs * product.blocks * product.block,)
    weight = Buffer("weight", product.weight, size)
    space, column = _panel_axes(product, product.words)
    _, block, word, _ = space
    steps = 32 // product.bits
    first = block.symbol * product.block + word.symbol * steps
    row = dim_min(column, product.outputs - 1) * (product.blocks * product.block)

    def number(k: Dim) -> Expr:
        stored = e.cast(e.load(weight, (e.index(row + k),)), i32)
        offset = e.literal(product.offset, i32)
        return e.apply("add", stored, offset) if product.offset else stored

    numbers = [number(first + k) for k in range(steps)]
    if product.bits == 4:
        four = e.literal(4, i32)
        high = [e.apply("shift_left", each, four) for each in numbers[BYTES_PER_WORD:]]
        pairs = zip(numbers, high, strict=False)
        numbers = [e.apply("bitwise_or", low, above) for low, above in pairs]
    return _packing("words", space, weight, _or_zero(product, column, pack_word(numbers)))


def pack_scales(product: BlockedProduct) -> Kernel:
    """The scales in panels: ``[panel][block][lane]``."""
    return _pack_parameter(product, "scales", f32)


def pack_points(product: BlockedProduct) -> Kernel:
    """The zero points, of weights with their offset, as floats in panels."""
    return _pack_parameter(product, "points", product.weight)


def _pack_parameter(product: BlockedProduct, name: str, dtype: DType) -> Kernel:
    given = Buffer(f"given_{name}", dtype, (product.outputs * product.blocks,))
    (panel, block, _, lane), column = _panel_axes(product, 1)
    row = dim_min(column, product.outputs - 1) * product.blocks
    value = e.cast(e.load(given, (e.index(row + block.symbol),)), f32)
    if name == "points" and product.offset:
        value = e.apply("add", value, e.literal(float(product.offset), f32))
    return _packing(name, (panel, block, lane), given, _or_zero(product, column, value))


def sum_activations(product: BlockedProduct) -> Kernel:
    """The sum of each block of each row of the activations, as a float: it is exact."""
    size = shape_product((product.rows, product.blocks, product.block))
    x = Buffer("x", i8, (size,))
    row, block = e.axis("_i_row", product.rows), e.axis("_i_block", product.blocks)
    k = e.axis("_r0_0", product.block)
    place = (row.symbol * product.blocks + block.symbol) * product.block + k.symbol
    total = e.reduce("sum", (k,), e.cast(e.load(x, (e.index(place),)), i32))
    return _packing("sums", (row, block), x, e.cast(total, f32))


def _panel_axes(product: BlockedProduct, words: int) -> tuple[tuple[Axis, ...], Dim]:
    """Panel, block, word and lane, and the column that they speak of."""
    panel, block = e.axis("_i_panel", product.panels), e.axis("_i_block", product.blocks)
    word, lane = e.axis("_i_word", words), e.axis("_i_lane", product.columns)
    return (panel, block, word, lane), panel.symbol * product.columns + lane.symbol


def _or_zero(product: BlockedProduct, column: Dim, value: Expr) -> Expr:
    """The value, or zero in lanes beyond the last column."""
    if product.outputs % product.columns == 0:
        return value
    return e.select(less(column, product.outputs), value, e.literal(0, value.dtype))


def _packing(name: str, space: tuple[Axis, ...], read: Buffer, value: Expr) -> Kernel:
    buffer = Buffer(name, value.dtype, (shape_product(axis.extent for axis in space),))
    store = Store(buffer, (e.linear(space),), value)
    return write_kernel(f"blocked_{name}", space, store, inputs=(read,))


# The loops ---------------------------------------------------------------------------------------


def make_blocked_nest(name: str, product: BlockedProduct) -> LoopNest:
    """The loops of a blocked product, over packed operands."""
    return _NestBuilder(product).build(name)


class _NestBuilder:
    """Names the buffers and loop variables of one product."""

    def __init__(self, product: BlockedProduct) -> None:
        self.product = product
        rows, blocks = product.rows, product.blocks
        each = product.panels * blocks * product.columns
        steps = shape_product((rows, blocks))
        words = shape_product((rows, blocks * product.block // BYTES_PER_WORD))
        self.left = Buffer("left_words", i32, (words,))
        self.steps = Buffer("steps", f32, (steps,))
        self.words = Buffer("words", i32, (each * product.words,))
        self.scales = Buffer("scales", f32, (each,))
        self.sums = Buffer("sums", f32, (steps,)) if product.needs_sums else None
        self.points = Buffer("points", f32, (each,)) if product.has_points else None
        self.out = Buffer("out", f32, (shape_product((rows, product.outputs)),))
        self.panel = e.axis("_p", product.panels)
        self.block = e.axis("_i_block", blocks)
        width = product.outputs - self.panel.symbol * product.columns
        whole = product.outputs % product.columns == 0
        extent = product.columns if whole else dim_min(product.columns, width)
        self.lane = Axis(Symbol("_i_lane", 0, product.columns - 1), extent)
        self.names = 0

    def build(self, name: str) -> LoopNest:
        """Tiles of several rows, then the rows that are left."""
        product = self.product
        several = e.axis("_i_tile", product.rows // product.tile)
        rest = e.axis("_i_row", product.rows % product.tile)
        body: list[Statement] = []
        for axis, rows, first in (
            (several, product.tile, 0),
            (rest, 1, several.extent * product.tile),
        ):
            if axis.extent != 0:
                tile = self._tile(first + axis.symbol * rows, rows)
                lanes = in_lanes(self.lane, tile, product.columns)
                body.append(Loop(axis.symbol, 0, axis.extent, (lanes,)))
        inputs = (self.left, self.steps, self.words, self.scales, self.sums, self.points)
        sizes = () if isinstance(product.rows, int) else tuple(product.rows.symbols())
        work = product.blocks * product.block * product.columns
        grain = product.task_multiplications // work
        if is_static((product.rows,)):
            assert isinstance(product.rows, int)
            grain //= max(1, product.rows)
        return LoopNest(
            name,
            tuple(buffer for buffer in inputs if buffer is not None),
            (self.out,),
            (),
            tuple(sorted(sizes, key=lambda symbol: symbol.name)),
            self.panel.symbol,
            self.panel.extent,
            max(1, grain),
            tuple(body),
            padded=frozenset({"words", "scales", "points"}),
        )

    def _tile(self, first: Dim, rows: int) -> list[Statement]:
        """Statements that compute some rows of a panel's columns."""
        totals = [self._fresh(f32) for _ in range(rows)]
        lanes = self.lane.symbol
        column = self.panel.symbol * self.product.columns + lanes
        writes = [
            Write(self.out, e.index((first + row) * self.product.outputs + column), total)
            for row, total in enumerate(totals)
        ]
        body = Loop(self.block.symbol, 0, self.block.extent, tuple(self._block(first, totals)))
        return [*(Accumulator(each, "sum") for each in totals), body, *writes]

    def _block(self, first: Dim, totals: Sequence[Variable]) -> list[Statement]:
        """One block: its exact sums, then what they stand for."""
        product = self.product
        halves = 2 if product.bits == 4 else 1
        sums = [[self._fresh(i32) for _ in range(halves)] for _ in totals]
        statements: list[Statement] = [Accumulator(part, "sum") for parts in sums for part in parts]
        statements += self._words(first, sums)
        panel = self.panel.symbol * product.blocks + self.block.symbol
        place = e.index(panel * product.columns + self.lane.symbol)
        scale = self._fresh(f32)
        statements.append(Let(scale, e.load(self.scales, (place,))))
        for row, (total, parts) in enumerate(zip(totals, sums, strict=True)):
            at = e.index((first + row) * product.blocks + self.block.symbol)
            whole: Expr = parts[0] if halves == 1 else e.apply("add", *parts)
            value = e.cast(whole, f32)
            if self.sums is not None:
                point: Expr = e.literal(float(product.offset), f32)
                if self.points is not None:
                    point = e.load(self.points, (place,))
                moved = e.apply("multiply", point, e.load(self.sums, (at,)))
                value = e.apply("subtract", value, moved)
            factor = e.apply("multiply", scale, e.load(self.steps, (at,)))
            statements.append(Combine(total, "sum", e.apply("multiply", value, factor), e.index(0)))
        return statements

    def _words(self, first: Dim, sums: Sequence[Sequence[Variable]]) -> list[Statement]:
        """The words of a block, some in each round of a loop."""
        together = next(size for size in (8, 4, 2, 1) if self.product.words % size == 0)
        turn = e.axis("_i_turn", self.product.words // together)
        start = turn.symbol * together
        body = [each for word in range(together) for each in self._word(first, start + word, sums)]
        return [Loop(turn.symbol, 0, turn.extent, tuple(body))]

    def _word(self, first: Dim, number: Dim, sums: Sequence[Sequence[Variable]]) -> list[Statement]:
        """One word of each column, multiplied with the activations of every row."""
        product = self.product
        panel = self.panel.symbol * product.blocks + self.block.symbol
        place = (panel * product.words + number) * product.columns + self.lane.symbol
        word = self._fresh(i32)
        statements: list[Statement] = [Let(word, e.load(self.words, (e.index(place),)))]
        parts: list[Expr] = [word]
        if product.bits == 4:
            mask, four = e.literal(LOW_HALVES, i32), e.literal(4, i32)
            halves = (word, e.apply("shift_right", word, four))
            parts = [self._fresh(i32) for _ in halves]
            for name, half in zip(parts, halves, strict=True):
                assert isinstance(name, Variable)
                statements.append(Let(name, e.apply("bitwise_and", half, mask)))
        per_row = product.blocks * product.block // BYTES_PER_WORD
        start = self.block.symbol * (product.block // BYTES_PER_WORD) + number * len(parts)
        for row, variables in enumerate(sums):
            for which, (variable, part) in enumerate(zip(variables, parts, strict=True)):
                at = e.index((first + row) * per_row + start + which)
                dot = e.apply(product.dot.function, part, e.load(self.left, (at,)))
                statements.append(Combine(variable, "sum", dot, e.index(0)))
        return statements

    def _fresh(self, dtype: DType) -> Variable:
        self.names += 1
        return e.variable(f"v{self.names - 1}", dtype)
