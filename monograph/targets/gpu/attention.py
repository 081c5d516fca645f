"""Streaming attention: a program holds a tile of queries and passes once over the keys and values.

Scores of a block of keys are computed, turned into shares with a running maximum and sum (online
softmax), and multiplied with the values at once: the matrix of scores is never stored. Causal
attention stops at the diagonal. Query heads that share a key head read the same keys and values.
"""

from __future__ import annotations

import math

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape, provably_equal, shape_product
from monograph.ir.types import DType, TensorType, bf16, bool_, f16, f32
from monograph.kernel.expr import Buffer
from monograph.kernel.kernel import Kernel
from monograph.ops.attention import Attention
from monograph.targets.gpu.expressions import ExpressionWriter
from monograph.targets.gpu.plan import Refusal, divide_up, next_power_of_two
from monograph.targets.gpu.scalars import type_text
from monograph.targets.gpu.source import SourceWriter, TritonKernel

LOG2_E = 1.4426950408889634
MAX_DEPTH = 256
"""The largest depth of a head of which a tile of queries fits into registers."""
MIN_SIDE = 16


@dataclass(frozen=True)
class AttentionOperands:
    """The types of an attention's operands; ``mask`` may be missing."""

    query: TensorType
    key: TensorType
    value: TensorType
    mask: TensorType | None


def plan_attention(
    name: str, op: Attention, operands: AttentionOperands, comment: tuple[str, ...]
) -> TritonKernel | Refusal:
    """Attention of row-major operands, as one kernel."""
    query, key, value = operands.query, operands.key, operands.value
    if query.dtype not in (f32, f16, bf16):
        return Refusal(f"tensor cores do not multiply {query.dtype}")
    depths = (query.shape[-1], value.shape[-1])
    if not all(isinstance(depth, int) and 0 < depth <= MAX_DEPTH for depth in depths):
        return Refusal(f"depths of {depths}: a tile holds 1 to {MAX_DEPTH}")
    batches = [each.shape[:-3] for each in (query, key, value)]
    if not all(len(each) == len(batches[0]) and _are_equal(each, batches[0]) for each in batches):
        return Refusal("operands of different batches")
    return _AttentionWriter(name, op, operands).write(comment)


def _are_equal(one: Shape, other: Shape) -> bool:
    return all(provably_equal(x, y) for x, y in zip(one, other, strict=True))


