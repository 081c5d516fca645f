"""Is this answer one that rounding explains? Asked of whole graphs, comparisons and casts included.

Code that rounds elsewhere than the interpreter may end far from it: a difference of near-equal
numbers magnifies a rounding, a comparison or a cast to int makes a jump of it. No fixed bound is
fair. So the graph is interpreted again and again with every float result moved by a few units in
its last place, each time otherwise, and narrow floats now and then left unrounded, as kernels
leave what stays inside them; in the bodies of loops and branches as outside. A sum's roundings are
as large as its terms, not as what is left of them, so there the terms are moved as well. An answer
is right if every element lies where those runs lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from monograph.errors import MonographError
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.interpret import (
    RegionRunner,
    bind_inputs,
    check_results,
    errors_at,
    evaluate_node,
    prepare_operands,
)
from monograph.ir.op import Family, Trait
from monograph.ir.types import Array, TensorType, dtype_of

RUNS = (8, 56, 192)
"""Noisy runs before an answer is looked at again, until it is right or they are used up."""
SLACK = 2.0
"""How far beyond the runs an answer may lie, in the width of what they cover."""


def explained(
    graphs: Sequence[Graph], inputs: Sequence[Any], got: Sequence[Array], seed: int = 0
) -> str:
    """What no noisy run of one of the graphs explains; nothing if all is explained.

    ``graphs`` are the same program, before and after composites are taken apart.
    """
    covers = [_Cover(array) for array in got]
    pending = _open(covers)
    runs = _runs(graphs, inputs, np.random.default_rng(seed))
    for count in RUNS:
        for _, outputs in zip(range(count), runs, strict=False):
            for cover, output in zip(covers, outputs, strict=True):
                cover.add(output)
        pending = _open(covers)
        if not pending:
            return ""
    return "; ".join(f"output {k}: {cover.complaint()}" for k, cover in pending)


def _open(covers: Sequence[_Cover]) -> list[tuple[int, _Cover]]:
    return [(k, cover) for k, cover in enumerate(covers) if not cover.is_right()]


class _Cover:
    """Where the noisy runs put each element of one output."""

    def __init__(self, got: Array) -> None:
        self.got = got
        self.is_float = got.dtype.kind != "O" and dtype_of(got.dtype).is_float
        wide = np.float64 if self.is_float else got.dtype
        self.answer = got.astype(wide)
        self.equal = np.zeros(got.shape, bool)
        self.low = np.full(got.shape, np.inf)
        self.high = np.full(got.shape, -np.inf)
        self.first: Array | None = None

    def add(self, output: Array) -> None:
        assert output.dtype == self.got.dtype and output.shape == self.got.shape
        if self.first is None:
            self.first = output
        value = output.astype(self.answer.dtype)
        with np.errstate(all="ignore"):
            self.equal |= value == self.answer
            if not self.is_float:
                self._spread_complex(value)
                return
            self.equal |= np.isnan(value) & np.isnan(self.answer)
            finite = np.isfinite(value)
            self.low = np.minimum(self.low, np.where(finite, value, np.inf))
            self.high = np.maximum(self.high, np.where(finite, value, -np.inf))

    def _spread_complex(self, value: Array) -> None:
        if value.dtype.kind == "c":
            eps = float(np.finfo(value.dtype).eps)
            self.equal |= np.abs(value - self.answer) <= 64 * eps * np.abs(value)
            self.equal |= np.isnan(value) & np.isnan(self.answer)

    def is_right(self) -> bool:
        return bool(self._right().all())

    def _right(self) -> Array:
        if not self.is_float:
            return self.equal
        info = ml_dtypes.finfo(self.got.dtype)
        with np.errstate(all="ignore"):
            width = self.high - self.low
            unit = float(info.eps) * np.maximum(np.abs(self.low), np.abs(self.high))
            margin = SLACK * width + 2 * unit + float(info.smallest_subnormal)
            inside = (self.answer >= self.low - margin) & (self.answer <= self.high + margin)
        return self.equal | (inside & np.isfinite(self.answer))

    def complaint(self) -> str:
        wrong = ~self._right()
        assert self.first is not None
        return (
            f"{int(wrong.sum())} of {wrong.size}: {self.got[wrong][:4]} is not "
            f"{self.first[wrong][:4]} nor in {self.low[wrong][:4]} to {self.high[wrong][:4]}"
        )


def _runs(
    graphs: Sequence[Graph], inputs: Sequence[Any], generator: np.random.Generator
) -> Iterator[list[Array]]:
    """Results of noisy runs without end; the first of each graph has no noise."""
    for graph in graphs:
        yield _run(graph, inputs, _Noise(0.0, 0.0, generator))
    while True:
        for graph in graphs:
            size = float(generator.choice([0.0, 1.0, 4.0, 16.0], p=[0.1, 0.4, 0.4, 0.1]))
            kept = float(generator.choice([0.0, 0.5, 1.0]))
            try:
                yield _run(graph, inputs, _Noise(size, kept, generator))
            except MonographError:
                continue


def _run(graph: Graph, inputs: Sequence[Any], noise: _Noise) -> list[Array]:
    arrays, bindings = bind_inputs(graph, inputs)
    with np.errstate(all="ignore"):
        return noise.run(graph, arrays, bindings)


@dataclass(frozen=True)
class _Noise:
    """How one run is disturbed: by how many units, and how often a narrow float is left wide."""

    size: float
    kept: float
    generator: np.random.Generator

    def run(self, graph: Graph, arrays: Sequence[Any], bindings: dict[Symbol, int]) -> list[Array]:
        """A graph's outputs, or a region's: what is inside a loop rounds as what is outside."""
        found: dict[Value, Any] = dict(zip(graph.inputs, arrays, strict=True))
        for node in graph.nodes:
            operands = [found[value] for value in node.operands]
            if self.size and node.op.name in SUMS:
                operands = [_moved_terms(each, self.size, self.generator) for each in operands]
            results = self._evaluated(node, operands, bindings)
            for value, result in zip(node.results, results, strict=True):
                found[value] = _moved(node, value, result, self.size, self.generator)
        return [_stored(value, found[value]) for value in graph.outputs]

    def _evaluated(
        self, node: Node, operands: list[Any], bindings: dict[Symbol, int]
    ) -> Sequence[Any]:
        """A node's results; narrow floats may be left in the f32 that they are computed in."""
        op = node.op.substitute(bindings)
        stored = [_stored(v, x) for v, x in zip(node.operands, operands, strict=True)]
        if node.regions:
            with errors_at(node, stored):
                raw = op.evaluate(node.regions, _NoisyRegions(bindings, self), *stored)
                return check_results(node, raw, bindings)
        if op.has(Trait.STORAGE) or op.family is not Family.COMPUTE or op.name == "cast":
            return evaluate_node(node, stored, bindings)
        if self.generator.random() >= self.kept:
            return evaluate_node(node, operands, bindings)
        raw = op.evaluate(*prepare_operands(op, operands))
        results = raw if isinstance(raw, tuple) else (raw,)
        check_results(node, raw, bindings)
        return [
            np.asarray(result).astype(np.float32) if _is_narrow(value) else _stored(value, result)
            for value, result in zip(node.results, results, strict=True)
        ]


