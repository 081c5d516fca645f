"""Scaled dot-product attention, whole: what streaming kernels and library calls look for.

Grouped heads need no copies: with H query heads and K key heads, query head h reads key head
h // (H / K).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from monograph.ir.build import Operand, apply, cast_to, promote_operands
from monograph.ir.dims import Dim, Shape, provably_at_least, provably_equal
from monograph.ir.graph import Value
from monograph.ir.op import Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, TensorType, bool_, dtype_of, wide
from monograph.ops import data, elementwise, linalg, softmax
from monograph.ops import math as math_ops
from monograph.ops import shape as shape_ops
from monograph.ops.rules import broadcast_shapes, format_shape, require, same_dim, same_dtype
from monograph.ops.softmax import FullyMasked, require_fully_masked


@op("attention", traits=Trait.CONTRACTION)
class Attention(Op):
    """softmax(query @ keyᵀ * scale + mask) @ value.

    ``query`` is [*batch, heads, queries, depth], ``key`` [*batch, key heads, keys, depth] and
    ``value`` [*batch, key heads, keys, value depth]; heads are a multiple of key heads. ``mask``
    broadcasts to [*batch, heads, queries, keys]: floats, of the query's dtype or of the wider one
    that is computed in, are added to the scores; bools keep scores where true and put ``fill`` in
    their place elsewhere. ``causal`` lets query i see keys 0 to i, counted from the first of both
    (the top left) whatever their numbers, as ``is_causal`` does in PyTorch; beside a mask, both
    apply, and what causality hides is -inf. ``scale`` None is 1 / sqrt(depth).

    A query whose scores are all -inf, by a mask or by infinite numbers, gives zeros, as PyTorch's
    attention and ONNX's do, or, where ``fully_masked`` says so, NaN, as softmax does. A finite
    ``fill``, or a mask of finite numbers, however negative, makes no such query: one that sees
    nothing averages the values.
    """

    causal: bool = False
    scale: float | None = None
    fill: float = -math.inf
    fully_masked: FullyMasked = "zeros"

    def infer(
        self,
        query: TensorType,
        key: TensorType,
        value: TensorType,
        mask: TensorType | None = None,
    ) -> TensorType:
        dtype = same_dtype(self.name, query, key, value)
        self._check_attributes()
        require(
            dtype.is_float,
            "attention: real float operands are needed",
            expected="a float dtype",
            found=query,
        )
        require(
            query.rank == key.rank == value.rank >= 3,
            "attention: the ranks of the operands do not fit",
            expected="rank 3 or more, equal: [*batch, heads, sequence, depth]",
            found=f"{query}, {key}, {value}",
        )
        batch = broadcast_shapes(self.name, *(type_.shape[:-3] for type_ in (query, key, value)))
        heads = self._check_heads(query, key, value)
        same_dim(self.name, "the depths of query and key", query.shape[-1], key.shape[-1])
        keys = same_dim(self.name, "the lengths of key and value", key.shape[-2], value.shape[-2])
        queries, depth = query.shape[-2], value.shape[-1]
        if mask is not None:
            self._check_mask(query, mask, (*batch, heads, queries, keys))
        return query.with_shape((*batch, heads, queries, depth))

    def _check_attributes(self) -> None:
        require_fully_masked(self.name, self.fully_masked)
        require(
            self.fill < math.inf,
            "attention: the scores of hidden keys have no number",
            expected="a number below infinity for fill",
            found=self.fill,
        )

    def _check_heads(self, query: TensorType, key: TensorType, value: TensorType) -> Dim:
        shared = same_dim(self.name, "the heads of key and value", key.shape[-3], value.shape[-3])
        heads = query.shape[-3]
        divides = shared != 0 and not provably_at_least(heads % shared, 1)
        require(
            divides or heads == shared,
            "attention: the heads do not divide into groups",
            expected=f"a multiple of {shared} query heads",
            found=heads,
        )
        return heads

    def _check_mask(self, query: TensorType, mask: TensorType, scores: Shape) -> None:
        require(
            mask.dtype in (bool_, query.dtype, wide(query.dtype)),
            "attention: the mask has the wrong dtype",
            expected=f"bool, {query.dtype} or the dtype that it is computed in",
            found=mask,
        )
        require(
            mask.rank <= len(scores),
            "attention: the mask has too many dimensions",
            expected=f"a shape that broadcasts to {format_shape(scores)}",
            found=mask,
        )
        stretched = broadcast_shapes(self.name, mask.shape, scores)
        for one, other in zip(stretched, scores, strict=True):
            same_dim(self.name, "the shapes of the mask and the scores", other, one)

    def evaluate(self, query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        group = query.shape[-3] // max(key.shape[-3], 1)
        key, value = (np.repeat(operand, group, axis=-3) for operand in (key, value))
        scores = np.matmul(query, key.swapaxes(-1, -2)) * query.dtype.type(self.factor(query.shape))
        scores = self._mask_scores(scores, mask)
        if self.causal:
            seen = np.tri(*scores.shape[-2:], dtype=np.bool_)
            scores = np.where(seen, scores, query.dtype.type(-np.inf))
        largest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        blind = (largest == -np.inf) & (self.fully_masked == "zeros")
        weights = np.exp(scores - np.where(blind, 0, largest))
        total = weights.sum(-1, keepdims=True)
        shares = np.where(blind, 0, weights / np.where(blind, 1, total))
        return np.asarray(np.matmul(shares.astype(query.dtype), value))

    def _mask_scores(self, scores: Array, mask: Array | None) -> Array:
        if mask is None:
            return scores
        if mask.dtype == np.bool_:
            exact = wide(dtype_of(scores.dtype))
            return np.where(mask, scores, exact.numpy.type(self.hidden_score(exact)))
        return scores + mask

    def factor(self, query: Shape) -> float:
        """The number that scores are multiplied with, where the depth is known."""
        if self.scale is not None:
            return self.scale
        depth = query[-1]
        assert isinstance(depth, int)
        return 1.0 / math.sqrt(depth) if depth else 1.0

    def decompose(self, query: Value, key: Value, value: Value, mask: Value | None = None) -> Value:
        exact = wide(query.dtype)
        q, k, v = (cast_to(operand, exact) for operand in (query, key, value))
        shares = self._shares(score_keys(q, k, self.scale), mask)
        return cast_to(multiply_grouped(shares, v), query.dtype)

    def hidden_score(self, exact: DType) -> float:
        """``fill`` in the dtype that is computed in: finite, if it is."""
        if self.fill == -math.inf:
            return self.fill
        return max(self.fill, float(elementwise.float_facts(exact).min))

    def _shares(self, scores: Value, mask: Value | None) -> Value:
        """How much of each value every query takes."""
        if mask is not None and mask.dtype is bool_:
            scores = elementwise.where(mask, scores, self.hidden_score(scores.dtype))
        elif mask is not None:
            scores = scores + cast_to(mask, scores.dtype)
        if self.causal:
            scores = elementwise.where(make_causal_mask(scores.shape), scores, -math.inf)
        return softmax.softmax(scores, -1, self.fully_masked)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)

        def draw(*shape: int) -> Array:
            return generator.normal(size=shape).astype(np.float32)

        def operands(heads: int, shared: int, queries: int, keys: int) -> tuple[Array, ...]:
            return draw(2, heads, queries, 4), draw(2, shared, keys, 4), draw(2, shared, keys, 3)

        yield Sample(cls(), operands(3, 3, 5, 6))
        yield Sample(cls(scale=0.3), operands(2, 2, 4, 4), "scale")
        yield Sample(cls(causal=True), operands(2, 2, 4, 4), "causal")
        yield Sample(cls(causal=True), operands(1, 1, 3, 5), "causal, more keys")
        yield Sample(cls(causal=True), operands(1, 1, 5, 3), "causal, more queries")
        yield Sample(cls(), operands(6, 2, 3, 4), "grouped")
        yield Sample(cls(causal=True), operands(4, 1, 3, 3), "one key head")
        keep = generator.random((4, 5)) < 0.6
        keep[:, 0] = True
        yield Sample(cls(), (*operands(2, 2, 4, 5), keep), "mask")
        blind = keep.copy()
        blind[1] = False
        yield Sample(cls(), (*operands(2, 2, 4, 5), blind), "a query that sees nothing")
        nan = cls(fully_masked="nan")
        yield Sample(nan, (*operands(2, 2, 4, 5), blind), "NaN if it sees nothing", False)
        yield Sample(
            cls(fill=-1e9), (*operands(2, 2, 4, 5), blind), "the average if it sees nothing"
        )
        most = blind & (np.arange(5) < 2)
        yield Sample(cls(True, None, -2.0), (*operands(2, 1, 4, 5), most), "hidden keys count")
        lowest = np.where(blind, 0, -1e30).astype(np.float32)
        yield Sample(cls(), (*operands(2, 2, 4, 5), lowest), "a very negative mask", False)
        per_head = draw(2, 1, 4, 5)
        yield Sample(cls(), (*operands(4, 2, 4, 5), per_head), "float mask, grouped")
        yield Sample(cls(True), (*operands(2, 2, 4, 5), keep), "causal and mask")
        lower = np.where(np.tri(4, 5, dtype=np.bool_), 0, -np.inf).astype(np.float32)
        yield Sample(cls(), (*operands(2, 2, 4, 5), lower), "infinite mask", False)
        yield Sample(cls(), (draw(3, 4, 2), draw(3, 5, 2), draw(3, 5, 2)), "no batch")
        swapped = tuple(draw(2, 5, 3, 4).swapaxes(1, 2) for _ in range(3))
        yield Sample(cls(), swapped, "strided")
        yield Sample(cls(), (draw(1, 2, 0, 4), draw(1, 2, 3, 4), draw(1, 2, 3, 4)), "empty", False)


@function
def attention(
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None = None,
    causal: bool = False,
    scale: float | None = None,
    fill: float = -math.inf,
    fully_masked: FullyMasked = "zeros",
) -> Value:
    """softmax(query @ keyᵀ * scale + mask) @ value, over [*batch, heads, sequence, depth].

    A bool ``mask`` keeps where true, a float one is added; see the op for grouped heads, ``causal``
    and queries that see nothing.
    """
    made = Attention(causal, None if scale is None else float(scale), float(fill), fully_masked)
    operands = promote_operands(query, key, value)
    if mask is None:
        return apply(made, *operands)
    given = shape_ops.one_value(mask)
    fits = given if given.dtype is bool_ else cast_to(given, operands[0].dtype)
    return apply(made, *operands, fits)


def score_keys(query: Value, key: Value, scale: float | None) -> Value:
    """query @ keyᵀ * scale, or over the root of the depth: [*batch, heads, queries, keys]."""
    depth, factor = query.shape[-1], scale
    if scale is None and isinstance(depth, int):
        factor = 1.0 / math.sqrt(depth) if depth else 1.0
    return multiply_grouped(
        query,
        shape_ops.swapaxes(key, -1, -2),
        math_ops.rsqrt(cast_to(data.dim(depth), query.dtype)) if factor is None else factor,
    )


def multiply_grouped(left: Value, right: Value, factor: Value | float | None = None) -> Value:
    """left @ right * factor, over heads: each of ``right`` serves a group of ``left``.

    The factor comes before the groups are joined, so that it is part of the product's epilogue.
    """

    def multiply(one: Value, other: Value) -> Value:
        product = linalg.matmul(one, other)
        return product if factor is None else product * factor

    if left.rank < 3 or right.rank < 3 or left.shape[-3] == 1:
        return multiply(left, right)
    heads, shared = left.shape[-3], right.shape[-3]
    if provably_equal(heads, shared):
        return multiply(left, right)
    grouped = (*left.shape[:-3], shared, heads // shared, *left.shape[-2:])
    y = multiply(shape_ops.reshape(left, grouped), shape_ops.unsqueeze(right, -3))
    return shape_ops.reshape(y, (*y.shape[:-4], heads, *y.shape[-2:]))


def make_causal_mask(scores: Shape) -> Value:
    """True where a key comes no later than the query, for scores of a shape."""
    return elementwise.less_equal(data.iota(scores[-2:], 1), data.iota(scores[-2:], 0))
