"""Linear layers on integers that share a scale by block: weights of few bits, activations of eight.

    y[m, n] = Σ over blocks b:  step[m, b] · scale[n, b] · sum of b
    sum of b = Σ over k in b:  x[m, k] · (w[n, k] - zero[n, b])

The inner sum is one of small integers, and exact. Activations are rounded in each call: the largest
of a block of a row becomes 127. Large language models keep their weights so, since generating a
token reads every weight once and does little else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from monograph.ir.build import Operand, apply, as_operands, graph_of
from monograph.ir.graph import Value
from monograph.ir.op import Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, dtype_of, f32, i8
from monograph.ops.elementwise import abs as absolute
from monograph.ops.elementwise import equal, multiply, where
from monograph.ops.linalg import linear
from monograph.ops.quant import dequantize, quantize
from monograph.ops.reduce import max as maximum
from monograph.ops.rules import require, same_dim
from monograph.ops.shape import reshape

WEIGHTS = tuple(dtype_of(name) for name in ("i4", "u4", "i8", "u8"))
"""The dtypes of weights."""
MAX_QUANTIZED_ACTIVATION = 127
"""What the largest activation of a block becomes."""
BLOCK_MULTIPLE = 8
"""Blocks are a multiple of this, so that words of 32 bits hold whole ones."""


@op("blocked_linear", traits=Trait.STORAGE)
class BlockedLinear(Op):
    """x wᵀ of integers, each ``block`` of k with a scale of its own on both sides, as f32."""

    block: int

    def infer(
        self,
        x: TensorType,
        step: TensorType,
        weight: TensorType,
        scale: TensorType,
        zero_point: TensorType | None = None,
    ) -> TensorType:
        require(
            x.dtype is i8 and x.rank >= 1,
            "blocked_linear: activations are rows of bytes",
            expected="i8[..., k]",
            found=x,
        )
        require(
            weight.dtype in WEIGHTS and weight.rank == 2,
            "blocked_linear: the weight is a matrix of small integers",
            expected="i4, u4, i8 or u8 [n, k]",
            found=weight,
        )
        same_dim("blocked_linear", "k", x.shape[-1], weight.shape[1])
        blocks = count_blocks(x, self.block)
        _expect("the step", step, TensorType(f32, (*x.shape[:-1], blocks)))
        _expect("the scale", scale, TensorType(f32, (weight.shape[0], blocks)))
        if zero_point is not None:
            expected = TensorType(weight.dtype, (weight.shape[0], blocks))
            _expect("the zero point", zero_point, expected)
        return TensorType(f32, (*x.shape[:-1], weight.shape[0]))

    def evaluate(
        self, x: Array, step: Array, weight: Array, scale: Array, zero_point: Array | None = None
    ) -> Any:
        outputs, inputs = weight.shape
        blocks = inputs // self.block
        left = x.reshape(-1, blocks, self.block).astype(np.float64)
        right = weight.astype(np.float64).reshape(outputs, blocks, self.block)
        if zero_point is not None:
            right = right - zero_point.astype(np.float64)[:, :, None]
        sums = np.einsum("mbk,nbk->mnb", left, right)
        scales = step.reshape(-1, 1, blocks).astype(np.float64) * scale
        total = (sums * scales).sum(axis=2)
        return total.reshape(*x.shape[:-1], outputs).astype(np.float32)

    def decompose(
        self, x: Value, step: Value, weight: Value, scale: Value, zero_point: Value | None = None
    ) -> Value:
        left = dequantize(x, step, axis=x.rank - 1, block=self.block)
        right = dequantize(weight, scale, zero_point, axis=1, block=self.block)
        return linear(left, right)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        random = np.random.default_rng(0)
        sizes = ((1, 64, 48, 32), (5, 96, 33, 32), (3, 256, 70, 128), (9, 16, 7, 8), (0, 32, 5, 32))
        for dtype in WEIGHTS:
            for rows, inputs, outputs, block in sizes:
                least = 0 if dtype.name.startswith("u") else -(1 << (dtype.bits - 1))
                numbers = random.integers(least, least + (1 << dtype.bits), (outputs, inputs))
                x = random.integers(-127, 128, (rows, inputs)).astype(np.int8)
                blocks = inputs // block
                step = random.uniform(1e-4, 1e-3, (rows, blocks)).astype(np.float32)
                scale = random.uniform(0.001, 0.01, (outputs, blocks)).astype(np.float32)
                operands = (x, step, numbers.astype(dtype.numpy), scale)
                note = f"{dtype.name} {rows}×{inputs}×{outputs} by {block}"
                yield Sample(cls(block), operands, note, False)
                points = random.integers(least, least + (1 << dtype.bits), (outputs, blocks))
                with_points = (*operands, points.astype(dtype.numpy))
                yield Sample(cls(block), with_points, f"{note}, zero points", False)
        batched = (x.reshape(0, 1, 32), step.reshape(0, 1, 1), *operands[2:])
        yield Sample(cls(32), batched, "batched", False)


def _expect(what: str, found: TensorType, expected: TensorType) -> None:
    fits = found.dtype is expected.dtype and found.rank == expected.rank
    require(fits, f"blocked_linear: {what} does not fit", expected=str(expected), found=found)
    for here, there in zip(found.shape, expected.shape, strict=True):
        same_dim("blocked_linear", what, here, there)


@function
def blocked_linear(
    x: Operand,
    weight: Operand,
    scale: Operand,
    zero_point: Operand | None = None,
    *,
    block: int,
) -> Value:
    """x wᵀ, where ``x`` is rounded to eight bits and ``weight`` stored in few, block by block."""
    graph = graph_of([x, weight, scale, zero_point])
    given = [each for each in (x, weight, scale, zero_point) if each is not None]
    values, stored, scales, *points = as_operands(graph, given)
    whole, step = round_blocks(values, block)
    return apply(BlockedLinear(block), whole, step, stored, scales, *points)


def count_blocks(x: TensorType, block: int) -> int:
    """How many whole blocks a row has."""
    depth = x.shape[-1]
    require(
        isinstance(depth, int) and block > 0 and block % BLOCK_MULTIPLE == 0 and depth % block == 0,
        "blocked_linear: k is a number of whole blocks",
        expected=f"a block that is a multiple of {BLOCK_MULTIPLE} and divides k",
        found=f"block {block}, k {depth}",
    )
    assert isinstance(depth, int)
    return depth // block


def round_blocks(x: Value, block: int) -> tuple[Value, Value]:
    """Rows as bytes, each block with a step of its own: (bytes, steps)."""
    blocks = reshape(x, (*x.shape[:-1], count_blocks(x.tensor, block), block))
    largest = maximum(absolute(blocks), axis=-1)
    step = where(equal(largest, 0.0), 1.0, multiply(largest, 1 / MAX_QUANTIZED_ACTIVATION))
    return quantize(x, step, dtype=i8, axis=x.rank - 1, block=block), step