class _NoisyRegions(RegionRunner):
    """Runs the bodies of loops and branches with the noise of the graph around them."""

    def __init__(self, bindings: Mapping[Symbol, int], noise: _Noise) -> None:
        super().__init__(bindings)
        self.noise = noise

    def __call__(self, region: Graph, arrays: Sequence[Any]) -> list[Any]:
        return self.noise.run(region, arrays, self.bindings_in(region, arrays))


def _is_narrow(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.dtype.is_float and value.dtype.bits == 16


def _stored(value: Value, array: Any) -> Any:
    """What is held for a value as an array of its own dtype."""
    if not isinstance(value.type, TensorType) or not value.dtype.is_float:
        return array
    return np.asarray(array).astype(value.dtype.numpy)


def _moved(
    node: Node, value: Value, result: Any, size: float, generator: np.random.Generator
) -> Any:
    """A float result with every element moved by up to ``size`` units in the last place."""
    if not isinstance(value.type, TensorType) or not value.dtype.is_float:
        return result
    if size == 0.0 or not _rounds(node) or value.dtype.bits < 16:
        return result
    eps = float(ml_dtypes.finfo(result.dtype).eps)
    noise = 1.0 + size * eps * generator.uniform(-1.0, 1.0, result.shape)
    moved = (np.asarray(result).astype(np.float64) * noise).astype(result.dtype)
    if node.op.has(Trait.REDUCTION):  # of two zeros, either may be the maximum
        flip = (moved == 0) & (generator.random(moved.shape) < 0.5)
        moved = np.where(flip, -moved, moved)
    return moved


def _moved_terms(operand: Any, size: float, generator: np.random.Generator) -> Any:
    """What a sum is made of, with every element moved by units in which it is added up."""
    if operand.dtype.kind in "iubO" or not dtype_of(operand.dtype).is_float:
        return operand
    wide = np.promote_types(operand.dtype, np.float32) if operand.dtype.kind == "f" else np.float32
    noise = 1.0 + size * float(np.finfo(wide).eps) * generator.uniform(-1.0, 1.0, operand.shape)
    return (operand.astype(np.float64) * noise).astype(wide)


SUMS = frozenset(
    (
        *("sum", "mean", "variance", "cumsum", "avg_pool", "mse", "matmul", "linear", "einsum"),
        *("conv", "conv_transpose", "conv_weight_gradient", "layer_norm", "rms_norm"),
        *("group_norm", "instance_norm", "batch_norm", "batch_norm_training", "attention"),
    )
)
"""Ops that add up terms, which may cancel."""

EXACT = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "negate", "abs", "sign", "floor", "ceil"),
        *("round", "trunc", "maximum", "minimum", "where", "clip", "cast", "relu", "copysign"),
    )
)


def _rounds(node: Node) -> bool:
    """Whether other code may round the node's results otherwise."""
    if node.op.family is not Family.COMPUTE:
        return False
    wide = node.results[0].dtype.bits >= 32 if node.results[0].dtype.is_float else True
    return not (wide and node.op.name in EXACT)
