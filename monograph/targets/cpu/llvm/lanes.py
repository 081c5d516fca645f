"""Lane analysis: which variables of a vector loop differ from lane to lane.

A loop in the lanes of a vector may have counters and flags that are the same in all of them: those
stay single numbers, so that loops and conditions may depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator

from monograph.kernel.expr import Expr, Variable, walk
from monograph.targets.cpu.nests.loop_nest import Assign, Declare, If, Let, Loop, Statement, While


def lanewise_variables(loop: Loop) -> frozenset[str]:
    """The names of variables of a vector loop whose values depend on the lane."""
    given = list(_walk_assignments(loop.body))
    found: set[str] = set()
    grows = True
    while grows:
        before = len(found)
        found.update(
            name
            for name, value in given
            if loop.symbol in value.symbols or not found.isdisjoint(_variables(value))
        )
        grows = len(found) > before
    return frozenset(found)


def _variables(value: Expr) -> Iterator[str]:
    return (each.name for each in walk((value,)) if isinstance(each, Variable))


def _walk_assignments(body: tuple[Statement, ...]) -> Iterator[tuple[str, Expr]]:
    """Every value that a variable is given, however deep inside."""
    for statement in body:
        match statement:
            case Let(variable, value) | Declare(variable, value) | Assign(variable, value):
                yield variable.name, value
            case If(_, inner):
                yield from _walk_assignments(inner)
            case While(test, _, inner):
                yield from _walk_assignments((*test, *inner))
            case Loop():
                yield from _walk_assignments(statement.body)
            case _:
                pass
