"""Products of floats with weights of few bits: a group's scale multiplies its sum, not each weight.

    sum(k: x[m, k] * ((q[n, k] - point[n, k / 32]) * scale[n, k / 32]))

    parallel p < panels of columns:
      for tile < rows / ROWS:
        vector lane < columns:
          t0 … t3 = 0
          for g < groups:
            s0 … s3 = 0
            for j < words of a group:
              w = float(word >> 0 & 15); s0 += w * x[row 0]; …       # eight of these to a word
            t0 += (s0 - point * sum of x[row 0]) * scale
          out = epilogue(t0 … t3)

Generating a token reads every weight once and does little else. Undoing the scale and the zero
point of each weight costs more instructions than unpacking it; of a group's sum, it costs next to
nothing. A zero point takes the sum of each group of activations, which all columns share.

    words[panel][group][j][lane]: k 8j … 8j + 7 of a column, or 4j … 4j + 3 of eight bits each
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.ir.dims import Dim, Symbol, dim_min, likely_size, shape_product
from monograph.ir.types import DType, Kind, dtype_of, f32, holds_integers_of, i8, i32, u8
from monograph.kernel import expr as e
from monograph.kernel.contraction import (
    Contraction,
    as_contraction,
    ceiling,
    decode_position,
    flat_position,
)
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Variable
from monograph.kernel.flatten import flatten
from monograph.kernel.integer_range import fits
from monograph.kernel.kernel import Kernel, Store, write_kernel
from monograph.kernel.shortening import with_short_formulas
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    Let,
    Loop,
    LoopNest,
    Statement,
    Write,
)
from monograph.targets.cpu.nests.walk import loads_in
from monograph.targets.cpu.plans.plan import KernelRequest, Launchable
from monograph.targets.cpu.products.contract import find_weights
from monograph.targets.cpu.products.in_words import pack_word
from monograph.targets.cpu.products.packing import row_stride, rows_of
from monograph.targets.cpu.products.readings import Weights, choose_left
from monograph.targets.cpu.products.tile_terms import in_lanes, less, sum_pairwise
from monograph.targets.cpu.products.tiles import Reading, Segment, exact_segments
from monograph.targets.cpu.products.tiling import is_worth_tiling
from monograph.targets.plan import KernelPlan, Refusal

if TYPE_CHECKING:
    from monograph.targets.cpu.assemble.program_builder import ProgramBuilder

WORD_BITS = 32
BYTES_PER_WORD = 4
MIN_GROUP_STEPS = 16
"""Steps of k from which undoing a scale once a group pays."""
MAX_GROUP_STEPS = 256
"""Steps of k that are summed in registers at a time, where one scale holds for longer."""
PANEL_VECTORS = 4
"""Vectors of columns in a panel."""


@dataclass(frozen=True)
class ScaledGroups:
    """A contraction over (group, step), and what its weights are made of.

        right = (number - point) * scale + shift

    Any of the last three may be missing, and none depends on the step.
    """

    contraction: Contraction
    number: Expr
    point: Expr | None
    scale: Expr | None
    shift: Expr | None

    @property
    def is_signed(self) -> bool:
        """Whether a number's highest bit is its sign."""
        return self.number.dtype.kind is Kind.SIGNED

    @property
    def bits(self) -> int:
        """Bits of a number in a word: as few as hold it, of which a group fills whole words."""
        kind = "i" if self.is_signed else "u"
        held = (bits for bits in (2, 4) if fits(self.number, dtype_of(f"{kind}{bits}")))
        return next((bits for bits in held if self.steps % (WORD_BITS // bits) == 0), 8)

    @property
    def groups(self) -> int:
        """How many groups k has."""
        return likely_size(self.contraction.k[0].extent)

    @property
    def steps(self) -> int:
        """Steps of k in a group."""
        return likely_size(self.contraction.k[1].extent)

    @property
    def steps_per_word(self) -> int:
        """Steps of k in a word."""
        return WORD_BITS // self.bits


def as_scaled_groups(contraction: Contraction) -> ScaledGroups | None:
    """The contraction by groups of k, if its right operand is integers with factors for groups."""
    if len(contraction.k) != 1 or contraction.batch or contraction.outer:
        return None
    if contraction.summed is not f32 or contraction.left.dtype is not f32:
        return None
    (axis,) = contraction.k
    if not isinstance(axis.extent, int):
        return None
    shared = contraction.weights.group
    size = shared or _longest_group(axis.extent)
    if size is None or axis.extent % size or size % BYTES_PER_WORD:
        return None
    outer = e.axis(f"{axis.symbol.name}o", axis.extent // size)
    inner = e.axis(f"{axis.symbol.name}i", size)
    bindings: dict[Symbol, Dim] = {axis.symbol: outer.symbol * size + inner.symbol}
    sides = tuple(e.substitute(x, bindings) for x in (contraction.left, contraction.right))
    body = contraction.reduction.body.rebuilt(sides)
    found = _undo_factors(contraction.summing((outer, inner), body), inner.symbol)
    if found is None or (shared is None and found.bits == 8):
        return None  # bytes with one scale for all of k are as quickly read one by one
    return found


def _longest_group(extent: int) -> int | None:
    """The most steps of a group that fills words, where one scale holds for all of k."""
    sizes = range(MAX_GROUP_STEPS, MIN_GROUP_STEPS - 1, -MIN_GROUP_STEPS)
    return next((size for size in sizes if extent % size == 0), None)


def _undo_factors(contraction: Contraction, step: Symbol) -> ScaledGroups | None:
    """What the right operand is made of, from the outside inwards."""
    part = contraction.right
    point = scale = shift = None
    part, shift = _split("add", part, step)
    part, scale = _split("multiply", part, step)
    part, point = _split("subtract", part, step)
    if not isinstance(part, Apply) or part.function != "cast":
        return None
    number = _unwiden(part)
    if not number.dtype.is_integer or number.dtype.bits > 8:
        return None
    return ScaledGroups(contraction, number, point, scale, shift)


def _split(function: str, formula: Expr, step: Symbol) -> tuple[Expr, Expr | None]:
    """The operand that changes with every step, and the other one, which does not."""
    if not isinstance(formula, Apply) or formula.function != function:
        return formula, None
    changing, other = formula.operands
    if function != "subtract" and step not in changing.symbols:
        changing, other = other, changing
    return (formula, None) if step in other.symbols else (changing, other)


# The plan ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupTiling:
    """The tiles of a product by groups."""

    segments: tuple[Segment, ...]
    """The tiles of all rows."""
    columns: int
    """Columns of a panel."""
    turns: int
    """Sums of each result that steps are added to by turns."""
    is_packed: bool
    """Whether the left operand is stored in rows first."""
    bits: int
    task_multiplications: int
    """Multiplications that are worth handing to a thread."""

    def __str__(self) -> str:
        heights = " and ".join(str(each.rows) for each in self.segments)
        return f"tile({heights} rows, {self.columns} columns) unpack({self.bits} bits to floats)"


def plan_scaled_groups(builder: ProgramBuilder, request: KernelRequest) -> Launchable | Refusal:
    """A product of few rows with weights of few bits."""
    flat = request.flat
    contraction = as_contraction(with_short_formulas(flat))
    groups = None if contraction is None else as_scaled_groups(contraction)
    if contraction is None or groups is None:
        return Refusal("its weights are no integers with factors for groups of k")
    slots = {b.name: slot for b, slot in zip(flat.inputs, request.read, strict=True)}
    if find_weights(builder, contraction, slots) is not Weights.RIGHT:
        return Refusal("its right operand is not known when it is loaded")
    if not is_worth_tiling(contraction, Weights.RIGHT, builder.machine):
        return Refusal("there is too little to multiply for tiles to pay")
    most = builder.machine.costs.product.max_in_place_rows
    if likely_size(contraction.size(contraction.m)) > most:
        return Refusal("it has so many rows that weights are unpacked once for all")
    tiling = choose_group_tiling(groups, builder.machine)
    reason = "few rows read weights of few bits, and scales hold for groups of k"
    plan = KernelPlan("scaled groups", reason, tiling)
    names = tuple(buffer.name for buffer in flat.inputs)
    return ScaledGroupsPlan(plan, request.group, names, groups, tiling)


def choose_group_tiling(groups: ScaledGroups, machine: Machine) -> GroupTiling:
    """Tiles whose sums fill half of the registers: unpacking takes some of the others."""
    contraction = groups.contraction
    rows, columns = contraction.size(contraction.m), contraction.size(contraction.n)
    lanes, room = machine.vector_bytes // 4, machine.registers // 2
    vectors = PANEL_VECTORS
    while vectors > 1 and vectors * lanes >= 2 * likely_size(columns):
        vectors //= 2
    most = max(1, room // vectors)
    height = min(most, rows) if isinstance(rows, int) else most
    segments = exact_segments(rows, height)
    turns = max(1, min(2, machine.costs.fma_latency_vectors // (vectors * height)))
    is_packed = choose_left(contraction, machine) is not Reading.IN_PLACE
    task = machine.costs.product.task_multiplications
    return GroupTiling(segments, vectors * lanes, turns, is_packed, groups.bits, task)


@dataclass(frozen=True)
class ScaledGroupsPlan(Launchable):
    """A product by groups, and its tiles."""

    group: Group
    names: tuple[str, ...]
    """What the kernel reads."""
    groups: ScaledGroups
    tiling: GroupTiling

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Pack the weights when the program is loaded, sum the activations, and multiply."""
        slots = dict(zip(self.names, read, strict=True))

        def packed(kernel: Kernel) -> Buffer:
            (buffer,) = kernel.outputs
            read = tuple(slots[each.name] for each in kernel.inputs)
            slots[buffer.name] = builder.packed(self.group, flatten(kernel), read)
            return buffer

        maker = _Operands(self.groups, self.tiling)
        left = packed(rows_of(self.groups.contraction)) if self.tiling.is_packed else None
        buffers = {name: packed(kernel) for name, kernel in maker.packings(left)}
        nest = _NestBuilder(maker, buffers, left).build()
        built = builder.built_nest(self.group, nest, how=str(self.tiling))
        read = [slots[each.name] for each in nest.inputs]
        builder.launch_built(built, self.group, read, written)


# Operands ----------------------------------------------------------------------------------------

FACTORS = ("point", "scale", "shift")
"""What weights of a group share."""


@dataclass(frozen=True)
class _Operands:
    """How operands are stored before they are multiplied."""

    groups: ScaledGroups
    tiling: GroupTiling

    @property
    def contraction(self) -> Contraction:
        return self.groups.contraction

    @property
    def panels(self) -> Dim:
        """How many panels hold all columns."""
        return ceiling(self.contraction.size(self.contraction.n), self.tiling.columns)

    @property
    def words(self) -> int:
        """Words of a group of one column."""
        return self.groups.steps // self.groups.steps_per_word

    @property
    def needs_sums(self) -> bool:
        """Whether the sums of groups of activations are read."""
        return self.groups.point is not None or self.groups.shift is not None

    def packings(self, left: Buffer | None) -> list[tuple[str, Kernel]]:
        """What stores each operand."""
        found = [("words", self.pack_words())]
        found += [
            (name, self.pack_factor(name, formula))
            for name in FACTORS
            if (formula := getattr(self.groups, name)) is not None
        ]
        return [*found, ("sums", self.sum_activations(left))] if self.needs_sums else found

    def pack_words(self) -> Kernel:
        """The weights as words, in panels: ``[panel][group][word][lane]``."""
        groups, (outer, inner) = self.groups, self.contraction.k
        word = e.axis("_i_word", self.words)
        panel, group, lane = self._axes()
        numbers = []
        for number in range(groups.steps_per_word):
            step = word.symbol * groups.steps_per_word + number
            at = {outer.symbol: group.symbol, inner.symbol: step}
            numbers.append(e.cast(e.substitute(groups.number, at), i32))
        return self._pack("words", (panel, group, word, lane), pack_word(numbers))

    def pack_factor(self, name: str, formula: Expr) -> Kernel:
        """What a group's weights share, in panels: ``[panel][group][lane]``."""
        outer, _ = self.contraction.k
        panel, group, lane = self._axes()
        value = e.substitute(_narrow(formula), {outer.symbol: group.symbol})
        return self._pack(f"{name}s", (panel, group, lane), value)

    def sum_activations(self, left: Buffer | None) -> Kernel:
        """The sum of each group of each row of the activations."""
        contraction, (outer, inner) = self.contraction, self.contraction.k
        row = e.axis("_i_row", contraction.size(contraction.m))
        group = e.axis("_i_group", outer.extent)
        at: dict[Symbol, Dim] = {outer.symbol: group.symbol}
        value = e.substitute(self.load_left(row.symbol, left), at)
        return _store("sums", contraction, (row, group), e.reduce("sum", (inner,), value), left)

    def load_left(self, row: Dim, left: Buffer | None) -> Expr:
        """An element of the left operand in a row, at the axes of k."""
        contraction = self.contraction
        if left is None:
            return decode_position(contraction.left, contraction.m, row)
        stride = row_stride(contraction.size(contraction.k))
        return e.load(left, (e.index(row * stride + flat_position(contraction.k)),))

    def _axes(self) -> tuple[Axis, Axis, Axis]:
        """Panel, group and lane."""
        groups, columns = self.groups.groups, self.tiling.columns
        sizes = {"_i_panel": self.panels, "_i_group": groups, "_i_lane": columns}
        panel, group, lane = (e.axis(name, size) for name, size in sizes.items())
        return panel, group, lane

    def _pack(self, name: str, space: tuple[Axis, ...], value: Expr) -> Kernel:
        """Store a formula of each column; zero in lanes beyond the last one."""
        contraction, columns = self.contraction, self.tiling.columns
        size = contraction.size(contraction.n)
        column = space[0].symbol * columns + space[-1].symbol
        whole = isinstance(size, int) and size % columns == 0
        inside = column if whole else dim_min(column, size - 1)
        value = decode_position(value, contraction.n, inside)
        if not whole:
            value = e.select(less(column, size), value, e.literal(0, value.dtype))
        return _store(name, contraction, space, value)


def _narrow(formula: Expr) -> Expr:
    """What a factor is a cast of, if that takes fewer bytes; bytes, where it takes less than one.

    It is cast again as it is read.
    """
    source = _unwiden(formula)
    if source.dtype.is_integer and source.dtype.bits < 8:
        return e.cast(source, i8 if source.dtype.kind is Kind.SIGNED else u8)
    return source


def _unwiden(formula: Expr) -> Expr:
    """The narrowest number that a formula is a cast of, exactly."""
    part = found = formula
    while isinstance(part, Apply) and part.function == "cast":
        (source,) = part.operands
        is_integer = source.dtype.is_integer
        if is_integer and part.dtype.is_integer and not holds_integers_of(part.dtype, source.dtype):
            break
        if not is_integer and source.dtype.bits >= part.dtype.bits:
            break
        part = source
        if part.dtype.bits < found.dtype.bits:
            found = part
    return found


def _store(
    name: str,
    contraction: Contraction,
    space: tuple[Axis, ...],
    value: Expr,
    left: Buffer | None = None,
) -> Kernel:
    """Store a formula in the order of these axes."""
    buffer = Buffer(name, value.dtype, (shape_product(axis.extent for axis in space),))
    given = contraction.kernel.inputs if left is None else (*contraction.kernel.inputs, left)
    store = Store(buffer, (e.index(flat_position(space)),), value)
    return write_kernel(f"{contraction.kernel.name}_{name}", space, store, inputs=given)


# The loops ---------------------------------------------------------------------------------------


class _NestBuilder:
    """Names the loop variables of one product."""

    def __init__(
        self, operands: _Operands, buffers: Mapping[str, Buffer], left: Buffer | None
    ) -> None:
        self.operands, self.buffers, self.left = operands, buffers, left
        self.groups, self.tiling = operands.groups, operands.tiling
        self.contraction = operands.contraction
        self.outer, self.inner = self.contraction.k
        columns, size = self.tiling.columns, self.contraction.size(self.contraction.n)
        self.panel = e.axis("_p", operands.panels)
        whole = isinstance(size, int) and size % columns == 0
        extent = columns if whole else dim_min(columns, size - self.panel.symbol * columns)
        self.lane = Axis(Symbol("_i_lane", 0, columns - 1), extent)
        self.column = self.panel.symbol * columns + self.lane.symbol
        self.names = 0

    def build(self) -> LoopNest:
        """The tiles of each panel."""
        contraction, tiling = self.contraction, self.tiling
        body: list[Statement] = []
        for number, each in enumerate(tiling.segments):
            if each.count == 0:
                continue
            tile = e.axis(f"_i_tile{number}", each.count)
            lanes = in_lanes(
                self.lane,
                self._tile(each.start + tile.symbol * each.rows, each.rows),
                tiling.columns,
            )
            body.append(Loop(tile.symbol, 0, tile.extent, (lanes,)))
        packed = tuple(self.buffers.values())
        kernel = contraction.kernel
        read = {load.buffer.name for load in loads_in(body)}
        given = kernel.inputs if self.left is None else (*kernel.inputs, self.left)
        rows = likely_size(contraction.size(contraction.m))
        work = likely_size(contraction.size(contraction.k)) * tiling.columns * max(1, rows)
        return LoopNest(
            kernel.name,
            (*packed, *(each for each in given if each.name in read)),
            kernel.outputs,
            (),
            kernel.sizes,
            self.panel.symbol,
            self.panel.extent,
            max(1, tiling.task_multiplications // work),
            tuple(body),
            padded=frozenset(each.name for name, each in self.buffers.items() if name != "sums"),
        )

    def _tile(self, first: Dim, rows: int) -> list[Statement]:
        """Statements that compute some rows of a panel's columns."""
        contraction = self.contraction
        totals = [self._fresh(f32) for _ in range(rows)]
        body = Loop(self.outer.symbol, 0, self.outer.extent, tuple(self._group(first, totals)))
        statements: list[Statement] = [Accumulator(each, "sum") for each in totals]
        statements.append(body)
        for row, total in enumerate(totals):
            known: Mapping[Expr, Expr] = {contraction.reduction: total}
            for store in contraction.kernel.stores:
                value = self._place(e.replace(store.value, known), first + row)
                place = self._place(store.position[0], first + row)
                statements.append(Write(store.buffer, place, value))
        return statements

    def _place(self, formula: Expr, row: Dim) -> Expr:
        contraction = self.contraction
        placed = decode_position(formula, contraction.m, row)
        return decode_position(placed, contraction.n, self.column)

    def _group(self, first: Dim, totals: Sequence[Variable]) -> list[Statement]:
        """One group: its sums, then what they stand for."""
        sums = [[self._fresh(f32) for _ in range(self.tiling.turns)] for _ in totals]
        statements: list[Statement] = [Accumulator(part, "sum") for parts in sums for part in parts]
        word = e.axis("_i_word", self.operands.words)
        body = tuple(self._word(word.symbol, first, sums))
        statements.append(Loop(word.symbol, 0, word.extent, body))
        factors = {name: self._factor(name, statements) for name in FACTORS}
        point, scale, shift = (factors[name] for name in FACTORS)
        for row, (total, parts) in enumerate(zip(totals, sums, strict=True)):
            value = sum_pairwise(parts)
            if point is not None:
                moved = e.apply("multiply", point, self._sum_of_left(first + row))
                value = e.apply("subtract", value, moved)
            if scale is not None:
                value = e.apply("multiply", value, scale)
            statements.append(Combine(total, "sum", value, e.index(0)))
            if shift is not None:
                moved = e.apply("multiply", shift, self._sum_of_left(first + row))
                statements.append(Combine(total, "sum", moved, e.index(0)))
        return statements

    def _factor(self, name: str, statements: list[Statement]) -> Variable | None:
        """What a group's weights share, read once for all rows."""
        formula = getattr(self.groups, name)
        if formula is None:
            return None
        groups = self.panel.symbol * self.groups.groups + self.outer.symbol
        place = e.index(groups * self.tiling.columns + self.lane.symbol)
        factor = self._fresh(f32)
        statements.append(Let(factor, e.cast(e.load(self.buffers[name], (place,)), f32)))
        return factor

    def _sum_of_left(self, row: Dim) -> Expr:
        at = e.index(row * self.groups.groups + self.outer.symbol)
        return e.load(self.buffers["sums"], (at,))

    def _word(self, number: Dim, first: Dim, sums: Sequence[Sequence[Variable]]) -> list[Statement]:
        """One word of each column, multiplied with the activations of every row."""
        panel = self.panel.symbol * self.groups.groups + self.outer.symbol
        place = (panel * self.operands.words + number) * self.tiling.columns + self.lane.symbol
        word = self._fresh(i32)
        statements: list[Statement] = [Let(word, e.load(self.buffers["words"], (e.index(place),)))]
        for step in range(self.groups.steps_per_word):
            weight = self._fresh(f32)
            statements.append(Let(weight, e.cast(self._unpack(word, step), f32)))
            at = {self.inner.symbol: number * self.groups.steps_per_word + step}
            for row, turns in enumerate(sums):
                left = e.substitute(self.operands.load_left(first + row, self.left), at)
                product = e.apply("multiply", left, weight)
                statements.append(Combine(turns[step % len(turns)], "sum", product, e.index(0)))
        return statements

    def _unpack(self, word: Variable, step: int) -> Expr:
        """A number out of a word: signed ones are moved up, and down again with their sign."""
        bits = self.groups.bits
        if self.groups.is_signed:
            highest = _shift("shift_left", word, WORD_BITS - bits * (step + 1))
            return _shift("shift_right", highest, WORD_BITS - bits)
        shifted = _shift("shift_right", word, bits * step)
        return e.apply("bitwise_and", shifted, e.literal((1 << bits) - 1, i32))

    def _fresh(self, dtype: DType) -> Variable:
        self.names += 1
        return e.variable(f"v{self.names - 1}", dtype)


def _shift(function: str, word: Expr, bits: int) -> Expr:
    return e.apply(function, word, e.literal(bits, i32)) if bits else word
