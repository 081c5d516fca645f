"""Winograd convolution: 3×3 windows at stride 1 or 2 with fewer multiplications.

A tile of ``m × n`` results needs ``(m+2) × (n+2)`` elements of the input. Both they and the nine
weights are turned into as many numbers, the *planes*; their products, summed over the channels
plane by plane, are turned back into the ``m × n`` results:

    V[plane][tile][c] = Bᵀ d B        M[plane] = V[plane] × U[plane]        y = Aᵀ M A
    U[plane][c][o]    = G g Gᵀ        (matrix products, over tiles)

16 multiplications for 4 results instead of 36 with F(2×2), 24 for 8 instead of 72 with F(2×4), 36
for 16 instead of 144 with F(4×4), 25 for 4 at stride 2, where a tile needs 5² elements and some
planes of weights serve several others. Windows with gaps see every few rows and columns of the
input alone, and a tile is made of such. The weights' planes are made once, if the weights are
constant. The tiles of the result are visited in blocks, so that the planes of a block stay in a
core's own cache.

Bytes are transformed in 16 bits, and multiplied in pairs of channels, which an instruction adds up
in 32 bits; their planes are a buffer of their own, which is written as numbers and read as words.

What the transforms are, and their error, is told in ``kernel.winograd_transform``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from monograph.ir.dims import (
    Dim,
    Symbol,
    dim_max,
    dim_min,
    provably_at_least,
    provably_less,
)
from monograph.ir.types import DType, bool_, f32, i16, i32
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr
from monograph.kernel.kernel import Kernel, Store, write_kernel
from monograph.kernel.winograd_transform import TAPS, Line, Part, down_columns
from monograph.targets.cpu.convolutions.winograd_plan import (
    Convolution,
    WinogradPlan,
    tile_counts,
)
from monograph.targets.cpu.loops.nest import build_nest
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.loops.unroll import UNROLLED_STEPS, unroll
from monograph.targets.cpu.nests.loop_nest import (
    If,
    Let,
    Loop,
    LoopKind,
    LoopNest,
    Prefetch,
    Statement,
    Write,
)
from monograph.targets.cpu.products.in_words import pack_word

PADDING = 16
"""Words of 32 bits between planes, so that they do not all fall on the same lines of a cache."""


class Winograd:
    """The kernels of one convolution under a plan."""

    def __init__(self, convolution: Convolution, plan: WinogradPlan) -> None:
        self.convolution = convolution
        self.plan = plan
        self.transform = plan.transform
        c = convolution
        self.tile_rows, self.tile_columns = tile_counts(c, plan.transform)
        self.tiles: Dim = c.batch * self.tile_rows * self.tile_columns
        self.blocks: Dim = (self.tiles + plan.block - 1) // plan.block
        self.panels = -(-c.features // plan.columns)
        self.panel = e.axis("_i_panel", self.panels).symbol
        self.block = e.axis("_i_block", self.blocks).symbol
        self.group = e.axis("_i_group", c.groups).symbol
        self.n = e.axis("_i_n", c.batch).symbol
        self.y = e.axis("_i_y", self.tile_rows).symbol
        self.x = e.axis("_i_x", self.tile_columns).symbol
        self.number, self.sum = (i16, i32) if c.is_whole else (f32, f32)
        """The dtypes of transformed numbers, and of sums of their products."""
        self.together = c.together
        self.weights = Buffer("weights", self.sum, (self.weight_count(),))
        self.input_planes = Buffer("planes", self.number, (self.input_count(),))
        self.input_words = Buffer("planes", self.sum, (self.input_count() // self.together,))
        """The planes of the input as they are read to be multiplied."""
        products = plan.transform.planes * (plan.block * plan.columns + PADDING)
        self.products = Buffer("products", self.sum, (products,))

    # Sizes ----------------------------------------------------------------------------------------

    def weight_count(self) -> int:
        """Numbers in the planes of the weights."""
        c, plan = self.convolution, self.plan
        panels = c.groups * self.panels * self.transform.weight_planes
        return panels * (c.channels // self.together) * plan.columns

    def plane_stride(self, together: int = 1) -> Dim:
        """How far apart the planes of the input are, of so many channels ``together``."""
        tiles = self.tiles if self.plan.whole else self.plan.block
        if self.plan.whole:  # the last rows of registers may reach beyond the last tile
            tiles = tiles + self.plan.rows - 1
        c = self.convolution
        return tiles * (c.channels // together) + PADDING * c.together // together

    def input_count(self) -> Dim:
        """Numbers in the planes of the input: of one block, or of all of it."""
        groups = self.convolution.groups if self.plan.whole else 1
        return self.plane_stride() * self.transform.planes * groups

    def block_tiles(self) -> Dim:
        """Tiles in a block: the last one may have fewer."""
        size = self.plan.block
        if isinstance(self.tiles, int) and self.tiles % size == 0:
            return size
        return dim_min(size, self.tiles - self.block * size)

    # The weights' planes --------------------------------------------------------------------------

    def weight_kernel(self) -> Kernel:
        """``weights[group][panel][plane][c][column]``, zeros beyond the last output channel."""
        c, width = self.convolution, self.plan.columns
        channel, lane = e.axis("_i_c", c.channels // self.together), e.axis("_i_lane", width)
        axes = (e.axis("_i_group", c.groups), e.axis("_i_panel", self.panels), channel, lane)
        place = self.panel * width + lane.symbol
        exists = c.features % width == 0
        inside = place if exists else dim_min(place, c.features - 1)
        output = self.group * c.features + inside
        squares = [
            self.transform_weights(output, channel.symbol * self.together + number)
            for number in range(self.together)
        ]
        stores = []
        for (i, j), number in self.transform.weight_numbers.items():
            values = [square[i][j] for square in squares]
            value = pack_word(values) if c.is_whole else values[0]
            if not exists:
                value = e.select(_less(place, c.features), value, e.literal(0, self.sum))
            at = self.weight_offset(number, channel.symbol, lane.symbol)
            stores.append(Store(self.weights, (e.index(at),), value))
        return write_kernel(f"{c.name}_weights", axes, *stores, inputs=c.inputs)

    def transform_weights(self, output: Dim, channel: Dim) -> list[Line]:
        """The numbers that a window of the weights is turned into."""
        c, down, along = self.convolution, self.transform.down, self.transform.along
        taps = [
            [
                e.cast(
                    e.substitute(c.weight, _bindings(c.weight_at, (output, channel, row, column))),
                    self.sum,
                )
                for column in range(TAPS)
            ]
            for row in range(TAPS)
        ]
        return [along.of_weights(row) for row in down_columns(down.of_weights, taps)]

    def weight_offset(self, plane: Dim, channel: Dim, lane: Dim) -> Dim:
        """Where a plane of the weights has a number, or a word of several channels."""
        panel = self.group * self.panels + self.panel
        channels = self.convolution.channels // self.together
        row = (panel * self.transform.weight_planes + plane) * channels + channel
        return row * self.plan.columns + lane

    # Statements -----------------------------------------------------------------------------------

    def located(self, tile: Dim, body: tuple[Statement, ...]) -> Loop:
        """``body`` where the tile's place is known: its image, row and column."""
        per_image = self.tile_rows * self.tile_columns
        along_x = Loop(self.x, tile % self.tile_columns, 1, body)
        along_y = Loop(self.y, tile // self.tile_columns % self.tile_rows, 1, (along_x,))
        return Loop(self.n, tile // per_image, 1, (along_y,))

    def input_statements(self, tile: Dim, row: Dim) -> Loop:
        """Transform a tile of the input into row ``row`` of its planes."""
        c, down, along = self.convolution, self.transform.down, self.transform.along
        below, beside = c.dilation
        top = _first(self.y, down.step, below) - c.before[0]
        left = _first(self.x, along.step, beside) - c.before[1]
        bottom, right = top + (down.span - 1) * below, left + (along.span - 1) * beside

        def place(i: int, j: int) -> tuple[Dim, Dim]:
            return top + i * below, left + j * beside

        plain = self.transformed(row, lambda i, j: self.element(*place(i, j)))
        inside = _all((*self.readable(top, left), *self.readable(bottom, right)))
        if inside is None:
            return self.located(tile, (plain,))
        masked = self.transformed(row, lambda i, j: self.masked_element(*place(i, j)))
        border = e.apply("logical_not", inside, dtype=bool_)
        return self.located(tile, (If(inside, (plain,)), If(border, (masked,))))

    def readable(self, row: Dim, column: Dim) -> list[Expr]:
        """Conditions under which there is something in memory at a row and column."""
        c = self.convolution
        conditions: list[Expr] = []
        for place, size, zeros in (
            (row, c.size[0], c.border[0]),
            (column, c.size[1], c.border[1]),
        ):
            if not provably_at_least(place, -zeros):
                conditions.append(_at_least(place, -zeros))
            if not provably_less(place, size + zeros):
                conditions.append(_less(place, size + zeros))
        return conditions

    def transformed(self, row: Dim, element: Callable[[int, int], Expr]) -> Loop:
        """Transform the elements of a tile, channel by channel."""
        c, down, along = self.convolution, self.transform.down, self.transform.along
        lane = e.axis("_i_c", c.channels)
        square = [[element(i, j) for j in range(along.span)] for i in range(down.span)]
        body: list[Statement] = []
        for i, line in enumerate(down_columns(down.of_input, square)):
            named, lets = _name_values(f"t{i}", line, self.number)
            body += lets
            for j, value in enumerate(along.of_input(named)):
                at = self.plane_offset(self.transform.numbers[i, j], row, lane.symbol)
                body.append(Write(self.input_planes, e.index(at), value))
        lanes = self.plan.lanes * self.together
        return Loop(lane.symbol, 0, c.channels, tuple(body), LoopKind.VECTOR, lanes)

    def plane_offset(self, plane: Dim, row: Dim, channel: Dim, together: int = 1) -> Dim:
        """Where a plane of the input has a number, or a word of channels that lie ``together``."""
        planes = self.transform.planes
        first = self.group * planes + plane if self.plan.whole else plane
        width = self.convolution.channels // together
        return first * self.plane_stride(together) + row * width + channel

    def element(self, row: Dim, column: Dim) -> Expr:
        """The input at a row and column that it has."""
        c = self.convolution
        channel = self.group * c.channels + e.axis("_i_c", c.channels).symbol
        value = e.substitute(c.element, _bindings(c.at, (self.n, channel, row, column)))
        return e.cast(value, self.number)

    def masked_element(self, row: Dim, column: Dim) -> Expr:
        """The input where there is some, its padding around it."""
        c = self.convolution
        above, before = c.border
        inside_row = dim_max(-above, dim_min(row, c.size[0] + above - 1))
        inside_column = dim_max(-before, dim_min(column, c.size[1] + before - 1))
        value = self.element(inside_row, inside_column)
        condition = _all(self.readable(row, column))
        if condition is None:
            return value
        outside: Expr = e.literal(0, self.number)
        if c.padding is not None:
            outside = e.cast(c.padding, self.number)
        return e.select(condition, value, outside)

    def product_statements(self, first: Dim) -> tuple[Statement, ...]:
        """Multiply the planes of a block, from row ``first``, with a panel of the weights."""
        parts = self.transform.parts()
        return tuple(each for part in parts for each in self.part_statements(first, part))

    def part_statements(self, first: Dim, part: Part) -> tuple[Statement, ...]:
        """Multiply the planes of a part: each plane of its weights with all that it serves."""
        c, plan = self.convolution, self.plan
        weight, served = e.axis("_i_plane", part.count), e.axis("_i_served", part.copies)
        count = (self.block_tiles() + plan.rows - 1) // plan.rows
        row, lane = e.axis("_i_row", count), e.axis("_i_lane", plan.columns)
        depth = e.axis("_r0_0", c.channels // self.together)
        right = self.weight_offset(part.weight + weight.symbol, depth.symbol, lane.symbol)
        plane = part.first + weight.symbol * part.copies
        if part.copies > 1:
            plane = plane + served.symbol
        stores = []
        for copy in range(plan.rows):
            here = row.symbol * plan.rows + copy
            left = self.plane_offset(plane, first + here, depth.symbol, self.together)
            terms = (
                e.load(self.input_words, (e.index(left),)),
                e.load(self.weights, (e.index(right),)),
            )
            function = "multiply_pairs" if c.is_whole else "multiply"
            value = e.reduce("sum", (depth,), e.apply(function, *terms))
            at = self.product_offset(plane, here, lane.symbol)
            stores.append(Store(self.products, (e.index(at),), value))
        axes = (weight, row, lane) if part.copies == 1 else (weight, served, row, lane)
        order = tuple(axis.symbol for axis in axes)
        kernel = write_kernel("product", axes, *stores)
        schedule = Schedule(
            order,
            rows=len(axes),
            parallel=0,
            vector=(lane.symbol,),
            width=plan.columns,
            partial=self.transform.depth,
        )
        body = build_nest(kernel, schedule).body
        tile: Dim = row.symbol
        if part.copies > 1:
            tile = tile + served.symbol * (plan.block // plan.rows)
        asked = self.asked_ahead(part, part.weight + weight.symbol + 1, tile, depth, lane.symbol)
        once = asked if plan.prefetch else ()
        return tuple(found for each in body for found in _unroll(each, depth.symbol, once))

    def asked_ahead(
        self, part: Part, plane: Dim, tile: Dim, depth: Axis, lane: Dim
    ) -> tuple[Prefetch, ...]:
        """Ask for the next plane of the weights, some of it at every step of this one.

        The planes lie in the order in which they are visited, and each register tile that a plane
        is multiplied with asks for its share of the next. Spread over the steps like that, requests
        never wait for each other, and memory is read while the processor multiplies.
        """
        tiles = self.plan.block // self.plan.rows * part.copies
        share = -(-self.convolution.channels // self.together // tiles)
        slower = 1 << (tiles.bit_length() - 1)
        channel = tile * share + depth.symbol // slower
        return tuple(
            Prefetch(self.weights, e.index(self.weight_offset(plane, channel + copy, lane)), True)
            for copy in range(max(1, UNROLLED_STEPS // slower))
        )

    def product_offset(self, plane: Dim, row: Dim, lane: Dim) -> Dim:
        """Where the products of a plane have a number."""
        width = self.plan.columns
        return plane * (self.plan.block * width + PADDING) + row * width + lane

    def output_statements(self) -> tuple[Statement, ...]:
        """Transform the products of every tile in a block, and store what is made of them."""
        c, plan = self.convolution, self.plan
        tile = e.axis("_i_tile", self.block_tiles())
        lane = Symbol("_i_lane", 0, plan.columns - 1)
        left = c.features - self.panel * plan.columns
        extent = plan.columns if c.features % plan.columns == 0 else dim_min(plan.columns, left)
        down, along, numbers = self.transform.down, self.transform.along, self.transform.numbers
        square = [
            [self.product(numbers[i, j], tile.symbol, lane) for j in range(along.span)]
            for i in range(down.span)
        ]
        body: list[Statement] = []
        for i, line in enumerate(down_columns(down.of_products, square)):
            named, lets = _name_values(f"s{i}", line, self.sum)
            results, more = _name_values(f"y{i}", along.of_products(named), self.sum)
            body += [*lets, *more]
            for j, value in enumerate(results):
                body += self.pixel(i, j, lane, value)
        vector = Loop(lane, 0, extent, tuple(body), LoopKind.VECTOR, plan.lanes)
        place = self.block * plan.block + tile.symbol
        return (Loop(tile.symbol, 0, tile.extent, (self.located(place, (vector,)),)),)

    def product(self, plane: int, row: Dim, lane: Dim) -> Expr:
        """One of the products of a tile."""
        return e.load(self.products, (e.index(self.product_offset(plane, row, lane)),))

    def pixel(self, i: int, j: int, lane: Dim, value: Expr) -> tuple[Statement, ...]:
        """Store one result of a tile, if there is such a row and column."""
        c = self.convolution
        if self.transform.scale > 1:
            value = divide_exactly(value, self.transform.scale)
        rows, columns = self.transform.down.results, self.transform.along.results
        below, beside = c.dilation
        row = _first(self.y, rows, below) + i * below
        column = _first(self.x, columns, beside) + j * beside
        feature = self.group * c.features + self.panel * self.plan.columns + lane
        if c.bias is not None:
            bias = e.substitute(c.bias, {c.weight_at[0]: feature})
            value = e.apply("add", value, bias)
        bindings = _bindings(c.result_at, (self.n, feature, row, column))
        known = {c.result: e.cast(value, c.result.dtype), e.cast(c.result, self.sum): value}
        writes = tuple(
            Write(
                store.buffer,
                e.substitute(store.position[0], bindings),
                e.substitute(e.replace(store.value, known), bindings),
            )
            for store in c.stores
        )
        conditions = []
        if (i or below > 1) and not _is_multiple(c.result_size[0], rows * below):
            conditions.append(_less(row, c.result_size[0]))
        if (j or beside > 1) and not _is_multiple(c.result_size[1], columns * beside):
            conditions.append(_less(column, c.result_size[1]))
        condition = _all(conditions)
        return writes if condition is None else (If(condition, writes),)

    # Nests ----------------------------------------------------------------------------------------

    def input_nest(self, grain: int) -> LoopNest:
        """Transform the whole input: an iteration a tile and group."""
        c = self.convolution
        parallel = e.axis("_p", self.tiles * c.groups)
        tile = e.axis("_i_tile", self.tiles).symbol
        statement = self.input_statements(tile, tile)
        body = Loop(
            self.group,
            parallel.symbol // self.tiles,
            1,
            (Loop(tile, parallel.symbol % self.tiles, 1, (statement,)),),
        )
        return LoopNest(
            f"{c.name}_planes",
            c.reads((c.element,)),
            (self.input_planes,),
            (),
            c.sizes(),
            parallel.symbol,
            parallel.extent,
            grain,
            (body,),
        )

    def product_nest(self) -> LoopNest:
        """Multiply and transform back: an iteration a block and panel of output channels."""
        c = self.convolution
        parallel = e.axis("_p", c.groups * self.blocks * self.panels)
        rest = parallel.symbol // self.panels
        inner = (*self.product_statements(self.block * self.plan.block), *self.output_statements())
        body = Loop(
            self.group,
            rest // self.blocks,
            1,
            (
                Loop(
                    self.block,
                    rest % self.blocks,
                    1,
                    (Loop(self.panel, parallel.symbol % self.panels, 1, inner),),
                ),
            ),
        )
        return self.nest((self.input_words, self.weights), (self.products,), parallel, (body,))

    def fused_nest(self) -> LoopNest:
        """All of it: an iteration a block of tiles and group."""
        c = self.convolution
        parallel = e.axis("_p", c.groups * self.blocks)
        row = e.axis("_i_tile", self.block_tiles())
        tile = self.block * self.plan.block + row.symbol
        gathered = Loop(row.symbol, 0, row.extent, (self.input_statements(tile, row.symbol),))
        inner = (*self.product_statements(0), *self.output_statements())
        body = Loop(
            self.group,
            parallel.symbol // self.blocks,
            1,
            (
                Loop(
                    self.block,
                    parallel.symbol % self.blocks,
                    1,
                    (gathered, Loop(self.panel, 0, self.panels, inner)),
                ),
            ),
        )
        return self.nest((self.weights,), (self.input_planes, self.products), parallel, (body,))

    def nest(
        self,
        first: tuple[Buffer, ...],
        scratch: tuple[Buffer, ...],
        parallel: Axis,
        body: tuple[Statement, ...],
    ) -> LoopNest:
        c = self.convolution
        roots = [*c.stored(), *([] if c.bias is None else [c.bias])]
        if not self.plan.whole:
            roots.append(c.element)
        return LoopNest(
            c.name,
            (*first, *c.reads(tuple(roots))),
            c.outputs,
            scratch,
            c.sizes(),
            parallel.symbol,
            parallel.extent,
            1,
            body,
        )


def _first(tile: Dim, step: int, gap: int) -> Dim:
    """Where a tile begins, if neighbours in it are ``gap`` apart."""
    return tile // gap * (step * gap) + tile % gap


def _bindings(symbols: Sequence[Symbol | None], dims: Sequence[Dim]) -> Mapping[Symbol, Dim]:
    return {s: dim for s, dim in zip(symbols, dims, strict=True) if s is not None}


def _unroll(
    statement: Statement, symbol: Symbol, once: Sequence[Statement]
) -> tuple[Statement, ...]:
    """A statement with several steps in each round of its loops over a symbol."""
    if not isinstance(statement, Loop):
        return (statement,)
    if statement.symbol == symbol:
        return unroll(statement, once=once)
    body = tuple(found for each in statement.body for found in _unroll(each, symbol, once))
    return (replace(statement, body=body),)


def divide_exactly(value: Expr, divisor: int) -> Expr:
    """A multiple of ``divisor`` in 32 bits divided by it, though what is over 32 bits is lost.

    An odd number has an inverse among numbers of 32 bits, and multiplying by that divides.
    """
    power = (divisor & -divisor).bit_length() - 1
    inverse = pow(divisor >> power, -1, 1 << i32.bits)
    if inverse >= 1 << (i32.bits - 1):
        inverse -= 1 << i32.bits
    if inverse != 1:
        value = e.apply("multiply", value, e.literal(inverse, i32))
    return e.apply("shift_right", value, e.literal(power, i32))


def _name_values(prefix: str, line: Line, dtype: DType) -> tuple[list[Expr], list[Let]]:
    """Names for the values of a line, and the statements that give them."""
    names = [e.variable(f"{prefix}_{k}", dtype) for k in range(len(line))]
    return list(names), [Let(name, value) for name, value in zip(names, line, strict=True)]


def _less(a: Dim, b: Dim) -> Expr:
    return e.apply("less", e.index(a), e.index(b), dtype=bool_)


def _at_least(a: Dim, b: Dim) -> Expr:
    return e.apply("greater_equal", e.index(a), e.index(b), dtype=bool_)


def _all(conditions: Sequence[Expr]) -> Expr | None:
    """The conditions as one; None if there are none."""
    whole: Expr | None = None
    for each in conditions:
        whole = each if whole is None else e.apply("logical_and", whole, each, dtype=bool_)
    return whole


def _is_multiple(dim: Dim, size: int) -> bool:
    return dim % size == 0
