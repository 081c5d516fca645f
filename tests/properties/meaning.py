"""Does a graph still mean the same? Exactly, or within the rounding that a rewrite may change.

Errors grow as they flow through a graph, and a comparison or a cast to int turns the smallest into
a large one. So *within rounding* is asked of one rewrite at a time: values that a pass leaves in
place, or replaces under their old name, are compared where they stand, and computation goes on from
the old value. What a rewrite may lose is measured by the largest number that the old spelling went
through: ``0.5 * x * (1 + erf(x/√2))`` of -5 is a difference of numbers near 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from monograph.ir.graph import Graph, Value
from monograph.ir.interpret import bind_inputs, evaluate_node
from monograph.ir.types import Array, DType, dtype_of

ROUNDINGS = {64: 1024, 32: 1024, 16: 64, 8: 8, 4: 2}
"""How many units in the last place a rewrite of floats of so many bits may be off, relative to the
largest number in it."""


def with_own_names(graph: Graph) -> Graph:
    """A copy whose values have names that no pass makes up: ``v0``, ``v1``…"""
    copy = graph.clone()
    values = [*copy.inputs, *(value for node in copy.nodes for value in node.results)]
    for index, value in enumerate(values):
        copy.rename(value, f"v{index}")
    return copy


def has_own_name(value: Value) -> bool:
    return value.name.startswith("v") and value.name[1:].isdigit()


def all_values(graph: Graph, inputs: Sequence[Any]) -> dict[str, Array]:
    """Every value of a graph by name, those that no output needs as well."""
    arrays, bindings = bind_inputs(graph, inputs)
    found: dict[Value, Array] = dict(zip(graph.inputs, arrays, strict=True))
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            results = evaluate_node(node, [found[value] for value in node.operands], bindings)
            found.update(zip(node.results, results, strict=True))
    return {value.name: array for value, array in found.items()}


def assert_same_values(before: Mapping[str, Array], after: Graph, inputs: Sequence[Any]) -> None:
    """Every value of a changed graph that has a name of the original's has its bits."""
    found = all_values(after, inputs)
    kept = [name for name in found if name in before]
    for name in kept:
        try:
            assert_same_bits(_tensors(found[name]), _tensors(before[name]))
        except AssertionError as error:
            raise AssertionError(f"%{name}: {error}") from None


def assert_same_bits(got: Sequence[Array], expected: Sequence[Array]) -> None:
    """Equal types and bits; a NaN is a NaN, whatever its sign and payload."""
    assert len(got) == len(expected)
    for position, (left, right) in enumerate(zip(got, expected, strict=True)):
        assert left.dtype == right.dtype and left.shape == right.shape, position
        parts = _real(left), _real(right)
        differs = _bits(parts[0]) != _bits(parts[1])
        if _is_float(parts[0]):
            differs &= ~(np.isnan(parts[0]) & np.isnan(parts[1]))
        assert not differs.any(), (
            f"output {position} differs: {parts[0][differs][:4]} is not {parts[1][differs][:4]}"
        )


@dataclass
class Rounding:
    """Holds the values of a changed graph against those of the original.

    ``strict`` asks for infinities and NaN in the same places. Otherwise nothing is asked of a value
    that went through +inf or NaN: ``x - log(sum(exp(x)))`` overflows to -inf where log_softmax has
    an answer, and softmax of a row with +inf has none, while ``exp(x) / sum(exp(x))`` has 0 beside
    its NaN. (-inf is what masks are made of.) ``finite`` asks for nothing where there was anything
    but finite numbers.
    """

    before: Graph
    values: Mapping[str, Array]
    strict: bool
    finite: bool = False

    def check(self, after: Graph, inputs: Sequence[Any]) -> None:
        """Evaluate ``after``, comparing every value that has a name of the original's."""
        arrays, bindings = bind_inputs(after, inputs)
        found: dict[Value, Array] = dict(zip(after.inputs, arrays, strict=True))
        kept = {value.name for node in after.nodes for value in node.results}
        kept.update(value.name for value in after.inputs)
        originals = {value.name: value for node in self.before.nodes for value in node.results}
        with np.errstate(all="ignore"):
            for node in after.nodes:
                results = evaluate_node(node, [found[value] for value in node.operands], bindings)
                for value, result in zip(node.results, results, strict=True):
                    found[value] = result
                    if has_own_name(value):
                        self._compare(originals[value.name], result, kept)
                        found[value] = self.values[value.name]
        for old, new in zip(self.before.outputs, after.outputs, strict=True):
            assert old.type == new.type
            self._compare(old, found[new], kept - {old.name})

    def _compare(self, old: Value, got: Array, kept: set[str]) -> None:
        expected = self.values[old.name]
        if not isinstance(expected, np.ndarray):  # a sequence or an optional
            assert_same_bits(_tensors(got), _tensors(expected))
            return
        assert got.dtype == expected.dtype and got.shape == expected.shape, old
        got, expected = _real(got), _real(expected)
        if not _is_float(expected):
            assert np.array_equal(got, expected), f"{old!r}: {got} is not {expected}"
            return
        scale, all_finite, overflowed = self._scale(old, kept)
        if (self.finite and not all_finite) or (overflowed and not self.strict):
            return
        left, right = got.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(right)
        if self.strict:
            assert np.array_equal(left[~finite], right[~finite], equal_nan=True), (
                f"{old!r}: {got} is not {expected}"
            )
        bound = scale * precision(dtype_of(expected.dtype))
        with np.errstate(invalid="ignore"):  # of infinities
            wrong = ~(np.abs(left - right) <= bound) & finite
        assert not wrong.any(), (
            f"{old!r}: {got[wrong][:4]} is not {expected[wrong][:4]} within {bound:.3g}"
        )

    def _scale(self, value: Value, kept: set[str]) -> tuple[float, bool, bool]:
        """The largest finite number on the way from kept values to ``value``; were all finite; was
        there any +inf or NaN?"""
        largest, finite, overflowed = 0.0, True, False
        pending, seen = [value], {value}
        while pending:
            each = pending.pop()
            for array in map(_real, _tensors(self.values[each.name])):
                if _is_float(array):
                    wide = array.astype(np.float64)
                    overflowed |= bool((~(wide < np.inf)).any())
                    wide = np.abs(wide)
                    numbers = np.isfinite(wide)
                    finite &= bool(numbers.all())
                    largest = max(largest, float(np.max(wide, where=numbers, initial=0.0)))
            if each.producer is None or (each.name in kept and each is not value):
                continue
            fresh = [operand for operand in each.producer.operands if operand not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        return largest, finite, overflowed


def precision(dtype: DType) -> float:
    """How far a rewrite may be off, relative to the largest number in it."""
    return float(ml_dtypes.finfo(dtype.numpy).eps) * ROUNDINGS[dtype.bits]


def _is_float(array: Array) -> bool:
    return dtype_of(array.dtype).is_float


def _tensors(value: Any) -> list[Array]:
    """The arrays that a value consists of: several if it is a sequence, none if it is absent."""
    if isinstance(value, np.ndarray):
        return [value]
    return [] if value is None else [array for item in value for array in _tensors(item)]


def _real(array: Array) -> Array:
    """Complex numbers as pairs of floats."""
    if array.dtype.kind != "c":
        return array
    return np.stack([array.real, array.imag])


def _bits(array: Array) -> Array:
    if array.dtype.kind in "bO":
        return array
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