class _AttentionWriter:
    def __init__(self, name: str, op: Attention, operands: AttentionOperands) -> None:
        self.op = op
        self.operands = operands
        self.result = op.infer(operands.query, operands.key, operands.value, operands.mask)
        types = [operands.query, operands.key, operands.value]
        types += [] if operands.mask is None else [operands.mask]
        inputs = tuple(Buffer(f"b{k}", each.dtype, each.shape) for k, each in enumerate(types))
        output = Buffer("o0", self.result.dtype, self.result.shape)
        self.kernel = Kernel(name, inputs, (output,), (), ())
        self.source = SourceWriter()
        self.writer = ExpressionWriter(self.kernel, self.source, "row")

    @property
    def dtype(self) -> DType:
        """What the operands are stored as, and multiplied as."""
        return self.operands.query.dtype

    def write(self, comment: tuple[str, ...]) -> TritonKernel:
        *batch, heads, queries, depth = self.operands.query.shape
        keys, value_depth = self.operands.value.shape[-2:]
        assert isinstance(depth, int) and isinstance(value_depth, int)
        wide = self.dtype is f32
        blocks = {
            "ROWS": _rows(queries, 32 if wide else 64),
            "COLUMNS": 32 if wide else 64,
            "DEPTH": max(MIN_SIDE, next_power_of_two(depth)),
            "VALUE_DEPTH": max(MIN_SIDE, next_power_of_two(value_depth)),
        }
        self._place(heads, queries)
        self._load_queries(queries, depth)
        self._stream(queries, keys, depth, value_depth)
        self._store(queries, value_depth)
        grid = (divide_up(queries, blocks["ROWS"]), shape_product((*batch, heads)))
        return self.writer.finish("attention", grid, blocks, comment)

    def _place(self, heads: Dim, queries: Dim) -> None:
        """Which queries of which head this program computes."""
        line, shared = self.source.line, self.operands.key.shape[-3]
        line("tile = tl.program_id(0)")
        line("head = tl.program_id(1).to(tl.int64)")
        if provably_equal(heads, shared):
            line("key_head = head")
        else:
            count, few = self.writer.dim(heads), self.writer.dim(shared)
            line(f"group = {count} // {few}  # query heads that share a key head")
            line(f"key_head = head // {count} * {few} + head % {count} // group")
        line("row = tile * ROWS + tl.arange(0, ROWS)[:, None]")
        line(f"row_inside = row < {self.writer.dim(queries)}")

    def _load_queries(self, queries: Dim, depth: int) -> None:
        line = self.source.line
        line("along = tl.arange(0, DEPTH)[None, :]")
        place = f"(head * {self.writer.dim(queries)} + row) * {depth} + along"
        line(f"query = tl.load(b0 + {place}, mask=row_inside & (along < {depth}), other=0)")
        line("most = tl.full([ROWS, 1], float('-inf'), tl.float32)")
        line("total = tl.zeros([ROWS, 1], tl.float32)")
        line("sums = tl.zeros([ROWS, VALUE_DEPTH], tl.float32)")

    def _stream(self, queries: Dim, keys: Dim, depth: int, value_depth: int) -> None:
        """The loop over blocks of keys and values."""
        line, count = self.source.line, self.writer.dim(keys)
        end = f"tl.minimum({count}, (tile + 1) * ROWS)" if self.op.causal else count
        exact = ', input_precision="ieee"' if self.dtype is f32 else ""
        line(f"end = {end}")
        with self.source.loop("for start in range(0, end, COLUMNS):"):
            line("column = start + tl.arange(0, COLUMNS)[None, :]")
            line("down = tl.arange(0, DEPTH)[:, None]")
            place = f"(key_head * {count} + column) * {depth} + down"
            inside = f"(column < {count}) & (down < {depth})"
            line(f"key = tl.load(b1 + {place}, mask={inside}, other=0)")
            scale = self.op.factor(self.operands.query.shape)
            line(f"score = tl.dot(query, key{exact}) * {scale!r}")
            self._mask_scores(queries, keys)
            line("larger = tl.maximum(most, tl.max(score, axis=1, keep_dims=True))")
            line("reference = tl.where(larger == float('-inf'), 0.0, larger)")
            line(f"share = tl.exp2((score - reference) * {LOG2_E!r})")
            line(f"decay = tl.exp2((most - reference) * {LOG2_E!r})")
            line("total = total * decay + tl.sum(share, axis=1, keep_dims=True)")
            line("place = start + tl.arange(0, COLUMNS)[:, None]")
            line("across = tl.arange(0, VALUE_DEPTH)[None, :]")
            place = f"(key_head * {count} + place) * {value_depth} + across"
            inside = f"(place < {count}) & (across < {value_depth})"
            line(f"value = tl.load(b2 + {place}, mask={inside}, other=0)")
            shares = f"share.to({type_text(self.dtype)})"
            line(f"sums = sums * decay + tl.dot({shares}, value{exact})")
            line("most = larger")

    def _mask_scores(self, queries: Dim, keys: Dim) -> None:
        """Add the mask to the scores, and hide what lies outside or ahead."""
        line, mask = self.source.line, self.operands.mask
        if mask is not None:
            place = self._mask_place(mask, queries, keys)
            inside = f"row_inside & (column < {self.writer.dim(keys)})"
            line(f"mask = tl.load(b3 + {place}, mask={inside}, other=0)")
            if mask.dtype is bool_:
                hidden = self.op.hidden_score(f32)
                text = "float('-inf')" if math.isinf(hidden) else repr(hidden)
                line(f"score = tl.where(mask != 0, score, {text})")
            else:
                line("score = score + mask.to(tl.float32)")
        seen = f"(column < {self.writer.dim(keys)})"
        seen += " & (column <= row)" if self.op.causal else ""
        line(f"score = tl.where({seen}, score, float('-inf'))")

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

    def _store(self, queries: Dim, value_depth: int) -> None:
        line = self.source.line
        if self.op.fully_masked == "zeros":
            line("# A query that sees no key gives zeros.")
            line("total = tl.where(total == 0.0, 1.0, total)")
        line("across = tl.arange(0, VALUE_DEPTH)[None, :]")
        place = f"(head * {self.writer.dim(queries)} + row) * {value_depth} + across"
        inside = f"row_inside & (across < {value_depth})"
        result = "tl.div_rn(sums, tl.broadcast_to(total, [ROWS, VALUE_DEPTH]))"
        kind = type_text(self.dtype)
        line(f"tl.store(o0 + {place}, ({result}).to({kind}), mask={inside})")


def _rows(queries: Dim, most: int) -> int:
    """Queries of a tile."""
    if not isinstance(queries, int):
        return most
    return min(most, max(MIN_SIDE, next_power_of_two(queries)))
