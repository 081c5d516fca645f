"""Inputs as a program wants them: checked quickly when they fit, converted when they do not.

A program reads each input where it lies, row by row unless it was compiled for other strides (an
example input that was a transpose, say). An array of the right type in another arrangement is
copied into the one that the program reads; anything else is an error that names the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph
from monograph.ir.interpret import bind_inputs
from monograph.ir.types import Array, TensorType
from monograph.runtime.size_binding import SizeBinder


@dataclass(frozen=True)
class Expected:
    """What one input must be like to be passed as it is; ``shape`` is None if it is symbolic."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    """In bytes; None for row-major."""


MOST_SHAPES = 1024
"""How many combinations of symbolic shapes a program remembers the sizes of."""


class Arguments:
    """The inputs of one program, whose sizes are those of ``symbols``, in order."""

    def __init__(
        self,
        graph: Graph,
        strides: Mapping[int, tuple[int, ...]],
        symbols: Sequence[Symbol] = (),
    ) -> None:
        self.graph = graph
        self.expected = [
            _expect(value.tensor, strides.get(k)) for k, value in enumerate(graph.inputs)
        ]
        self._quick = [(each.dtype, each.shape, each.strides) for each in self.expected]
        self._is_static = all(each.shape is not None for each in self.expected)
        self._sizes: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}
        self._binder = SizeBinder([value.tensor.shape for value in graph.inputs], symbols)

    def converted(self, inputs: Sequence[Any] | Mapping[str, Any]) -> list[Array]:
        """The inputs as the program reads them; what does not fit is named."""
        arrays, _ = bind_inputs(self.graph, inputs)
        return [_arrange(*pair) for pair in zip(arrays, self.expected, strict=True)]

    def fitting(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """The symbolic sizes, if the arrays can be passed as they are; None if not."""
        if len(inputs) != len(self._quick):
            return None
        for array, (dtype, shape, strides) in zip(inputs, self._quick, strict=True):
            if type(array) is not np.ndarray or array.dtype != dtype:
                return None
            if shape is not None and array.shape != shape:
                return None
            if not array.flags.c_contiguous if strides is None else array.strides != strides:
                return None
        return self.find_sizes(inputs)

    def find_sizes(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """The symbolic sizes for inputs of these shapes; None if they do not fit, or if that is
        hard to tell.
        """
        found = self.known_sizes(inputs)
        if found is not None:
            return found
        found = self._binder.sizes([each.shape for each in inputs])
        if found is not None:
            self.remember(inputs, found)
        return found

    def known_sizes(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """The symbolic sizes for inputs of these shapes, if they have been seen before."""
        if self._is_static:
            return ()
        return self._sizes.get(tuple([each.shape for each in inputs]))

    def remember(self, inputs: Sequence[Array], sizes: tuple[int, ...]) -> None:
        """That inputs of these shapes have these sizes."""
        if len(self._sizes) >= MOST_SHAPES:
            self._sizes.clear()
        self._sizes[tuple([each.shape for each in inputs])] = sizes


def _expect(type_: TensorType, strides: tuple[int, ...] | None) -> Expected:
    dtype = type_.dtype.numpy
    shape = type_.static_shape() if type_.is_static else None
    if strides is None:
        return Expected(dtype, shape, None)
    return Expected(dtype, shape, tuple(stride * dtype.itemsize for stride in strides))


def _arrange(array: Array, expected: Expected) -> Array:
    """The array with the strides that the program reads."""
    if expected.strides is None:
        return np.ascontiguousarray(array, expected.dtype).reshape(np.shape(array))
    if array.strides == expected.strides:
        return array
    span = sum((n - 1) * s for n, s in zip(array.shape, expected.strides, strict=True))
    memory = np.empty(span + array.dtype.itemsize, np.uint8)
    copy: Array = np.ndarray(array.shape, expected.dtype, memory.data, strides=expected.strides)
    copy[...] = array
    if _overlaps(array.shape, expected.strides) and not _is_same(copy, array):
        raise InputError(
            "the program was compiled for elements that share memory",
            expected=f"strides of {expected.strides} bytes, or equal elements where they meet",
            found=str(array.strides),
            hint="compile it with an example that is not expanded",
        )
    return copy


def _is_same(copy: Array, array: Array) -> bool:
    """Whether every element is what it was, or still NaN."""
    return bool(((copy == array) | ((copy != copy) & (array != array))).all())


def element_strides(array: Any) -> tuple[int, ...] | None:
    """The strides of an example that is not row-major, in elements; None if it is.

    Only arrangements in which every element has a place of its own, and neighbours are whole
    elements apart, can be compiled for.
    """
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous or array.size == 0:
        return None
    size = array.dtype.itemsize
    if any(stride < 0 or stride % size for stride in array.strides):
        return None
    if _overlaps(array.shape, array.strides):
        return None
    return tuple(stride // size for stride in array.strides)


def _overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements may share a place, as in an array that was expanded."""
    pairs = zip(strides, shape, strict=True)
    reach = 0
    for stride, count in sorted(pair for pair in pairs if pair[1] > 1):
        if stride <= reach:
            return True
        reach += stride * (count - 1)
    return False
