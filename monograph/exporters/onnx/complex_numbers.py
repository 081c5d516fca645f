"""Complex numbers as pairs of real ones, because ONNX computes with no others.

A graph that has complex values is rewritten before it is exported: each becomes two values, its
real and its imaginary part, and each op on them what it means for the parts (``complex_rules``). An
input or output is one real tensor with a last dimension of 2, as ONNX's own ``DFT`` has it.

    %x: c64[n]                       %x: f32[n, 2]
    %y: c64[n] = multiply(%x, %x) →  %x.real, %x.imag = …
                                     %y.real = %x.real * %x.real - %x.imag * %x.imag …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.decompose import decompose_node
from monograph.ir.graph import Graph, Node, Value, copy_node
from monograph.ir.region import declare_input
from monograph.ir.types import DType, TensorType, ValueType, c128, f32, f64
from monograph.ops import control, joining, slicing
from monograph.ops import shape as shape_ops


class Pair(NamedTuple):
    """The two parts of a complex value."""

    real: Value
    imag: Value


Part: TypeAlias = Value | Pair


class NoRuleError(Exception):
    """An op on complex numbers that has no rule, in a region or a decomposition."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.op.name)
        self.node = node


@dataclass(frozen=True)
class RealGraph:
    """A graph on pairs: the names of inputs and outputs that are pairs, and what has no rule.

    Outputs that depend on a refused node are missing.
    """

    graph: Graph
    pairs: tuple[str, ...] = ()
    refused: tuple[Node, ...] = ()


def without_complex(graph: Graph) -> RealGraph:
    """The graph on pairs of real numbers; one without complex numbers is returned as it is."""
    if not has_complex(graph):
        return RealGraph(graph)
    target = Graph(graph.name)
    rewriter = Rewriter(target)
    for value in graph.inputs:
        rewriter.values[value] = _parts_of_input(target, value)
    rewriter.rewrite(graph)
    stacked: dict[Value, Value] = {}
    outputs = []
    for value in graph.outputs:
        if value not in rewriter.values:
            continue
        if value not in stacked:
            stacked[value] = _output(rewriter.values[value], value)
        outputs.append(stacked[value])
    target.set_outputs(outputs)
    target.updates = dict(graph.updates)
    target.donated = set(graph.donated)
    ends = dict.fromkeys([*graph.inputs, *graph.outputs])
    pairs = tuple(value.name for value in ends if is_complex(value.type))
    return RealGraph(target, pairs, tuple(rewriter.refused))


def has_complex(graph: Graph) -> bool:
    """Whether a value of the graph, or of a region in it, is complex."""
    inside = (
        value
        for node in graph.walk()
        for value in (*node.results, *(each for region in node.regions for each in region.inputs))
    )
    return any(is_complex(value.type) for value in (*graph.inputs, *inside))


def is_complex(type_: ValueType) -> bool:
    """Whether values of the type are complex tensors."""
    return isinstance(type_, TensorType) and type_.dtype.is_complex


def part_dtype(dtype: DType) -> DType:
    """The float that the parts of a complex dtype are."""
    return f64 if dtype is c128 else f32


def _parts_of_input(target: Graph, value: Value) -> Part:
    if not is_complex(value.type):
        return target.add_input(value.name, value.type)
    shape = value.shape
    whole = target.add_input(value.name, TensorType(part_dtype(value.dtype), (*shape, 2)))
    ends = [slicing.slice(whole, [part], [part + 1], axes=[len(shape)]) for part in (0, 1)]
    return Pair(*(shape_ops.reshape(end, shape) for end in ends))


def _output(part: Part, value: Value) -> Value:
    if isinstance(part, Value):
        return part
    whole = joining.stack(list(part), -1)
    whole.graph.rename(whole, value.name)
    return whole


