"""Turns tensors that a Loop appends to at every step into its stacked (scan) outputs.

A list of what was found is often spelled as a tensor that each step appends to:

    body (i, c, found) { …; found_out = Concat<axis=0>(found, best) }

Its size is another in each step, so that the loop has no native code. But nothing in the body reads
it, and what is appended has one type: so that is stacked, as any other result of each step, and
what the loop began with is put in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import GraphProto, NodeProto, helper

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.order import facts_of
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import TensorType, symbols_of


@dataclass(frozen=True)
class Append:
    """The node that appends to a carried value, and along which axis."""

    node: NodeProto
    axis: int


def stack_appended(
    node: OnnxNode, convert: Callable[[OnnxNode], Sequence[Value]]
) -> Sequence[Value] | None:
    """The results of a loop with what it appends stacked; None if it appends nothing like that."""
    body, count = node.graph("body"), len(node.inputs) - 2
    appends = _appends(body, count)
    if not appends or len(node.proto.output) < len(body.output) - 1:
        return None
    other = _without(node, body, appends)
    results = list(convert(other))
    kept = count - len(appends)
    stacks = results[len(results) - len(appends) :]
    sizes = _sizes_outside(node)
    grown = {}
    for (number, append), stack in zip(appends.items(), stacks, strict=True):
        initial = node.input(2 + number)
        if not _is_even(stack, initial, sizes):
            return None
        grown[number] = _append(initial, stack, append.axis)
    carried, others = iter(results[:kept]), results[kept : len(results) - len(appends)]
    return [*(grown[k] if k in grown else next(carried) for k in range(count)), *others]


def _appends(body: GraphProto, count: int) -> dict[int, Append]:
    """The carried values that the body appends to, and does nothing else with."""
    makers = {name: made for made in body.node for name in made.output}
    reads: dict[str, int] = {}
    for facts in facts_of(body.node):
        for name in facts.reads:
            reads[name] = reads.get(name, 0) + 1
    given = [each.name for each in body.output]
    found: dict[int, Append] = {}
    for number in range(count):
        before, after = body.input[2 + number].name, given[1 + number]
        made = makers.get(after)
        if made is None or made.op_type != "Concat" or made.domain not in ("", "ai.onnx"):
            continue
        is_first = list(made.input).count(before) == 1 and made.input[0] == before
        alone = reads.get(before) == 1 and after not in reads and given.count(after) == 1
        axis = next((each.i for each in made.attribute if each.name == "axis"), None)
        if is_first and alone and before not in given and len(made.input) > 1 and axis is not None:
            found[number] = Append(made, axis)
    return found


def _without(node: OnnxNode, body: GraphProto, appends: Mapping[int, Append]) -> OnnxNode:
    """The loop without these carried values; what is appended comes last of the stacked results."""
    inner = GraphProto()
    inner.CopyFrom(body)
    dropped = [appends[k].node.output[0] for k in appends]
    nodes = [each for each in body.node if not each.output or each.output[0] not in dropped]
    outputs = [each for k, each in enumerate(body.output) if k - 1 not in appends]
    for append in appends.values():
        piece = f"{append.node.output[0]}/appended"
        pieces = append.node.input[1:]
        nodes.append(helper.make_node("Concat", pieces, [piece], axis=append.axis))
        outputs.append(helper.make_empty_tensor_value_info(piece))
    for field, values in (
        (inner.node, nodes),
        (inner.input, [each for k, each in enumerate(body.input) if k - 2 not in appends]),
        (inner.output, outputs),
    ):
        del field[:]
        field.extend(values)
    proto = NodeProto()
    proto.CopyFrom(node.proto)
    for attribute in proto.attribute:
        if attribute.name == "body":
            attribute.g.CopyFrom(inner)
    names = [each for k, each in enumerate(node.proto.output) if k not in appends]
    wanted = [each for k, each in enumerate(node.outputs_wanted) if k not in appends]
    del proto.output[:]
    proto.output.extend([*names, *(f"{each}/appended" for each in dropped)])
    del proto.input[:]
    proto.input.extend(each for k, each in enumerate(node.proto.input) if k - 2 not in appends)
    inputs = tuple(each for k, each in enumerate(node.inputs) if k - 2 not in appends)
    wanted += [True] * len(appends)
    return OnnxNode(proto, inputs, node.opset, tuple(wanted), node.importer, node.scope)


def _sizes_outside(node: OnnxNode) -> set[str]:
    """The sizes that have a meaning outside of the body."""
    values = [each for each in node.inputs if each is not None]
    graph = values[0].graph
    return {symbol.name for each in (*values, *graph.inputs) for symbol in symbols_of(each.type)}


def _is_even(stack: Value, initial: Value, sizes: set[str]) -> bool:
    """Whether each step appends as much as the others, of the same rank as what is there."""
    if not isinstance(stack.type, TensorType) or not isinstance(initial.type, TensorType):
        return False
    if stack.rank != initial.rank + 1:
        return False
    symbols = {
        symbol for dim in stack.shape[1:] if not isinstance(dim, int) for symbol in dim.symbols()
    }
    return all(symbol.name in sizes for symbol in symbols)


def _append(initial: Value, stack: Value, axis: int) -> Value:
    """What the loop began with, and after it what each step appended."""
    place = axis + initial.rank if axis < 0 else axis
    steps, *piece = stack.shape
    length: Dim = steps * piece[place]
    moved = F.moveaxis(stack, 0, place)
    flat = F.reshape(moved, (*piece[:place], length, *piece[place + 1 :]))
    return F.concat([initial, flat], place)
