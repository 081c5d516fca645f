"""Sequences and optionals."""

from __future__ import annotations

from collections.abc import Sequence

from monograph import functional as F
from monograph.frontends.onnx.converters.control import run
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import Results, converter
from monograph.frontends.onnx.types import value_type
from monograph.ir.build import apply
from monograph.ir.graph import Value
from monograph.ir.types import OptionalType, SequenceType, TensorType, f32
from monograph.ops import sequence as ops


@converter("SequenceEmpty")
def sequence_empty(node: OnnxNode) -> Value:
    """A sequence with no element."""
    return apply(ops.SequenceEmpty(node.dtype("dtype", f32)))


@converter("SequenceConstruct", any_types=True)
def sequence_construct(node: OnnxNode) -> Value:
    """The operands as a sequence."""
    return apply(ops.SequenceConstruct(), *node.given())


@converter("SequenceInsert", any_types=True)
def sequence_insert(node: OnnxNode) -> Value:
    """A sequence with one more element."""
    sequence, element = node.input(0), node.input(1)
    position = _position(node, 2)
    return apply(ops.SequenceInsert(), sequence, element, *position)


@converter("SequenceErase", any_types=True)
def sequence_erase(node: OnnxNode) -> Value:
    """A sequence with one element less."""
    return apply(ops.SequenceErase(), node.input(0), *_position(node, 1))


@converter("SequenceAt", any_types=True)
def sequence_at(node: OnnxNode) -> Value:
    """One element of a sequence."""
    return apply(ops.SequenceAt(), node.input(0), *_position(node, 1))


def _position(node: OnnxNode, index: int) -> tuple[Value, ...]:
    """The operand that is a position, as a scalar, if it is there."""
    value = node.optional(index)
    if value is None:
        return ()
    vector = isinstance(value.type, TensorType) and value.rank > 0
    return (F.reshape(value, ()),) if vector else (value,)


@converter("SequenceLength", any_types=True)
def sequence_length(node: OnnxNode) -> Value:
    """How many elements a sequence has."""
    return apply(ops.SequenceLength(), node.input(0))


@converter("SplitToSequence", any_types=True)
def split_to_sequence(node: OnnxNode) -> Value:
    """Parts of a tensor as a sequence."""
    axis, keepdims = node.integer("axis", 0), bool(node.integer("keepdims", 1))
    split = node.optional(1)
    operands = [node.input(0)] if split is None else [node.input(0), split]
    return apply(ops.SplitToSequence(axis, keepdims), *operands)


@converter("ConcatFromSequence", any_types=True)
def concat_from_sequence(node: OnnxNode) -> Value:
    """The elements of a sequence as one tensor."""
    axis, new_axis = node.integer("axis"), bool(node.integer("new_axis", 0))
    return apply(ops.ConcatFromSequence(axis, node.fresh("joined"), new_axis), node.input(0))


@converter("SequenceMap", any_types=True)
def sequence_map(node: OnnxNode) -> Results:
    """A body applied to each element: unrolled if the elements are known, else ONNX's own loop.

    Operands behind the first are sequences too, or tensors that each application reads.
    """
    body, operands = node.graph("body"), node.given()
    sequences = [value for value in operands if isinstance(value.type, SequenceType)]
    elements = {value: _elements(value) for value in sequences}
    counts = {None if each is None else len(each) for each in elements.values()}
    count = counts.pop() if len(counts) == 1 else None
    if count is None:
        return node.importer.expand(node)
    results = [
        run(node, body, [each[k] if (each := elements.get(x)) else x for x in operands], "body")
        for k in range(count)
    ]
    return [apply(ops.SequenceConstruct(), *column) for column in zip(*results, strict=True)]


def _elements(sequence: Value) -> Sequence[Value] | None:
    """The elements of a sequence that is made of known ones; None if it is not."""
    made = sequence.producer
    return (
        made.operands if made is not None and isinstance(made.op, ops.SequenceConstruct) else None
    )


@converter("Optional", any_types=True)
def optional(node: OnnxNode) -> Value:
    """A value that may be absent, or an absent one of a given type."""
    value = node.optional(0)
    if value is not None:
        return ops.optional(value)
    declared = node.attribute("type")
    if declared is None:
        raise node.error("an empty optional needs a type", expected="the attribute `type`")
    type_ = value_type(declared, node.importer.symbols, f"attribute 'type' of {node.name}")
    return apply(ops.Optional(type_))


@converter("OptionalHasElement", any_types=True)
def optional_has_element(node: OnnxNode) -> Value:
    """Whether an optional holds a value."""
    value = node.optional(0)
    return apply(ops.OptionalHasElement(), *(() if value is None else (value,)))


@converter("OptionalGetElement", any_types=True)
def optional_get_element(node: OnnxNode) -> Value:
    """The value that an optional holds."""
    value = node.input(0)
    if isinstance(value.type, TensorType | SequenceType):
        return value
    if not isinstance(value.type, OptionalType):
        raise node.error("an optional is needed", found=str(value.type))
    return apply(ops.OptionalGetElement(), value)
