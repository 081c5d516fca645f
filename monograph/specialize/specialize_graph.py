"""Specializes a graph to everything that is known of its inputs so far.

Every node is made again on operands of which more is known than when the graph was: ranks instead
of ``f32[*]``, constants in the place of inputs, lists whose elements are values of their own in the
place of sequences. Types follow by the ops' own rules, ops that waited for contents settle, and
sequences dissolve:

    %s = sequence_construct(%a, %b)        %s is the list [%a, %b]
    %x = sequence_at(%s, %k)               %b, if %k is known to be 1

What still cannot be decided stays in the graph, with the values whose contents would decide it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import MonographError, TypeRuleError
from monograph.functional import cast, concat, dim, reshape, squeeze, stack
from monograph.functional import slice as slice_
from monograph.ir.deferred import DeferredOp, Undecided
from monograph.ir.dims import Dim, Symbol
from monograph.ir.graph import Graph, Node, Value, copy_node
from monograph.ir.op import Op
from monograph.ir.types import (
    Array,
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
    bool_,
    i64,
)
from monograph.ops import control, sequence
from monograph.passes.manager import run_pipeline
from monograph.passes.pipeline import pipeline_for
from monograph.program.native_support import why_not_native
from monograph.rewrite.constant_evaluator import ConstantEvaluator
from monograph.specialize.stage_inputs import FIRST_SIZE, SizePattern

MAX_EVALUATED_ELEMENTS = 4096
"""Elements up to which values that decide something are computed while specializing."""

Item: TypeAlias = "Value | list[Any] | None"
"""A tensor; the elements of a sequence, which are items; or the absence of an optional value."""

MOST_ITERATIONS = 256
"""So often a loop that has no native code is unrolled, at most."""


@dataclass(frozen=True)
class SpecializedGraph:
    """A graph on tensors alone, as far as it could be decided.

    ``outputs`` nests the numbers of the graph's outputs as those of the source were nested.
    ``asked`` has the nodes that wait for contents, with the values whose contents they wait for.
    ``read`` has the symbols for sizes that are read, with the number of the input of the source.
    """

    graph: Graph
    outputs: tuple[Any, ...]
    asked: Mapping[Node, tuple[Value, ...]]
    read: Mapping[Symbol, int]


def specialize(
    source: Graph,
    structures: Sequence[Any],
    constants: Mapping[int, Array],
    sizes: Mapping[int, SizePattern] | None = None,
) -> SpecializedGraph:
    """The graph on inputs of these structures (``stage_inputs``), some of them known.

    Inputs among ``sizes`` hold numbers of which some become symbols.
    """
    round_ = Settler(source, structures, constants, sizes or {})
    outputs: tuple[Any, ...] = round_.outputs
    read = round_.read
    while round_.progress:
        tidy(round_.graph)
        round_ = Settler(round_.graph, [None] * len(round_.graph.inputs), {}, {})
        outputs = tuple(_renumber(each, round_.outputs) for each in outputs)
    return SpecializedGraph(round_.graph, outputs, round_.asked, read)


def tidy(graph: Graph) -> None:
    """Fold what has become constant and remove what nothing needs."""
    run_pipeline(graph, pipeline_for("O1"))


def _renumber(tree: Any, outputs: Sequence[Any]) -> Any:
    """A nesting of output numbers, with what became of each output in its place."""
    if isinstance(tree, list):
        return [_renumber(each, outputs) for each in tree]
    return None if tree is None else outputs[tree]


# Making the nodes again --------------------------------------------------------------------------


class Settler:
    """One walk over a graph."""

    def __init__(
        self,
        source: Graph,
        structures: Sequence[Any],
        constants: Mapping[int, Array],
        sizes: Mapping[int, SizePattern],
    ) -> None:
        self.graph = Graph(source.name)
        self.asked: dict[Node, tuple[Value, ...]] = {}
        self.progress = False
        """Whether an op settled: what it stands for has not been looked at yet."""
        self._known = ConstantEvaluator(MAX_EVALUATED_ELEMENTS)
        self._items: dict[Value, Item] = {}
        self._bindings: dict[Symbol, Dim] = {}
        self._iterations = 0
        self._taken = set(source.symbols())
        self.read: dict[Symbol, int] = {}
        read: dict[int, list[Symbol | None]] = {}
        for number, value in enumerate(source.inputs):
            if number in sizes:
                read[number] = self._size_input(value, number, sizes[number])
                continue
            self._items[value] = self._input(value, structures[number], constants.get(number))
        for number, symbols in read.items():  # after the inputs, whose names no node may take
            value = source.inputs[number]
            self._items[value] = self._sizes(value, sizes[number], symbols)
        with self.graph.as_current():
            self._walk(source.nodes)
            items = [self._items[value] for value in source.outputs]
            flat: list[Value] = []
            self.outputs = tuple(_number_leaves(item, flat) for item in items)
            self.graph.set_outputs(flat)

    def _input(self, value: Value, structure: Any, constant: Array | None) -> Item:
        if constant is not None:
            dtype = value.type.dtype if isinstance(value.type, TensorType | UnrankedType) else None
            made = self.graph.add_constant(constant, dtype, name=value.name)
            self._bind(value.type, made.type)
            return made
        return self._argument(value.name, value.type, structure)

    def _size_input(self, value: Value, number: int, pattern: SizePattern) -> list[Symbol | None]:
        """Add an input without elements whose dimensions tell those numbers that are sizes."""
        symbols = [
            None if each is not None else Symbol(self._fresh(f"{value.name}_{k}"), FIRST_SIZE)
            for k, each in enumerate(pattern.numbers)
        ]
        read = tuple(symbol for symbol in symbols if symbol is not None)
        self.graph.add_input(value.name, TensorType(bool_, (*read, 0)))
        self.read.update(dict.fromkeys(read, number))
        return symbols

    def _sizes(self, value: Value, pattern: SizePattern, symbols: Sequence[Symbol | None]) -> Value:
        """The numbers of an input, sizes among them, as a value."""
        assert isinstance(value.type, TensorType | UnrankedType)
        with self.graph.as_current():
            parts = [
                self.graph.add_constant(np.asarray(known), i64) if symbol is None else dim(symbol)
                for symbol, known in zip(symbols, pattern.numbers, strict=True)
            ]
            made = cast(reshape(stack(parts, 0), pattern.shape), value.type.dtype)
        self._bind(value.type, made.type)
        return made

    def _argument(self, name: str, type_: ValueType, structure: Any) -> Item:
        if isinstance(type_, TensorType):
            return self.graph.add_input(name, type_)
        if isinstance(type_, UnrankedType):
            shape = tuple(Symbol(self._fresh(f"{name}_size{k}"), 0) for k in range(structure))
            return self.graph.add_input(name, TensorType(type_.dtype, shape))
        if structure == "absent":
            return None
        if isinstance(type_, OptionalType):
            return self._argument(name, type_.element, structure[1])
        return [
            self._argument(f"{name}_{k}", type_.element, each) for k, each in enumerate(structure)
        ]

    def _fresh(self, hint: str) -> str:
        word = "".join(c if c.isalnum() else "_" for c in hint)
        word = word if word[:1].isalpha() else f"d{word}"
        numbered = (f"{word}_{number}" for number in range(1, len(self._taken) + 2))
        found = next(name for name in (word, *numbered) if name not in self._taken)
        self._taken.add(found)
        return found

    def _walk(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            with self.graph.inserting_before(None, node.location):
                items = [self._items[value] for value in node.operands]
                results = self._make(node, node.op.substitute(self._bindings), items)
            for value, item in zip(node.results, results, strict=True):
                self._items[value] = item
                if isinstance(item, Value):
                    self._bind(value.type, item.type)

    def _make(self, node: Node, op: Op, items: Sequence[Item]) -> Sequence[Item]:
        match op:
            case DeferredOp():
                return self._settle(node, op, items)
            case control.If():
                return self._branch(node, op, items)
            case control.While():
                return self._loop(node, op, items)
            case sequence.Declare():
                return self._declare(node, op, items)
        dissolved = self._dissolve_sequence(op, items)
        if isinstance(dissolved, Value | list):
            return [dissolved]
        made = self._again(node, op, items)
        if dissolved:
            self.asked[made] = dissolved
        return made.results

    # Ops that wait for contents ------------------------------------------------------------------

    def _settle(self, node: Node, op: DeferredOp, items: Sequence[Item]) -> Sequence[Item]:
        values = self._values(items, node.operands)
        last = self.graph.nodes[-1] if len(self.graph) else None
        try:
            results = op.resolve(values)
        except Undecided as undecided:
            made = self._again(node, op, values)
            if undecided.contents:
                self.asked[made] = undecided.contents
            return made.results
        self.progress = True
        fresh = self.graph.nodes if last is None else _after(last)
        for each in fresh:
            each.location = node.location
        return results

    # Sequences -----------------------------------------------------------------------------------

    def _dissolve_sequence(self, op: Op, items: Sequence[Item]) -> Item | tuple[Value, ...]:
        """What a sequence op comes to; or the values whose contents it takes, perhaps none."""
        match op:
            case sequence.SequenceEmpty():
                return []
            case sequence.SequenceConstruct():
                return list(items)
            case sequence.OptionalHasElement() if not _may_be_absent(items):
                return self.graph.add_constant(np.asarray(bool(items) and items[0] is not None))
            case sequence.OptionalGetElement() if items[0] is not None and not _may_be_absent(
                items
            ):
                return items[0]
            case sequence.SequenceLength() if isinstance(items[0], list):
                return self.graph.add_constant(np.asarray(len(items[0]), np.int64))
            case sequence.SequenceAt() | sequence.SequenceErase() | sequence.SequenceInsert():
                return self._resolve_position(op, items)
            case sequence.ConcatFromSequence() if isinstance(items[0], list):
                return self._join(op, items[0])
            case sequence.SplitToSequence():
                return self._split(op, items)
        return ()

    def _resolve_position(self, op: Op, items: Sequence[Item]) -> Item | tuple[Value, ...]:
        elements, last = items[0], len(items) - 1
        has_position = last == (2 if isinstance(op, sequence.SequenceInsert) else 1)
        if not isinstance(elements, list):
            return ()
        arguments: list[Any] = [elements, *items[1:]]
        if has_position:
            position = items[last]
            assert isinstance(position, Value)
            found = self._known.contents(position)
            if found is None:
                return (position,)
            arguments[last] = found.reshape(())
        made = op.evaluate(*arguments)
        return made if isinstance(made, Value | list) else ()

    def _join(
        self, op: sequence.ConcatFromSequence, elements: list[Any]
    ) -> Value | tuple[Value, ...]:
        tensors = [each for each in elements if isinstance(each, Value)]
        ranked = all(isinstance(each.type, TensorType) for each in tensors)
        if not tensors or len(tensors) != len(elements) or not ranked:
            return ()
        made = (stack if op.new_axis else concat)(tensors, op.axis)
        axis = op.axis if op.axis >= 0 else op.axis + made.rank
        if isinstance(op.size, Symbol):
            self._bindings.setdefault(op.size, made.shape[axis])
        return made

    def _split(
        self, op: sequence.SplitToSequence, items: Sequence[Item]
    ) -> list[Any] | tuple[Value, ...]:
        x = items[0]
        assert isinstance(x, Value)
        if not isinstance(x.type, TensorType):
            return ()
        axis = op.axis if op.axis >= 0 else op.axis + x.rank
        size = x.shape[axis]
        if not isinstance(size, int):
            return ()
        sizes = [1] * size
        if len(items) > 1:
            assert isinstance(items[1], Value)
            parts = self._known.contents(items[1])
            if parts is None:
                return (items[1],)
            sizes = op._sizes(parts, size)
        starts = [sum(sizes[:k]) for k in range(len(sizes))]
        cut = [
            slice_(x, [start], [start + length], axes=[axis])
            for start, length in zip(starts, sizes, strict=True)
        ]
        drops = len(items) == 1 and not op.keepdims
        return [squeeze(part, axis) for part in cut] if drops else cut

    def _declare(self, node: Node, op: sequence.Declare, items: Sequence[Item]) -> Sequence[Item]:
        """A type that says less, or the same, is no news; one that says more is kept."""
        (item,) = items
        if not isinstance(item, Value):
            return items
        self._bind(op.type, item.type)
        wanted = sequence.Declare(_with(op.type, self._bindings))
        if isinstance(item.type, TensorType) and wanted.type in (
            item.type,
            UnrankedType(item.type.dtype),
        ):
            return items
        return self._again(node, wanted, items).results

    # Control flow --------------------------------------------------------------------------------

    def _branch(self, node: Node, op: control.If, items: Sequence[Item]) -> Sequence[Item]:
        predicate, *arguments = items
        assert isinstance(predicate, Value)
        chosen = self._known.contents(predicate)
        if chosen is not None:
            return self._inline(node.regions[0 if chosen else 1], arguments)
        made = self._again(node, op, items)
        if self._is_not_native(made):
            self.asked[made] = (predicate,)
        return made.results

    def _loop(self, node: Node, op: control.While, items: Sequence[Item]) -> Sequence[Item]:
        """Unroll a loop that has no native code, for as long as its condition is known."""
        if not self._is_not_native(node) and all(isinstance(each, Value) for each in items):
            return self._again(node, op, items).results
        condition, body = node.regions
        done = 0
        while self._iterations < MOST_ITERATIONS:
            (goes_on,) = self._inline(condition, items)
            assert isinstance(goes_on, Value)
            holds = self._known.contents(goes_on)
            if holds is None:
                made = self._again(node, op, items)
                self.asked[made] = self._deciding(goes_on, items)
                return made.results
            if not holds:
                return items
            if op.limit is not None and done >= op.limit:
                break
            items = self._inline(body, items)
            done += 1
            self._iterations += 1
        return self._again(node, op, items).results

    def _deciding(self, condition: Value, carries: Sequence[Item]) -> tuple[Value, ...]:
        """The carries whose contents decide a condition; none if one is no count and no flag."""
        among = {each for each in carries if isinstance(each, Value)}
        found: dict[Value, None] = {}
        stack = [condition]
        while stack:
            value = stack.pop()
            if value in among:
                found[value] = None
            elif value.producer is not None:
                stack.extend(value.producer.operands)
        unknown = tuple(value for value in found if self._known.contents(value) is None)
        is_count = all(isinstance(v.type, TensorType) and not v.dtype.is_float for v in unknown)
        return unknown if is_count else ()

    def _inline(self, region: Graph, items: Sequence[Item]) -> list[Item]:
        outer = self._items
        self._items = dict(zip(region.inputs, items, strict=True))
        bindings = dict(self._bindings)
        for value, item in self._items.items():
            if isinstance(item, Value):
                self._bind(value.type, item.type)
        self._walk(region.nodes)
        results = [self._items[value] for value in region.outputs]
        self._items, self._bindings = outer, bindings
        return results

    def _is_not_native(self, node: Node) -> bool:
        known = self.graph.bound_symbols()
        return why_not_native(node, known) is not None

    # Nodes as they are ---------------------------------------------------------------------------

    def _again(self, node: Node, op: Op, items: Sequence[Item]) -> Node:
        """The node on what its operands have become; it says less if its rule refuses more."""
        values = self._values(items, node.operands)
        pairs = list(zip(values, node.operands, strict=True))
        if op is node.op and all(value.type == old.type for value, old in pairs):
            mapping = dict(zip(node.operands, values, strict=True))
            return copy_node(node, self.graph, mapping)
        names = [value.name for value in node.results]
        regions = [substitute_sizes(region, self._bindings) for region in node.regions]
        try:
            if node.regions:
                raise TypeRuleError("the types of a region's inputs are as they are")
            return self.graph.create(op, values, names=names, location=node.location)
        except TypeRuleError:
            types = [_with(old.type, self._bindings) for _, old in pairs]
            said = [sequence.declare(value, t) for value, t in zip(values, types, strict=True)]
            return self.graph.create(op, said, regions=regions, names=names, location=node.location)

    def _values(self, items: Sequence[Item], operands: Sequence[Value]) -> list[Value]:
        return [self._value(item, old.type) for item, old in zip(items, operands, strict=True)]

    def _value(self, item: Item, type_: ValueType) -> Value:
        """An item as one value: a list as the sequence that it was."""
        if isinstance(item, Value):
            if isinstance(type_, OptionalType) and not isinstance(item.type, OptionalType):
                return sequence.optional(item)
            return item
        if isinstance(type_, OptionalType):
            if item is None:
                return self.graph.create(sequence.Optional(type_.element), ()).result
            return sequence.optional(self._value(item, type_.element))
        assert isinstance(type_, SequenceType) and isinstance(item, list)
        if not item:
            element = type_.element
            dtype = element.dtype if isinstance(element, TensorType | UnrankedType) else None
            if dtype is None:
                raise MonographError("an empty sequence of sequences has no value")
            return self.graph.create(sequence.SequenceEmpty(dtype), ()).result
        return sequence.sequence_of([self._value(each, type_.element) for each in item])

    def _bind(self, old: ValueType, new: ValueType) -> None:
        """Note what the sizes that a type names have turned out to be."""
        if isinstance(old, SequenceType | OptionalType):
            if type(old) is type(new):
                self._bind(old.element, new.element)
            return
        if not isinstance(old, TensorType) or not isinstance(new, TensorType):
            return
        for before, now in zip(old.shape, new.shape, strict=True):
            if isinstance(before, Symbol) and before != now:
                self._bindings.setdefault(before, now)


def _may_be_absent(items: Sequence[Item]) -> bool:
    return any(isinstance(each, Value) and isinstance(each.type, OptionalType) for each in items)


def _number_leaves(item: Item, flat: list[Value]) -> Any:
    if isinstance(item, list):
        return [_number_leaves(each, flat) for each in item]
    if item is None:
        return None
    flat.append(item)
    return len(flat) - 1


def _after(node: Node) -> Iterable[Node]:
    following = node.next
    while following is not None:
        yield following
        following = following.next


def _with(type_: ValueType, bindings: Mapping[Symbol, Dim]) -> ValueType:
    if isinstance(type_, TensorType):
        return type_.substitute(bindings)
    if isinstance(type_, SequenceType):
        return SequenceType(_with(type_.element, bindings))
    if isinstance(type_, OptionalType):
        return OptionalType(_with(type_.element, bindings))
    return type_


def substitute_sizes(region: Graph, bindings: Mapping[Symbol, Dim]) -> Graph:
    """A copy of a region with other sizes in the place of symbols."""
    if not any(symbol in bindings for symbol in region.symbols().values()):
        return region.clone()
    copy = Graph(region.name)
    mapping = {
        value: copy.add_input(value.name, _with(value.type, bindings)) for value in region.inputs
    }
    for node in region.nodes:
        inner = [substitute_sizes(each, bindings) for each in node.regions]
        made = copy.create(
            node.op.substitute(bindings),
            [mapping[value] for value in node.operands],
            regions=inner,
            names=[value.name for value in node.results],
            location=node.location,
        )
        mapping.update(zip(node.results, made.results, strict=True))
    copy.set_outputs([mapping[value] for value in region.outputs])
    return copy
