"""Nodes that the ONNX importer kept whole are exported as they came in.

``onnx.deferred`` belongs to the frontend, which exporters don't know; its name and its ``model``
attribute (a model of that one node, in base64) are all that is needed here.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import onnx.defs
import onnx.version_converter
from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.protos import value_info
from monograph.exporters.onnx.registry import Exported, exports_named
from monograph.exporters.onnx.scope import SOURCE, Term
from monograph.ir.types import ValueType

CONVERTIBLE_IR_VERSION = 10
"""A version of the format that the converter reads, whatever the opset."""


@exports_named("onnx.deferred")
def deferred(node: ExportContext[Any]) -> Exported:
    """The node itself, if this opset means the same by it; not one with bodies of its own."""
    model = ModelProto()
    model.ParseFromString(base64.b64decode(node.op.model))
    original = model.graph.node[0]
    bodies = any(attribute.HasField("g") for attribute in original.attribute)
    types = [value.type for value in node.node.operands]
    if bodies or not _means_the_same(model, types, node.opset):
        return None
    operands = {
        info.name: term.name for info, term in zip(model.graph.input, node.inputs, strict=True)
    }
    copy = NodeProto()
    copy.CopyFrom(original)
    copy.ClearField("name")
    copy.ClearField("metadata_props")
    if node.scope.source is not None:
        copy.metadata_props.add(key=SOURCE, value=node.scope.source)
    names = [operands.get(name, "") for name in original.input]
    results = [node.scope.names.fresh(node.scope.hint) if name else "" for name in original.output]
    del copy.input[:], copy.output[:]
    copy.input.extend(names)
    copy.output.extend(results)
    node.scope.nodes.append(copy)
    made = [name for name in results if name]
    return [Term(name, dtype) for name, dtype in zip(made, node.result_dtypes(), strict=True)]


def _means_the_same(model: ModelProto, types: Sequence[ValueType], opset: int) -> bool:
    """Whether a model's only node is defined alike in its own opset and in this one."""
    (node,) = model.graph.node
    if node.domain not in ("", "ai.onnx"):
        return False
    versions = {entry.domain: entry.version for entry in model.opset_import}
    old = versions.get("", versions.get("ai.onnx", 1))
    try:
        schemas = [onnx.defs.get_schema(node.op_type, each, "") for each in (old, opset)]
    except onnx.defs.SchemaError:
        return False
    if schemas[0].since_version == schemas[1].since_version:
        return True
    return _is_left_alone(node, model.graph.input, types, (old, opset))


def _is_left_alone(
    node: NodeProto,
    operands: Iterable[ValueInfoProto],
    types: Sequence[ValueType],
    versions: tuple[int, int],
) -> bool:
    """Whether ONNX's own converter of versions has nothing to change in a node.

    So it is where a version has brought no more than dtypes.
    """
    old, new = versions
    inputs = [value_info(info.name, type_) for info, type_ in zip(operands, types, strict=True)]
    outputs = [helper.make_value_info(name, TypeProto()) for name in node.output]
    graph = helper.make_graph([node], "alone", inputs, outputs)
    opsets = [helper.make_opsetid("", old)]
    try:
        converted = onnx.version_converter.convert_version(
            helper.make_model(graph, opset_imports=opsets, ir_version=CONVERTIBLE_IR_VERSION), new
        )
    except (RuntimeError, ValueError):  # there is no way between these versions
        return False
    made = list(converted.graph.node)
    return len(made) == 1 and (
        (made[0].op_type, list(made[0].input), sorted(map(str, made[0].attribute)))
        == (node.op_type, list(node.input), sorted(map(str, node.attribute)))
    )
