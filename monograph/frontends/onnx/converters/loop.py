"""Loop: a trip count, a condition, or both; carried values, and results that are stacked.

A loop whose number of steps is known beforehand and whose carried values keep their types is a
``scan``, which has a gradient and compiles. Any other is a ``while``: carried values whose sizes
change lose their shape at the loop's boundary and get it back inside the body. Stacked results of
one size are written into a tensor with room for as many steps as there may be, of which the steps
that were are taken in the end; others are collected in sequences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto
from onnx.numpy_helper import to_array

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.onnx.converters.control import (
    apply_declare,
    boundary_type,
    dim_of_operand,
    first_rows,
    run,
    scalar,
    to_scalar,
)
from monograph.frontends.onnx.converters.loop_appends import stack_appended
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply
from monograph.ir.dims import Dim, dim_max, provably_equal
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.region import RegionTracer
from monograph.ir.types import (
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
    bool_,
    i64,
    string,
    symbols_of,
)
from monograph.ops.control import Scan, While
from monograph.ops.sequence import (
    ConcatFromSequence,
    Optional,
    SequenceEmpty,
    SequenceInsert,
    join,
    may_be,
)

INDEX = TensorType(i64, ())
FLAG = TensorType(bool_, ())
MOST_ATTEMPTS = 8
MOST_STEPS = 2**24  # a scan counts them beforehand
MOST_ROWS = 2**14  # steps that a while has room for, each of which passes over all of it


@converter("Loop", any_types=True)
def loop(node: OnnxNode) -> Sequence[Value]:
    """A body run so many times, or for as long as it says."""
    node.inputs = tuple(
        value if value is None or k > 1 else to_scalar(node, value)
        for k, value in enumerate(node.inputs)
    )
    _check_body(node)
    made = stack_appended(node, _convert)
    return _convert(node) if made is None else made


def _check_body(node: OnnxNode) -> None:
    """Refuse a body that takes or gives other than what the loop carries and collects."""
    initial, body = node.inputs[2:], node.graph("body")
    if len(body.input) != len(initial) + 2 or len(body.output) < len(initial) + 1:
        raise node.error(
            "the body does not fit the carried values",
            expected=f"{len(initial) + 2} inputs, at least {len(initial) + 1} outputs",
            found=f"{len(body.input)} and {len(body.output)}",
        )
    if len(node.proto.output) > len(body.output) - 1:
        raise node.error(
            "the body gives too few results",
            expected=str(len(node.proto.output)),
            found=str(len(body.output) - 1),
        )


def _convert(node: OnnxNode) -> Sequence[Value]:
    """A loop as a ``scan`` if it can be one, or else as a ``while``."""
    initial = [node.input(index) for index in range(2, len(node.inputs))]
    body = node.graph("body")
    start = node.constant(1)
    goes_on = node.optional(1) is None or (start is not None and bool(start.reshape(())))
    trips = dim_of_operand(node, 0)
    if trips is not None and goes_on and not (isinstance(trips, int) and trips > MOST_STEPS):
        made = _as_scan(node, initial, trips)
        if made is not None:
            return made
    stacks = len(initial) < len(node.proto.output) == len(body.output) - 1
    if trips is None and goes_on and stacks and not node.scope.depth and _is_counted(body):
        raise NotStatic(
            f"{node.name}: the number of steps is not known before it runs", contents=node.input(0)
        )
    return _as_while(node, initial)


def _is_counted(body: GraphProto) -> bool:
    """Whether a body's condition goes on as it began, so that the trip count alone ends it."""
    makers = {name: made for made in body.node for name in made.output}
    given = {tensor.name: tensor for tensor in body.initializer}
    name = body.output[0].name
    for _ in range(len(body.node) + 1):
        made = makers.get(name)
        if name == body.input[1].name:
            return True
        if name in given:
            return bool(to_array(given[name]).all())
        if made is not None and made.op_type == "Constant":
            return all(
                bool(to_array(each.t).all()) for each in made.attribute if each.HasField("t")
            )
        if made is None or made.op_type not in ("Identity", "Cast"):
            return False
        name = made.input[0]
    return False


