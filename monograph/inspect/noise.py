"""Runs a graph in double precision with every number on the way moved by a few ulp of its own.

What rounding alone brings about is no fault. A run draws one of the answers that a program may
give which rounds elsewhere: it sums in another order, keeps a narrow number wide, or turns a vector
around that is unique but for its sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.deadline import check_time
from monograph.inspect.precise import precision_of
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node
from monograph.ir.interpret import (
    RegionRunner,
    check_results,
    errors_at,
    evaluate_node,
    prepare_operands,
    run_nodes,
)
from monograph.ir.op import Family, Op, Trait
from monograph.ir.types import Array, TensorType
from monograph.ops.fft import Irfft
from monograph.ops.softmax import LogSoftmax
from monograph.ops.spectral import Eig, Eigh, Svd

NOISE_ULPS = (1, 4)
"""By how much noise moves what a node computes: little, which finds edges, or a good deal."""
SHARE_OF_FLUSHED = 0.5
"""How often, where numbers are rounded, those that are no longer normal become zero."""
WAYS = ("round", "move", "both", "both")


@dataclass(frozen=True)
class NoisyRun:
    """One draw over a graph in double precision.

    ``origins`` gives, for a node of it, the node of the graph that it is the twin of, whose types
    say how coarse the numbers are.
    """

    origins: Mapping[Node, Node]
    generator: np.random.Generator

    def run(self, graph: Graph, arrays: Sequence[Any], bindings: dict[Symbol, int]) -> list[Any]:
        """The outputs of the graph, or of a region."""
        return run_nodes(
            graph, arrays, lambda node, operands: self._evaluate(node, operands, bindings)
        )

    def _evaluate(
        self, node: Node, operands: list[Any], bindings: dict[Symbol, int]
    ) -> tuple[Any, ...]:
        origin = self.origins.get(node)
        if node.regions:
            return self._with_regions(node, operands, bindings)
        if origin is None or node.op.family is not Family.COMPUTE:
            return evaluate_node(node, operands, bindings)
        if _sums(origin):  # what cancels inside, of each operand: the bias of a norm as well
            types = [value.type for value in origin.operands]
            pairs = zip(operands, types, strict=True)
            operands = [nudge(operand, type_, self.generator) for operand, type_ in pairs]
        results = _rotate_vectors(node.op, evaluate_node(node, operands, bindings), self.generator)
        if _sums(origin):
            results = tuple(_sign_zeros(result, self.generator) for result in results)
        results = tuple(_blur_specials(node.op, result, self.generator) for result in results)
        types = [value.type for value in origin.results]
        if isinstance(node.op, LogSoftmax):
            results = (self._move_by_share(results[0], types[0]),)
        pairs = zip(results, types, strict=True)
        return tuple(nudge(result, type_, self.generator) for result, type_ in pairs)

    def _move_by_share(self, logarithm: Array, type_: Any) -> Array:
        """Logarithms of shares, moved as a share is by rounding: however near to 0 they are."""
        reach = max(NOISE_ULPS) * precision_of(type_.dtype.numpy).eps
        return logarithm + reach * self.generator.uniform(-1, 1, logarithm.shape)

    def _with_regions(
        self, node: Node, operands: list[Any], bindings: dict[Symbol, int]
    ) -> tuple[Any, ...]:
        with errors_at(node, operands):
            op = node.op.substitute(bindings)
            runner = _NoisyRegions(bindings, self)
            raw = op.evaluate(node.regions, runner, *prepare_operands(op, operands))
            return check_results(node, raw, bindings)


class _NoisyRegions(RegionRunner):
    """Runs the body of a loop or a branch with noise, too: a loop may magnify it in each turn."""

    def __init__(self, bindings: Mapping[Symbol, int], noise: NoisyRun) -> None:
        super().__init__(bindings)
        self.noise = noise

    def __call__(self, region: Graph, arrays: Sequence[Any]) -> list[Any]:
        check_time()
        return self.noise.run(region, arrays, self.bindings_in(region, arrays))


def nudge(array: Any, type_: Any, generator: np.random.Generator) -> Any:
    """An array moved by a few ulp of its own dtype, rounded to it, or both.

    Whole numbers stay where all are: they may count or select something. Those that the dtype
    cannot tell from the next whole number are no counts, and move, too.
    """
    if not isinstance(type_, TensorType) or not (type_.dtype.is_float or type_.dtype.is_complex):
        return array
    dtype = type_.dtype.numpy
    eps = precision_of(dtype).eps
    way = "move" if array.dtype == dtype else generator.choice(WAYS)
    moved = array
    if way != "round":
        reach = generator.choice(NOISE_ULPS) * eps
        moved = array * (1 + reach * generator.uniform(-1, 1, array.shape))
    if way != "move":
        moved = moved.astype(dtype).astype(array.dtype)
        if generator.random() < SHARE_OF_FLUSHED:
            moved = np.where(abs(moved) < _smallest_computed(dtype), 0 * moved, moved)
    if np.array_equal(array, np.rint(array), equal_nan=True):
        return np.where(abs(array) <= 2 / eps, array, moved)
    return moved


def _smallest_computed(dtype: np.dtype[Any]) -> float:
    """Below which a number may become zero, as the shares of a softmax do; f16 is f32 there."""
    single = precision_of(np.dtype(np.float32)).smallest_normal
    return min(precision_of(dtype).smallest_normal, single)


def _sign_zeros(array: Any, generator: np.random.Generator) -> Any:
    """What cancelled is a zero of either sign: the order of the sum decides."""
    if array.dtype.kind == "c":
        parts = [_sign_zeros(part, generator) for part in (array.real, array.imag)]
        made = np.empty(array.shape, array.dtype)
        made.real, made.imag = parts
        return made
    if array.dtype.kind != "f":
        return array
    return np.where(array == 0, generator.choice([-0.0, 0.0], array.shape), array)


def _blur_specials(op: Op, array: Any, generator: np.random.Generator) -> Any:
    """NaN and infinities of complex numbers and transforms: the formula decides which they are."""
    nan, inf = np.nan, np.inf
    if array.dtype.kind == "c":
        others = [complex(nan, nan), complex(inf, inf), complex(-inf, -inf)]
    elif isinstance(op, Irfft):
        others = [nan, inf, -inf]
    else:
        return array
    finite = np.isfinite(array)
    if finite.all():
        return array
    kept = finite | (generator.random(array.shape) < 1 / (1 + len(others)))
    return np.where(kept, array, generator.choice(others, array.shape))


def _sums(node: Node) -> bool:
    """Whether an op adds up numbers of its operand, so that what it rounds may cancel."""
    if node.op.has(Trait.ELEMENTWISE) or node.op.has(Trait.STORAGE) or not node.operands:
        return False
    types = [value.type for value in (node.operands[0], *node.results)]
    return all(isinstance(each, TensorType) and _is_inexact(each) for each in types)


def _is_inexact(type_: TensorType) -> bool:
    return type_.dtype.is_float or type_.dtype.is_complex


def _rotate_vectors(
    op: Op, results: tuple[Any, ...], generator: np.random.Generator
) -> tuple[Any, ...]:
    """Other eigenvectors or singular vectors, as right as these: their phases are free."""
    if isinstance(op, Eigh | Eig):
        values, vectors = results
        return values, vectors * _signs(vectors, vectors.shape[-1], generator)[..., None, :]
    if isinstance(op, Svd):
        left, values, right = results
        count = values.shape[-1]
        signs = _signs(left, count, generator)
        left, right = left.copy(), right.copy()
        left[..., :count] *= signs[..., None, :]
        right[..., :count, :] *= signs.conj()[..., :, None]
        return left, values, right
    return results


def _signs(vectors: Array, count: int, generator: np.random.Generator) -> Array:
    shape = (*vectors.shape[:-2], count)
    if vectors.dtype.kind == "c":
        phases: Array = np.exp(2j * np.pi * generator.random(shape))
        return phases
    return np.asarray(generator.choice([-1.0, 1.0], shape))
