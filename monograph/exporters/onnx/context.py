"""``ExportContext``: what a converter sees of the node that it converts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from onnx import GraphProto, helper

from monograph.exporters.onnx.emitter import Emitter
from monograph.exporters.onnx.protos import value_info
from monograph.exporters.onnx.scope import Scope, Term, dtype_in
from monograph.ir.data import Data
from monograph.ir.dims import Shape
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import Op
from monograph.ir.types import Array, DType, TensorType, ValueType, i64

if TYPE_CHECKING:
    from monograph.exporters.onnx.writer import ModelWriter

OpT = TypeVar("OpT", bound=Op)

LARGEST_INSPECTED = 1024
"""Elements of a constant operand that a converter may look at."""


class ExportContext(Emitter, Generic[OpT]):
    """One node, its operands as terms of the model, and the means to write nodes for it."""

    def __init__(self, node: Node, op: OpT, scope: Scope, writer: ModelWriter) -> None:
        super().__init__(scope, writer.opset)
        self.node = node
        self.op = op
        self.writer = writer
        self.inputs: tuple[Term, ...] = tuple(scope.term(value) for value in node.operands)

    @property
    def special_values(self) -> bool:
        """Whether NaN and infinities must come out where the interpreter has them."""
        return self.writer.special_values

    # Operands and results.

    def type(self, index: int = 0) -> TensorType:
        """The type of an operand that is a tensor."""
        return self.node.operands[index].tensor

    def shape(self, index: int = 0) -> Shape:
        """The shape of an operand."""
        return self.type(index).shape

    @property
    def dtype(self) -> DType:
        """The dtype of the first operand."""
        return self.type().dtype

    @property
    def rank(self) -> int:
        """The rank of the first operand."""
        return self.type().rank

    @property
    def result(self) -> TensorType:
        """The type of the first result."""
        return self.node.results[0].tensor

    def result_dtypes(self) -> list[DType | None]:
        """The dtype of each result that is a tensor."""
        return [dtype_in(value.type) for value in self.node.results]

    def contents(self, index: int) -> Array | None:
        """The elements of an operand, where they are a small constant of the graph."""
        return contents_of(self.node.operands[index])

    def as_i64(self, index: int) -> Term:
        """An operand of indices in a dtype that ONNX takes for them."""
        term = self.inputs[index]
        return term if term.element.name in ("i64", "i32") else self.cast(term, i64)

    # Weights and bodies.

    def weight(self, data: Data, label: str) -> Term:
        """A tensor of the model's own, as an initializer of its graph."""
        outermost = self.node.graph is self.writer.graph
        own = self.node.result.name if outermost else ""
        name = own or self.scope.names.fresh(label or "weight")
        return self.writer.add_weight(data, name)

    def body(
        self,
        region: Graph,
        arguments: Sequence[Term | None],
        *,
        name: str,
        extra: Sequence[tuple[str, ValueType]] = (),
        computed: Callable[[Body], Sequence[Term]] | None = None,
    ) -> Body:
        """A graph inside this one: ``arguments`` are outer terms, None makes an input of its own.

        ``extra`` inputs stand before those. The last of the Nones are no inputs but what
        ``computed`` makes inside the body, if it is given.
        """
        scope = Scope(self.scope.names, self.scope)
        body = Body(self, scope, name)
        body.inputs = [body.declare(hint, type_) for hint, type_ in extra]
        made = list(computed(body)) if computed is not None else []
        missing = arguments.count(None) - len(made)
        for value, term in zip(region.inputs, arguments, strict=True):
            bound = term
            if bound is None and missing:
                missing -= 1
                bound = body.declare(value.name, value.type)
                body.inputs.append(bound)
            elif bound is None:
                bound = made.pop(0)
            scope.bind(value, bound)
        self.writer.write_nodes(region, scope)
        body.outputs = [(scope.term(value), value) for value in region.outputs]
        return body


class Body:
    """A branch or a loop's body while it is written."""

    def __init__(self, context: ExportContext[OpT], scope: Scope, name: str) -> None:
        self.scope = scope
        self.name = name
        self.emitter = Emitter(scope, context.opset)
        self.inputs: list[Term] = []
        self.outputs: list[tuple[Term, Value]] = []
        self._types: list[ValueType] = []

    def declare(self, hint: str, type_: ValueType) -> Term:
        """One more input."""
        self._types.append(type_)
        return Term(self.scope.names.fresh(hint), dtype_in(type_))

    def graph(self, outputs: Sequence[tuple[Term, ValueType]]) -> GraphProto:
        """The finished message; every output is a value of the body's own, and only once."""
        made = {name for node in self.scope.nodes for name in node.output}
        infos = []
        for term, type_ in outputs:
            if term.name not in made:
                term = self.emitter.write("Identity", [term], [term.dtype])[0]
            made.discard(term.name)
            infos.append(value_info(term.name, type_))
        inputs = [
            value_info(term.name, type_)
            for term, type_ in zip(self.inputs, self._types, strict=True)
        ]
        return helper.make_graph(self.scope.nodes, self.name, inputs, infos)


def contents_of(value: Value) -> Array | None:
    """The elements of a value, where they are a small constant of the graph."""
    producer = value.producer
    data = None if producer is None else getattr(producer.op, "data", None)
    if not isinstance(data, Data) or data.size > LARGEST_INSPECTED:
        return None
    return data.array()
