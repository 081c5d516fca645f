"""Passes, ops and targets that other packages bring, found by their entry points.

A package says in its ``pyproject.toml`` what it has, by the name under which it is asked for:

    [project.entry-points."monograph.passes"]
    fold_scales = "my_package.fold_scales"

    [project.entry-points."monograph.ops"]
    "mine.swish" = "my_package.ops"

    [project.entry-points."monograph.targets"]
    npu = "my_package.npu:NpuTarget"

    [project.entry-points."monograph.devices"]
    npu = "my_package.npu:NpuDevice"

Nothing is looked for before a name is asked for that Monograph itself does not know, and only what
has that name is imported; a list of everything imports everything.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from monograph.errors import InputError
from monograph.logs import stage_logger

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

EntryGroup: TypeAlias = Literal[
    "monograph.passes", "monograph.ops", "monograph.targets", "monograph.devices"
]

_LOG = stage_logger("plugins")


class EntryPointWarning(UserWarning):
    """An installed package has an entry point that cannot be loaded."""


_SEARCHES: ContextVar[bool] = ContextVar("entry points are searched", default=True)


@contextmanager
def only_what_is_loaded() -> Iterator[None]:
    """Import nothing in this block, whatever a text of a stranger names."""
    token = _SEARCHES.set(False)
    try:
        yield
    finally:
        _SEARCHES.reset(token)


def entry_points(group: EntryGroup) -> Mapping[str, EntryPoint]:
    """What installed packages have in a group, by name; two of one name are an error."""
    return _find(group) if _SEARCHES.get() else {}


@cache
def _find(group: EntryGroup) -> Mapping[str, EntryPoint]:
    from importlib import metadata  # which takes longer than compiling a small program

    found: dict[str, EntryPoint] = {}
    for point in metadata.entry_points(group=group):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise InputError(
                f"two packages have an entry point {point.name!r} in {group}",
                found=f"{_describe(other)} and {_describe(point)}",
                hint="uninstall one of them",
            )
    _LOG.info("%s: %s", group, ", ".join(found) or "none")
    return found


def load_entry_point(group: EntryGroup, name: str) -> Any | None:
    """What the entry point of that name stands for; None if there is none."""
    point = entry_points(group).get(name)
    if point is None:
        return None
    _LOG.info("loading %s", _describe(point))
    try:
        return point.load()
    except Exception as problem:  # anything may happen in somebody's package: it is named, and told
        raise InputError(
            f"{name!r} cannot be loaded from the package that has it",
            found=f"{type(problem).__name__}: {problem}",
            where=_describe(point),
            hint="mend or uninstall that package",
        ) from problem


def load_entry_points(group: EntryGroup) -> dict[str, Any]:
    """Everything of a group, by name; what cannot be loaded is left out with a warning."""
    found = {}
    for name in entry_points(group):
        try:
            found[name] = load_entry_point(group, name)
        except InputError as problem:
            warnings.warn(str(problem), EntryPointWarning, stacklevel=2)
    return found


def _describe(point: EntryPoint) -> str:
    package = "" if point.dist is None else f" of {point.dist.name} {point.dist.version}"
    return f"{point.value}{package}"
