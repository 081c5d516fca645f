"""Slots and steps as JSON, and back.

A record is a frozen dataclass of ``program.code``; its fields say what they are, so that one
reader and one writer serve all of them, and a field that is added there is stored from then on.
Sizes are written as expressions (``"2*batch"``), which are read with the program's own symbols.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from monograph.errors import ArtifactError
from monograph.ir.dims import Dim, Symbol, SymbolicDim, parse_dim
from monograph.ir.types import DTYPES, DType
from monograph.program.code import Slot, Step, walk_steps

Json: TypeAlias = Union[str, int, float, bool, "Sequence[Json]", "Mapping[str, Json]", None]
"""What a manifest or a record holds."""

_STEPS: Mapping[str, type] = {kind.__name__: kind for kind in get_args(Step)}
_EARLIER_STEPS = {
    "Repeat": "WhileLoop",
    "Count": "ForLoop",
    "Spread": "ParallelFor",
    "Element": "SliceView",
}
"""What steps were called in programs that were stored before."""
_PLAIN = (int, str, bool)
Kind = TypeVar("Kind")


def write_symbols(symbols: Sequence[Symbol]) -> Json:
    """Symbols with their ranges."""
    return [[symbol.name, symbol.lower, symbol.upper] for symbol in symbols]


def read_symbols(value: Json) -> tuple[Symbol, ...]:
    """What ``write_symbols`` wrote."""
    symbols = []
    for each in require_type(value, list):
        name, lower, upper = exactly(each, 3)
        try:
            symbols.append(
                Symbol(
                    require_type(name, str),
                    require_type(lower, int),
                    None if upper is None else require_type(upper, int),
                )
            )
        except ValueError as problem:
            raise unreadable(str(problem)) from None
    return tuple(symbols)


def write_record(record: Slot | Step) -> dict[str, Json]:
    """A slot or step: its fields by name, and for a step which one it is."""
    written = {each.name: _write_json(getattr(record, each.name)) for each in fields(record)}
    name = type(record).__name__
    return {"step": name, **written} if name in _STEPS else written


def write_failures(steps: tuple[Step, ...], failures: Mapping[int, Step]) -> Json:
    """For each result code from 1 on, the number of the step among all, nested ones included."""
    numbers = {id(step): number for number, step in enumerate(walk_steps(steps))}
    return [numbers[id(failures[code])] for code in sorted(failures)]


def read_failures(value: Json, steps: tuple[Step, ...]) -> dict[int, Step]:
    """What ``write_failures`` wrote."""
    everything = list(walk_steps(steps))
    numbers = [require_type(number, int) for number in require_type(value, list)]
    if any(not 0 <= number < len(everything) for number in numbers):
        raise unreadable("a result code stands for a step that is not there")
    return {code: everything[number] for code, number in enumerate(numbers, 1)}


class RecordReader:
    """Reads records whose sizes are expressions of these symbols."""

    def __init__(self, symbols: Sequence[Symbol]) -> None:
        self._symbols = {symbol.name: symbol for symbol in symbols}

    def slot(self, value: Json) -> Slot:
        """A slot."""
        return cast(Slot, self._record(Slot, require_type(value, dict)))

    def step(self, value: Json) -> Step:
        """A step, with the steps inside it."""
        given = dict(require_type(value, dict))
        name = require_type(given.pop("step", None), str)
        kind = _STEPS.get(_EARLIER_STEPS.get(name, name))
        if kind is None:
            raise unreadable("it has a step of an unknown kind")
        return cast(Step, self._record(kind, given))

    def _record(self, kind: type, given: Mapping[str, Json]) -> object:
        hints = _hints(kind)
        if given.keys() != hints.keys():
            raise unreadable(f"a {kind.__name__} has other fields than this version's")
        return kind(**{name: self._read(hint, given[name]) for name, hint in hints.items()})

    def _read(self, hint: Any, value: Json) -> object:
        if hint in _PLAIN:
            return require_type(value, hint)
        if get_origin(hint) in (Union, types.UnionType):
            return self._read_union(get_args(hint), value)
        if get_origin(hint) is tuple:
            (element, _) = get_args(hint)
            return tuple(self._read(element, item) for item in require_type(value, list))
        if hint is Symbol:
            return self._symbol(require_type(value, str))
        if hint is DType:
            return _member(DTYPES, require_type(value, str), "dtype")
        assert issubclass(hint, Enum), f"records have no way to store a {hint}"
        return _member({each.value: each for each in hint}, require_type(value, str), hint.__name__)

    def _read_union(self, choices: tuple[Any, ...], value: Json) -> object:
        """A size, a step, or something that may be None."""
        if type(None) in choices and value is None:
            return None
        if SymbolicDim in choices:
            return self.size(value)
        if set(choices) == set(_STEPS.values()):
            return self.step(value)
        (only,) = (choice for choice in choices if choice is not type(None))
        return self._read(only, value)

    def size(self, value: Json) -> Dim:
        """A number, or an expression of the program's symbols."""
        if type(value) is int:
            return value
        try:
            return parse_dim(require_type(value, str), self._symbols)
        except (ValueError, ArithmeticError) as problem:
            raise unreadable(str(problem)) from None

    def _symbol(self, name: str) -> Symbol:
        return _member(self._symbols, name, "symbol")


def require_type(value: object, kind: type[Kind]) -> Kind:
    """A value that must be of a type, exactly (a bool is no int)."""
    if type(value) is not kind:
        raise unreadable(f"it has a {type(value).__name__} in place of a {kind.__name__}")
    return value


def exactly(value: object, count: int) -> Sequence[object]:
    """The items of a list that must have so many."""
    items = require_type(value, list)
    if len(items) != count:
        raise unreadable(f"it has a list of {len(items)}, not of {count}")
    return items


def unreadable(what: str) -> ArtifactError:
    """The error for a program that is whole, but not as this version writes it."""
    return ArtifactError(
        "the stored program cannot be read", found=what, hint="compile and save it again"
    )


def _write_json(value: object) -> Json:
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, SymbolicDim):
        return str(value)
    if isinstance(value, tuple):
        return [_write_json(item) for item in value]
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Enum):
        return str(value.value)
    return write_record(cast(Step, value))


def _member(known: Mapping[str, Kind], name: str, what: str) -> Kind:
    if name not in known:
        raise unreadable(f"it has an unknown {what}, {name!r}")
    return known[name]


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    # `Dim` names SymbolicDim as text, which the records' own module need not have imported.
    return get_type_hints(kind, localns={"SymbolicDim": SymbolicDim})
