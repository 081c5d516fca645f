"""Nodes that the ONNX importer kept whole are exported as they came in.

``onnx.deferred`` belongs to the frontend, which exporters don't know; its name and its ``model``
attribute (a model of that one node, in base64) are all that is needed here.
"""

from __future__ import annotations

import base64
from typing import Any

import onnx.defs
from onnx import ModelProto, NodeProto

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports_named
from monograph.exporters.onnx.scope import SOURCE, Term


@exports_named("onnx.deferred")
def deferred(node: ExportContext[Any]) -> Exported:
    """The node itself, if this opset means the same by it; not one with bodies of its own."""
    model = ModelProto()
    model.ParseFromString(base64.b64decode(node.op.model))
    original = model.graph.node[0]
    versions = {entry.domain: entry.version for entry in model.opset_import}
    bodies = any(attribute.HasField("g") for attribute in original.attribute)
    if bodies or not _means_the_same(original, versions, node.opset):
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


def _means_the_same(node: NodeProto, versions: dict[str, int], opset: int) -> bool:
    """Whether an op is defined by one version of its schema in both opsets."""
    if node.domain not in ("", "ai.onnx"):
        return False
    old = versions.get("", versions.get("ai.onnx", 1))
    try:
        schemas = [onnx.defs.get_schema(node.op_type, each, "") for each in (old, opset)]
    except onnx.defs.SchemaError:
        return False
    return schemas[0].since_version == schemas[1].since_version
