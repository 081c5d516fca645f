"""Nodes that are written for another opset than the one that their model imports.

Converters of models mix opsets: axes stay an attribute where they should have become an operand, or
the other way round; an op is used before it exists, or after it was removed. The form of such a
node tells which version of its op it means.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import onnx.defs
from onnx import AttributeProto, NodeProto

from monograph.frontends.onnx.functions import Schema, schema_of
from monograph.frontends.onnx.habits import warn
from monograph.frontends.onnx.order import describe_node, input_count


def version_of(node: NodeProto, domain: str, version: int) -> int:
    """The opset version that a node is written for: the model's own if the node fits it.

    Otherwise the nearest version that it does fit, older ones first, with a warning.
    """
    schema = schema_of(domain, node.op_type, version)
    if schema is not None and not _has_excess(node, schema):
        return version
    for other in _other_versions(domain, node.op_type, version):
        candidate = schema_of(domain, node.op_type, other)
        if candidate is None or _has_excess(node, candidate) or _has_lack(node, candidate):
            continue
        warn(
            f"{describe_node(node)} is no node of opset {version}, which the model imports; "
            f"it is read as one of opset {other}, which it fits"
        )
        return other
    return version


def exists_elsewhere(domain: str, op: str, version: int) -> int | None:
    """The nearest other version of a domain that has an op; None if none has."""
    return next(_other_versions(domain, op, version), None)


def _other_versions(domain: str, op: str, version: int) -> Iterator[int]:
    since = _versions(domain, op)
    yield from (each for each in reversed(since) if each <= version)
    yield from (each for each in since if each > version)


@lru_cache(4096)
def _versions(domain: str, op: str) -> tuple[int, ...]:
    """The versions of a domain at which an op changed, without those that removed it."""
    return tuple(
        sorted(
            schema.since_version
            for schema in _history().get((domain, op), ())
            if not schema.deprecated
        )
    )


@lru_cache(1)
def _history() -> dict[tuple[str, str], list[Schema]]:
    """Every version of every op that ONNX knows."""
    found: dict[tuple[str, str], list[Schema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return found


def _has_excess(node: NodeProto, schema: Schema) -> bool:
    """Whether a node has inputs, outputs or attributes that its op does not have."""
    if input_count(node) > schema.max_input or len(node.output) > schema.max_output:
        return True
    known = schema.attributes
    return any(
        attribute.name not in known or not _same_kind(attribute, known[attribute.name])
        for attribute in node.attribute
    )


def _same_kind(attribute: AttributeProto, formal: Schema) -> bool:
    """Whether an attribute is a string where its op has a string, and a number where it has one."""
    if not attribute.type:
        return True
    said, expected = int(attribute.type), int(formal.type)
    texts = (AttributeProto.STRING, AttributeProto.STRINGS)
    return (said in texts) == (expected in texts)


def _has_lack(node: NodeProto, schema: Schema) -> bool:
    """Whether a node lacks inputs or attributes that its op needs."""
    given = {attribute.name for attribute in node.attribute}
    needed = {name for name, attribute in schema.attributes.items() if attribute.required}
    return input_count(node) < schema.min_input or not needed <= given
