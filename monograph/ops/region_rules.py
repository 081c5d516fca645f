"""What control-flow ops share: tracing a callable to a region, and agreement of types.

As everywhere, a rule refuses only what is provably wrong: a carry of ``f32[n]`` may become
``f32[m]`` in the body, and is held against the actual sizes when the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monograph.errors import TypeRuleError
from monograph.ir.build import as_operands
from monograph.ir.dims import Dim, provably_different
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.region import RegionTracer
from monograph.ir.tree import Structure, flatten, unflatten
from monograph.ir.types import TensorType, ValueType
from monograph.ops.rules import require, same_dim


def trace_region(
    tracer: RegionTracer,
    name: str,
    call: Callable[..., Any],
    inputs: Sequence[tuple[str, ValueType]],
) -> tuple[Graph, Structure]:
    """A region from a callable, and the structure of what the callable returned."""
    structures: list[Structure] = []

    def flat(*arguments: Value) -> Sequence[Value]:
        leaves, structure = flatten(call(*arguments))
        structures.append(structure)
        return as_operands(current_graph(), leaves)

    return tracer.trace(name, flat, inputs), structures[0]


def check_structure(message: str, expected: Structure, found: Structure) -> None:
    """Raise a TypeRuleError with this message unless two structures are equal."""
    require(expected == found, message, expected=_describe(expected), found=_describe(found))


def _describe(structure: Structure) -> str:
    """A structure the way Python writes it, with ``*`` for each leaf."""
    return repr(unflatten(structure, ["*"] * structure.leaves)).replace("'*'", "*")


def check_inputs(where: str, region: Graph, types: Sequence[ValueType]) -> None:
    """A region's inputs must have these types."""
    require(
        len(region.inputs) == len(types),
        f"{where} has the wrong number of inputs",
        expected=f"{len(types)}: {', '.join(map(str, types)) or 'none'}",
        found=str(len(region.inputs)),
    )
    for value, type_ in zip(region.inputs, types, strict=True):
        message = f"{where}: input %{value.name} has the wrong type"
        check_type(message, expected=type_, found=value.type)


def check_carries(name: str, body: Graph, carry: Sequence[ValueType], *, exactly: bool) -> None:
    """The body's first outputs (all, if ``exactly``) must have the types of the carries."""
    count = len(body.outputs)
    require(
        count == len(carry) if exactly else count >= len(carry),
        f"{name}: the body returns too {'few' if count < len(carry) else 'many'} carries",
        expected=str(len(carry)),
        found=str(count),
    )
    for index, type_ in enumerate(carry):
        message = f"{name}: carry {index} changes its type in the body"
        check_type(message, expected=type_, found=body.outputs[index].type)


def check_type(message: str, *, expected: ValueType, found: ValueType) -> None:
    """Raise a TypeRuleError with this message if two types are provably different."""
    require(compatible(expected, found), message, expected=str(expected), found=found)


def compatible(a: ValueType, b: ValueType) -> bool:
    """Whether two types may be the same once symbols have values."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return a == b
    if (a.dtype, a.device, a.rank) != (b.dtype, b.device, b.rank):
        return False
    return not any(map(provably_different, a.shape, b.shape))


def meet(a: ValueType, b: ValueType) -> ValueType:
    """The type of a value that has one of two compatible types; ints are preferred to symbols."""
    if a == b or not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return a
    shape = tuple(same_dim("if", "dimensions", x, y) for x, y in zip(a.shape, b.shape, strict=True))
    return a.with_shape(shape)


def without_layout(type_: ValueType) -> ValueType:
    """A result's type: as the operand's, without its layout in memory."""
    return type_.with_shape(type_.shape) if isinstance(type_, TensorType) else type_


def sequence_type(type_: ValueType) -> TensorType:
    """A type that a scan can take apart along axis 0."""
    if isinstance(type_, TensorType) and type_.shape:
        return type_
    raise TypeRuleError(
        "scan: a sequence has no axis to be taken apart along",
        expected="a tensor of rank 1 or more",
        found=str(type_),
    )


def slice_type(type_: ValueType) -> TensorType:
    """The type of one step's part of a sequence."""
    sequence = sequence_type(type_)
    return sequence.with_shape(sequence.shape[1:])


def stack_type(type_: ValueType, length: Dim) -> TensorType:
    """The type of one output of every step, stacked along axis 0."""
    if not isinstance(type_, TensorType):
        raise TypeRuleError(
            "scan: an output cannot be stacked", expected="a tensor", found=str(type_)
        )
    return type_.with_shape((length, *type_.shape))


def is_float(value: Value) -> bool:
    """Whether gradients flow through a value."""
    return isinstance(value.type, TensorType) and value.type.dtype.is_differentiable
