"""Streaming attention: a program holds a tile of queries and passes once over the keys and values.

Scores of a block of keys are computed, turned into shares with a running maximum and sum (online
softmax), and multiplied with the values at once: the matrix of scores is never stored. Scores are
kept in powers of two, so that a share is one multiply-add and one ``exp2``. Blocks that are seen
whole are read without masks; only those on the diagonal and at the end are masked. Query heads that
share a key head read the same keys and values. Where queries are few, keys are cut into parts that
run side by side, and a second kernel joins their results (split-KV).
"""

from __future__ import annotations

import math

from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.ir.dims import Dim, Shape, likely_size, provably_equal, shape_product
from monograph.ir.types import DType, TensorType, bf16, bool_, f16, f32
from monograph.kernel import expr as e
from monograph.kernel.expr import Buffer, Expr
from monograph.kernel.kernel import Kernel, Store
from monograph.ops.attention import Attention
from monograph.targets.gpu.cost import H200, memory_time, waves
from monograph.targets.gpu.expressions import ExpressionWriter
from monograph.targets.gpu.plan import (
    Configuration,
    KernelSequence,
    divide_up,
    next_power_of_two,
)
from monograph.targets.gpu.scalars import type_text
from monograph.targets.gpu.sequential import SEQUENTIAL
from monograph.targets.gpu.source import SourceWriter, TritonKernel
from monograph.targets.plan import KernelPlan, Refusal

LOG2_E = 1.4426950408889634
MAX_DEPTH = 256
"""The largest depth of a head of which a tile of queries fits into registers."""
MIN_SIDE = 16
PARTS = (2, 4, 8, 16, 32)
"""Into how many parts keys are split where queries are few (split-KV)."""
MAX_SPLIT_PROGRAMS = 4 * H200.multiprocessors
"""Programs beyond which splitting keys gains nothing."""
MAX_CONFIGURATIONS = 4


@dataclass(frozen=True)
class AttentionOperands:
    """The types of an attention's operands; ``mask`` may be missing."""

    query: TensorType
    key: TensorType
    value: TensorType
    mask: TensorType | None


def attention_candidates(
    name: str, op: Attention, operands: AttentionOperands, comment: tuple[str, ...] = ()
) -> tuple[KernelSequence, ...]:
    """Ways to compute attention of row-major operands, the one predicted to be fastest first.

    An error says why there is none.
    """
    packed = _with_packed_heads(op, operands)
    configurations = configure_attention(op, packed)
    if isinstance(configurations, Refusal):
        raise UnsupportedError(f"{name}: {configurations.reason}")
    found = []
    for each in configurations:
        writer = _AttentionWriter(name, op, packed, each)
        kernel = writer.write(comment)
        if writer.parts == 1:
            found.append(KernelSequence((kernel,), _make_plan(each)))
            continue
        joined = writer.joining_kernel()
        steps = SEQUENTIAL.configure(joined)
        assert not isinstance(steps, Refusal)
        kernels = (kernel, SEQUENTIAL.write(joined, steps[0], comment))
        scratch = writer.kernel.outputs
        found.append(KernelSequence(kernels, _make_plan(each, scratch), scratch))
    return tuple(found)


def _make_plan(configuration: Configuration, scratch: tuple[Buffer, ...] = ()) -> KernelPlan:
    split = "; keys are cut in parts, which a second kernel joins" if scratch else ""
    return KernelPlan(
        "attention",
        f"scores are streamed, never stored{split}",
        configuration,
        scratch,
        microseconds=configuration.microseconds,
    )


