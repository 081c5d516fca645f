"""Graphs as StableHLO text, which XLA, IREE and others compile: ``to_stablehlo``.

Composites are decomposed first; each primitive that StableHLO has a word for is a line of text.
An op that it is not written for yet is an error that names it. Sizes must be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monograph.errors import UnsupportedError
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import Array, DType, Kind, TensorType, bool_, f32, f64
from monograph.passes.lower_composites import decompose_composites

UNARY = {
    "abs": "abs",
    "ceil": "ceil",
    "cos": "cosine",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "floor": "floor",
    "imag": "imag",
    "is_finite": "is_finite",
    "log": "log",
    "log1p": "log_plus_one",
    "negate": "negate",
    "real": "real",
    "round": "round_nearest_even",
    "rsqrt": "rsqrt",
    "sigmoid": "logistic",
    "sin": "sine",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
}
BINARY = {
    "add": "add",
    "atan2": "atan2",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "complex": "complex",
    "divide": "divide",
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "multiply",
    "subtract": "subtract",
}
COMPARISONS = {
    "equal": "EQ",
    "greater": "GT",
    "greater_equal": "GE",
    "less": "LT",
    "less_equal": "LE",
    "not_equal": "NE",
}
REDUCTIONS = {"all": "and", "any": "or", "max": "maximum", "min": "minimum", "sum": "add"}
OTHERS = (
    "cast", "concat", "constant", "dot_general", "expand", "flip", "full", "iota",
    "logical_not", "pad", "reshape", "slice", "squeeze", "transpose", "unsqueeze", "weight",
    "where",
)  # fmt: skip
WRITTEN = frozenset({*UNARY, *BINARY, *COMPARISONS, *REDUCTIONS, *OTHERS})
"""The primitives that are written; the rest are named in an error."""

DTYPES = {
    "bool": "i1",
    "c64": "complex<f32>",
    "c128": "complex<f64>",
    **{name: name for name in ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64")},
    **{f"u{bits}": f"ui{bits}" for bits in (8, 16, 32, 64)},
}


def to_stablehlo(graph: Graph) -> str:
    """A module with the graph as its function main, as MLIR's text."""
    lowered = graph.clone()
    decompose_composites(lowered, lambda op: op.name in WRITTEN)
    missing = sorted({node.op.name for node in lowered.nodes if not _is_written(node)})
    if missing:
        raise UnsupportedError(
            f"StableHLO is not written for {', '.join(missing)} yet",
            hint="to_onnx writes every op; `monograph ops` lists what there is",
        )
    return _Writer(lowered).text()


def _is_written(node: Node) -> bool:
    return node.op.name in WRITTEN or node is node.graph.output_node


def type_text(type_: TensorType) -> str:
    """``tensor<2x3xf32>``."""
    return f"tensor<{'x'.join([*map(str, type_.static_shape()), _dtype(type_.dtype)])}>"


def _dtype(dtype: DType) -> str:
    if dtype.name not in DTYPES:
        raise UnsupportedError(f"StableHLO has no {dtype}")
    return DTYPES[dtype.name]


def _number(element: Any, dtype: DType) -> str:
    if dtype is bool_:
        return "true" if element else "false"
    if dtype.is_complex:
        part = np.float32 if dtype.name == "c64" else np.float64
        return f"({_float(part(element.real))}, {_float(part(element.imag))})"
    return _float(element) if dtype.is_float else str(int(element))


def _float(element: Any) -> str:
    """A number's own bits, where decimals would not say them."""
    array = np.asarray(element)
    if np.isfinite(array.astype(np.float64)):
        return f"{float(array.astype(np.float64)):.17e}"
    bits = array.view(f"uint{8 * array.dtype.itemsize}")
    return f"0x{int(bits):0{2 * array.dtype.itemsize}X}"


def _contents(array: Array, type_: TensorType) -> str:
    return _dense(array, type_.dtype) if type_.size != 0 else ""


def _dense(array: Array, dtype: DType) -> str:
    if array.ndim == 0:
        return _number(array[()], dtype)
    return "[" + ", ".join(_dense(each, dtype) for each in array) + "]"


