"""Example inputs of torch modules, written as types: ``"f32[batch, 8]"``.

``torch.export`` wants tensors to run a module on, and a ``Dim`` for every size that is free. Both
follow from types: a symbolic size becomes a ``Dim`` of its name and range, and an example has some
size in that range, another one for each symbol, so that none is taken for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from monograph.errors import InputError
from monograph.frontends.torch.types import dtype_to_torch
from monograph.ir.dims import Dim, Symbol
from monograph.ir.text import parse_type
from monograph.ir.types import TensorType, symbols_of

FIRST_SIZE = 64
"""The size of the first symbol in examples; the next ones are ``SIZE_STEP`` larger each."""
SIZE_STEP = 8


def has_types(examples: Sequence[Any]) -> bool:
    """Whether any of the example inputs is a type, as text."""
    return any(isinstance(leaf, str) for leaf in torch.utils._pytree.tree_leaves(list(examples)))


def example_tensors(examples: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """The examples with tensors in the place of types, and what ``torch.export`` calls their
    ``dynamic_shapes``; None if no size is free.
    """
    made = _Examples()
    tensors = tuple(_map_tree(made.tensor, each) for each in examples)
    shapes = tuple(_map_tree(made.dynamic_shape, each) for each in examples)
    return tensors, shapes if made.dims else None


def _map_tree(function: Any, tree: Any) -> Any:
    return torch.utils._pytree.tree_map(function, tree)


class _Examples:
    """The symbols that types have in common, their ``Dim`` and the sizes that stand for them."""

    def __init__(self) -> None:
        self.symbols: dict[str, Symbol] = {}
        self.dims: dict[Symbol, Any] = {}

    def tensor(self, leaf: Any) -> Any:
        """Random floats or zeros of the type; what is no type stays as it is."""
        if not isinstance(leaf, str):
            return leaf
        type_ = self._type(leaf)
        shape = [self._size(dim, leaf) for dim in type_.shape]
        dtype = dtype_to_torch(type_.dtype)
        if type_.dtype.is_float:
            return torch.randn(shape).to(dtype)
        return torch.zeros(shape, dtype=dtype)

    def dynamic_shape(self, leaf: Any) -> dict[int, Any] | None:
        """The free axes of a type; None for what is no type."""
        if not isinstance(leaf, str):
            return None
        shape = self._type(leaf).shape
        return {k: self.dims[dim] for k, dim in enumerate(shape) if isinstance(dim, Symbol)}

    def _type(self, text: str) -> TensorType:
        type_ = parse_type(text, self.symbols)
        self.symbols.update((symbol.name, symbol) for symbol in symbols_of(type_))
        if isinstance(type_, TensorType):
            return type_
        raise InputError(
            f"{text!r} is not the type of an example", expected="a tensor type: f32[batch, 4]"
        )

    def _size(self, dim: Dim, text: str) -> int:
        if isinstance(dim, int):
            return dim
        if not isinstance(dim, Symbol):
            raise InputError(
                f"{text!r} has a size that is computed of others",
                expected="numbers and names: f32[batch, 4]",
                found=str(dim),
                hint="give a tensor as the example, and dynamic_shapes",
            )
        size = FIRST_SIZE + SIZE_STEP * list(self.symbols).index(dim.name)
        if dim not in self.dims:
            self.dims[dim] = torch.export.Dim(dim.name, min=dim.lower, max=dim.upper)
        largest = size if dim.upper is None else dim.upper
        return max(dim.lower, min(size, largest))
