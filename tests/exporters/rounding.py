"""How far apart two right answers of one node may be.

What rounding does to a result depends on the numbers: a product that cancels keeps only the error
of what cancelled, however small the result. So the node is run again with every float operand, and
every number between the steps that an op is made of, moved by roundings, up or down at random
(*Monte Carlo arithmetic*); how far the results scatter is what rounding does to each element. An
element that does not scatter must be right to a few roundings of itself. Products and sums are run
in f64 too: what overflows if it is rounded after each step need not if it is fused.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from monograph.errors import MonographError
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node
from monograph.ir.interpret import (
    RegionRunner,
    check_results,
    errors_at,
    evaluate_node,
    interpret,
    run_nodes,
)
from monograph.ir.op import Family
from monograph.ir.types import TensorType, dtype_of, type_of_array

ROUNDINGS = {"f64": 1e-12, "f32": 1e-6, "f16": 2e-3, "bf16": 1.6e-2}
"""How wrong a number may be of itself: some roundings, for what polynomials make of exp and erf."""

SCATTERS = 4.0
"""How many times the scatter an error may be: a few runs show about as much as one is likely to."""

RUNS = 8
STEPS = 2.0
"""By how many roundings a number is moved at most."""

EXACT = frozenset({
    "abs", "all", "any", "argmax", "argmin", "argsort", "bitcast", "cast", "ceil", "clip",
    "copysign", "cummax", "equal", "fake_quantize", "floor", "floor_divide", "fmod", "gather",
    "greater", "greater_equal", "hardtanh", "is_finite", "is_inf", "is_nan", "less", "less_equal",
    "max", "max_pool", "max_pool_with_indices", "maximum", "min", "minimum", "negate", "nonzero",
    "not_equal", "one_hot", "permute", "put_along_axis", "quantize", "relu", "relu6", "remainder",
    "round", "searchsorted", "sign", "sort", "take", "take_along_axis", "top_k", "trunc",
    "truncate_divide", "unique", "unique_consecutive", "where",
})  # fmt: skip
"""Ops that pick elements or cut them off: they round once or never, and are not continuous, so that
moving what they are given would excuse a wrong answer."""

FUSED = frozenset({"conv", "conv_transpose", "einsum", "linear", "matmul"})
"""Ops whose products may be added up without being rounded first."""

BOUNDED = frozenset({"erf", "erfc", "sigmoid", "tanh"})
BOUNDED_STEPS = 0.25
"""Functions with values about 1, of which ONNX Runtime has f32 polynomials that are accurate to so
many roundings of 1, however small the value: sigmoid(-12) is right to three digits."""

Bindings = dict[Symbol, int]


def is_close(got: np.ndarray, expected: np.ndarray, width: Any = 0.0) -> bool:
    """Whether a result is right: equal integers, and floats within rounding and their scatter."""
    dtype = dtype_of(expected.dtype)
    if got.shape != expected.shape or not dtype.is_float:
        return got.shape == expected.shape and np.array_equal(got, expected)
    limits = ml_dtypes.finfo(dtype.numpy)
    largest = float(limits.max)  # what rounds up to infinity lies near it
    ours, exact = (np.clip(a.astype(np.float64), -largest, largest) for a in (got, expected))
    rounding = ROUNDINGS.get(dtype.name, 2 * float(limits.eps))
    allowed = rounding * np.abs(exact) + float(limits.tiny) + SCATTERS * width
    with np.errstate(invalid="ignore"):
        close = (np.abs(ours - exact) <= allowed) | np.isinf(width)
    return bool((close | (np.isnan(ours) & np.isnan(exact))).all())


def scatter(
    node: Node, operands: Sequence[Any], results: Sequence[Any], bindings: Bindings
) -> list[np.ndarray]:
    """For each result, how far its elements scatter about it; infinite where some overflow."""
    widths = [np.zeros(np.shape(result)) for result in results]
    generator = np.random.default_rng(zlib.crc32(repr(node).encode()))
    if node.op.name in FUSED and node.results[0].dtype.is_float:
        wide = _run_wide(node, operands, bindings)
        widths = [_distance(one, result) for one, result in zip(wide, results, strict=True)]
    for _ in range(RUNS):
        for width, result, moved in zip(
            widths, results, _run_moved(node, operands, bindings, generator), strict=True
        ):
            if np.shape(moved) == width.shape:  # a size may hang on a rounding, too
                np.maximum(width, _distance(moved, result), out=width)
    return widths


def _run_wide(node: Node, operands: Sequence[Any], bindings: Bindings) -> list[np.ndarray]:
    """The results of a node that computes in f64, rounded to their own dtype at the end."""
    wide = [operand.astype(np.float64) for operand in operands]
    graph = Graph("wide")
    inputs = [graph.add_input(f"operand_{k}", type_of_array(array)) for k, array in enumerate(wide)]
    made = graph.add(node.op.substitute(bindings), *inputs)
    graph.set_outputs(list(made) if isinstance(made, tuple) else [made])
    return [
        array.astype(value.dtype.numpy)
        for array, value in zip(interpret(graph, wide), node.results, strict=True)
    ]


def _distance(moved: np.ndarray, result: np.ndarray) -> np.ndarray:
    """How far apart two results are: 0 where both are the same NaN or infinity."""
    ours, exact = moved.astype(np.float64), result.astype(np.float64)
    same = (ours == exact) | (np.isnan(ours) & np.isnan(exact))
    with np.errstate(all="ignore"):
        apart = np.abs(ours - exact)
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _run_moved(
    node: Node, operands: Sequence[Any], bindings: Bindings, generator: np.random.Generator
) -> Sequence[Any]:
    """The results of a node whose every step rounds at random."""
    moves_data = node.op.family is not Family.COMPUTE and not node.regions
    if moves_data or node.op.name in EXACT:
        return evaluate_node(node, operands, dict(bindings))
    moved = [_moved(operand, generator) for operand in operands]
    if node.regions:
        op = node.op.substitute(bindings)
        with errors_at(node, moved):
            raw = op.evaluate(node.regions, _MovedRunner(bindings, generator), *moved)
            return check_results(node, raw, dict(bindings))
    if node.op.name in BOUNDED:
        (result,) = evaluate_node(node, moved, dict(bindings))
        return [_moved_by_one(result, generator)]
    if node.op.is_composite():
        parts = _parts(node, moved, bindings)
        if parts is not None:
            found = _run_graph(parts, moved, {}, generator)
            return [
                array.astype(value.dtype.numpy)
                for array, value in zip(found, node.results, strict=True)
            ]
    return evaluate_node(node, moved, dict(bindings))


def _parts(node: Node, operands: Sequence[Any], bindings: Bindings) -> Graph | None:
    """What a composite is made of, for operands of these sizes; None if it is not for them."""
    graph = Graph(node.op.name)
    inputs = [
        graph.add_input(f"operand_{position}", type_of_array(operand))
        for position, operand in enumerate(operands)
    ]
    try:
        with graph.as_current():
            made = node.op.substitute(bindings).decompose(*inputs)
    except (NotImplementedError, MonographError):
        return None
    graph.set_outputs(list(made) if isinstance(made, tuple) else [made])
    return graph


def _run_graph(
    graph: Graph, arrays: Sequence[Any], bindings: Bindings, generator: np.random.Generator
) -> list[Any]:
    return run_nodes(
        graph, arrays, lambda node, operands: _run_moved(node, operands, bindings, generator)
    )


class _MovedRunner(RegionRunner):
    """Runs the regions of a node with every number in them moved."""

    def __init__(self, bindings: Bindings, generator: np.random.Generator) -> None:
        super().__init__(bindings)
        self.generator = generator

    def __call__(self, region: Graph, arrays: Sequence[Any]) -> list[Any]:
        return _run_graph(region, arrays, self.bindings_in(region, arrays), self.generator)


def _moved(operand: Any, generator: np.random.Generator) -> Any:
    """An array of floats with each element moved by some roundings; others as they are."""
    if not isinstance(operand, np.ndarray) or not isinstance(type_of_array(operand), TensorType):
        return operand
    if not type_of_array(operand).dtype.is_float:
        return operand
    rounding = float(ml_dtypes.finfo(operand.dtype).eps)
    factors = 1 + rounding * STEPS * generator.uniform(-1, 1, operand.shape)
    with np.errstate(all="ignore"):
        return (operand.astype(np.float64) * factors).astype(operand.dtype)


def _moved_by_one(result: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """An array of f32 with each element moved by roundings of 1; others as they are."""
    if result.dtype != np.float32:
        return result
    step = BOUNDED_STEPS * float(np.finfo(np.float32).eps)
    return (result + step * generator.uniform(-1, 1, result.shape)).astype(np.float32)
