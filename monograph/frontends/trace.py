"""Run a Python function once on symbolic values and keep the graph that it builds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from monograph.errors import InputError
from monograph.ir.build import constant
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Value
from monograph.ir.tree import Structure, flatten, unflatten
from monograph.ir.types import (
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    ValueType,
    symbols_of,
    type_of_array,
)


def trace(function: Callable[..., Any], *specs: Any, name: str | None = None) -> Graph:
    """The graph of ``function`` applied to arguments of these types.

    A spec is a type, its text (``"f32[batch, 4]"``), an array or number (which lends its type), or
    a nested tuple, list or dict of those. Symbols of one name are one symbol throughout. What the
    function returns, flattened, becomes the outputs; numbers and arrays become constants.

        graph = trace(lambda x, w: F.relu(x @ w), "f32[batch, 4]", "f32[4, 3]")
    """
    return trace_with_structure(function, *specs, name=name)[0]


def trace_with_structure(
    function: Callable[..., Any], *specs: Any, name: str | None = None
) -> tuple[Graph, Structure, Structure]:
    """Like ``trace``, with the nesting of the arguments and of what the function returns."""
    if not callable(function):
        raise InputError(
            "this is not a function", expected="something to call", found=type(function).__name__
        )
    _check_count(function, specs)
    graph = Graph(name or _graph_name(function))
    symbols: dict[str, Symbol] = {}
    arguments = []
    for label, spec in zip(_argument_names(function, len(specs)), specs, strict=True):
        leaves, structure = flatten(spec)
        types = [_type_of(leaf, symbols) for leaf in leaves]
        single = len(leaves) == 1 and structure.kind == "leaf"
        names = [label] if single else [f"{label}.{index}" for index in range(len(leaves))]
        values = [graph.add_input(*pair) for pair in zip(names, types, strict=True)]
        arguments.append(unflatten(structure, values))
    with graph.as_current():
        returned = function(*arguments)
        leaves, results = flatten(returned, as_given=True)
        graph.set_outputs([_as_output(leaf, graph) for leaf in leaves])
    return graph, flatten(specs)[1], results


def _check_count(function: Callable[..., Any], specs: tuple[Any, ...]) -> None:
    """Refuse examples that are more or fewer than the function's arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # it does not tell its arguments
        return
    try:
        signature.bind(*specs)
    except TypeError as problem:
        raise InputError(
            f"{_graph_name(function)} is not called with {len(specs)} arguments: {problem}",
            expected=f"an example for each of {signature}",
            found=f"{len(specs)} examples",
        ) from None


def _type_of(spec: Any, symbols: dict[str, Symbol]) -> ValueType:
    if isinstance(spec, str):
        from monograph.ir.text.parser import parse_type

        parsed = parse_type(spec, symbols)
        symbols.update((symbol.name, symbol) for symbol in symbols_of(parsed))
        return parsed
    if isinstance(spec, TensorType | UnrankedType | SequenceType | OptionalType):
        symbols.update((symbol.name, symbol) for symbol in symbols_of(spec))
        return spec
    if isinstance(spec, np.ndarray | np.generic | bool | int | float | complex):
        return type_of_array(np.asarray(spec))
    raise InputError(
        "trace needs a type for each argument",
        expected='a TensorType, text such as "f32[batch, 4]", an array or a number',
        found=f"{type(spec).__name__}: {spec!r:.60}",
    )


def _as_output(leaf: Any, graph: Graph) -> Value:
    if isinstance(leaf, Value):
        return leaf
    return constant(leaf, graph=graph)


def _graph_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "main"


def _argument_names(function: Callable[..., Any], count: int) -> list[str]:
    """The function's own parameter names where it has that many; else arg0, arg1…"""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return [positional[i] if i < len(positional) else f"arg{i}" for i in range(count)]
