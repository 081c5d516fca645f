"""Plans attention: tiles of queries, or keys split among threads.

The moves in front of an attention (the split of heads, a transpose) are part of the formulas that
its operands are read with, and what follows it element by element is computed as it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.ir.dims import Dim, Shape, dim_max, dim_min, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.types import wide
from monograph.kernel import expr as e
from monograph.kernel.attention import Formula, Position, StreamedAttention
from monograph.kernel.expr import Buffer, Expr, Load
from monograph.kernel.flatten import flat_buffer, flat_expr, flatten, offset
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.layout import MemoryLayout
from monograph.kernel.lower import GroupLowering, lower_group
from monograph.ops.attention import Attention
from monograph.ops.rules import broadcast_shapes
from monograph.passes.decompose_unsupported_attention import DecomposeUnsupportedAttention
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.attention.operands import copy_operands, lie_apart
from monograph.targets.cpu.attention.split_kv import AttentionPieces, attend_in_pieces
from monograph.targets.cpu.attention.tiles import AttentionTile, stream
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.nests.loop_nest import LoopNest
from monograph.targets.cpu.plans.plan import Launchable
from monograph.targets.plan import KernelPlan

if TYPE_CHECKING:
    from monograph.targets.cpu.tuning import Tuning

MAX_SPLIT_KV_QUERIES = 8
"""Queries up to which they would not fill the lanes of a panel."""
MAX_QUERIES_PER_ROW_TILE = 12
"""Queries, of heads that share their keys, that are computed together."""

DECOMPOSE_ATTENTION = DecomposeUnsupportedAttention(head_size=512, scores=1 << 6)
"""Attentions that have no kernel here: those of heads so large that a tile of queries and its
result leave a core's cache, and those of so few scores that products and a softmax are quicker."""


def is_streamed(node: Node) -> bool:
    """Whether a node is an attention that has a kernel of its own."""
    return DECOMPOSE_ATTENTION.is_supported(node)


def plan_attention(builder: ProgramBuilder, group: Group) -> Launchable | None:
    """A group that holds an attention; None if it holds none."""
    node = next((node for node in group.nodes if is_streamed(node)), None)
    if node is None:
        return None
    outputs = group.outputs()
    lowering = _Attended(group, node, builder.layouts)
    if lowering.can_store(outputs):
        return _plan(builder, group, lowering, outputs)
    inner = Group(_with_operands(group, node), group.kind, node.result.shape, {node.result: None})
    inner.exported = {node.result}
    attention = _plan(builder, inner, _Attended(inner, node, builder.layouts), [node.result])
    rest = "the rest of its group reads it in another arrangement"
    plan = replace(attention.plan, reason=f"{attention.plan.reason}; {rest}")
    return ApartPlan(plan, group, node, attention)


def _plan(
    builder: ProgramBuilder, group: Group, lowering: _Attended, outputs: Sequence[Value]
) -> AttentionPlan:
    """Few queries share what they read of a key; many stand side by side in the lanes.

    Where the number of queries is known only when it runs, and may be one, there are loops for
    both, of which one has nothing to do.
    """
    attention = lowering.attention(outputs)
    queries = attention.queries
    few = isinstance(queries, int) and queries <= MAX_SPLIT_KV_QUERIES
    written = {f"o{number}": value for number, value in enumerate(outputs)}
    pieces: PiecesPlan | None = None
    streamed: StreamedPlan | None = None
    choice: AttentionPieces | AttentionTile
    if few or _may_be_one(attention):
        times = 1 if few else launches_by_queries(queries)[0]
        alone = attention if few else replace(attention, queries=1)
        choice = found = choose_pieces(alone, builder.machine)
        nests = tuple(_repeat(nest, times) for nest in _in_pieces(builder, alone, found))
        values = {buffer.name: value for value, buffer in lowering.inputs.items()}
        pieces = PiecesPlan(group, found, nests, values | written)
    if not few:
        several = launches_by_queries(queries)[1] if _may_be_one(attention) else 1
        attention, copies = copy_operands(attention)
        choice = tile = choose_tile(attention, builder.machine)
        nest = _stream(builder, attention, tile)
        digest = " ".join((nest.digest, *(kernel.digest for kernel in copies)))
        names = tuple(buffer.name for buffer in lowering.inputs.values())
        streamed = StreamedPlan(digest, group, attention, copies, names, several, tile)
    plan = KernelPlan("attention", "scores are streamed, never stored", choice)
    values = {buffer.name: value for value, buffer in lowering.inputs.items()}
    return AttentionPlan(plan, values, tuple(outputs), pieces, streamed)


