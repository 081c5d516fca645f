"""Refuses models that are malformed as a whole, before any node is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import GraphProto, NodeProto, ValueInfoProto

from monograph.errors import InputError
from monograph.frontends.onnx.functions import DEEPEST_CALLS, Schema
from monograph.frontends.onnx.model import LoadedModel
from monograph.frontends.onnx.order import describe_node, input_count, subgraphs


def check_model(model: LoadedModel) -> None:
    """Names must be text, bodies may not nest too deeply, and there must be an output."""
    for graph in _graphs(model):
        _check_text(graph)
    for function in model.functions.values():
        _check_names(function.input, function.output, function.attribute)
        for name in function.input:
            if list(function.input).count(name) > 1:
                raise InputError(f"the function {function.name!r} has two inputs called {name!r}")
    if not len(model.proto.graph.output):
        raise InputError("the model has no outputs", expected="at least one")


def _graphs(model: LoadedModel) -> Iterator[GraphProto]:
    """Every graph and body; nodes of functions are checked on the way."""
    stack = [(model.proto.graph, 0)]
    for function in model.functions.values():
        for node in function.node:
            _check_node_text(node)
            stack.extend((graph, 1) for graph in subgraphs(node))
    while stack:
        graph, depth = stack.pop()
        if depth > DEEPEST_CALLS:
            raise InputError(
                "the model nests too deeply",
                expected=f"bodies inside bodies at most {DEEPEST_CALLS} levels deep",
            )
        yield graph
        for node in graph.node:
            _check_node_text(node)
            if len(node.attribute):
                stack.extend((body, depth + 1) for body in subgraphs(node))


def _check_text(graph: GraphProto) -> None:
    _check_names(tensor.name for tensor in graph.initializer)
    for values in (graph.input, graph.output, graph.value_info):
        _check_names((value.name for value in values), _parameters(values))


def _check_node_text(node: NodeProto) -> None:
    _check_names(
        (node.op_type, node.domain, node.name, node.overload),
        node.input,
        node.output,
        (attribute.name for attribute in node.attribute),
    )


def _check_names(*groups: Iterable[object]) -> None:
    """Protobuf hands out text that does not decode as bytes."""
    for group in groups:
        for name in group:
            if not isinstance(name, str):
                raise InputError("the model holds a name that is not UTF-8", found=f"{name!r:.60}")


def _parameters(values: Iterable[ValueInfoProto]) -> Iterator[object]:
    for value in values:
        if value.type.HasField("tensor_type"):
            for dim in value.type.tensor_type.shape.dim:
                yield dim.dim_param


def check_node(node: NodeProto, schema: Schema) -> None:
    """A node must fit what ONNX says of its op: how many inputs and outputs, which attributes."""
    if input_count(node) > schema.max_input:
        raise InputError(
            f"{describe_node(node)} has too many inputs",
            expected=f"at most {schema.max_input}",
            found=str(input_count(node)),
        )
    if len(node.output) > schema.max_output:
        raise InputError(
            f"{describe_node(node)} has too many outputs",
            expected=f"at most {schema.max_output}",
            found=str(len(node.output)),
        )
    for attribute in node.attribute:
        if attribute.name not in schema.attributes:
            raise InputError(
                f"{describe_node(node)}: attribute {attribute.name!r} is not known",
                expected=", ".join(sorted(schema.attributes)) or "no attributes",
                found=attribute.name,
            )
        if attribute.ref_attr_name:
            raise InputError(
                f"{describe_node(node)}: attribute {attribute.name!r} refers to a function's "
                "attribute outside of a function",
                found=attribute.ref_attr_name,
            )
