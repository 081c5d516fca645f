"""Ops of ``com.microsoft`` that move, count and look up elements.

Some exist in ONNX too by now, and are the same; others mean a search whose result is as long as its
operands say, which is done when those are known.
"""

from __future__ import annotations

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.converters.image import grid_sample
from monograph.frontends.onnx.converters.index import distinct, gather_nd
from monograph.frontends.onnx.converters.pad import pad
from monograph.frontends.onnx.converters.shape import range_, trilu
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import Results, converter
from monograph.ir.build import apply, cast_to
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import Array, DType, TensorType, i32, i64, u32
from monograph.ops.index import PutAlongAxis
from monograph.ops.rules import normalize_axis

DOMAIN = "com.microsoft"

for _name, _convert in (
    ("Trilu", trilu), ("GatherND", gather_nd), ("GridSample", grid_sample),
):  # fmt: skip
    converter(_name, domain=DOMAIN)(_convert)


@converter("SampleOp", domain=DOMAIN)
def sample_op(node: OnnxNode) -> Value:
    """An example of an op, which does nothing."""
    return node.input(0)


@converter("Pad", domain=DOMAIN)
def pad_by_matrix(node: OnnxNode) -> Results:
    """``Pad`` whose widths may be a matrix of one row."""
    widths = node.input(1)
    flat = widths if widths.rank == 1 else F.reshape(widths, (-1,))
    return pad(node.with_inputs(node.input(0), flat, node.optional(2)))


@converter("ExpandDims", domain=DOMAIN)
def expand_dims(node: OnnxNode) -> Value:
    """A new axis of size 1, at a place that is an operand."""
    return F.unsqueeze(node.input(0), node.need_ints(1))


@converter("Range", domain=DOMAIN)
def range_with_default(node: OnnxNode) -> Results:
    """``Range`` whose step may be omitted."""
    if node.optional(2) is not None:
        return range_(node)
    dtype = node.input(0).dtype
    one = current_graph().add_constant(np.ones((), dtype.numpy), dtype)
    return range_(node.with_inputs(node.input(0), node.input(1), one))


@converter("Inverse", domain=DOMAIN)
def inverse(node: OnnxNode) -> Value:
    """The inverse of each matrix."""
    return F.inverse(node.input(0))


@converter("CDist", domain=DOMAIN)
def cdist(node: OnnxNode) -> Value:
    """The distance of each row of one matrix to each of another."""
    metric = node.string("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise node.error("this metric is not supported", expected="euclidean, sqeuclidean")
    a, b = F.unsqueeze(node.input(0), 1), F.unsqueeze(node.input(1), 0)
    squares = F.sum(F.square(F.subtract(a, b)), 2)
    return F.sqrt(squares) if metric == "euclidean" else squares


@converter("UnfoldTensor", domain=DOMAIN)
def unfold_tensor(node: OnnxNode) -> Value:
    """Windows along an axis, their elements along a new last axis."""
    x = node.input(0)
    axis = normalize_axis(node.op_type, node.integer("dim", -1), x.rank)
    framed = F.frames(F.moveaxis(x, axis, -1), node.integer("size"), node.integer("step", 1))
    return F.moveaxis(framed, x.rank - 1, axis)


@converter("Unique", domain=DOMAIN)
def unique_in_order(node: OnnxNode) -> tuple[Value, ...]:
    """Distinct elements in the order in which they occur, which each is, and how often."""
    y, _, places, counts = distinct(node, None, ordered=False)
    return y, places, counts


# Tokens.


@converter("NGramRepeatBlock", domain=DOMAIN)
def n_gram_repeat_block(node: OnnxNode) -> Value:
    """Scores without the tokens that would repeat an n-gram of the text before them."""
    tokens, scores = node.input(0), node.input(1)
    size, length = node.integer("ngram_size"), tokens.shape[1]
    count = length - size + 1
    if not isinstance(count, int):
        raise NotStatic(f"{node.name}: the length of the text is not known", types=[scores.type])
    if size < 1 or count < 1:
        return scores
    alike = F.full((tokens.shape[0], count), True, "bool")
    for place in range(size - 1):
        window = F.slice(tokens, (place,), (place + count,), axes=(1,))
        start = length - size + 1 + place
        ending = F.slice(tokens, (start,), (start + 1,), axes=(1,))
        alike = F.logical_and(alike, F.equal(window, ending))
    following = F.slice(tokens, (size - 1,), (length,), axes=(1,))
    lowered = cast_to(F.where(alike, -np.inf, np.inf), scores.dtype)
    return apply(PutAlongAxis(1, "min"), scores, cast_to(following, i64), lowered)


@converter("BifurcationDetector", domain=DOMAIN)
def bifurcation_detector(node: OnnxNode) -> tuple[Value, Value]:
    """Tokens with those of a prediction up to its first miss, and where the source goes on."""
    types = [TensorType(i64, (node.fresh("tokens"),)), TensorType(i64, (1,))]
    operands = [_read_constant(node, index, types) for index in range(len(node.inputs))]
    source, tokens, start = operands[:3]
    assert source is not None and tokens is not None and start is not None
    predicted = operands[3] if len(operands) > 3 else None
    if predicted is not None:
        rest = source[int(start.reshape(-1)[0]) :]
        pairs = list(zip(rest, predicted, strict=False))
        same = next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))
        tokens = np.concatenate([tokens, predicted[: same + 1]])
    place = _suffix_match(
        source, tokens, node.integer("min_ngram_size", 1), node.integer("max_ngram_size", 3)
    )
    graph = current_graph()
    return graph.add_constant(tokens, i64), graph.add_constant(np.array([place]), i64)