@dataclass(frozen=True)
class PiecesPlan:
    """Few queries: loops over pieces of the keys, and those that join what they gave."""

    group: Group
    choice: AttentionPieces
    nests: tuple[LoopNest, ...]
    values: Mapping[str, Value]
    """What is read and written, by the names of buffers."""

    def launch(self, builder: ProgramBuilder) -> None:
        """The loops."""
        scratch: dict[str, int] = {}
        if len(self.nests) > 1:
            scratch = {each.name: builder.add_scratch(each) for each in self.nests[0].outputs}

        def slots(buffers: Sequence[Buffer]) -> list[int]:
            own, values = scratch, self.values
            return [own[b.name] if b.name in own else builder.slot(values[b.name]) for b in buffers]

        says = f"online softmax of {self.choice.queries} queries × {self.choice.keys} keys"
        for nest in self.nests:
            first = nest is self.nests[0]
            how = f"{says}, read in place" if first else "joins what the pieces of the keys gave"
            built = builder.built_nest(self.group, nest, how=how)
            builder.launch_built(built, self.group, slots(nest.inputs), slots(nest.outputs))


@dataclass(frozen=True)
class StreamedPlan:
    """Many queries: keys and values that are not in memory are computed, then tiles streamed."""

    digest: str
    group: Group
    attention: StreamedAttention
    copies: tuple[Kernel, ...]
    names: tuple[str, ...]
    """What the loops and copies read."""
    times: Dim
    """How often the loops run: once, or not at all."""
    choice: AttentionTile

    def with_choice(self, choice: object) -> StreamedPlan:
        """The same attention in other tiles."""
        assert isinstance(choice, AttentionTile)
        return replace(self, choice=choice)

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Copies and loops, on slots that are read and written."""
        slots = dict(zip(self.names, read, strict=True))
        slots |= {f"o{number}": slot for number, slot in enumerate(written)}
        for kernel in self.copies:
            inputs = tuple(slots[buffer.name] for buffer in kernel.inputs)
            name = kernel.outputs[0].name
            slots[name] = builder.packed(self.group, flatten(kernel), inputs)
        tile = self.choice
        nest = _repeat(_stream(builder, self.attention, tile), self.times)
        says = f"online softmax of {tile.queries} queries × {tile.keys} keys"
        how = f"{says}, {tile.rows}×{tile.columns} in registers"
        built = builder.built_nest(self.group, nest, how=how)
        inputs = tuple(slots[buffer.name] for buffer in nest.inputs)
        builder.launch_built(built, self.group, inputs, [slots[b.name] for b in nest.outputs])


@dataclass(frozen=True)
class AttentionPlan(Launchable):
    """An attention for few queries, for many, or for both, and the values that it is of."""

    values: Mapping[str, Value]
    """What is read, by the names of buffers."""
    outputs: tuple[Value, ...]
    pieces: PiecesPlan | None
    streamed: StreamedPlan | None

    def with_edits(self, tuning: Tuning) -> AttentionPlan:
        """The plan with the tile that measurements prefer."""
        if self.streamed is None:
            return self
        tile = tuning(self.streamed.digest, self.streamed.choice)
        plan = replace(self.plan, choice=tile)
        return replace(self, plan=plan, streamed=self.streamed.with_choice(tile))

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """The loops for few queries, then those for many."""
        if self.pieces is not None:
            self.pieces.launch(builder)
        if self.streamed is not None:
            names = self.streamed.names
            inputs = [builder.slot(self.values[name]) for name in names]
            made = [builder.slot(value) for value in self.outputs]
            builder.record(self.streamed, inputs, made)
            self.streamed.launch(builder, inputs, made)


@dataclass(frozen=True)
class ApartPlan(Launchable):
    """An attention with what its operands are made of, then the rest of its group."""

    group: Group
    node: Node
    attention: AttentionPlan

    def with_edits(self, tuning: Tuning) -> ApartPlan:
        """The plan with the tile that measurements prefer."""
        attention = self.attention.with_edits(tuning)
        return replace(
            self, plan=replace(self.plan, choice=attention.plan.choice), attention=attention
        )

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """The attention, then what reads it in another arrangement."""
        self.attention.launch(builder, read, written)
        _launch_rest(builder, self.group, self.node)


def _may_be_one(attention: StreamedAttention) -> bool:
    """Whether there may be one query, with more keys to see, or many: nobody knows yet."""
    queries = attention.queries
    if isinstance(queries, int) or attention.causal or attention.keys == queries:
        return False
    least, most = queries.bounds()
    return (least is None or least <= 1) and (most is None or most > 1)


def launches_by_queries(queries: Dim) -> tuple[Dim, Dim]:
    """How often the loops for one query run, and those for several: neither where there is none."""
    several = dim_max(0, dim_min(1, queries - 1))
    return dim_min(1, queries) - several, several


def _repeat(nest: LoopNest, times: Dim) -> LoopNest:
    """The nest with its parallel loop, or with none of it."""
    if isinstance(times, int):
        return nest
    sizes = {symbol.name: symbol for symbol in (*nest.sizes, *times.symbols())}
    ordered = tuple(sizes[name] for name in sorted(sizes))
    return replace(nest, extent=shape_product((nest.extent, times)), sizes=ordered)


def _stream(builder: ProgramBuilder, attention: StreamedAttention, tile: AttentionTile) -> LoopNest:
    """The loops of an attention, made once for all that are equal."""
    key = (attention.identity, tile)
    if key not in builder.nests:
        builder.nests[key] = stream(attention, tile)
    return builder.nests[key]


def _in_pieces(
    builder: ProgramBuilder, attention: StreamedAttention, pieces: AttentionPieces
) -> list[LoopNest]:
    """The loops over pieces and those that join them, made once for all that are equal."""
    keys = [(attention.identity, pieces, number) for number in range(2)]
    if keys[0] not in builder.nests:
        first, join = attend_in_pieces(attention, pieces)
        builder.nests[keys[0]] = first
        if join is not None:
            builder.nests[keys[1]] = join
    return [builder.nests[key] for key in keys if key in builder.nests]


def _launch_rest(builder: ProgramBuilder, group: Group, node: Node) -> None:
    """The rest of a group, which reads its attention in another arrangement.

    What is the same memory, in another shape, is not computed.
    """
    rest = [other for other in group.nodes if other is not node]
    places = {}
    for value in group.outputs():
        place = group.places[value]
        if builder.slot(value) == builder.slot(node.result):
            continue  # it, or the same memory in another shape
        assert place is not None, f"%{value.name} has no place in its group"
        places[value] = place
    if not places:
        return
    kernel, read = lower_group(group.name, rest, group.space, places, builder.layouts)
    inputs = [builder.slot(value) for value in read]
    builder.launch_flat(group, flatten(kernel), inputs, [builder.slot(v) for v in places])


def _with_operands(group: Group, node: Node) -> list[Node]:
    """A node of a group, and before it those of the group that its operands depend on."""
    needed = {node}
    for other in reversed(group.nodes):
        if any(use.node in needed for result in other.results for use in result.uses):
            needed.add(other)
    return [other for other in group.nodes if other in needed]


class _Attended(GroupLowering):
    """Formulas of a group in which the attention's own result stands for itself."""

    def __init__(self, group: Group, node: Node, layouts: Mapping[Value, MemoryLayout]) -> None:
        super().__init__(group.nodes, layouts)
        self.group = group
        self.node = node
        result = node.result
        self.placeholder = Buffer("attended", wide(result.dtype), result.shape)
        self.flat: dict[Expr, Expr] = {}

    def _element(self, value: Value, position: Position) -> Expr:
        if value is self.node.result:
            return e.load(self.placeholder, position)
        return super()._element(value, position)

    # The result -----------------------------------------------------------------------------------

    def can_store(self, outputs: Sequence[Value]) -> bool:
        """Whether every output is stored where one element of the attention is known."""
        shape = self.node.result.shape
        axes = tuple(e.index(e.axis(f"_a{k}", dim).symbol) for k, dim in enumerate(shape))
        position = _settle_position(axes, shape)
        own = e.load(self.placeholder, position)
        for value in outputs:
            place = self.place(value, position)
            if place is None:
                return False
            if any(read is not own for read in self.own_reads(self.element(value, place))):
                return False
        return True

    def own_reads(self, formula: Expr) -> list[Expr]:
        """What a formula reads of the attention's result."""
        found = e.walk((formula,))
        return [x for x in found if isinstance(x, Load) and x.buffer == self.placeholder]

    def place(self, value: Value, position: Position) -> Position | None:
        """Where an output has the element that belongs to one of the attention."""
        if value is self.node.result:
            return position
        own, other = self.group.places.get(self.node.result), self.group.places.get(value)
        if own is None or other is None:
            return None
        at = {axis: place for axis, place in zip(own, position, strict=True) if axis is not None}
        whole = {axis for axis, dim in enumerate(self.group.space) if dim != 1}
        if not whole <= {axis for axis in other if axis is not None} & at.keys():
            return None
        return tuple(e.index(0) if axis is None else at[axis] for axis in other)

    def stores(self, outputs: Sequence[Value], position: Position, result: Expr) -> list[Store]:
        """Stores of every output at one position of the attention's result.

        What they read of the attention is the element at that position (``can_store``), even
        where its subscript is a remainder that nothing shows to be the position itself.
        """
        position = _settle_position(position, self.node.result.shape)
        found = []
        for number, value in enumerate(outputs):
            place = self.place(value, position)
            assert place is not None
            buffer = Buffer(f"o{number}", value.dtype, value.shape, self.layouts.get(value))
            formula = self.element(value, place)
            formula = e.replace(formula, dict.fromkeys(self.own_reads(formula), result))
            stored = self.flattened(e.cast(formula, value.dtype))
            where = self.flattened(offset(buffer, place))
            found.append(Store(flat_buffer(buffer), (where,), stored))
        return found

    # The operands ---------------------------------------------------------------------------------

    def attention(self, outputs: Sequence[Value]) -> StreamedAttention:
        """The attention as formulas."""
        op = self.node.op
        assert isinstance(op, Attention)
        query, key, value, *masks = self.node.operands
        batch = broadcast_shapes(op.name, *(each.shape[:-3] for each in (query, key, value)))
        heads, queries, depth = query.shape[-3:]
        shared, keys, value_depth = value.shape[-3:]
        assert isinstance(depth, int)
        assert isinstance(value_depth, int)
        if op.causal:  # no query sees a key behind the last query
            keys = dim_min(keys, queries)

        def store(position: Position, result: Expr) -> list[Store]:
            return self.stores(outputs, position, result)

        return StreamedAttention(
            name=self.group.name,
            dtype=wide(query.dtype),
            batch=batch,
            heads=heads,
            shared=shared,
            queries=queries,
            keys=keys,
            depth=depth,
            value_depth=value_depth,
            scale=op.factor(query.shape),
            causal=op.causal,
            query=self.formula(query),
            key=self.formula(key),
            value=self.formula(value),
            mask=self.formula(masks[0]) if masks else None,
            store=store,
            fill=op.hidden_score(wide(query.dtype)),
            gives_nan=op.fully_masked == "nan",
        )

    def formula(self, value: Value) -> Formula:
        """How an element of an operand, which broadcasts, is computed."""

        def element(position: Position) -> Expr:
            place = _own_position(position, value.shape)
            return self.flattened(self.element(value, place))

        return element

    def flattened(self, expr: Expr) -> Expr:
        return flat_expr(expr, self.flat)


