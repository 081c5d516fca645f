"""Collects the loads and accumulators of a loop body before it is emitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from monograph.ir.types import DType
from monograph.kernel.expr import Apply, Index, Load, Variable, find_loads
from monograph.kernel.scalar import DOTS
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    If,
    Let,
    Loop,
    Statement,
    Write,
)


def find_accumulators(body: Sequence[Statement]) -> list[str]:
    """The accumulators that are taken further in a loop and declared outside it."""
    declared = {s.variable.name for s in body if isinstance(s, Accumulator)}
    names: list[str] = []
    for statement in body:
        if isinstance(statement, Combine) and statement.variable.name not in declared:
            names.append(statement.variable.name)
        if isinstance(statement, Loop):
            names += [name for name in find_accumulators(statement.body) if name not in declared]
    return list(dict.fromkeys(names))


def loads_of(body: Sequence[Statement]) -> list[Load]:
    """What the statements of a loop body load, loops inside it excepted."""
    roots = tuple(s.value for s in body if isinstance(s, Let | Combine | Write))
    return list(find_loads(*roots))


def sums_of_sums(body: Sequence[Statement]) -> Iterator[str]:
    """The accumulators of what other accumulators hold."""
    for statement in body:
        if isinstance(statement, Loop | If):
            yield from sums_of_sums(statement.body)
        elif isinstance(statement, Combine) and statement.kind == "sum":
            value = statement.value
            is_cast = isinstance(value, Apply) and value.function == "cast"
            if isinstance(value.operands[0] if is_cast else value, Variable):
                yield statement.variable.name


def find_combined_dtypes(
    body: Sequence[Statement],
) -> Iterator[tuple[str, tuple[DType, int | None]]]:
    """For each accumulator, the dtype of what it combines and the largest position, if known."""
    for statement in body:
        if isinstance(statement, Combine):
            largest = None
            if isinstance(statement.position, Index):
                dim = statement.position.dim
                largest = dim if isinstance(dim, int) else dim.bounds()[1]
            yield statement.variable.name, (statement.value.dtype, largest)
        elif isinstance(statement, Loop | If):
            yield from find_combined_dtypes(statement.body)


def match_summed_product(statement: Combine) -> Apply | None:
    """The product that is summed, if it is one of floats."""
    value = statement.value
    if isinstance(value, Apply) and value.function == "multiply" and value.dtype.is_float:
        return value
    return None


def match_summed_dot(statement: Combine) -> Apply | None:
    """The dot product of small integers that is summed, if it is one."""
    value = statement.value
    if statement.kind != "sum" or not isinstance(value, Apply):
        return None
    return value if value.function in DOTS else None