def _with_packed_heads(op: Attention, operands: AttentionOperands) -> AttentionOperands:
    """The operands with query heads that share a key head as the queries of one head.

    They lie one after the other. So a decoding step reads each key once, for a tile of queries.
    """
    *batch, heads, queries, depth = operands.query.shape
    shared = operands.key.shape[-3]
    if not (isinstance(heads, int) and isinstance(shared, int) and isinstance(queries, int)):
        return operands
    mask = operands.mask
    tells_apart = mask is not None and any(size != 1 for size in mask.shape[-3:-1])
    if heads == shared or shared == 0 or op.causal or tells_apart or queries > MIN_SIDE:
        return operands
    packed = operands.query.with_shape((*batch, shared, heads // shared * queries, depth))
    return AttentionOperands(packed, operands.key, operands.value, mask)


def configure_attention(
    op: Attention, operands: AttentionOperands
) -> tuple[Configuration, ...] | Refusal:
    """Tiles of queries and blocks of keys, best first."""
    query, key, value = operands.query, operands.key, operands.value
    if query.dtype not in (f32, f16, bf16):
        return Refusal(f"tensor cores do not multiply {query.dtype}")
    depths = (query.shape[-1], value.shape[-1])
    if not all(isinstance(depth, int) and 0 < depth <= MAX_DEPTH for depth in depths):
        return Refusal(f"depths of {depths}: a tile holds 1 to {MAX_DEPTH}")
    batches = [each.shape[:-3] for each in (query, key, value)]
    if not all(len(each) == len(batches[0]) and _are_equal(each, batches[0]) for each in batches):
        return Refusal("operands of different batches")
    deep = max(likely_size(depth) for depth in depths)
    if query.dtype is f32:
        tiles = [(32, 32, 4, 2)]
    elif deep <= 64:
        tiles = [(64, 64, 4, 3), (128, 64, 8, 3), (64, 32, 4, 3)]
    elif deep <= 128:
        tiles = [(64, 64, 4, 2), (128, 128, 8, 2), (128, 64, 8, 2)]
    else:
        tiles = [(64, 32, 4, 2), (128, 32, 8, 2)]
    found = list[Configuration]()
    for tile in tiles:
        for parts in (1,) if op.causal else (1, *PARTS):
            configuration = _configuration(op, operands, *tile, parts)
            if configuration is not None and configuration not in found:
                found.append(configuration)
    found.sort(key=lambda each: (each.microseconds, -each.blocks.get("PARTS", 1)))
    return tuple(found[:MAX_CONFIGURATIONS])


def _configuration(
    op: Attention,
    operands: AttentionOperands,
    rows: int,
    columns: int,
    warps: int,
    stages: int,
    parts: int,
) -> Configuration | None:
    """A tile cut to the size of the operands, with the time that it may take.

    None for more parts than there are blocks of keys, or than there is need of.
    """
    *heads, queries, depth = operands.query.shape
    keys, value_depth = operands.value.shape[-2:]
    rows = min(rows, max(MIN_SIDE, next_power_of_two(likely_size(queries))))
    columns = min(columns, max(MIN_SIDE, next_power_of_two(likely_size(keys))))
    sides = [max(MIN_SIDE, next_power_of_two(likely_size(each))) for each in (depth, value_depth)]
    blocks = {"ROWS": rows, "COLUMNS": columns, "DEPTH": sides[0], "VALUE_DEPTH": sides[1]}
    programs = likely_size(shape_product(heads)) * likely_size(divide_up(queries, rows)) * parts
    if parts > 1:
        if programs > MAX_SPLIT_PROGRAMS or likely_size(keys) < 2 * parts * columns:
            return None
        blocks["PARTS"] = parts
    work = 2 * rows * likely_size(keys) / parts * sum(sides) * (0.5 if op.causal else 1)
    rate = H200.tensor / H200.multiprocessors / 2  # exponentials take as long again
    types = (operands.query, operands.key, operands.value)
    nbytes = sum(likely_size(shape_product(x.shape)) * x.dtype.bits // 8 for x in types)
    in_flight = columns * sum(sides) * operands.key.dtype.bits // 8 * (stages - 1)
    compute = H200.launch + waves(programs, H200.multiprocessors) * work / rate
    time = max(compute, memory_time(nbytes, programs, in_flight))
    time += 2 * H200.launch if parts > 1 else 0
    return Configuration(blocks, warps if rows * columns > 1024 else 4, stages, time)


def _are_equal(one: Shape, other: Shape) -> bool:
    return all(provably_equal(x, y) for x, y in zip(one, other, strict=True))


class _AttentionWriter:
    def __init__(
        self,
        name: str,
        op: Attention,
        operands: AttentionOperands,
        configuration: Configuration,
    ) -> None:
        self.op = op
        self.configuration = configuration
        self.operands = operands
        self.result = op.infer(operands.query, operands.key, operands.value, operands.mask)
        types = [operands.query, operands.key, operands.value]
        types += [] if operands.mask is None else [operands.mask]
        inputs = tuple(Buffer(f"b{k}", each.dtype, each.shape) for k, each in enumerate(types))
        self.parts = configuration.blocks.get("PARTS", 1)
        self.output = Buffer("o0", self.result.dtype, self.result.shape)
        outputs = (self.output,) if self.parts == 1 else self._partial_results()
        self.kernel = Kernel(name, inputs, outputs, (), ())
        self.source = SourceWriter()
        self.writer = ExpressionWriter(self.kernel, self.source, "row")
        *_, self.heads, self.queries, depth = operands.query.shape
        self.keys, value_depth = operands.value.shape[-2:]
        assert isinstance(depth, int) and isinstance(value_depth, int)
        self.depth, self.value_depth = depth, value_depth
        self.tiles = divide_up(self.queries, configuration.blocks["ROWS"])
        self.all_heads = shape_product(operands.query.shape[:-2])
        self.scale = op.factor(operands.query.shape) * LOG2_E
        self.exact = ', input_precision="ieee"' if self.dtype is f32 else ""

    @property
    def dtype(self) -> DType:
        """What the operands are stored as, and multiplied as."""
        return self.operands.query.dtype

    def write(self, comment: tuple[str, ...]) -> TritonKernel:
        self._place()
        self._load_queries()
        self._stream()
        self._store()
        grid = (self.tiles * self.all_heads * self.parts,)
        return self.writer.finish("attention", grid, self.configuration, comment)

    def _place(self) -> None:
        """Which queries of which head this program computes."""
        line, shared = self.source.line, self.operands.key.shape[-3]
        if self.op.causal:
            line("# Of all heads, the tiles that see the most keys begin first.")
            heads = self.writer.dim(self.all_heads)
            line(f"tile = {self.writer.dim(self.tiles)} - 1 - tl.program_id(0) // {heads}")
            line(f"head = (tl.program_id(0) % {heads}).to(tl.int64)")
        else:
            tiles = self.writer.dim(self.tiles)
            line("program = tl.program_id(0)")
            if self.parts > 1:
                line("part = program % PARTS")
                line("program = program // PARTS")
            line(f"tile = program % {tiles}")
            line(f"head = (program // {tiles}).to(tl.int64)")
        if provably_equal(self.heads, shared):
            line("key_head = head")
        else:
            count, few = self.writer.dim(self.heads), self.writer.dim(shared)
            line(f"group = {count} // {few}  # query heads that share a key head")
            line(f"key_head = head // {count} * {few} + head % {count} // group")
        for buffer, head, length, depth in (
            ("b0", "head", self.queries, self.depth),
            ("b1", "key_head", self.keys, self.depth),
            ("b2", "key_head", self.keys, self.value_depth),
            *([("o0", "head", self.queries, self.value_depth)] if self.parts == 1 else []),
        ):
            line(f"{buffer} += {head} * {self._size(length, depth)}")
        line("row = tile * ROWS + tl.arange(0, ROWS)[:, None]")

    def _size(self, length: Dim, depth: int) -> str:
        return self.writer.dim(length * depth)

    def _load_queries(self) -> None:
        line = self.source.line
        line("along = tl.arange(0, DEPTH)[None, :]")
        line("down = tl.arange(0, DEPTH)[:, None]")
        line("across = tl.arange(0, VALUE_DEPTH)[None, :]")
        mask = self._mask(self._row_mask(), self._depth_mask("along", "DEPTH", self.depth))
        line(f"query = tl.load(b0 + (row * {self.depth} + along){mask})")
        line("most = tl.full([ROWS, 1], float('-inf'), tl.float32)")
        line("total = tl.zeros([ROWS, 1], tl.float32)")
        line("sums = tl.zeros([ROWS, VALUE_DEPTH], tl.float32)")

    def _row_mask(self) -> str:
        rows = self.configuration.blocks["ROWS"]
        whole = isinstance(self.queries, int) and self.queries % rows == 0
        return "" if whole else f"row < {self.writer.dim(self.queries)}"

    def _depth_mask(self, name: str, block: str, depth: int) -> str:
        return "" if self.configuration.blocks[block] == depth else f"{name} < {depth}"

    def _mask(self, *conditions: str) -> str:
        """The arguments of a load that only takes place where all of these hold."""
        found = " & ".join(f"({each})" for each in conditions if each)
        return f", mask={found}, other=0" if found else ""

    def _stream(self) -> None:
        """The loops over blocks of keys and values: those seen whole, and the rest."""
        line, count = self.source.line, self.writer.dim(self.keys)
        columns = self.configuration.blocks["COLUMNS"]
        divides = isinstance(self.keys, int) and self.keys % (columns * self.parts) == 0
        begin = "0"
        if self.parts > 1:
            begin = "begin"
            line(f"chunk = ({count} + PARTS * COLUMNS - 1) // (PARTS * COLUMNS) * COLUMNS")
            line("begin = part * chunk")
            line(f"end = tl.minimum(begin + chunk, {count})")
            line("whole = begin + tl.maximum(end - begin, 0) // COLUMNS * COLUMNS")
        elif self.op.causal:
            line(f"whole = tl.minimum({count}, tile * ROWS) // COLUMNS * COLUMNS")
            line(f"end = tl.minimum({count}, (tile + 1) * ROWS)")
        elif not divides:
            line(f"whole = {count} // COLUMNS * COLUMNS")
            line(f"end = {count}")
        if divides and not self.op.causal:
            end = count if self.parts == 1 else "end"
            with self.source.loop(f"for start in range({begin}, {end}, COLUMNS):"):
                self._block("")
            return
        with self.source.loop(f"for start in range({begin}, whole, COLUMNS):"):
            self._block("")
        with self.source.loop("for start in range(whole, end, COLUMNS):"):
            self._block(f"column < {count}")

    def _block(self, inside: str) -> None:
        """One block of keys; ``inside`` is the condition on its columns where some are hidden."""
        line = self.source.line
        line("column = start + tl.arange(0, COLUMNS)[None, :]")
        mask = self._mask(inside, self._depth_mask("down", "DEPTH", self.depth))
        line(f"key = tl.load(b1 + (column * {self.depth} + down){mask})")
        line(f"score = tl.dot(query, key{self.exact})")
        masked = self.operands.mask is not None
        if masked or self.scale <= 0:
            line(f"score = score * {self.scale!r}")
            self._add_mask()
        if inside:
            seen = f"({inside})" + (" & (column <= row)" if self.op.causal else "")
            line(f"score = tl.where({seen}, score, float('-inf'))")
        factor = "" if masked or self.scale <= 0 else f" * {self.scale!r}"
        line(f"larger = tl.maximum(most, tl.max(score, axis=1, keep_dims=True){factor})")
        reference = "larger"
        if masked or self._may_see_none:
            line("reference = tl.where(larger == float('-inf'), 0.0, larger)")
            reference = "reference"
        line(f"share = tl.exp2(score{factor} - {reference})")
        line(f"decay = tl.exp2(most - {reference})")
        line("total = total * decay + tl.sum(share, axis=1, keep_dims=True)")
        line("place = start + tl.arange(0, COLUMNS)[:, None]")
        mask = self._mask(
            inside.replace("column", "place"),
            self._depth_mask("across", "VALUE_DEPTH", self.value_depth),
        )
        line(f"value = tl.load(b2 + (place * {self.value_depth} + across){mask})")
        shares = f"share.to({type_text(self.dtype)})"
        line(f"sums = tl.dot({shares}, value, sums * decay{self.exact})")
        line("most = larger")

    def _add_mask(self) -> None:
        """Add the mask to the scores, which are in powers of two."""
        line, mask = self.source.line, self.operands.mask
        if mask is None:
            return
        place = self._mask_place(mask, self.queries, self.keys)
        inside = (
            f"(row < {self.writer.dim(self.queries)}) & (column < {self.writer.dim(self.keys)})"
        )
        line(f"mask = tl.load(b3 + {place}, mask={inside}, other=0)")
        if mask.dtype is bool_:
            hidden = self.op.hidden_score(f32) * LOG2_E
            text = repr(hidden) if math.isfinite(hidden) else "float('-inf')"
            line(f"score = tl.where(mask != 0, score, {text})")
        else:
            line(f"score = score + mask.to(tl.float32) * {LOG2_E!r}")

    def _mask_place(self, mask: TensorType, queries: Dim, keys: Dim) -> str:
        """Where in the mask the scores of a tile are: axes of size one are repeated."""
        whole = (*self.result.shape[:-2], queries, keys)
        shape = (*(1 for _ in range(len(whole) - mask.rank)), *mask.shape)
        names = {len(whole) - 2: "row", len(whole) - 1: "column"}
        terms, stride = list[str](), shape_product(())
        for axis in range(len(whole) - 1, -1, -1):
            if shape[axis] != 1:
                name = names.get(axis) or self._head_index(whole[:-2], axis)
                terms.append(f"{name} * {self.writer.dim(stride)}")
                stride = stride * shape[axis]
        return " + ".join(reversed(terms)) or "row * 0 + column * 0"

    def _head_index(self, leading: Shape, axis: int) -> str:
        """The position of this program's head along one of the leading axes."""
        after = self.writer.dim(shape_product(leading[axis + 1 :]))
        return f"(head // {after} % {self.writer.dim(leading[axis])})"

    @property
    def _may_see_none(self) -> bool:
        """Whether zeros must stand for a query whose scores are all -inf."""
        return self.op.fully_masked == "zeros"

    def _store(self) -> None:
        if self.parts > 1:
            self._store_partial_results()
            return
        line = self.source.line
        if self._may_see_none:
            line("# A query that sees no key gives zeros.")
            line("total = tl.where(total == 0.0, 1.0, total)")
        mask = self._store_mask(self._across_mask())
        result = "tl.div_rn(sums, tl.broadcast_to(total, [ROWS, VALUE_DEPTH]))"
        line(f"result = ({result}).to({type_text(self.dtype)})")
        line(f"tl.store(o0 + (row * {self.value_depth} + across), result{mask})")

    def _across_mask(self) -> str:
        return self._depth_mask("across", "VALUE_DEPTH", self.value_depth)

    def _store_mask(self, *conditions: str) -> str:
        return self._mask(self._row_mask(), *conditions).replace(", other=0", "")

    # Parts of the keys ----------------------------------------------------------------------------

    def _partial_results(self) -> tuple[Buffer, ...]:
        """For each part: sums of values, the largest score, and the sum of shares."""
        rows = shape_product(self.operands.query.shape[:-1]) * self.parts
        depth = self.operands.value.shape[-1]
        shapes = ((rows * depth,), (rows,), (rows,))
        return tuple(Buffer(f"s{k}", f32, shape) for k, shape in enumerate(shapes))

    def _store_partial_results(self) -> None:
        line, heads = self.source.line, self.writer.dim(self.all_heads)
        line(f"place = (part * {heads} + head) * {self.writer.dim(self.queries)} + row")
        mask = self._store_mask(self._across_mask())
        line(f"tl.store(s0 + (place * {self.value_depth} + across), sums{mask})")
        line(f"tl.store(s1 + place, most{self._store_mask()})")
        line(f"tl.store(s2 + place, total{self._store_mask()})")

    def joining_kernel(self) -> Kernel:
        """The results of all parts as one: each in proportion to the largest score of all."""
        sums, largest, totals = self.kernel.outputs
        rows = shape_product(self.operands.query.shape[:-1])
        row, column = e.axis("_i0", rows), e.axis("_i1", self.value_depth)
        part = e.axis("_part", self.parts)
        place = e.index(part.symbol * rows + row.symbol)
        score = e.load(largest, (place,))
        most = e.reduce("max", (part,), score)
        if self._may_see_none:
            nothing = e.apply("equal", most, e.literal(-math.inf, f32), dtype=bool_)
            most = e.select(nothing, e.literal(0, f32), most)
        weight = e.apply("exp2", e.apply("subtract", score, most))

        def combine(value: Expr) -> Expr:
            return e.reduce("sum", (part,), e.apply("multiply", weight, value))

        value = combine(e.load(sums, (place * self.value_depth + column.symbol,)))
        total = combine(e.load(totals, (place,)))
        if self._may_see_none:
            nothing = e.apply("equal", total, e.literal(0, f32), dtype=bool_)
            total = e.select(nothing, e.literal(1, f32), total)
        result = e.cast(e.apply("divide", value, total), self.output.dtype)
        output = Buffer("o0", self.output.dtype, (rows * self.value_depth,))
        store = Store(output, (e.linear((row, column)),), result)
        name = f"{self.kernel.name}_join"
        return Kernel(name, self.kernel.outputs, (output,), (row, column), (store,))
