"""Deferred nodes: converted when the model runs, since only then enough is known of their operands.

Some nodes mean a graph only once contents are known: a ``Reshape`` to a shape that is an input, an
``Add`` of elements of a sequence. Such a node stays whole in the graph as one ``onnx.deferred`` op.
When it is evaluated, a little graph of that one node is built from the operands at hand, by the
same converters, and interpreted. When a program is compiled for what a call brings, the node
settles: the converters add what it stands for to the graph. See docs/decisions/7-deferred-nodes.md.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import ModelProto

from monograph.errors import EvaluationError, MonographError
from monograph.frontends.onnx import functions
from monograph.frontends.onnx.inference import infer_result_types
from monograph.frontends.onnx.model import NEWEST, canonical_domain
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.order import describe_node, facts_of, subgraphs
from monograph.ir.deferred import DeferredOp, Undecided
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.interpret import interpret
from monograph.ir.op import Trait, op
from monograph.ir.types import Array, TensorType, ValueType, type_of_array

LARGEST_CONSTANT = 4096
"""Operands of so many elements become constants of the little graph, so that sizes may depend on
them; larger ones do only where the conversion asks for their contents."""

ADOPTED = frozenset({"Trilu", "Pad", "Range"})
"""Ops of ``com.microsoft`` that ONNX took over: its inference holds for both."""


@op("onnx.deferred", traits=Trait.SEQUENCES | Trait.STORAGE)
class Deferred(DeferredOp):
    """One node of an ONNX model, converted and interpreted when its operands are known.

    ``model`` is a ``ModelProto`` in base64 whose graph has that node alone; its inputs name the
    operands. ``types`` are the types of the results and ``operand_types`` those that the operands
    had when the node was imported.
    """

    label: str
    types: tuple[ValueType, ...]
    operand_types: tuple[ValueType, ...]
    model: str

    def infer(self, *operands: ValueType) -> tuple[ValueType, ...]:
        return self.types

    def evaluate(self, *operands: Any) -> tuple[Any, ...]:
        actual = [_actual_type(*pair) for pair in zip(operands, self.operand_types, strict=True)]
        tensors = [
            position for position, type_ in enumerate(actual) if isinstance(type_, TensorType)
        ]
        small = {
            position: operands[position] for position in tensors if _is_small(operands[position])
        }
        try:
            graph = self._convert(actual, small)
        except NotStatic:  # the sizes depend on a large operand
            small = {position: operands[position] for position in tensors}
            graph = self._convert(actual, small)
        inputs = [each for position, each in enumerate(operands) if position not in small]
        try:
            return tuple(interpret(graph, inputs))
        except MemoryError as error:
            raise EvaluationError(f"there is not enough memory for {self.label}: {error}") from None

    def resolve(self, operands: Sequence[Value]) -> tuple[Value, ...]:
        from monograph.frontends.onnx.importer import resolve_deferred

        with self._errors_of_the_run():
            return resolve_deferred(self._proto(), operands)

    def _convert(self, types: Sequence[ValueType], constants: Mapping[int, Array]) -> Graph:
        """The little graph; what is wrong with the operands is an error of the run."""
        from monograph.frontends.onnx.importer import import_deferred

        with self._errors_of_the_run():
            return import_deferred(self._proto(), types, constants)

    def _proto(self) -> ModelProto:
        proto = ModelProto()
        proto.ParseFromString(base64.b64decode(self.model))
        return proto

    @contextmanager
    def _errors_of_the_run(self) -> Iterator[None]:
        """What is wrong with the operands that came is an error of the run, not of the model."""
        try:
            yield
        except (NotStatic, Undecided):
            raise
        except MonographError as error:
            raise EvaluationError(
                error.message,
                expected=error.expected,
                found=error.found,
                where=describe_node(self._proto().graph.node[0]),
                hint=error.hint,
            ) from error


def _actual_type(operand: Any, declared: ValueType) -> ValueType:
    """The type that an operand has now that it is there."""
    return type_of_array(operand) if isinstance(operand, np.ndarray) else declared


def _is_small(operand: Array) -> bool:
    discrete = operand.dtype.kind in "iubO"
    return operand.size <= (LARGEST_CONSTANT if discrete else 1)


def defer(node: OnnxNode, reason: NotStatic | None) -> tuple[Value | None, ...]:
    """Keep a node whole, to be converted when it runs."""
    importer, names = node.importer, list(node.proto.output)
    operands = {
        name: value
        for name, value in zip(node.proto.input, node.inputs, strict=True)
        if value is not None
    }
    (facts,) = facts_of([node.proto])
    found = {name: importer.find(name, node.scope) for name in facts.reads if name not in operands}
    captures = {name: value for name, value in found.items() if value is not None}
    types = _result_types(node, reason, captures)
    kept = [position for position, name in enumerate(names) if name]
    operands.update(captures)
    op = Deferred(
        node.name,
        tuple(types[position] for position in kept),
        tuple(value.type for value in operands.values()),
        base64.b64encode(_single_node_model(node, operands).SerializeToString()).decode(),
    )
    made = current_graph().create(op, list(operands.values()))
    results: list[Value | None] = [None] * len(names)
    for position, value in zip(kept, made.results, strict=True):
        results[position] = value
    return tuple(results)


def _result_types(
    node: OnnxNode, reason: NotStatic | None, captures: Mapping[str, Value]
) -> Sequence[ValueType]:
    if reason is not None and reason.types is not None:
        return reason.types
    domain = canonical_domain(node.proto.domain)
    schema = functions.schema_of(domain, node.op_type, node.opset)
    if domain == "com.microsoft" and node.op_type in ADOPTED:
        schema = functions.schema_of("", node.op_type, NEWEST[""])
    if schema is None:
        raise reason or NotStatic(f"{node.name}: the rank of an operand is not known")
    return infer_result_types(node, schema, captures)


def _single_node_model(node: OnnxNode, operands: Iterable[str]) -> ModelProto:
    model = ModelProto(ir_version=10)
    opsets = dict(node.scope.opsets)
    if next(subgraphs(node.proto), None) is None:  # bodies keep the versions of the model
        opsets[canonical_domain(node.proto.domain)] = node.opset
    for domain, version in opsets.items():
        model.opset_import.add(domain=domain, version=version)
    copied = model.graph.node.add()
    copied.CopyFrom(node.proto)
    for position, value in enumerate(node.inputs):
        if value is None:
            copied.input[position] = ""
    for name in operands:
        model.graph.input.add(name=name)
    model.functions.extend(node.importer.functions.values())
    return model
