"""Functions: those that a model defines, and the bodies that ONNX gives for its own ops.

Calls are expanded in place. How many nodes that makes, and how deep calls nest, is counted before
anything is expanded: forty functions that each call the next twice fit in 2 KB and mean 2⁴⁰ calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import onnx.defs
from onnx import AttributeProto, FunctionProto, NodeProto

from monograph.errors import InputError
from monograph.frontends.onnx.model import FunctionKey, LoadedModel, canonical_domain
from monograph.frontends.onnx.order import describe_node, walk_nodes

Schema: TypeAlias = Any
"""An ``onnx.defs.OpSchema``, whose types leave out half of what it has."""

LARGEST_MODEL = 300_000
"""How many nodes a model may have, and how many once every call is expanded."""

DEEPEST_CALLS = 32
"""How deep calls of functions, and bodies inside bodies, may nest."""


def function_key(node: NodeProto) -> FunctionKey:
    """Under what a node's function would be found, if it calls one."""
    return canonical_domain(node.domain), node.op_type, node.overload


def check_expansion(model: LoadedModel) -> None:
    """Refuse a model whose calls never end, nest too deeply or make too many nodes."""
    count = sum(1 for _ in walk_nodes(model.proto.graph.node))
    if count > LARGEST_MODEL:
        raise InputError(
            "the model is too large",
            expected=f"at most {LARGEST_MODEL:,} nodes",
            found=f"{count:,} nodes",
        )
    if not model.functions:
        return
    sizes: dict[FunctionKey, tuple[int, int]] = {}
    for key in model.functions:
        _measure(key, model.functions, sizes)
    total, depth = _cost(model.proto.graph.node, model.functions, sizes)
    if depth > DEEPEST_CALLS:
        raise InputError(
            "the model's functions call each other too deeply",
            expected=f"at most {DEEPEST_CALLS} levels",
            found=f"{depth} levels",
        )
    if total > LARGEST_MODEL:
        raise InputError(
            "the model is too large once its functions are expanded",
            expected=f"at most {LARGEST_MODEL:,} nodes",
            found=f"{total:,} nodes" if total < 10**15 else "more than 10^15 nodes",
        )


def _measure(
    start: FunctionKey,
    functions: Mapping[FunctionKey, FunctionProto],
    sizes: dict[FunctionKey, tuple[int, int]],
) -> None:
    """Fill in how many nodes and levels a function expands to, after those that it calls."""
    stack, active = [start], {start: None}
    while stack:
        key = stack[-1]
        called = dict.fromkeys(map(function_key, walk_nodes(functions[key].node)))
        missing = [each for each in called if each in functions and each not in sizes]
        if not missing:
            sizes[key] = _cost(functions[key].node, functions, sizes)
            active.pop(stack.pop(), None)
            continue
        if missing[0] in active:
            raise InputError(
                f"the function {missing[0][1]!r} calls itself",
                expected="functions that end",
                found=" → ".join(each[1] for each in active),
            )
        active[missing[0]] = None
        stack.append(missing[0])


def _cost(
    nodes: Sequence[NodeProto],
    functions: Mapping[FunctionKey, FunctionProto],
    sizes: Mapping[FunctionKey, tuple[int, int]],
) -> tuple[int, int]:
    """How many nodes these expand to, and how deep calls nest in them."""
    total = depth = 0
    for node in walk_nodes(nodes):
        inside, levels = sizes.get(function_key(node), (0, 0))
        total += 1 + inside
        if function_key(node) in functions:
            depth = max(depth, 1 + levels)
    return min(total, 10**30), depth


def bind_attributes(function: FunctionProto, node: NodeProto) -> dict[str, AttributeProto]:
    """The attributes that a call gives a function, its defaults included."""
    bound = {attribute.name: attribute for attribute in function.attribute_proto}
    names = {*function.attribute, *bound}
    for attribute in node.attribute:
        if attribute.name not in names:
            raise InputError(
                f"{describe_node(node)} calls a function with an attribute that it does not have",
                expected=", ".join(sorted(names)) or "no attributes",
                found=attribute.name,
            )
        bound[attribute.name] = attribute
    return bound


def instantiate(node: NodeProto, bound: Mapping[str, AttributeProto]) -> NodeProto:
    """A node of a function's body with the call's attributes in the place of references to them."""
    if not _refers(node):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    _fill(copy, bound)
    return copy


def _refers(node: NodeProto) -> bool:
    return any(
        attribute.ref_attr_name for inner in walk_nodes([node]) for attribute in inner.attribute
    )


def _fill(node: NodeProto, bound: Mapping[str, AttributeProto]) -> None:
    for inner in walk_nodes([node]):
        attributes = list(inner.attribute)
        if not any(attribute.ref_attr_name for attribute in attributes):
            continue
        filled = []
        for attribute in attributes:
            given = bound.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if given is None:
                continue  # an optional attribute that the call does not give
            kept = AttributeProto()
            kept.CopyFrom(given)
            kept.name = attribute.name
            filled.append(kept)
        del inner.attribute[:]
        inner.attribute.extend(filled)


@lru_cache(4096)
def schema_of(domain: str, op: str, version: int) -> Schema | None:
    """What ONNX says of an op at this version of its domain; None if it does not know it."""
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else schema


def has_body(schema: Schema) -> bool:
    """Whether ONNX defines an op in terms of others."""
    return bool(schema.has_function or schema.has_context_dependent_function)


def schema_body(
    schema: Schema, node: NodeProto, types: Sequence[bytes], version: int
) -> FunctionProto | None:
    """The body that ONNX gives for a node with operands of these types (serialised)."""
    plain, dependent = (
        list(schema.function_opset_versions),
        list(schema.context_dependent_function_opset_versions),
    )
    if plain:
        content: bytes = schema.get_function_with_opset_version(_fitting(plain, version))
    elif dependent:
        content = schema.get_context_dependent_function_with_opset_version(
            _fitting(dependent, version), node.SerializeToString(), list(types)
        )
    else:
        return None
    function = FunctionProto()
    function.ParseFromString(content)
    function.attribute_proto.extend(_defaults(schema, set(function.attribute)))
    return function if len(function.node) else None


def _fitting(versions: Sequence[int], version: int) -> int:
    """The newest of the versions that a model of this version may use, or the oldest there is."""
    return max((each for each in versions if each <= version), default=min(versions))


def _defaults(schema: Schema, names: set[str]) -> list[AttributeProto]:
    """The attributes of an op's body that have a default in its schema."""
    defaults = [attribute.default_value for attribute in schema.attributes.values()]
    return [each for each in defaults if each.name in names and each.type]