class Rewriter:
    """Rewrites the nodes of one graph, or of one region, into another."""

    def __init__(self, target: Graph) -> None:
        self.target = target
        self.values: dict[Value, Part] = {}
        self.refused: list[Node] = []

    def rewrite(self, graph: Graph) -> None:
        """Rewrite every node but those without a rule, and those that read what they make."""
        for node in graph.nodes:
            if not all(value in self.values for value in node.operands):
                continue
            try:
                with self.target.inserting_before(None, node.location):
                    self._node(node)
            except NoRuleError:
                self.refused.append(node)

    def _node(self, node: Node) -> None:
        ends = (*node.operands, *node.results)
        regions = any(has_complex(region) for region in node.regions)
        if not regions and not any(is_complex(value.type) for value in ends):
            mapping = {value: self._real(value) for value in node.operands}
            copy_node(node, self.target, mapping)
            self.values.update((value, mapping[value]) for value in node.results)
        elif node.regions:
            self._control(node)
        else:
            self._rule(node)

    def _real(self, value: Value) -> Value:
        found = self.values[value]
        assert isinstance(found, Value)
        return found

    def _rule(self, node: Node) -> None:
        from monograph.exporters.onnx.complex_rules import rule_of

        rule = rule_of(node.op)
        operands = [self.values[value] for value in node.operands]
        if rule is not None:
            try:
                made = rule(node, *operands)
            except NotImplementedError:
                raise NoRuleError(node) from None
            self._bind(node, list(made) if _is_several(made) else [made])
            return
        if not node.op.is_composite():
            raise NoRuleError(node)
        alone = Graph(node.op.name)
        inputs = [declare_input(alone, value.name, value.type) for value in node.operands]
        made_node = alone.create(node.op, inputs)
        alone.set_outputs(made_node.results)
        decompose_node(made_node)
        self.values.update(zip(inputs, operands, strict=True))
        for each in alone.nodes:
            self._node(each)
        self._bind(node, [self.values[value] for value in alone.outputs])

    def _bind(self, node: Node, parts: Sequence[Part]) -> None:
        """Make parts the results, under the results' names."""
        for value, part in zip(node.results, parts, strict=True):
            self.values[value] = part
            if isinstance(part, Pair):
                for one, suffix in zip(part, ("real", "imag"), strict=True):
                    self._rename(one, f"{value.name}.{suffix}")
            else:
                self._rename(part, value.name)

    def _rename(self, value: Value, name: str) -> None:
        if value.producer is not None and value.graph is self.target:
            self.target.rename(value, name)

    # Control flow: each complex operand, carry and result is two.

    def _control(self, node: Node) -> None:
        op: Any = node.op
        if isinstance(op, control.Scan):
            counts = [_count(values) for values in op.split(node.operands)]
            op = replace(op, carries=counts[0], sequences=counts[1])
        regions = [self._region(region) for region in node.regions]
        operands = [each for value in node.operands for each in _flat(self.values[value])]
        made = list(self.target.create(op, operands, regions=regions).results)
        parts: list[Part] = []
        for value in node.results:
            if is_complex(value.type):
                parts.append(Pair(made.pop(0), made.pop(0)))
            else:
                parts.append(made.pop(0))
        self._bind(node, parts)

    def _region(self, region: Graph) -> Graph:
        inner = Rewriter(Graph(region.name))
        for value in region.inputs:
            if is_complex(value.type):
                type_ = value.tensor.with_dtype(part_dtype(value.dtype))
                names = (f"{value.name}.real", f"{value.name}.imag")
                inner.values[value] = Pair(
                    *(declare_input(inner.target, name, type_) for name in names)
                )
            else:
                inner.values[value] = declare_input(inner.target, value.name, value.type)
        inner.rewrite(region)
        if inner.refused:
            raise NoRuleError(inner.refused[0])
        outputs = [each for value in region.outputs for each in _flat(inner.values[value])]
        inner.target.set_outputs(outputs)
        return inner.target


def _flat(part: Part) -> tuple[Value, ...]:
    return (part,) if isinstance(part, Value) else tuple(part)


def _count(values: Sequence[Value]) -> int:
    return sum(2 if is_complex(value.type) else 1 for value in values)


def _is_several(made: Any) -> bool:
    return isinstance(made, tuple | list) and not isinstance(made, Pair)
