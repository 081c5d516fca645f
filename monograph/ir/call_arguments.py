"""Arguments by position and by name, put in order as Python itself would, or refused by name.

A compiled program takes exactly the arguments that it was compiled for. One that is unknown, given
twice, missing or too many is an error that names it: none is ever dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monograph.errors import InputError


def in_order(
    names: Sequence[str], positional: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The arguments in the order of these parameters, each of which must be given once."""
    if len(positional) > len(names):
        raise _refusal(
            f"too many arguments: {len(names)} expected, {len(positional)} given",
            *(names, positional, named),
        )
    taken = names[: len(positional)]
    for name in named:
        if name not in names:
            raise _refusal(f"got an unexpected argument {name!r}", names, positional, named)
        if name in taken:
            raise _refusal(f"got multiple values for argument {name!r}", names, positional, named)
    rest = names[len(positional) :]
    missing = [name for name in rest if name not in named]
    if missing:
        listed = ", ".join(map(repr, missing))
        raise _refusal(f"missing arguments: {listed}", names, positional, named)
    return (*positional, *(named[name] for name in rest))


def _refusal(
    problem: str, names: Sequence[str], positional: Sequence[Any], named: Mapping[str, Any]
) -> InputError:
    given = ["*"] * len(positional) + [f"{name}=*" for name in named]
    return InputError(
        problem, expected=f"({', '.join(names)})", found=f"called with ({', '.join(given)})"
    )