# A number of steps that is known.


def _as_scan(node: OnnxNode, initial: Sequence[Value], trips: Dim) -> Sequence[Value] | None:
    """The loop as a ``scan``; None if its condition may end it, or a type changes."""
    graph, count = current_graph(), len(initial)
    tracer = RegionTracer(graph)

    def step(*arguments: Value) -> Sequence[Value]:
        *carried, index = arguments
        true = current_graph().add_constant(np.asarray(True), bool_)
        return run(node, node.graph("body"), (index, true, *carried), "body")

    inputs = [(value.name, value.type) for value in initial]
    region = tracer.trace("body", step, [*inputs, ("index", INDEX)])
    condition, *outputs = region.outputs
    known = node.importer.contents.array(condition)
    if known is None or not bool(known.reshape(())):
        return None
    kept = zip(initial, outputs, strict=False)
    if not all(_same(value.type, output.type) for value, output in kept):
        return None
    if not all(isinstance(output.type, TensorType) for output in outputs[count:]):
        return None
    region.set_outputs(outputs)
    length = dim_max(trips, 0)
    with graph.as_current():
        indices = F.iota((length,))
    operands = (*initial, indices, *tracer.close())
    return graph.create(Scan(count, 1, length), operands, regions=(region,)).results


def _same(a: ValueType, b: ValueType) -> bool:
    """Whether two types are equal, whatever their symbols stand for."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        same = a.dtype is b.dtype and a.rank == b.rank
        return same and all(map(provably_equal, a.shape, b.shape))
    return a == b


# Any other loop.


@dataclass
class _Carry:
    """A carried value: its type outside the loop's steps, and the one that the body sees."""

    boundary: ValueType
    inside: ValueType