class _Writer:
    """Writes nodes as lines; values are numbered in order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.count = 0

    def text(self) -> str:
        for number, value in enumerate(self.graph.inputs):
            self.names[value] = f"%arg{number}"
        for node in self.graph.nodes:
            if node is not self.graph.output_node:
                self.names[node.result] = self._write(node)
        inputs = ", ".join(f"{self.names[x]}: {type_text(x.tensor)}" for x in self.graph.inputs)
        types = ", ".join(type_text(value.tensor) for value in self.graph.outputs)
        names = ", ".join(self.names[value] for value in self.graph.outputs)
        body = "\n".join(f"    {line}" for line in [*self.lines, f"return {names} : {types}"])
        return f"module {{\n  func.func public @main({inputs}) -> ({types}) {{\n{body}\n  }}\n}}\n"

    def _line(self, code: str) -> str:
        name = f"%{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {code}")
        return name

    def _generic(
        self,
        op: str,
        operands: Sequence[tuple[str, TensorType]],
        result: TensorType,
        attributes: str = "",
        region: str = "",
    ) -> str:
        names = ", ".join(name for name, _ in operands)
        types = ", ".join(type_text(type_) for _, type_ in operands)
        given = f" <{{{attributes}}}>" if attributes else ""
        own = f" ({{{region}}})" if region else ""
        return self._line(
            f'"stablehlo.{op}"({names}){given}{own} : ({types}) -> {type_text(result)}'
        )

    def _write(self, node: Node) -> str:
        name, result = node.op.name, node.result.tensor
        if name == "abs" and result.dtype.kind is Kind.UNSIGNED:
            return self.names[node.operands[0]]
        if name == "is_finite" and node.operands[0].dtype.is_complex:
            return self._is_finite_complex(node)
        if name in UNARY:
            return self._generic(UNARY[name], self._operands(node), result)
        if name in BINARY:
            return self._generic(BINARY[name], self._spread(node), result)
        if name in COMPARISONS:
            direction = (
                f"comparison_direction = #stablehlo<comparison_direction {COMPARISONS[name]}>"
            )
            return self._generic("compare", self._spread(node), result, direction)
        if name in REDUCTIONS:
            return self._reduce(node)
        writer: Callable[[Node], str] = getattr(self, f"_{name}")
        return writer(node)

    def _is_finite_complex(self, node: Node) -> str:
        """Whether both parts are finite."""
        (operand,), result = self._operands(node), node.result.tensor
        part = result.with_dtype(f64 if operand[1].dtype.name == "c128" else f32)
        parts = [self._generic(name, [operand], part) for name in ("real", "imag")]
        finite = [(self._generic("is_finite", [(each, part)], result), result) for each in parts]
        return self._generic("and", finite, result)

    def _operands(self, node: Node) -> list[tuple[str, TensorType]]:
        return [(self.names[value], value.tensor) for value in node.operands]

    def _spread(self, node: Node) -> list[tuple[str, TensorType]]:
        """Operands broadcast to the result's shape, as StableHLO wants them."""
        shape = node.result.tensor.shape
        return [self._broadcast(each, type_, shape) for each, type_ in self._operands(node)]

    def _broadcast(self, name: str, type_: TensorType, shape: Any) -> tuple[str, TensorType]:
        if type_.shape == shape:
            return name, type_
        wide = type_.with_shape(shape)
        first = len(shape) - type_.rank
        places = ", ".join(map(str, range(first, len(shape))))
        attribute = f"broadcast_dimensions = array<i64{': ' + places if places else ''}>"
        return self._generic("broadcast_in_dim", [(name, type_)], wide, attribute), wide

    def _literal(self, array: Array, type_: TensorType) -> str:
        return self._line(
            f"stablehlo.constant dense<{_contents(array, type_)}> : {type_text(type_)}"
        )

    def _constant(self, node: Node) -> str:
        data = node.op.data  # type: ignore[attr-defined]
        if data.splat is not None:
            return self._literal(np.asarray(data.splat), node.result.tensor)
        return self._literal(data.array(), node.result.tensor)

    _weight = _constant

    def _full(self, node: Node) -> str:
        type_ = node.result.tensor
        value = node.op.value  # type: ignore[attr-defined]
        return self._literal(np.asarray(value).astype(type_.dtype.numpy), type_)

    def _iota(self, node: Node) -> str:
        axis = node.op.axis % node.result.rank  # type: ignore[attr-defined]
        return self._generic("iota", [], node.result.tensor, f"iota_dimension = {axis} : i64")

    def _logical_not(self, node: Node) -> str:
        return self._generic("not", self._operands(node), node.result.tensor)

    def _cast(self, node: Node) -> str:
        return self._generic("convert", self._operands(node), node.result.tensor)

    def _where(self, node: Node) -> str:
        return self._generic("select", self._spread(node), node.result.tensor)

    def _expand(self, node: Node) -> str:
        ((name, type_),) = self._operands(node)
        return self._broadcast(name, type_, node.result.tensor.shape)[0]

    def _reshape(self, node: Node) -> str:
        return self._generic("reshape", self._operands(node), node.result.tensor)

    _squeeze = _unsqueeze = _reshape

    def _transpose(self, node: Node) -> str:
        rank = node.result.rank
        order = [axis % rank for axis in node.op.permutation]  # type: ignore[attr-defined]
        attribute = f"permutation = {_integers(order)}"
        return self._generic("transpose", self._operands(node), node.result.tensor, attribute)

    def _flip(self, node: Node) -> str:
        rank = node.operands[0].rank
        axes = sorted(axis % rank for axis in node.op.axes)  # type: ignore[attr-defined]
        attribute = f"dimensions = {_integers(axes)}"
        return self._generic("reverse", self._operands(node), node.result.tensor, attribute)

    def _concat(self, node: Node) -> str:
        axis = node.op.axis % node.result.rank  # type: ignore[attr-defined]
        attribute = f"dimension = {axis} : i64"
        return self._generic("concatenate", self._operands(node), node.result.tensor, attribute)

    def _slice(self, node: Node) -> str:
        shape = node.operands[0].tensor.static_shape()
        op: Any = node.op
        starts = [
            min(max(int(start), 0), size) for start, size in zip(op.starts, shape, strict=True)
        ]
        bounds = zip(op.limits, starts, shape, strict=True)
        limits = [min(max(int(limit), start), size) for limit, start, size in bounds]
        attributes = (
            f"start_indices = {_integers(starts)}, limit_indices = {_integers(limits)}, "
            f"strides = {_integers(op.steps)}"
        )
        return self._generic("slice", self._operands(node), node.result.tensor, attributes)

    def _pad(self, node: Node) -> str:
        op: Any = node.op
        type_ = node.result.tensor
        scalar = type_.with_shape(())
        fill = self._literal(np.asarray(op.value).astype(type_.dtype.numpy), scalar)
        interior = op.interior or (0,) * type_.rank
        attributes = (
            f"edge_padding_low = {_integers(op.low)}, edge_padding_high = {_integers(op.high)}, "
            f"interior_padding = {_integers(interior)}"
        )
        return self._generic("pad", [*self._operands(node), (fill, scalar)], type_, attributes)

    def _dot_general(self, node: Node) -> str:
        op: Any = node.op
        ranks = [value.rank for value in node.operands]
        parts = {
            "lhs_batching_dimensions": [axis % ranks[0] for axis in op.lhs_batch],
            "rhs_batching_dimensions": [axis % ranks[1] for axis in op.rhs_batch],
            "lhs_contracting_dimensions": [axis % ranks[0] for axis in op.lhs_contracting],
            "rhs_contracting_dimensions": [axis % ranks[1] for axis in op.rhs_contracting],
        }
        given = ", ".join(f"{key} = {list(axes)}" for key, axes in parts.items() if axes)
        attribute = f"dot_dimension_numbers = #stablehlo.dot<{given}>"
        return self._generic("dot_general", self._operands(node), node.result.tensor, attribute)

    def _reduce(self, node: Node) -> str:
        """Narrow floats are summed in f32 by XLA itself, as ours are."""
        op: Any = node.op
        ((name, type_),) = self._operands(node)
        axes = sorted(axis % type_.rank for axis in op.axes)
        scalar = type_.with_shape(())
        start = self._literal(_identity(op.name, type_.dtype), scalar)
        text = type_text(scalar)
        region = (
            f"^bb0(%a: {text}, %b: {text}): "
            f"%c = stablehlo.{REDUCTIONS[op.name]} %a, %b : {text} stablehlo.return %c : {text}"
        )
        left = tuple(dim for axis, dim in enumerate(type_.shape) if axis not in axes)
        reduced = type_.with_shape(left)
        attribute = f"dimensions = {_integers(axes)}"
        made = self._generic("reduce", [(name, type_), (start, scalar)], reduced, attribute, region)
        if reduced.shape == node.result.tensor.shape:
            return made
        return self._generic("reshape", [(made, reduced)], node.result.tensor)


def _integers(values: Sequence[Any]) -> str:
    listed = ", ".join(str(int(value)) for value in values)
    return f"array<i64: {listed}>" if listed else "array<i64>"


def _identity(kind: str, dtype: DType) -> Array:
    """What a reduction of nothing gives."""
    if kind in ("all", "any"):
        return np.asarray(kind == "all")
    if kind == "sum" or dtype is bool_:
        return np.zeros((), dtype.numpy) if kind != "min" else np.ones((), dtype.numpy)
    if dtype.is_float:
        return np.asarray(-np.inf if kind == "max" else np.inf).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return np.asarray(limits.min if kind == "max" else limits.max, dtype.numpy)