def _own_position(position: Position, shape: Shape) -> Position:
    """The position in an operand whose dimensions of size one are stretched."""
    places = position[len(position) - len(shape) :]
    return tuple(
        e.index(0) if dim == 1 else place for place, dim in zip(places, shape, strict=True)
    )


def _settle_position(position: Position, shape: Shape) -> Position:
    """The position in the result, with 0 for axes of size one; the last has lanes, and stays."""
    return *_own_position(position[:-1], shape[:-1]), position[-1]


def choose_pieces(attention: StreamedAttention, machine: Machine) -> AttentionPieces:
    """How few queries are computed, heads that share their keys together."""
    queries, heads, shared = attention.queries, attention.heads, attention.shared
    assert isinstance(queries, int)
    group = heads // shared
    together = 1
    if isinstance(group, int):
        fitting = (
            k
            for k in range(1, group + 1)
            if group % k == 0 and k * queries <= MAX_QUERIES_PER_ROW_TILE
        )
        together = max(fitting, default=1)
    lanes = machine.vector_bytes * 8 // attention.dtype.bits
    rows = together * queries
    vectors = max(1, (machine.registers - 4) // rows)
    return AttentionPieces(
        heads=together,
        queries=queries,
        keys=_divide_in_units(attention.keys, machine.costs.split_keys, 2 * lanes),
        columns=2 * lanes,
        depth=_lanes(attention.depth, lanes, min(8, vectors)),
        value_depth=_lanes(attention.value_depth, lanes, min(8, vectors)),
    )


def _lanes(size: int, lanes: int, vectors: int) -> int:
    """Lanes of a loop over so many elements that keeps up to ``vectors`` sums in registers."""
    width = lanes
    while width * 2 <= min(size, lanes * vectors):
        width *= 2
    return width


def choose_tile(attention: StreamedAttention, machine: Machine) -> AttentionTile:
    """The register tile of contractions, and as many of them as stay in a core's cache."""
    lanes = machine.vector_bytes * 8 // attention.dtype.bits
    rows, columns = (machine.registers - 4) // 2, 2 * lanes
    depth = (attention.depth + attention.value_depth) * attention.dtype.bits // 8
    most = min(machine.costs.tile_queries, machine.l2 // 4 // depth)
    while most >= 8 * columns and _tiles(attention, most, machine) < machine.costs.min_tasks:
        most //= 2
    queries = _divide_in_units(attention.queries, most, columns)
    most_keys = (
        machine.costs.masked_tile_keys if attention.leaves_out_hidden else machine.costs.tile_keys
    )
    keys = _divide_evenly(attention.keys, min(most_keys, machine.l2 // depth), rows)
    # With a length that is known only later, reading in place was measured to take 7 % longer.
    copied = lie_apart(attention) or not isinstance(attention.keys, int)
    return AttentionTile(rows, columns, queries, keys, copied)


def _tiles(attention: StreamedAttention, queries: int, machine: Machine) -> int:
    """How many tiles of up to so many queries there are; those of a middling size if unknown."""
    total = shape_product((*attention.batch, attention.heads, attention.queries))
    if not isinstance(total, int):
        return machine.costs.min_tasks * machine.costs.tile_queries // (2 * queries)
    return -(-total // queries)


def _divide_evenly(size: Dim, most: int, unit: int) -> int:
    """Elements of a tile: all of them, equal parts, or else whole units."""
    if not isinstance(size, int):
        return max(most, unit)
    parts = -(-size // max(most, unit))
    return size // parts if size % parts == 0 else -(-size // (parts * unit)) * unit


def _divide_in_units(size: Dim, most: int, unit: int) -> int:
    """Elements of a tile, in whole units: all of them, or parts of about the same size."""
    limit = max(1, most // unit) * unit
    if not isinstance(size, int):
        return limit
    parts = -(-size // limit)
    return -(-size // (parts * unit)) * unit
