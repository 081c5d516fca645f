"""Specialize a graph: symbolic sizes replaced by numbers, or declared to lie in a range.

    graph @rows(%x: f32[batch, n])        specialize_sizes(graph, {"batch": 1, "n": (16, 512)})
    graph @rows(%x: f32[1, n])            where 16 <= n <= 512

The ops and types of the copy have the new sizes in the place of the old symbols; nothing else
changes. A graph of fixed sizes gets schedules, layouts and algorithms that are chosen for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from monograph.errors import InputError
from monograph.ir.dims import Dim, Symbol, substitute_shape
from monograph.ir.graph import Graph, Value
from monograph.ir.types import OptionalType, SequenceType, TensorType, ValueType

SizeRange: TypeAlias = "int | tuple[int | None, int | None]"
"""One size, or the smallest and the largest one; None leaves an end as it was."""


def specialize_sizes(graph: Graph, sizes: Mapping[str, SizeRange]) -> Graph:
    """A copy of the graph for these sizes of its symbolic dimensions, by name."""
    symbols = graph.symbols()
    bindings: dict[Symbol, Dim] = {}
    for name, size in sizes.items():
        if name not in symbols:
            raise InputError(
                f"the model has no symbolic size {name!r}",
                expected=", ".join(symbols) or "none: all of its sizes are known",
                found=name,
            )
        bindings[symbols[name]] = _narrow(symbols[name], size)
    return specialize(graph, bindings)


def specialize(graph: Graph, bindings: Mapping[Symbol, Dim]) -> Graph:
    """A copy of the graph with symbols replaced, in types and in attributes, regions included."""
    copy = graph.clone()
    _replace_in(copy, bindings)
    return copy


def _replace_in(graph: Graph, bindings: Mapping[Symbol, Dim]) -> None:
    for value in graph.inputs:
        _retype(value, bindings)
    for node in graph.nodes:
        node.op = node.op.substitute(bindings)
        for value in node.results:
            _retype(value, bindings)
        for region in node.regions:
            _replace_in(region, bindings)


def _retype(value: Value, bindings: Mapping[Symbol, Dim]) -> None:
    value.type = _substitute_type(value.type, bindings)


def _substitute_type(type_: ValueType, bindings: Mapping[Symbol, Dim]) -> ValueType:
    match type_:
        case TensorType():
            return type_.with_shape(substitute_shape(type_.shape, bindings))
        case SequenceType():
            return SequenceType(_substitute_type(type_.element, bindings))
        case OptionalType():
            return OptionalType(_substitute_type(type_.element, bindings))
    return type_


def _narrow(symbol: Symbol, size: SizeRange) -> Dim:
    """The number, or the symbol with a smaller range; an error outside the declared one."""
    low, high = (size, size) if type(size) is int else _ends(symbol, size)
    declared = f"{symbol.lower} or more"
    if symbol.upper is not None:
        declared = f"{symbol.lower} to {symbol.upper}"
    lower = symbol.lower if low is None else low
    upper = symbol.upper if high is None else high
    fits = lower >= symbol.lower and (symbol.upper is None or (upper or 0) <= symbol.upper)
    if upper is not None and upper < lower and fits:
        raise InputError(
            f"the range of {symbol.name!r} holds no size",
            expected="the smallest size, then the largest",
            found=str(size),
        )
    if not fits:
        raise InputError(
            f"the size of {symbol.name!r} cannot be this", expected=declared, found=str(size)
        )
    return lower if lower == upper else Symbol(symbol.name, lower, upper)


def _ends(symbol: Symbol, size: Any) -> tuple[int | None, int | None]:
    is_pair = isinstance(size, tuple | list) and len(size) == 2
    if is_pair and all(each is None or type(each) is int for each in size):
        return size[0], size[1]
    raise InputError(
        f"the size of {symbol.name!r} is no size",
        expected="a number such as 8, or a range such as (1, 64)",
        found=repr(size),
    )
