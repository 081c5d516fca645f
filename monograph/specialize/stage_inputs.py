"""Guards of a stage: which arguments select a plan, and what the plan is given.

Numbers that a node asked for are read as *sizes* where they can be: those from 2 on become symbols,
so that one program serves ``k = 10`` and ``k = 300``. Smaller ones mean something of their own (a
dimension of 1 is broadcast, 0 and -1 are instructions to a reshape) and stay numbers. In the place
of the argument the plan is given an array without elements whose dimensions are the sizes. Whole
floats are read likewise: exporters write the limit of a range as one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from monograph.ir.types import Array, OptionalType, TensorType, UnrankedType, ValueType, bool_

LARGEST_CONTENTS = 4096
"""Elements that contents may have to be compiled for; more are data, not a decision."""
MOST_SIZES_READ = 16
"""Elements of an argument that may be read as sizes."""
FIRST_SIZE = 2
"""The least number that is read as a size."""
LAST_SIZE = 2**31 - 1
"""The largest one: what is larger means "to the end"."""
LAST_FLOAT_SIZE = 2**24
"""The largest one that is read of a float: up to here f32 holds every whole number."""


class SizePattern(NamedTuple):
    """Numbers of which some are sizes: those are None."""

    shape: tuple[int, ...]
    numbers: tuple[int | None, ...]

    @property
    def has_sizes(self) -> bool:
        """Whether any number is a size."""
        return None in self.numbers


def may_be_sizes(type_: ValueType) -> bool:
    """Whether arguments of a type may hold sizes."""
    if not isinstance(type_, TensorType | UnrankedType):
        return False
    return type_.dtype.is_integer or (type_.dtype.is_float and type_.dtype.bits >= 32)


def pattern_of(argument: Array) -> SizePattern | None:
    """What is read of an argument; None if it is no scalar and no short vector."""
    if argument.ndim > 1 or argument.size > MOST_SIZES_READ:
        return None
    numbers = argument.reshape(-1).tolist()
    last = LAST_SIZE
    if argument.dtype.kind == "f":
        if not all(each.is_integer() for each in numbers):
            return None
        last = LAST_FLOAT_SIZE
    return SizePattern(
        argument.shape,
        tuple(None if FIRST_SIZE <= each <= last else int(each) for each in numbers),
    )


def likely_arguments(type_: ValueType) -> list[Array]:
    """What stands for the arguments of a type that calls are likely to bring, if that is known."""
    if not isinstance(type_, TensorType) or type_.size != 1 or type_.rank > 1:
        return []
    shape = type_.static_shape()
    if type_.dtype is bool_:
        return [np.full(shape, True), np.full(shape, False)]
    return [np.full(shape, FIRST_SIZE, type_.dtype.numpy)] if may_be_sizes(type_) else []


def contents_key(argument: Any) -> Hashable:
    """An argument's contents as a key."""
    if np.size(argument) > LARGEST_CONTENTS:
        return ("large", np.shape(argument))
    given = np.asarray(argument)
    if given.dtype.kind == "O":
        return (given.shape, tuple(given.reshape(-1).tolist()))
    return (given.shape, given.tobytes())


def structure_of(type_: ValueType, item: Any) -> Any:
    """What an argument says that its type leaves open: ranks, lengths, absence. Hashable."""
    if isinstance(type_, TensorType):
        return None
    if isinstance(type_, UnrankedType):
        return np.ndim(item)
    if item is None:
        return "absent"
    if isinstance(type_, OptionalType):
        return ("present", structure_of(type_.element, item))
    return tuple(structure_of(type_.element, each) for each in item)


def leaves_of(item: Any) -> list[Any]:
    """The tensors of an argument, in the order of a settled graph's inputs."""
    if isinstance(item, list | tuple):
        return [leaf for each in item for leaf in leaves_of(each)]
    return [] if item is None else [item]


def nest_results(tree: Any, results: Sequence[Any]) -> Any:
    """Results as the source's outputs are nested."""
    if isinstance(tree, list):
        return [nest_results(each, results) for each in tree]
    return None if tree is None else results[tree]


class Feed:
    """Makes a plan's arguments of a stage's: tensors alone, without those that it knows."""

    def __init__(
        self,
        types: Sequence[ValueType],
        known: Collection[int] = (),
        sizes: Mapping[int, SizePattern] | None = None,
    ) -> None:
        self._kept = [k for k in range(len(types)) if k not in known]
        given = (sizes or {}).items()
        self._sized = [(self._kept.index(k), each.numbers) for k, each in given]
        loose = {k for k, each in enumerate(types) if not isinstance(each, TensorType)}
        self._is_plain = not loose.intersection(self._kept).difference(sizes or {})

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The plan's arguments."""
        given = [arguments[k] for k in self._kept]
        for k, numbers in self._sized:
            given[k] = _dimensions(given[k], numbers)
        return given if self._is_plain else [leaf for item in given for leaf in leaves_of(item)]


def _dimensions(argument: Array, numbers: tuple[int | None, ...]) -> Array:
    """An array without elements whose dimensions are the sizes among an argument's numbers."""
    pairs = zip(argument.reshape(-1).tolist(), numbers, strict=True)
    sizes = [int(number) for number, known in pairs if known is None]
    return np.empty((*sizes, 0), np.bool_)
