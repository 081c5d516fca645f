"""Writes a graph as the text of a StableHLO module, one operation a line, regions indented."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from monograph.exporters.stablehlo.sizes import SizeWriter, is_known, write_integers
from monograph.exporters.stablehlo.types import dense, integers, refuse_types, type_text
from monograph.exporters.writers import WriterTable
from monograph.ir.dims import Dim, Shape
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.location import Location
from monograph.ir.types import Array, DType, TensorType, bool_, i64


class Term(NamedTuple):
    """A value of the module: its name, ``%3`` or ``%3#1``, and its type."""

    name: str
    type: TensorType


TABLE: WriterTable[Emitter, Term] = WriterTable("StableHLO", refuse_types)
"""What each op is in StableHLO; the files of ``converters`` fill it."""


class Emitter:
    """Lines of a function, and names for values that are numbered in order."""

    def __init__(self, graph: Graph, locations: bool = False) -> None:
        self.graph = graph
        self.locations = locations
        self.location: Location | None = None
        self.lines: list[str] = []
        self.names: dict[Value, Term] = {}
        self.count = 0
        self.functions: dict[str, str] = {}
        self.sizes = SizeWriter(self)

    def module(self) -> str:
        """The whole text."""
        given = [
            Term(f"%arg{number}", value.tensor) for number, value in enumerate(self.graph.inputs)
        ]
        self.sizes.begin(given)
        results = self.inline(self.graph, given)
        inputs = ", ".join(map(_argument, given))
        types = ", ".join(type_text(term.type) for term in results)
        names = ", ".join(term.name for term in results)
        self.lines.append(f"return {names} : {types}" if results else "return")
        body = "\n".join(_indent(self.lines, 2))
        others = "".join(self.functions.values())
        main = f"  func.func public @main({inputs}) -> ({types}) {{\n{body}\n  }}\n"
        return f"module {{\n{main}{others}}}\n"

    def inline(self, graph: Graph, given: Sequence[Term]) -> list[Term]:
        """Write a graph's nodes here, reading these terms as its inputs; its outputs."""
        self.names.update(zip(graph.inputs, given, strict=True))
        for node in graph.nodes:
            self.location = node.location
            terms = TABLE.write(self, node)
            self.names.update(zip(node.results, terms, strict=True))
        return [self.names[value] for value in graph.outputs]

    # For writers.

    def operands(self, node: Node) -> list[Term]:
        """The terms of a node's operands."""
        return [self.names[value] for value in node.operands]

    def op(
        self,
        name: str,
        operands: Sequence[Term],
        result: TensorType,
        attributes: str = "",
        *regions: str,
    ) -> Term:
        """An operation with one result."""
        return self.op_many(name, operands, [result], attributes, *regions)[0]

    def op_many(
        self,
        name: str,
        operands: Sequence[Term],
        results: Sequence[TensorType],
        attributes: str = "",
        *regions: str,
        discardable: str = "",
    ) -> list[Term]:
        """An operation in MLIR's generic form."""
        names = ", ".join(term.name for term in operands)
        types = ", ".join(type_text(term.type) for term in operands)
        made = ", ".join(map(type_text, results))
        given = f" <{{{attributes}}}>" if attributes else ""
        inside = f" ({', '.join(regions)})" if regions else ""
        dialect = name if "." in name else f"stablehlo.{name}"
        more = f" {{{discardable}}}" if discardable else ""
        code = f'"{dialect}"({names}){given}{inside}{more} : ({types}) -> '
        code += made if len(results) == 1 else f"({made})"
        return self._bind(code, results)

    def _bind(self, code: str, results: Sequence[TensorType]) -> list[Term]:
        name = f"%{self.count}"
        self.count += 1
        if self.locations and self.location is not None:
            code += f" loc({_location(self.location)})"
        if len(results) == 1:
            self.lines.append(f"{name} = {code}")
            return [Term(name, results[0])]
        self.lines.append(f"{name}:{len(results)} = {code}" if results else code)
        return [Term(f"{name}#{position}", type_) for position, type_ in enumerate(results)]

    def block(
        self, types: Sequence[TensorType], build: Callable[[list[Term]], Sequence[Term]]
    ) -> str:
        """A region: ``build`` writes its lines, given its arguments, and returns its results."""
        arguments = [Term(f"%a{self.count + k}", type_) for k, type_ in enumerate(types)]
        self.count += len(types)
        outer, self.lines = self.lines, []
        seen = dict(self.sizes.made)
        results = build(arguments)
        self.sizes.made = seen  # what was worked out inside is not seen from outside
        returned = ", ".join(term.name for term in results)
        returned_types = ", ".join(type_text(term.type) for term in results)
        self.lines.append(
            f"stablehlo.return {returned} : {returned_types}" if results else "stablehlo.return"
        )
        inside, self.lines = self.lines, outer
        listed = ", ".join(f"{term.name}: {type_text(term.type)}" for term in arguments)
        head = [f"^bb0({listed}):"] if arguments else []
        return "{\n" + "\n".join([*head, *_indent(inside, 1)]) + "\n}"

    def function(
        self, types: Sequence[TensorType], build: Callable[[list[Term]], Sequence[Term]], hint: str
    ) -> str:
        """The name of a function of the module beside main, which ``build`` writes."""
        arguments = [Term(f"%a{position}", type_) for position, type_ in enumerate(types)]
        outer, self.lines = self.lines, []
        results = build(arguments)
        inside, self.lines = self.lines, outer
        listed = ", ".join(f"{term.name}: {type_text(term.type)}" for term in arguments)
        made = ", ".join(type_text(term.type) for term in results)
        names = ", ".join(term.name for term in results)
        name = f"{hint}_{len(self.functions)}"
        body = "\n".join(_indent([*inside, f"return {names} : {made}"], 2))
        self.functions[name] = (
            f"  func.func private @{name}({listed}) -> ({made}) {{\n{body}\n  }}\n"
        )
        return name

    def combine(self, word: str, scalar: TensorType) -> str:
        """The region of a reduction: one operation on two scalars."""
        return self.block([scalar, scalar], lambda pair: [self.op(word, pair, scalar)])

    def literal(self, array: Any, type_: TensorType) -> Term:
        """A constant; one number fills the type."""
        held = np.asarray(array)
        if not type_.is_static:
            return self.spread(self.literal(held, type_.with_shape(())), [], type_.shape)
        return self._bind(f"stablehlo.constant {dense(held, type_)}", [type_])[0]

    def number(self, value: Any, dtype: DType) -> Term:
        """A scalar constant."""
        return self.literal(np.asarray(value).astype(dtype.numpy), TensorType(dtype, ()))

    def filled(self, value: Any, type_: TensorType) -> Term:
        """One number in a whole tensor."""
        return self.literal(np.asarray(value).astype(type_.dtype.numpy), type_)

    def broadcast(self, term: Term, shape: Shape) -> Term:
        """Stretched to a shape, trailing dimensions aligned."""
        if term.type.shape == shape:
            return term
        return self.spread(term, range(len(shape) - term.type.rank, len(shape)), shape)

    def spread(self, term: Term, axes: Sequence[int], shape: Shape) -> Term:
        """Stretched to a shape, the term's dimensions standing at ``axes`` of it."""
        attribute = f"broadcast_dimensions = {integers(axes)}"
        return self._emit_shaped("broadcast_in_dim", [term], term.type.with_shape(shape), attribute)

    def _emit_shaped(
        self, word: str, operands: list[Term], result: TensorType, attributes: str = ""
    ) -> Term:
        """An operation that makes a shape, which is its last operand where a size is free."""
        if is_known(result.shape) and all(is_known(term.type.shape) for term in operands):
            return self.op(word, operands, result, attributes)
        shape = self.sizes.vector(result.shape)
        return self.op(f"dynamic_{word}", [*operands, shape], result, attributes)

    def together(self, node: Node) -> list[Term]:
        """Operands broadcast to the result's shape, as StableHLO wants them."""
        return [self.broadcast(term, node.result.shape) for term in self.operands(node)]

    def binary(self, word: str, a: Term, b: Term) -> Term:
        """An operation on two terms of one type."""
        return self.op(word, [a, b], a.type)

    def compare(self, direction: str, a: Term, b: Term) -> Term:
        """Where a comparison holds: EQ, NE, LT, LE, GT or GE."""
        attribute = f"comparison_direction = #stablehlo<comparison_direction {direction}>"
        return self.op("compare", [a, b], a.type.with_dtype(bool_), attribute)

    def select(self, condition: Term, a: Term, b: Term) -> Term:
        """``a`` where the condition holds, ``b`` elsewhere."""
        return self.op("select", [condition, a, b], a.type)

    def convert(self, term: Term, dtype: DType) -> Term:
        """The same numbers in another dtype."""
        if term.type.dtype is dtype:
            return term
        return self.op("convert", [term], term.type.with_dtype(dtype))

    def reshape(self, term: Term, shape: Shape) -> Term:
        """The same elements in another shape."""
        if term.type.shape == shape:
            return term
        return self._emit_shaped("reshape", [term], term.type.with_shape(shape))

    def transpose(self, term: Term, order: Sequence[int]) -> Term:
        """Dimensions in another order."""
        if list(order) == sorted(order):
            return term
        shape = tuple(term.type.shape[axis] for axis in order)
        attribute = f"permutation = {integers(order)}"
        return self.op("transpose", [term], term.type.with_shape(shape), attribute)

    def iota(self, shape: Shape, axis: int, dtype: DType = i64) -> Term:
        """0, 1, 2… along an axis."""
        return self._emit_shaped(
            "iota", [], TensorType(dtype, shape), f"iota_dimension = {axis} : i64"
        )

    def slice(
        self, term: Term, starts: Sequence[Dim], limits: Sequence[Dim], steps: Sequence[int]
    ) -> Term:
        """Elements from starts up to limits."""
        ranges = zip(starts, limits, steps, strict=True)
        shape = tuple((limit - start + step - 1) // step for start, limit, step in ranges)
        result = term.type.with_shape(shape)
        if not is_known([*starts, *limits]):
            bounds = [self.sizes.vector(each) for each in (starts, limits, steps)]
            return self.op("real_dynamic_slice", [term, *bounds], result)
        attributes = (
            f"start_indices = {write_integers(starts)}, limit_indices = {write_integers(limits)}, "
            f"strides = {integers(steps)}"
        )
        return self.op("slice", [term], result, attributes)

    def reduce(self, word: str, term: Term, start: Any, axes: Sequence[int]) -> Term:
        """The combination of the elements along axes, which go."""
        scalar = term.type.with_shape(())
        left = tuple(dim for axis, dim in enumerate(term.type.shape) if axis not in axes)
        return self.op(
            "reduce",
            [term, self.number(start, term.type.dtype)],
            term.type.with_shape(left),
            f"dimensions = {integers(sorted(axes))}",
            self.combine(word, scalar),
        )


def _argument(term: Term) -> str:
    """An argument; MLIR knows of free sizes only that they are, and the names stand beside."""
    free = "" if term.type.is_static else f" {{monograph.type = {quote(str(term.type))}}}"
    return f"{term.name}: {type_text(term.type)}{free}"


def _location(location: Location) -> str:
    """``"encoder.0"("net.py":8:0)``: the module path names the place, where it is known."""
    place = f"{quote(location.file)}:{location.line}:0"
    return f"{quote(location.scope)}({place})" if location.scope else place


def quote(text: str) -> str:
    """A string as MLIR writes it: other bytes than ASCII's, and quotes, in hexadecimal."""
    plain = range(0x20, 0x7F)
    return '"{}"'.format(
        "".join(
            chr(byte) if byte in plain and byte not in b'"\\' else f"\\{byte:02X}"
            for byte in text.encode("utf-8", "surrogateescape")
        )
    )


def _indent(lines: Sequence[str], depth: int) -> list[str]:
    space = "  " * depth
    return [space + part for line in lines for part in line.split("\n")]


def lowest(dtype: DType) -> Array:
    """What every number is at least."""
    return _end(dtype, -1)


def highest(dtype: DType) -> Array:
    """What every number is at most."""
    return _end(dtype, 1)


def _end(dtype: DType, sign: int) -> Array:
    if dtype is bool_:
        return np.asarray(sign > 0)
    if dtype.is_float:
        return np.asarray(sign * np.inf).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return np.asarray(limits.min if sign < 0 else limits.max, dtype.numpy)
