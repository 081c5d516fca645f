"""Control flow: if → If, while → Loop, scan → Scan (or Loop, where there is no sequence)."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import GraphProto

from monograph.exporters.onnx.context import Body, ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.dims import provably_at_least
from monograph.ir.graph import Graph, Value
from monograph.ir.types import TensorType, ValueType, bool_, i64
from monograph.ops import control

ONE_BOOL = TensorType(bool_, ())
ONE_COUNT = TensorType(i64, ())


@exports(control.If)
def if_(node: ExportContext[control.If]) -> Exported:
    """The branches read their operands from the graph around them."""
    predicate, *operands = node.inputs
    graphs = [_branch(node, region, operands) for region in node.node.regions]
    attributes = {"then_branch": graphs[0], "else_branch": graphs[1]}
    return node.write("If", [predicate], node.result_dtypes(), attributes)


def _branch(node: ExportContext[control.If], region: Graph, operands: Sequence[Term]) -> GraphProto:
    body = node.body(region, operands, name=region.name)
    return body.graph([(term, value.type) for term, value in body.outputs])


@exports(control.While)
def while_(node: ExportContext[control.While]) -> Exported:
    """The condition is asked once before the loop and then at the end of every iteration.

    A carry that the body hands on unchanged is read from around the loop instead. ``limit`` is not
    written: past it ours is an error, and a loop that just stopped there would be silently wrong.
    """
    condition, region = node.node.regions
    fixed = [output is given for output, given in zip(region.outputs, region.inputs, strict=True)]
    first = _inline(node, condition, node.inputs)
    arguments = [
        term if is_fixed else None for term, is_fixed in zip(node.inputs, fixed, strict=True)
    ]
    extra: list[tuple[str, ValueType]] = [("iteration", ONE_COUNT), ("goes_on", ONE_BOOL)]
    body = node.body(region, arguments, name=region.name, extra=extra)
    after = [term for term, _ in body.outputs]
    again = _inline_into(node, body, condition, after)
    carried = [pair for pair, is_fixed in zip(body.outputs, fixed, strict=True) if not is_fixed]
    graph = body.graph([(again, ONE_BOOL), *((term, value.type) for term, value in carried)])
    initial = [term for term, is_fixed in zip(node.inputs, fixed, strict=True) if not is_fixed]
    dtypes = [term.dtype for term in initial]
    made = iter(node.write("Loop", [None, first, *initial], dtypes, {"body": graph}))
    return [
        term if is_fixed else next(made) for term, is_fixed in zip(node.inputs, fixed, strict=True)
    ]


def _inline(node: ExportContext[control.While], region: Graph, arguments: Sequence[Term]) -> Term:
    """The one result of a region whose nodes are written here."""
    for value, term in zip(region.inputs, arguments, strict=True):
        node.scope.bind(value, term)
    hint = node.scope.hint
    node.writer.write_nodes(region, node.scope)
    node.scope.hint = hint
    return node.scope.term(region.outputs[0])


def _inline_into(
    node: ExportContext[control.While], body: Body, region: Graph, arguments: Sequence[Term]
) -> Term:
    for value, term in zip(region.inputs, arguments, strict=True):
        body.scope.bind(value, term)
    node.writer.write_nodes(region, body.scope)
    return body.scope.term(region.outputs[0])


@exports(control.Scan)
def scan(node: ExportContext[control.Scan]) -> Exported:
    """ONNX Runtime refuses a Scan of no steps, and ONNX one without a sequence."""
    sequences = node.op.split(node.node.operands)[1]
    if sequences and all(provably_at_least(value.shape[0], 1) for value in sequences):
        return _as_scan(node)
    return _as_loop(node)


def _as_scan(node: ExportContext[control.Scan]) -> list[Term]:
    """Constants are read from around the body."""
    op = node.op
    region = node.node.regions[0]
    carries, sequences, constants = op.split(node.inputs)
    arguments = [*[None] * (op.carries + op.sequences), *constants]
    body = node.body(region, arguments, name=region.name)
    graph = body.graph([(term, value.type) for term, value in body.outputs])
    stacked = len(region.outputs) - op.carries
    attributes = {
        "body": graph,
        "num_scan_inputs": op.sequences,
        "scan_input_directions": [int(op.reverse)] * op.sequences,
    }
    if stacked:  # an empty list has no type in ONNX
        attributes["scan_output_directions"] = [int(op.reverse)] * stacked
    return node.write("Scan", [*carries, *sequences], node.result_dtypes(), attributes)


def _as_loop(node: ExportContext[control.Scan]) -> list[Term]:
    """Each step takes its part of the sequences itself; results stand in the order of the steps."""
    op = node.op
    region = node.node.regions[0]
    carries, sequences, constants = op.split(node.inputs)
    length = op.length
    if length is None:
        length = op.split(node.node.operands)[1][0].shape[0]
    count = node.scalar_size(length)
    last = node.emit("Sub", count, node.number(1, i64)) if op.reverse else None
    extra: list[tuple[str, ValueType]] = [("step", ONE_COUNT), ("goes_on", ONE_BOOL)]

    def slices(body: Body) -> list[Term]:
        step = body.inputs[0]
        if last is not None:
            step = body.emitter.emit("Sub", last, step)
        return [body.emitter.emit("Gather", term, step, axis=0) for term in sequences]

    arguments = [*[None] * op.carries, *[None] * op.sequences, *constants]
    body = node.body(region, arguments, name=region.name, extra=extra, computed=slices)
    outputs = [(term, value.type) for term, value in body.outputs]
    graph = body.graph([(body.inputs[1], ONE_BOOL), *outputs])
    made = node.write("Loop", [count, None, *carries], node.result_dtypes(), {"body": graph})
    stacked = made[op.carries :]
    if op.reverse:
        stacked = [_flip(node, term) for term in stacked]
    if not provably_at_least(length, 1):
        results = node.node.results[op.carries :]
        stacked = [_give_shape(node, *pair) for pair in zip(stacked, results, strict=True)]
    return [*made[: op.carries], *stacked]


def _give_shape(node: ExportContext[control.Scan], term: Term, result: Value) -> Term:
    """A result in its own shape: of no steps ONNX Runtime makes sizes that are symbols 0."""
    if result.tensor.is_static:
        return term
    return node.emit("Reshape", term, node.sizes(result.shape), allowzero=1)


def _flip(node: ExportContext[control.Scan], term: Term) -> Term:
    ends = (node.integers([bound]) for bound in (2**63 - 1, -(2**63)))
    return node.emit("Slice", term, *ends, node.integers([0]), node.integers([-1]))
