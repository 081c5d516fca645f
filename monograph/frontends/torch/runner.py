"""Runs an imported model on torch tensors, by the interpreter or what a compiler made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from monograph.errors import InputError
from monograph.frontends.torch.calling import call_text, reorder_dicts
from monograph.frontends.torch.memory_order import transpose_back
from monograph.frontends.torch.program import ImportedModel, Input, InputKind, Output
from monograph.frontends.torch.types import array_from_torch, array_to_torch
from monograph.ir.aliasing import refuse_aliases
from monograph.ir.interpret import interpret
from monograph.ir.parameters import Parameters
from monograph.ir.types import Array


class TorchModel:
    """A model that takes and returns torch tensors, in torch's own structure.

    ``state`` holds the parameters and buffers that are inputs of the graph, by torch's names; what
    the graph updates is written back into these very tensors, and into the caller's arguments.
    ``run`` computes the graph's outputs of its inputs; the interpreter does if it is None.
    ``run_tensors`` does so on the memory of tensors, or says None where it cannot. ``parameters``
    lets arguments be given in other forms than the example inputs were.
    """

    def __init__(
        self,
        model: ImportedModel,
        state: Mapping[str, torch.Tensor] | None = None,
        run: Callable[[Sequence[Any]], Sequence[Array]] | None = None,
        run_tensors: Callable[[Sequence[Any]], list[Any] | None] | None = None,
        parameters: Parameters | None = None,
    ):
        self.model = model
        self.parameters = parameters
        self.state = dict(state or {})
        self.evaluate = run or (lambda arrays: interpret(model.graph, arrays))
        self._plain_arguments = _plain_arguments(model)
        self._arguments = frozenset(
            number for number, each in enumerate(model.inputs) if each.kind is InputKind.USER
        )
        self.evaluate_tensors = run_tensors if _are_plain(model.outputs) else None
        self._order = [each.position or 0 for each in model.outputs]
        self._nest = _nester(model.output_spec)
        if any(each.is_turned for each in model.outputs):
            self._nest = partial(_transpose_and_nest, outputs=model.outputs, nest=self._nest)

    @property
    def returned(self) -> type | Callable[[list[Any]], Any] | None:
        """What is returned, if it is made of tensors just as the graph gives them.

        The class if it is all of them in order (a tensor, or a tuple or list), or a function that
        nests them. None if the arguments are something else than the graph's inputs in order.
        """
        if self._plain_arguments is None or not _are_plain(self.model.outputs):
            return None
        spec, order = self.model.output_spec, self._order
        nested = partial(_choose_and_nest, order=order, nest=self._nest)
        is_turned = any(each.is_turned for each in self.model.outputs)
        if is_turned or order != list(range(len(self.model.graph.outputs))):
            return nested
        if spec is None or spec.is_leaf():
            return list if spec is None else torch.Tensor
        is_flat = spec.type in (tuple, list) and all(each.is_leaf() for each in spec.children())
        return spec.type if is_flat else nested

    @property
    def names(self) -> tuple[str, ...]:
        """What arguments may be called, as far as that is known."""
        known = self.parameters
        return () if known is None else (*known.signature.parameters, *known.named)

    @property
    def order(self) -> list[int | None] | None:
        """Which of the graph's outputs are returned one after another; None stands for None.

        None altogether if the arguments are something else than the graph's inputs in order, or
        what is returned is more than tensors just as the graph gives them.
        """
        outputs = self.model.outputs
        if self._plain_arguments is None or not _are_plain(
            [each for each in outputs if each.position is not None]
        ):
            return None
        return [each.position for each in outputs]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the torch program returns for these arguments."""
        is_flat = not kwargs and len(args) == self._plain_arguments
        if is_flat and self.evaluate_tensors is not None:
            tensors = self.evaluate_tensors(args)
            if tensors is not None:
                return self._nest([tensors[k] for k in self._order])
        if is_flat and all(map(_is_plain, args)):
            results = self.evaluate([_as_plain_array(each) for each in args])
            leaves = [_leaf(output, results) for output in self.model.outputs]
            return _nest(leaves, self.model.output_spec)
        leaves, spec = torch.utils._pytree.tree_flatten((args, kwargs))
        if self.model.input_spec is not None and spec != self.model.input_spec:
            leaves = self._rearrange_leaves(args, kwargs, spec)
        for each in self.model.fixed:
            each.check(leaves[each.position])
        return _nest(self.run(leaves), self.model.output_spec)

    def _rearrange_leaves(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], spec: Any
    ) -> list[Any]:
        """The leaves of arguments that are given by name, or in another order of names."""
        found = self.parameters and self.parameters.arranged(args, kwargs)
        ordered = reorder_dicts(found or (tuple(args), dict(kwargs)), self.model.input_spec)
        leaves, arranged = torch.utils._pytree.tree_flatten(ordered)
        if arranged == self.model.input_spec:
            return leaves
        raise InputError(
            "the arguments have another structure than the example inputs",
            expected=call_text(self.model.input_spec),
            found=call_text(spec),
        )

    def run(self, leaves: Sequence[Any]) -> list[Any]:
        """The flat results for flat arguments."""
        given = [self._argument(position, leaves) for position in range(len(self.model.inputs))]
        arrays = [_as_array(item) for item in given]
        if self.model.graph.updates:
            refuse_aliases(self.model.graph, self._apart(arrays), self._arguments)
        results = self.evaluate(arrays)
        for output, position in self.model.graph.updates.items():
            target = given[position]
            if isinstance(target, torch.Tensor):
                overwrite(target, _as_tensor(results[output]))
        return [_leaf(output, results) for output in self.model.outputs]

    def _apart(self, arrays: Sequence[Any]) -> list[Any]:
        """The inputs without the memory that others are views of: the trace knew of that."""
        kinds = (each.kind for each in self.model.inputs)
        return [
            None if kind is InputKind.MEMORY else array
            for kind, array in zip(kinds, arrays, strict=True)
        ]

    def _argument(self, index: int, leaves: Sequence[Any]) -> Any:
        described = self.model.inputs[index]
        if described.kind is InputKind.USER and described.position is not None:
            return leaves[described.position]
        if described.kind is InputKind.MEMORY and described.position is not None:
            return _memory(leaves[described.position], described)
        if described.kind is InputKind.RANDOM_KEY:
            return fresh_key()
        if described.name not in self.state:
            raise InputError(
                f"the model's state has no {described.name!r}", hint="pass it in state"
            )
        return self.state[described.name]


