"""Guards on symbolic sizes, checked once for each new binding.

A type rule lets a symbolic shape pass unless it is surely wrong: ``pad`` with a border of two, of
a dimension that may have any size, is refused only when a size of one turns up. The interpreter
finds out as it runs; native code would read where nothing is. So before a program first runs at
some sizes, the type rules are asked again with the numbers in place of the symbols. A scan that
takes no step at these sizes is not asked about its body; a branch or the body of a ``while`` is,
though it may turn out not to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from monograph.errors import EvaluationError, MonographError
from monograph.ir.dims import Dim, Shape, Symbol, evaluate_dim
from monograph.ir.graph import Graph, Node, Output, infer_types
from monograph.ir.op import Trait
from monograph.ir.types import TensorType, ValueType, symbols_of


class SizesDoNotFit(EvaluationError):
    """Sizes that a program was not compiled for, though the graph may hold for them.

    Of two symbols that broadcast, one was taken for the result's: the other one stretches to it,
    but it does not stretch to the other.
    """


class Guard(NamedTuple):
    """A node whose type rule may refuse some sizes, and the lengths of the scans around it."""

    node: Node
    lengths: tuple[Dim, ...] = ()


class DimValues:
    """The numbers that dimensions are at some sizes of the symbols, each evaluated once."""

    def __init__(self, bindings: Mapping[Symbol, int]) -> None:
        self.bindings = bindings
        self._found: dict[Dim, int | None] = {}

    def find(self, dim: Dim) -> int | None:
        """The number; None if a symbol has none."""
        if isinstance(dim, int):
            return dim
        if dim not in self._found:
            known = all(symbol in self.bindings for symbol in dim.symbols())
            self._found[dim] = evaluate_dim(dim, self.bindings) if known else None
        return self._found[dim]

    def shape(self, shape: Shape) -> tuple[int, ...] | None:
        """The numbers of a shape; None if one is not known."""
        found = [self.find(dim) for dim in shape]
        numbers = tuple(each for each in found if each is not None)
        return numbers if len(numbers) == len(found) else None


MAX_REMEMBERED = 4096
"""For how many sizes of some symbols it is remembered that they fit."""


class SizeChecks:
    """Guards by the symbols that they depend on: sizes that have been held to fit are not again.

    A program whose sizes change from call to call, one independently of the other, meets few that
    are new to any node.
    """

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._by_symbols: dict[tuple[Symbol, ...], list[Guard]] = {}
        for guard in guards:
            self._by_symbols.setdefault(_symbols_of_guard(guard), []).append(guard)
        self._fitting: dict[tuple[Symbol, ...], set[tuple[int, ...]]] = {
            symbols: set() for symbols in self._by_symbols
        }

    def check(self, bindings: Mapping[Symbol, int]) -> None:
        """Hold every node's type rule against these sizes; the first refusal is the error."""
        for symbols, guards in self._by_symbols.items():
            sizes = tuple([bindings.get(symbol, -1) for symbol in symbols])
            fitting = self._fitting[symbols]
            if sizes in fitting:
                continue
            check_sizes(guards, bindings)
            if len(fitting) < MAX_REMEMBERED:
                fitting.add(sizes)


def _symbols_of_guard(guard: Guard) -> tuple[Symbol, ...]:
    found = set(guard.node.op.symbols())
    for value in (*guard.node.operands, *guard.node.results):
        found.update(symbols_of(value.type))
    for length in guard.lengths:
        found.update(() if isinstance(length, int) else length.symbols())
    return tuple(sorted(found, key=lambda symbol: symbol.name))


def guards_of(graph: Graph) -> tuple[Guard, ...]:
    """The nodes whose type rules may refuse some sizes of the symbols that they depend on.

    Of nodes that apply an op to the same types, one is asked for all.
    """
    found: dict[object, Guard] = {}
    waiting: list[tuple[Graph, tuple[Dim, ...]]] = [(graph, ())]
    while waiting:
        inside, lengths = waiting.pop()
        for node in inside.nodes:
            if _depends_on_sizes(node) and not _is_safe(node):
                types = tuple(value.type for value in (*node.operands, *node.results))
                found.setdefault((node.op, types, lengths), Guard(node, lengths))
            waiting += [(region, (*lengths, *_length(node))) for region in node.regions]
    return tuple(found.values())


