"""Opaque calls: custom ops that hand arrays to torch and take arrays back.

A custom op from ``torch.library`` has no meaning that a compiler could see. It becomes one
``torch.call`` node, which names the op and holds its other arguments, and which reports can list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from monograph.errors import EvaluationError, UnsupportedError
from monograph.frontends.torch.schema import bind, find_mutated_arguments
from monograph.ir.dims import Shape, Symbol, SymbolicDim
from monograph.ir.foreign_call import ForeignCall
from monograph.ir.graph import Node, Value, current_graph
from monograph.ir.op import Trait, op
from monograph.ir.types import Array, DType, TensorType
from monograph.ops.rules import result_symbols

if TYPE_CHECKING:
    from monograph.frontends.torch.importer import Importer

Opaque: TypeAlias = bool | Callable[[Node], bool]
"""Which calls of torch's own ops may become opaque: none, those without a converter, or, beyond
these, every call that would draw random numbers or become nodes of which the function says no."""

BUILT_IN = frozenset({"aten", "prims", "prim", "higher_order", "quantized", "profiler"})


@op("torch.call", traits=Trait.STORAGE | Trait.EFFECT)
class TorchCall(ForeignCall):
    """What a torch op returns for these operands; the compiler knows nothing else of it.

    ``arguments`` is the JSON of all arguments by name, ``{"operand": 0}`` in place of tensors, and
    ``sizes`` are the dimensions that stand in it as ``{"size": 0}``. ``written`` names arguments
    that the op overwrites: their new contents are its last results.
    """

    target: str
    arguments: str
    dtypes: tuple[DType, ...]
    shapes: tuple[Shape, ...]
    sizes: Shape = ()
    written: tuple[str, ...] = ()

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        return tuple(TensorType(*each) for each in zip(self.dtypes, self.shapes, strict=True))

    def evaluate(self, *operands: Array) -> tuple[Array, ...]:
        from monograph.frontends.torch.types import array_from_torch, array_to_torch

        # Copies where the op writes, so that nobody else's array changes.
        tensors = [array_to_torch(array) for array in operands]
        if self.written:
            tensors = [tensor.clone() for tensor in tensors]
        return tuple(array_from_torch(tensor) for tensor in self.call(tensors))

    def call(self, tensors: Sequence[Any]) -> list[Any]:
        """What torch returns, and the new contents of what it overwrites, as tensors."""
        import torch

        from monograph.frontends.torch.schema import overload_named

        given = self.keyword_arguments(tensors, self.sizes)
        function = overload_named(self.target)
        with torch.no_grad():
            returned = function(
                **{
                    parameter.name: given[parameter.name]
                    for parameter in function._schema.arguments
                    if parameter.name in given
                }
            )
        fresh = _tensors(returned)[: len(self.dtypes) - len(self.written)]
        found = [*fresh, *(given[name] for name in self.written)]
        if len(found) != len(self.dtypes):
            raise EvaluationError(
                f"{self.target} returned {len(found)} tensors", expected=str(len(self.dtypes))
            )
        return found

    def keyword_arguments(self, operands: Sequence[Any], sizes: Sequence[Any]) -> dict[str, Any]:
        """All arguments by name, with these operands and sizes in their places."""
        read = json.loads(self.arguments)
        return {name: _decode(item, operands, sizes) for name, item in read.items()}

    def binds(self) -> tuple[Symbol, ...]:
        return result_symbols(*(size for shape in self.shapes for size in shape))


def is_custom(target: Any) -> bool:
    """Whether an op is one of the user's own, not one of torch's."""
    return target.namespace not in BUILT_IN


def call(importer: Importer, node: Any, target: Any) -> Any:
    """An opaque call of ``target`` in place of a node."""
    importer.opaque_calls.append(str(target))
    types = importer.result_types(node)
    if any(type_ is None for type_ in types):
        raise UnsupportedError(f"{target} returns more than tensors; it cannot be called opaquely")
    results = _create(importer, node, target, [type_ for type_ in types if type_ is not None], ())
    recorded = node.meta.get("val")
    return tuple(results) if isinstance(recorded, list | tuple) else results[0]


def call_in_place(importer: Importer, node: Any) -> Any:
    """An opaque call of an op that overwrites arguments: their new contents are results too."""
    target = node.target
    if not (is_custom(target) or importer.opaque):
        raise UnsupportedError(f"{target} has no functional form and no converter")
    importer.opaque_calls.append(str(target))
    names = find_mutated_arguments(target)
    bound = bind(node, target._schema)
    returns = zip(importer.result_types(node), target._schema.returns, strict=False)
    types = [type_ for type_, each in returns if type_ is not None and each.alias_info is None]
    written = [type_ for name in names for type_ in importer.result_types(bound[name])]
    types.extend(type_ for type_ in written if type_ is not None)
    results = _create(importer, node, target, types, names)
    return importer.write_results(node, results)


def _create(
    importer: Importer,
    node: Any,
    target: Any,
    types: Sequence[TensorType],
    written: tuple[str, ...],
) -> tuple[Value, ...]:
    operands: list[Value] = []
    sizes: list[SymbolicDim | int] = []
    arguments = {
        name: _encode(importer, given, operands, sizes)
        for name, given in bind(node, target._schema).items()
    }
    made = TorchCall(
        str(target),
        json.dumps(arguments),
        tuple(type_.dtype for type_ in types),
        tuple(type_.shape for type_ in types),
        tuple(sizes),
        written,
    )
    return current_graph().create(made, operands).results


def _encode(importer: Importer, given: Any, operands: list[Value], sizes: list[Any]) -> Any:
    """An argument as JSON; tensors go to ``operands`` and symbolic sizes to ``sizes``."""
    import torch

    if isinstance(given, list | tuple):
        return [_encode(importer, item, operands, sizes) for item in given]
    if isinstance(given, torch.dtype | torch.layout | torch.memory_format):
        return {"torch": str(given).removeprefix("torch.")}
    if isinstance(given, torch.device):
        return {"device": str(given)}
    found = importer.argument(given)
    if isinstance(found, Value):
        operands.append(found)
        return {"operand": len(operands) - 1}
    if isinstance(found, SymbolicDim):
        sizes.append(found)
        return {"size": len(sizes) - 1}
    if isinstance(found, complex):
        return {"complex": [found.real, found.imag]}
    if found is None or isinstance(found, bool | int | float | str):
        return found
    if isinstance(found, list | tuple):
        return [_encode(importer, item, operands, sizes) for item in found]
    raise UnsupportedError(f"an opaque call cannot keep an argument of type {type(found).__name__}")


def _decode(given: Any, tensors: Sequence[Any], sizes: Sequence[Any]) -> Any:
    import torch

    if isinstance(given, list):
        return [_decode(item, tensors, sizes) for item in given]
    if not isinstance(given, dict):
        return given
    if "operand" in given:
        return tensors[given["operand"]]
    if "size" in given:
        return sizes[given["size"]]
    if "torch" in given:
        return getattr(torch, given["torch"])
    if "device" in given:
        return torch.device(given["device"])
    return complex(*given["complex"])


def _tensors(returned: Any) -> list[Any]:
    import torch

    if isinstance(returned, torch.Tensor):
        return [returned]
    if isinstance(returned, list | tuple):
        return [tensor for item in returned for tensor in _tensors(item)]
    return []