def _are_plain(outputs: Sequence[Output]) -> bool:
    """Whether all outputs are tensors just as the graph gives them."""
    return all(
        each.position is not None and not each.is_number and not each.is_half_complex
        for each in outputs
    )


PLAIN = frozenset(
    (torch.float32, torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)
)
"""Dtypes that NumPy has too, and most tensors are of."""


def _plain_arguments(model: ImportedModel) -> int | None:
    """How many tensors the program takes, if it takes them one by one and changes none."""
    count = len(model.inputs)
    positions = [each.position for each in model.inputs if each.kind is InputKind.USER]
    if positions != list(range(count)) or model.graph.updates:
        return None
    if model.input_spec is None:  # a graph of Dynamo's: the arguments are never nested
        return count
    _, flat = torch.utils._pytree.tree_flatten((tuple(range(count)), {}))
    return count if flat == model.input_spec else None


def _is_plain(item: Any) -> bool:
    """Whether an argument is a dense tensor in the processor's memory, of a dtype NumPy has."""
    return (
        type(item) is torch.Tensor
        and item.dtype in PLAIN
        and item.is_cpu
        and item.layout is torch.strided
        and not item.is_neg()
        and not item.is_nested
    )


def _as_plain_array(tensor: torch.Tensor) -> Array:
    array: Array = (tensor.detach() if tensor.requires_grad else tensor).numpy()
    return array


def _choose_and_nest(
    tensors: list[Any], order: Sequence[int], nest: Callable[[list[Any]], Any]
) -> Any:
    return nest([tensors[k] for k in order])


def _transpose_and_nest(
    tensors: list[Any], outputs: Sequence[Output], nest: Callable[[list[Any]], Any]
) -> Any:
    return nest([transpose_back(*pair) for pair in zip(tensors, outputs, strict=True)])


def _nester(spec: Any) -> Callable[[list[Any]], Any]:
    """``_nest`` for one structure, with its questions asked beforehand."""
    if spec is None or spec.is_leaf():
        return list if spec is None else itemgetter(0)
    if spec.type in (tuple, list) and all(each.is_leaf() for each in spec.children()):
        made: Callable[[list[Any]], Any] = spec.type
        return made
    take = _taker(spec)
    if take is None:
        return partial(torch.utils._pytree.tree_unflatten, treespec=spec)
    return lambda leaves: take(iter(leaves))


def _taker(spec: Any) -> Callable[[Iterator[Any]], Any] | None:
    """What takes a structure's leaves one by one; None for classes that only torch builds."""
    if spec.is_leaf():
        return next
    parts = [_taker(each) for each in spec.children()]
    known = [each for each in parts if each is not None]
    if len(known) != len(parts):
        return None
    if spec.type is dict:
        pairs = list(zip(spec.context, known, strict=True))
        return lambda leaves: {key: part(leaves) for key, part in pairs}
    if spec.type not in (tuple, list):
        return None
    build = spec.type
    return lambda leaves: build([part(leaves) for part in known])


def _nest(leaves: list[Any], spec: Any) -> Any:
    if spec is None:
        return leaves
    if spec.is_leaf():
        return leaves[0]
    return torch.utils._pytree.tree_unflatten(leaves, spec)


def _memory(tensor: torch.Tensor, described: Input) -> torch.Tensor:
    """All of the memory that an argument is a view of, which must be the view that was traced."""
    view = (tensor.stride(), tensor.storage_offset())
    if view != described.view:
        raise InputError(
            f"the program reads memory around {described.name!r}, and that lies elsewhere",
            expected=f"strides and offset {described.view}",
            found=str(view),
        )
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())


def overwrite(target: torch.Tensor, value: torch.Tensor) -> None:
    """Give an argument its new contents; one of another size is resized, as ``out=`` does."""
    with torch.no_grad():
        if target.shape != value.shape:
            target.resize_(value.shape)
        try:
            target.copy_(value)
        except RuntimeError as error:  # several elements in one place, as expand makes them
            raise InputError(
                f"an argument that the program writes cannot be written: {error}"
            ) from error


def _leaf(output: Output, results: Sequence[Any]) -> Any:
    if output.position is None:
        return output.word
    array = results[output.position]
    if output.is_number:
        return array.item()
    tensor = transpose_back(_as_tensor(array), output)
    return tensor.to(torch.complex32) if output.is_half_complex else tensor


def _as_array(item: Any) -> Any:
    """An argument for a program: tensors on a GPU stay there, and a program may take them."""
    if not isinstance(item, torch.Tensor) or item.is_cuda:
        return item
    return array_from_torch(item)


def _as_tensor(result: Any) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else array_to_torch(result)


def fresh_key() -> Array:
    """A key drawn from torch's generator, so that ``torch.manual_seed`` governs it."""
    return torch.randint(0, 2**31, (2,)).numpy().astype(np.uint32)
