"""Operations on tuples and tokens, which are no tensors.

A tuple is one of Python's while a module is read, and its elements are values of the graph. A token
orders effects; the graph has none, so it is a tuple of nothing. What an asynchronous operation has
begun is the tuple of its results: nothing here is left waiting.
"""

from __future__ import annotations

from typing import Any

from monograph.frontends.stablehlo.operation import Operation, converter


@converter("stablehlo.tuple")
def convert_tuple(operation: Operation) -> list[Any]:
    """Several values as one."""
    return [tuple(operation.operands)]


@converter("stablehlo.get_tuple_element")
def convert_get_tuple_element(operation: Operation) -> list[Any]:
    """One of them."""
    elements: Any = operation.operand
    return [elements[operation.integer("index")]]


@converter("stablehlo.after_all", "stablehlo.create_token")
def convert_token(operation: Operation) -> list[Any]:
    """A token."""
    return [()]


@converter("stablehlo.async_start")
def convert_async_start(operation: Operation) -> list[Any]:
    """The results of its region, at once."""
    return [tuple(operation.region(0, operation.operands))]


@converter("stablehlo.async_done")
def convert_async_done(operation: Operation) -> list[Any]:
    """The results that were begun."""
    results: Any = operation.operand
    return list(results)
