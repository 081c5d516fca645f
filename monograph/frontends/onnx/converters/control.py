"""If and Scan, and what bodies share; Loop has a file of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto, helper

from monograph import functional as F
from monograph.frontends.onnx.deferred import defer
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.frontends.onnx.types import Symbols
from monograph.ir.build import apply
from monograph.ir.dims import Dim, provably_equal
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.region import RegionTracer
from monograph.ir.types import TensorType, UnrankedType, ValueType, bool_, i64
from monograph.ops.control import If
from monograph.ops.rules import normalize_axis
from monograph.ops.sequence import Declare, join

SLICE_VERSION = 13
RESHAPE_VERSION = 13
"""The version of Reshape that takes the shape as an operand."""


def run(node: OnnxNode, body: GraphProto, arguments: Sequence[Value], name: str) -> list[Value]:
    """Convert a body into the current graph, on these arguments."""
    if len(body.input) != len(arguments):
        raise node.error(
            f"the {name} takes the wrong number of inputs",
            expected=str(len(arguments)),
            found=str(len(body.input)),
        )
    scope = node.scope.inner()
    for formal, value in zip(body.input, arguments, strict=True):
        scope.values[formal.name] = value
    outputs = node.importer.run_body(body, scope, f"the {name} of {node.name}")
    return [node.importer.in_graph(value, current_graph()) for value in outputs]


def scalar(value: Value) -> Value:
    """A tensor of one element as a scalar."""
    return value if isinstance(value.type, TensorType) and not value.rank else F.reshape(value, ())


def to_scalar(node: OnnxNode, value: Value) -> Value:
    """A value whose rank is not known as a scalar, which it must be when the program runs.

    Other values stay as they are.
    """
    if not isinstance(value.type, UnrankedType):
        return value
    shape = current_graph().add_constant(np.zeros(0, np.int64), i64)
    proto = helper.make_node("Reshape", ["tensor", "shape"], ["scalar"])
    reshape = OnnxNode(proto, (value, shape), RESHAPE_VERSION, (True,), node.importer, node.scope)
    types = (TensorType(value.type.dtype, ()),)
    (made,) = defer(reshape, NotStatic("the rank is not known", types))
    assert made is not None, "its result is wanted"
    return made


@converter("If", any_types=True)
def if_(node: OnnxNode) -> Sequence[Value]:
    """One of two bodies; the one that runs is chosen now, if that is known."""
    predicate = to_scalar(node, node.input(0))
    if predicate.dtype is not bool_:
        raise node.error("the condition is no bool", found=str(predicate.type))
    known = node.constant(0)
    if known is not None:
        name = "then_branch" if bool(known.reshape(())) else "else_branch"
        return run(node, node.graph(name), (), name)
    tracer = RegionTracer(current_graph())
    regions = [
        tracer.trace(short, lambda name=name: run(node, node.graph(name), (), name), ())
        for short, name in (("then", "then_branch"), ("else", "else_branch"))
    ]
    _agree(node, *regions)
    operands = (scalar(predicate), *tracer.close())
    return current_graph().create(If(), operands, regions=regions).results


def _agree(node: OnnxNode, then: Graph, otherwise: Graph) -> None:
    """Give the results of two branches the types that they have in common."""
    if len(then.outputs) != len(otherwise.outputs):
        raise node.error(
            "the branches have different numbers of results",
            expected=str(len(then.outputs)),
            found=str(len(otherwise.outputs)),
        )
    pairs = zip(then.outputs, otherwise.outputs, strict=True)
    common = [common_type(a.type, b.type, node.importer.symbols) for a, b in pairs]
    for region in (then, otherwise):
        declare_outputs(region, common)


def common_type(a: ValueType, b: ValueType, symbols: Symbols) -> ValueType:
    """The type of a value that has one of two types: sizes that may differ are fresh symbols."""
    ranked = isinstance(a, TensorType) and isinstance(b, TensorType)
    if not ranked or a.rank != b.rank or a.dtype is not b.dtype:  # type: ignore[union-attr]
        return join(a, b)
    assert isinstance(a, TensorType)
    assert isinstance(b, TensorType)
    pairs = zip(a.shape, b.shape, strict=True)
    return a.with_shape(tuple(x if provably_equal(x, y) else symbols.fresh() for x, y in pairs))


def declare_outputs(region: Graph, types: Sequence[ValueType]) -> None:
    """Make a finished region return its outputs under other types."""
    outputs = []
    for value, type_ in zip(region.outputs, types, strict=True):
        same = value.type == type_
        outputs.append(value if same else region.create(Declare(type_), (value,)).result)
    region.set_outputs(outputs)


# Scan.


@converter("Scan")
def scan_with_batches(node: OnnxNode) -> Sequence[Value]:
    """Opset 8: every operand has a batch dimension first, and each batch is scanned on its own."""
    if node.optional(0) is not None:
        raise node.error("sequence_lens is not supported", hint="convert the model to opset 9")
    count = node.integer("num_scan_inputs")
    values = [node.input(index) for index in range(1, len(node.inputs))]
    states, sequences = values[: len(values) - count], values[len(values) - count :]
    directions = node.ints("directions", [0] * count)

    def one_batch(_: tuple[()], parts: Sequence[Value]) -> object:
        final, stacked = _scan(
            node, parts[: len(states)], parts[len(states) :], directions, len(states)
        )
        return (), (*final, *stacked)

    return F.scan(one_batch, (), (*states, *sequences))[1]  # type: ignore[no-any-return]


@converter("Scan", since=9)
def scan(node: OnnxNode) -> Sequence[Value]:
    """A body run along an axis of the scan inputs, handing states on."""
    count = node.integer("num_scan_inputs")
    values = node.given()
    if not 1 <= count <= len(values):
        raise node.error("too few inputs", expected=f"{count} scan inputs", found=str(len(values)))
    states, sequences = values[: len(values) - count], list(values[len(values) - count :])
    axes = node.ints("scan_input_axes", [0] * count)
    directions = node.ints("scan_input_directions", [0] * count)
    moved = [F.moveaxis(value, axis, 0) for value, axis in zip(sequences, axes, strict=True)]
    final, stacked = _scan(node, states, moved, directions, len(states))
    outputs = len(stacked)
    back = node.ints("scan_output_directions", [0] * outputs)
    places = node.ints("scan_output_axes", [0] * outputs)
    turned = [_reverse(value, flag) for value, flag in zip(stacked, back, strict=True)]
    finished = [
        F.moveaxis(value, 0, normalize_axis("Scan", axis, value.rank))
        for value, axis in zip(turned, places, strict=True)
    ]
    return (*final, *finished)


def _reverse(value: Value, backwards: int) -> Value:
    return F.flip(value, [0]) if backwards else value


def _scan(
    node: OnnxNode,
    states: Sequence[Value],
    sequences: Sequence[Value],
    directions: Sequence[int],
    carries: int,
) -> tuple[Sequence[Value], Sequence[Value]]:
    """Scan along the first axis: the last states, and what the steps returned, stacked."""
    pairs = zip(sequences, directions, strict=True)
    turned = tuple(_reverse(value, backwards) for value, backwards in pairs)

    def step(carry: Sequence[Value], slices: Sequence[Value]) -> object:
        outputs = run(node, node.graph("body"), (*carry, *slices), "body")
        return tuple(outputs[:carries]), tuple(outputs[carries:])

    final, stacked = F.scan(step, tuple(states), turned)
    return final, stacked


def dim_of_operand(node: OnnxNode, index: int) -> Dim | None:
    """The contents of an operand of one integer as a dimension, if they are known."""
    dims = node.dims(index)
    return dims[0] if dims is not None and len(dims) == 1 else None


def first_rows(node: OnnxNode, value: Value, count: Value) -> Value:
    """As many rows of a tensor as a scalar says when the program runs."""
    assert isinstance(value.type, TensorType)
    zero = current_graph().add_constant(np.zeros(1, np.int64), i64)
    proto = helper.make_node("Slice", ["rows", "start", "end", "axis"], ["first"])
    operands = (value, zero, F.reshape(count, (1,)), zero)
    slice_ = OnnxNode(proto, operands, SLICE_VERSION, (True,), node.importer, node.scope)
    types = (value.type.with_shape((node.fresh("steps"), *value.shape[1:])),)
    (made,) = defer(slice_, NotStatic("how many steps there were is not known", types))
    assert made is not None, "its result is wanted"
    return made


def boundary_type(type_: ValueType) -> ValueType:
    """A tensor type without its shape, for a value whose sizes change from step to step."""
    return UnrankedType(type_.dtype) if isinstance(type_, TensorType) else type_


def apply_declare(value: Value, type_: ValueType) -> Value:
    """A value under another type."""
    return value if value.type == type_ else apply(Declare(type_), value)