class _Loop:
    """One attempt after another at a ``while``, with wider types where the body changed them."""

    def __init__(self, node: OnnxNode, initial: Sequence[Value]) -> None:
        self.node = node
        self.initial = initial
        self.graph = current_graph()
        self.carries = [_Carry(value.type, value.type) for value in initial]
        body = node.graph("body")
        self.stacked = len(body.output) - 1 - len(initial)
        self.elements: list[ValueType] = []
        self.changing: set[Dim] = set()
        self.room = _room(node)

    def build(self) -> Sequence[Value]:
        """The results of the loop, once an attempt fits."""
        for _ in range(MOST_ATTEMPTS):
            tracer = RegionTracer(self.graph)
            types = self._types()
            condition = tracer.trace("condition", self._condition, types)
            body = tracer.trace("body", self._body, types)
            if not self._widen():
                return self._finish(tracer, condition, body)
        raise self.node.error("a carried value changes its type without end")

    def _types(self) -> list[tuple[str, ValueType]]:
        pairs = zip(self.initial, self.carries, strict=True)
        carried = [(value.name, carry.boundary) for value, carry in pairs]
        collected = [
            (f"stacked{index}", self._type_of_stack(index)) for index in range(self.stacked)
        ]
        return [("index", INDEX), ("goes_on", FLAG), *carried, *collected]

    def _type_of_stack(self, index: int) -> ValueType:
        """The type that holds a stacked result of all steps so far."""
        rows = self._rows(index)
        return self._sequence(index) if rows is None else rows

    def _rows(self, index: int) -> TensorType | None:
        """The tensor with room for all steps, if their number and one size of each are known."""
        element = self.elements[index] if self.elements else None
        if self.room is None or not isinstance(element, TensorType) or element.dtype is string:
            return None
        if self._rename_inner_symbols(element) != element:
            return None
        return element.with_shape((self.room, *element.shape))

    def _sequence(self, index: int) -> SequenceType:
        element = self.elements[index] if self.elements else UnrankedType(bool_)
        dtype = element.dtype if isinstance(element, TensorType | UnrankedType) else bool_
        return SequenceType(UnrankedType(dtype))

    def _condition(self, *arguments: Value) -> Sequence[Value]:
        index, goes_on = arguments[:2]
        trips = self.node.optional(0)
        if trips is None:
            return [goes_on]
        limit = scalar(self.node.importer.in_graph(trips, current_graph()))
        return [F.logical_and(F.less(index, limit), goes_on)]

    def _body(self, *arguments: Value) -> Sequence[Value]:
        index, goes_on = arguments[:2]
        end = 2 + len(self.initial)
        pairs = zip(arguments[2:end], self.carries, strict=True)
        seen = [apply_declare(value, carry.inside) for value, carry in pairs]
        body = self.node.graph("body")
        condition, *outputs = run(self.node, body, (index, goes_on, *seen), "body")
        self.returned = [output.type for output in outputs[: len(self.initial)]]
        fits = self._note_elements([output.type for output in outputs[len(self.initial) :]])
        handed = [
            self._cast_carry(output, carry)
            for output, carry in zip(outputs, self.carries, strict=False)
        ]
        parts = zip(arguments[end:], outputs[len(self.initial) :], strict=True)
        collected = [self._with(index, *each) if fits else each[0] for each in parts]
        return [F.add(index, 1), scalar(condition), *handed, *collected]

    def _with(self, index: Value, collected: Value, output: Value) -> Value:
        """What is collected, with the result of step ``index`` in its place."""
        if isinstance(collected.type, SequenceType):
            return apply(
                SequenceInsert(), collected, apply_declare(output, boundary_type(output.type))
            )
        places = F.reshape(F.iota((collected.shape[0],)), (-1, *(1,) * output.rank))
        return F.where(F.equal(places, index), F.unsqueeze(output, 0), collected)

    def _note_elements(self, types: list[ValueType]) -> bool:
        """Remember the types of stacked results; whether the sequences were made for them."""
        for type_ in types:
            if not isinstance(type_, TensorType | UnrankedType):
                raise self.node.error("only tensors can be stacked", found=str(type_))
        known = bool(self.elements) or not types
        self.retry = not known
        self.elements = types
        return known

    def _cast_carry(self, output: Value, carry: _Carry) -> Value:
        """What the body returned, under the type that the loop hands on, if it can have it."""
        boundary = carry.boundary
        wraps = isinstance(boundary, OptionalType) and may_be(output.type, boundary.element)
        if wraps and not isinstance(output.type, OptionalType):
            return apply(Optional(boundary.element), output)  # type: ignore[union-attr]
        return apply_declare(output, boundary) if may_be(output.type, boundary) else output

    def _widen(self) -> bool:
        """Widen the carries that the body changed; whether there were any."""
        changed = self.retry
        for carry, returned in zip(self.carries, self.returned, strict=True):
            if self._is_kept(carry, returned):
                continue
            changed = True
            carry.inside = self._wider(carry.inside, returned)
            carry.boundary = boundary_type(carry.inside)
        return changed

    def _is_kept(self, carry: _Carry, returned: ValueType) -> bool:
        """Whether what the body returned has the type that it was given."""
        inside = carry.inside
        if isinstance(inside, OptionalType) and not isinstance(returned, OptionalType):
            return _same(inside.element, returned)
        if not isinstance(carry.boundary, UnrankedType):
            return _same(inside, returned)
        if isinstance(inside, UnrankedType):
            return may_be(returned, inside)
        if not isinstance(inside, TensorType) or not isinstance(returned, TensorType):
            return False
        if returned.dtype is not inside.dtype or returned.rank != inside.rank:
            return False
        pairs = zip(inside.shape, returned.shape, strict=True)
        return all(provably_equal(a, b) or a in self.changing for a, b in pairs)

    def _wider(self, a: ValueType, b: ValueType) -> ValueType:
        if isinstance(a, SequenceType) and isinstance(b, SequenceType):
            return SequenceType(join(a.element, b.element))
        if isinstance(a, OptionalType) and not isinstance(b, OptionalType):
            return OptionalType(self._wider(a.element, b))
        same_rank = isinstance(a, TensorType) and isinstance(b, TensorType) and a.rank == b.rank
        if not same_rank or a.dtype is not b.dtype:  # type: ignore[union-attr]  # both are tensors
            return join(a, b)
        assert isinstance(a, TensorType) and isinstance(b, TensorType)
        pairs = zip(a.shape, b.shape, strict=True)
        return a.with_shape(tuple(x if provably_equal(x, y) else self._changes() for x, y in pairs))

    def _changes(self) -> Dim:
        """A dimension whose size is another in each step."""
        symbol = self.node.fresh()
        self.changing.add(symbol)
        return symbol

    def _finish(self, tracer: RegionTracer, condition: Graph, body: Graph) -> Sequence[Value]:
        node, graph = self.node, self.graph
        captured = tracer.close()
        body.set_outputs([*body.outputs, *body.inputs[len(body.inputs) - len(captured) :]])
        start = node.optional(1)
        flag = graph.add_constant(np.asarray(True), bool_) if start is None else scalar(start)
        carried = [
            apply_declare(value, carry.boundary)
            for value, carry in zip(self.initial, self.carries, strict=True)
        ]
        empty = [self._empty(number) for number in range(len(self.elements))]
        index = graph.add_constant(np.asarray(0), i64)
        operands = (index, flag, *carried, *empty, *captured)
        results = graph.create(While(), operands, regions=(condition, body)).results
        end = 2 + len(carried)
        final = [
            apply_declare(value, self._outside(carry))
            for value, carry in zip(results[2:end], self.carries, strict=True)
        ]
        return (*final, *self._stack(results[end : end + len(empty)], results[0]))

    def _empty(self, number: int) -> Value:
        rows = self._rows(number)
        if rows is not None:
            return F.zeros(rows.shape, rows.dtype)
        return apply(SequenceEmpty(self._sequence(number).element.dtype))  # type: ignore[union-attr]

    def _outside(self, carry: _Carry) -> ValueType:
        """The type that a carried value has after the loop."""
        if not isinstance(carry.boundary, UnrankedType) or not isinstance(carry.inside, TensorType):
            return carry.boundary
        return self._rename_inner_symbols(carry.inside)

    def _rename_inner_symbols(self, type_: TensorType) -> TensorType:
        """A type with fresh symbols where its own mean something inside the body only."""
        known_values = (*self.initial, *self.graph.inputs)
        outer = {symbol.name for value in known_values for symbol in symbols_of(value.type)}
        dims: list[Dim] = []
        for dim in type_.shape:
            known = isinstance(dim, int) or all(each.name in outer for each in dim.symbols())
            dims.append(dim if known else self.node.fresh())
        return type_.with_shape(tuple(dims))

    def _stack(self, collected: Sequence[Value], steps: Value) -> Sequence[Value]:
        stacked = []
        for value, type_ in zip(collected, self.elements, strict=True):
            if isinstance(value.type, TensorType):
                stacked.append(first_rows(self.node, value, steps))
                continue
            size = self.node.fresh("steps")
            if not isinstance(type_, TensorType):
                stacked.append(apply(ConcatFromSequence(0, size, True), value))
                continue
            element = self._rename_inner_symbols(type_)
            op = ConcatFromSequence(0, size, True, element.shape, element.dtype)
            declared = element.with_shape((size, *element.shape))
            stacked.append(apply_declare(apply(op, value), declared))
        return stacked


def _room(node: OnnxNode) -> Dim | None:
    """How many steps there are at most; None if that is not known, or too many to make room for."""
    trips = dim_of_operand(node, 0)
    if trips is None or node.scope.depth or (isinstance(trips, int) and trips > MOST_ROWS):
        return None
    return dim_max(trips, 0)


def _as_while(node: OnnxNode, initial: Sequence[Value]) -> Sequence[Value]:
    return _Loop(node, initial).build()
