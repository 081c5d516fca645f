"""Runs an imported model on torch tensors. The interpreter does the work, until a compiler does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from monograph.errors import InputError
from monograph.frontends.torch.program import ImportedModel, InputKind, Output
from monograph.frontends.torch.types import array_from_torch, array_to_torch
from monograph.ir.interpret import interpret
from monograph.ir.types import Array


class InterpretedModel:
    """A model that takes and returns torch tensors, in torch's own structure.

    ``state`` holds the parameters and buffers that are inputs of the graph, by torch's names; what
    the graph updates is written back into these very tensors, and into the caller's arguments.
    """

    def __init__(self, model: ImportedModel, state: Mapping[str, torch.Tensor] | None = None):
        self.model = model
        self.state = dict(state or {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the torch program returns for these arguments."""
        leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
        if self.model.input_spec is not None and spec != self.model.input_spec:
            raise InputError(
                "the arguments have another structure than the example inputs",
                expected=str(self.model.input_spec),
                found=str(spec),
            )
        returned = self.run(leaves)
        if self.model.output_spec is None:
            return returned
        return torch.utils._pytree.tree_unflatten(returned, self.model.output_spec)

    def run(self, leaves: Sequence[Any]) -> list[Any]:
        """The flat results for flat arguments."""
        given = [self._argument(position, leaves) for position in range(len(self.model.inputs))]
        results = interpret(self.model.graph, [_as_array(item) for item in given])
        for output, position in self.model.graph.updates.items():
            target = given[position]
            if isinstance(target, torch.Tensor):
                with torch.no_grad():
                    target.copy_(array_to_torch(results[output]))
        return [_leaf(output, results) for output in self.model.outputs]

    def _argument(self, index: int, leaves: Sequence[Any]) -> Any:
        described = self.model.inputs[index]
        if described.kind is InputKind.USER and described.position is not None:
            return leaves[described.position]
        if described.kind is InputKind.RANDOM_KEY:
            return _fresh_key()
        if described.name not in self.state:
            raise InputError(
                f"the model's state has no {described.name!r}", hint="pass it in state"
            )
        return self.state[described.name]


def _leaf(output: Output, results: Sequence[Any]) -> Any:
    if output.position is None:
        return None
    array = results[output.position]
    return array.item() if output.is_number else array_to_torch(array)


def _as_array(item: Any) -> Array | int | float:
    return array_from_torch(item) if isinstance(item, torch.Tensor) else item


def _fresh_key() -> Array:
    """A key drawn from torch's generator, so that ``torch.manual_seed`` governs it."""
    return torch.randint(0, 2**31, (2,)).numpy().astype(np.uint32)
