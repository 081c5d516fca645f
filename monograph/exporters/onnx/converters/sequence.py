"""Sequences and optionals, which ONNX has as we do."""

from __future__ import annotations

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.protos import CODES, type_proto
from monograph.exporters.onnx.registry import Exported, exports
from monograph.exporters.onnx.scope import Term
from monograph.ops import sequence as s

NAMES = {
    s.SequenceConstruct: "SequenceConstruct", s.SequenceLength: "SequenceLength",
    s.OptionalGetElement: "OptionalGetElement", s.OptionalHasElement: "OptionalHasElement",
}  # fmt: skip
POSITIONED = {
    s.SequenceInsert: "SequenceInsert", s.SequenceErase: "SequenceErase",
    s.SequenceAt: "SequenceAt",
}  # fmt: skip


@exports(*NAMES)
def same(node: ExportContext[s.SequenceLength]) -> Exported:
    """Ops that ONNX has as they are."""
    return node.write(NAMES[type(node.op)], node.inputs, node.result_dtypes())


@exports(*POSITIONED)
def positioned(node: ExportContext[s.SequenceAt]) -> Exported:
    """The position, the last operand if it is there, in a dtype that ONNX takes."""
    count = {"sequence_insert": 3, "sequence_erase": 2, "sequence_at": 2}[node.op.name]
    inputs = list(node.inputs)
    if len(inputs) == count:
        inputs[-1] = node.as_i64(count - 1)
    return node.write(POSITIONED[type(node.op)], inputs, node.result_dtypes())


@exports(s.SequenceEmpty)
def empty(node: ExportContext[s.SequenceEmpty]) -> Exported:
    """sequence_empty → SequenceEmpty."""
    return node.write("SequenceEmpty", [], [None], {"dtype": CODES[node.op.dtype]})


@exports(s.SplitToSequence)
def split(node: ExportContext[s.SplitToSequence]) -> Exported:
    """split_to_sequence → SplitToSequence."""
    inputs: list[Term] = list(node.inputs)
    if len(inputs) == 2:
        inputs[1] = node.as_i64(1)
    attributes = {"axis": node.op.axis, "keepdims": int(node.op.keepdims)}
    return node.write("SplitToSequence", inputs, [None], attributes)


@exports(s.ConcatFromSequence)
def concat(node: ExportContext[s.ConcatFromSequence]) -> Exported:
    """concat_from_sequence → ConcatFromSequence."""
    attributes = {"axis": node.op.axis, "new_axis": int(node.op.new_axis)}
    return node.write("ConcatFromSequence", node.inputs, node.result_dtypes(), attributes)


@exports(s.Optional)
def optional(node: ExportContext[s.Optional]) -> Exported:
    """optional → Optional, with a value or with its type."""
    if node.inputs:
        return node.write("Optional", node.inputs, [None])
    return node.write("Optional", [], [None], {"type": type_proto(node.op.type)})


@exports(s.Declare)
def declare(node: ExportContext[s.Declare]) -> Exported:
    """Nothing: it only says what a value is."""
    return node.inputs[0]
