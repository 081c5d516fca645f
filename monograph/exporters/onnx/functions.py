"""Local functions: ops that ONNX has not, each defined once in the model and called by name.

A function is made for an op, its attributes and its operands' types. What comes out is the same
for many types (``erfc`` of any shape), so functions with equal bodies are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from onnx import FunctionProto, NodeProto, helper

from monograph.dataclass import dataclass
from monograph.exporters.onnx.registry import expansion_of
from monograph.exporters.onnx.scope import (
    DOMAIN,
    Names,
    Scope,
    Term,
    dtype_in,
    other_domains,
    walk_nodes,
)
from monograph.ir.build import cast_to
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node, Value, infer_types
from monograph.ir.op import Family, Op, Trait, make
from monograph.ir.types import TensorType, ValueType, wide

if TYPE_CHECKING:
    from monograph.exporters.onnx.writer import ModelWriter

DESCRIPTION = "monograph.op"
"""Under this key of a function's metadata stands the op that it is, with its attributes."""


@dataclass(frozen=True)
class LocalFunction:
    """A function of the model: its name, and what calls pass to it.

    That is the operands at these positions (what the body does not read is left out), then sizes.
    """

    name: str
    operands: tuple[int, ...]
    sizes: tuple[Symbol, ...]


class Functions:
    """The local functions of one model."""

    def __init__(self, writer: ModelWriter) -> None:
        self.writer = writer
        self.protos: list[FunctionProto] = []
        self._by_call: dict[tuple[object, ...], LocalFunction | None] = {}
        self._by_body: dict[tuple[str, bytes], str] = {}
        self._names = Names()

    def find(self, node: Node, *, converted: bool) -> LocalFunction | None:
        """The function for a node, made if need be; None if its converter declines.

        It is made by the op's converter if ``converted``, else from its expansion.
        """
        types = tuple(_bare(value.type) for value in node.operands)
        key = (node.op, types, converted)
        if key not in self._by_call:
            self._by_call[key] = self._make(node.op, types, converted)
        return self._by_call[key]

    def _make(self, op: Op, types: Sequence[ValueType], converted: bool) -> LocalFunction | None:
        body = Graph(op.name)
        names = _operand_names(op, len(types))
        operands = [body.add_input(*pair) for pair in zip(names, types, strict=True)]
        scope = Scope(Names(), function=True)
        inputs = [_declare(scope, value) for value in body.inputs]
        if converted:
            made = body.create(op, operands)
            body.set_outputs(made.results)
            if not self.writer.convert(made, scope):
                return None
        else:
            body.set_outputs(_expand(op, operands))
            self.writer.write_nodes(body, scope)
        outputs = self._outputs(body, scope)
        read = set(_names_read(scope.nodes))
        positions = tuple(n for n, name in enumerate(inputs) if name in read)
        sizes = tuple(scope.size_inputs)
        taken = [inputs[position] for position in positions]
        taken += [scope.size_inputs[symbol].name for symbol in sizes]
        return LocalFunction(self._define(op, scope, taken, outputs), positions, sizes)

    def _outputs(self, body: Graph, scope: Scope) -> list[str]:
        """The names of the results: values that the body makes, each once."""
        made = {name for node in scope.nodes for name in node.output}
        outputs = []
        for value in body.outputs:
            name = scope.term(value).name
            if name not in made:
                (name,) = scope.write("Identity", [name])
            made.discard(name)
            outputs.append(name)
        return outputs

    def _define(self, op: Op, scope: Scope, inputs: Sequence[str], outputs: Sequence[str]) -> str:
        """The name of the function with this body, which is added unless the model has it."""
        constants = [
            helper.make_node("Constant", [], [proto.name], value=_strip_names(proto))
            for proto in scope.initializers
        ]
        others = (DOMAIN, *other_domains(scope.nodes))
        imports = [helper.make_opsetid("", self.writer.opset)]
        imports += [helper.make_opsetid(domain, 1) for domain in others]
        proto = helper.make_function(
            DOMAIN, op.name, inputs, outputs, [*constants, *scope.nodes], imports
        )
        key = (op.name, proto.SerializeToString(deterministic=True))
        if key in self._by_body:
            return self._by_body[key]
        proto.name = self._names.fresh(op.name).replace(".", "_")
        proto.metadata_props.add(key=DESCRIPTION, value=repr(op))
        self.protos.append(proto)
        self._by_body[key] = proto.name
        return proto.name


def _names_read(nodes: Sequence[NodeProto]) -> Iterator[str]:
    """Every name that nodes, and the bodies in them, read."""
    for node in walk_nodes(nodes):
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from (output.name for output in attribute.g.output)


def _declare(scope: Scope, value: Value) -> str:
    name = scope.names.fresh(value.name)
    scope.bind(value, Term(name, dtype_in(value.type)))
    return name


def _operand_names(op: Op, count: int) -> list[str]:
    """The op's own names for its operands; numbered where it takes any number."""
    names = list(op.operand_names)
    if op.arity[1] is None:
        last = names.pop()
        names += [f"{last}_{number}" for number in range(count - len(names))]
    return names[:count]


def _strip_names(proto: Any) -> Any:
    proto.name = ""
    return proto


def _bare(type_: ValueType) -> ValueType:
    """A type without layout, device and quantization: functions are made for what is computed."""
    return TensorType(type_.dtype, type_.shape) if isinstance(type_, TensorType) else type_


def _expand(op: Op, operands: Sequence[Value]) -> list[Value]:
    """An op's results, built from other ops.

    As in the interpreter, narrow floats are widened first and rounded once, at the end.
    """
    declared = infer_types(op, [value.type for value in operands], ())
    assert operands, f"{op.name} has no operands and needs a converter"
    given = list(operands)
    if op.family is Family.COMPUTE and not op.has(Trait.STORAGE):
        given = [cast_to(value, wide(value.dtype)) for value in operands]
    build = expansion_of(op)
    assert build is not None
    with operands[0].graph.as_current():
        made = build(*given)
        results = made if isinstance(made, tuple) else (made,)
        return [_as_declared(*pair) for pair in zip(results, declared, strict=True)]


def _as_declared(value: Value, type_: ValueType) -> Value:
    """A result in the dtype and shape that the op's type rule promises."""
    if not isinstance(type_, TensorType):
        return value
    typed = cast_to(value, type_.dtype)
    if typed.shape == type_.shape:
        return typed
    return typed.graph.create(make("reshape", shape=type_.shape), (typed,)).result