def _read_constant(node: OnnxNode, index: int, types: list[TensorType]) -> Array | None:
    if node.optional(index) is None:
        return None
    found = node.constant(index)
    if found is None:
        raise NotStatic(f"{node.name}: its tokens are not known before it runs", types=types)
    return found


def _suffix_match(source: Array, tokens: Array, shortest: int, longest: int) -> int:
    """Where the only occurrence of the last tokens ends in the source; -1 if there is none."""
    place = -1
    for size in range(shortest, longest + 1):
        if size > len(tokens):
            break
        suffix = tokens[-size:]
        starts = [
            at
            for at in range(len(source) - size + 1)
            if np.array_equal(source[at : at + size], suffix)
        ]
        if not starts:
            break
        place = starts[0] + size
        if place >= len(source) or len(starts) == 1:
            break
        place = -1
    return place


@converter("DynamicTimeWarping", domain=DOMAIN)
def dynamic_time_warping(node: OnnxNode) -> Value:
    """The cheapest path through a matrix of costs: the rows and the columns that it visits."""
    costs = node.constant(0)
    if costs is None:
        types = [TensorType(i32, (2, node.fresh("path")))]
        raise NotStatic(f"{node.name}: its costs are not known before it runs", types=types)
    path = _cheapest_path(costs.reshape(costs.shape[-2:]))
    return current_graph().add_constant(path, i32)


def _cheapest_path(costs: Array) -> Array:
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    steps = np.zeros((rows + 1, columns + 1), np.int8)
    for row in range(1, rows + 1):
        for column in range(1, columns + 1):
            before = (
                total[row - 1, column - 1], total[row - 1, column], total[row, column - 1]
            )  # fmt: skip
            best = 0 if before[0] < min(before[1:]) else 1 if before[1] < min(before[::2]) else 2
            total[row, column] = costs[row - 1, column - 1] + before[best]
            steps[row, column] = best
    steps[0, :], steps[:, 0] = 2, 1
    path, row, column = [], rows, columns
    while row > 0 or column > 0:
        path.append((row - 1, column - 1))
        step = steps[row, column]
        row, column = row - (step != 2), column - (step != 1)
    return np.array(path[::-1], np.int32).T


# Hashes.


@converter("NGramHashMapping", domain=DOMAIN)
def n_gram_hash_mapping(node: OnnxNode) -> tuple[Value, Value]:
    """Hashes of the last tokens at each place, several for each length; and the last tokens."""
    tokens, factors, sizes = (node.input(index) for index in range(3))
    if node.optional(5) is not None or node.optional(6) is not None:
        raise node.error("ends of text and segments are not supported")
    longest, heads = node.integer("max_ngram_size"), node.integer("n_head_per_ngram")
    before, length, past = longest - 1, tokens.shape[1], node.optional(3)
    whole = F.pad(tokens, (0, before), (0, 0), node.integer("pad_id"))
    if past is not None:
        whole = F.concat([past, tokens], 1)
    products = [
        F.multiply(
            F.slice(whole, (before - shift,), (before - shift + length,), axes=(1,)),
            F.slice(factors, (shift,), (shift + 1,), axes=(0,)),
        )
        for shift in range(longest)
    ]
    mixed, columns = products[0], []
    for product in products[1:]:
        mixed = F.bitwise_xor(mixed, product)
        columns += [mixed] * heads
    hashes = F.remainder(F.stack(columns, 2), sizes)
    offsets = node.optional(4)
    hashes = hashes if offsets is None else F.add(hashes, offsets)
    return hashes, F.slice(whole, (length,), (length + before,), axes=(1,))


@converter("MurmurHash3", domain=DOMAIN)
def murmur_hash(node: OnnxNode) -> Value:
    """MurmurHash3 (x86, 32 bits) of the bytes of each number."""
    x = node.input(0)
    if x.dtype.bits not in (32, 64) or x.dtype.is_complex:
        raise node.error("only numbers of 32 and 64 bits are supported", found=str(x.type))
    words = _words(x)
    state = F.full(x.shape, node.integer("seed", 0) % 2**32, u32)
    for word in words:
        mixed = _rotate_axes(F.multiply(word, _u32(0xCC9E2D51)), 15)
        state = F.bitwise_xor(state, F.multiply(mixed, _u32(0x1B873593)))
        state = F.add(F.multiply(_rotate_axes(state, 13), _u32(5)), _u32(0xE6546B64))
    state = F.bitwise_xor(state, _u32(4 * len(words)))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = F.multiply(F.bitwise_xor(state, F.shift_right(state, _u32(shift))), _u32(factor))
    state = F.bitwise_xor(state, F.shift_right(state, _u32(16)))
    return state if node.integer("positive", 1) else F.bitcast(state, i32)


def _words(x: Value) -> tuple[Value, ...]:
    """The bits of each number as words of 32, the low one first."""
    if x.dtype.bits == 32:
        return (_as_bits(x, u32),)
    bits = _as_bits(x, i64)
    low = F.bitwise_and(bits, F.full_like(bits, 0xFFFFFFFF))
    high = F.bitwise_and(F.shift_right(bits, F.full_like(bits, 32)), F.full_like(bits, 0xFFFFFFFF))
    return cast_to(low, u32), cast_to(high, u32)


def _as_bits(x: Value, dtype: DType) -> Value:
    return x if x.dtype is dtype else F.bitcast(x, dtype)


def _rotate_axes(x: Value, count: int) -> Value:
    return F.bitwise_or(F.shift_left(x, _u32(count)), F.shift_right(x, _u32(32 - count)))


def _u32(number: int) -> Value:
    return current_graph().add_constant(np.array(number, np.uint32), u32)