def check_sizes(guards: Sequence[Guard], bindings: Mapping[Symbol, int]) -> None:
    """Hold every node's type rule against these sizes; the first refusal is the error."""
    values = DimValues(bindings)
    for node, lengths in guards:
        if not any(values.find(length) == 0 for length in lengths):
            _check(node, values)


def _length(node: Node) -> tuple[Dim, ...]:
    """How many steps a scan takes."""
    from monograph.ops.control import Scan  # which a loaded program does without

    if not isinstance(node.op, Scan):
        return ()
    _, sequences, _ = node.op.split(node.operands)
    length = sequences[0].shape[0] if sequences else node.op.length
    return () if length is None else (length,)


def _depends_on_sizes(node: Node) -> bool:
    types = [value.type for value in (*node.operands, *node.results)]
    return not node.regions and any(
        isinstance(type_, TensorType) and not type_.is_static for type_ in types
    )


def _is_safe(node: Node) -> bool:
    """Whether the rule cannot fail, whatever the sizes."""
    from monograph.ops.elementwise.convert import Cast  # not loaded with programs: they have guards
    from monograph.ops.rules import always_broadcasts
    from monograph.ops.shape import Transpose

    if isinstance(node.op, Transpose | Output | Cast):
        return True
    if node.op.has(Trait.ELEMENTWISE):
        shape = node.results[0].shape
        shapes = [operand.shape for operand in node.operands]
        if all(each in (shape, ()) for each in shapes):
            return True
        aligned_at_the_right = "axis" not in node.op.attribute_names
        return aligned_at_the_right and always_broadcasts(shape, *shapes) and _is_as_inferred(node)
    operands = [value.type for value in node.operands]
    return node.op.holds_at_all_sizes(*operands) and _is_as_inferred(node)


def _is_as_inferred(node: Node) -> bool:
    """Whether the results have the very types that the rule gives, and are so at all sizes."""
    inferred = infer_types(node.op, [value.type for value in node.operands], ())
    return [value.type for value in node.results] == list(inferred)


def _check(node: Node, values: DimValues) -> None:
    operands = [_bind_type(value.type, values) for value in node.operands]
    declared = [_bind_type(value.type, values) for value in node.results]
    known = [type_ for type_ in operands if type_ is not None]
    if len(known) < len(operands) or None in declared:
        return  # a symbol of a region's own, bound when that runs
    try:
        inferred = infer_types(node.op.substitute(values.bindings), known, ())
    except MonographError as error:
        source = None if node.location is None else str(node.location)
        raise error.with_context(where=repr(node), source=source) from None
    for expected, found in zip(declared, inferred, strict=True):
        if expected is not None and found != expected:
            raise SizesDoNotFit(
                f"{node.op.name}: the sizes do not fit together",
                expected=str(expected),
                found=str(found),
                where=repr(node),
                hint=_hint(node, expected, found),
            )


def _hint(node: Node, expected: ValueType, found: ValueType) -> str | None:
    """What to do about a size of 1 that was free when the program was compiled.

    The result has the size of one operand, which may be any; the others are stretched to it where
    they turn out to be 1, but not it to them: all that follows was compiled for that size.
    """
    if not isinstance(expected, TensorType) or not isinstance(found, TensorType):
        return None
    if expected.rank != found.rank or not node.op.has(Trait.ELEMENTWISE):
        return None
    pairs = zip(expected.shape, found.shape, node.results[0].shape, strict=True)
    free = [str(dim) for one, other, dim in pairs if one == 1 and other != 1]
    if not free:
        return None
    names = " and ".join(free)
    return f"the result was compiled to have {names} elements there: repeat what has one of them"


def _bind_type(type_: ValueType, values: DimValues) -> TensorType | None:
    """The type with numbers for sizes; None if it has none, or one is not known."""
    if not isinstance(type_, TensorType):
        return None
    shape = values.shape(type_.shape)
    return None if shape is None else type_.with_shape(shape)
