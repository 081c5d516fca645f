"""Named results of a loaded program, whose own class is not installed.

A file holds no classes, and none is looked for on loading. What a model returned as a named tuple
comes back as a ``Record``, and what it returned as a dataclass (the outputs of ``transformers``,
say) as ``Fields``: with the same names, to be read in the same ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any


class Record(tuple[Any, ...]):
    """A named tuple: fields by position, and by name as attributes."""

    _fields: tuple[str, ...] = ()

    def __new__(cls, *values: Any) -> Record:
        return super().__new__(cls, values)

    def _asdict(self) -> dict[str, Any]:
        """The fields by name."""
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        return _text(type(self).__name__, self._asdict().items())


class Fields(dict[str, Any]):
    """What a dataclass held: fields as attributes, as keys and by position.

    One that is None is an attribute alone, neither a key nor counted, as ``transformers`` has it.
    """

    _fields: tuple[str, ...] = ()

    def __init__(self, *values: Any) -> None:
        pairs = zip(self._fields, values, strict=True)
        super().__init__({name: value for name, value in pairs if value is not None})

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> tuple[Any, ...]:
        """The values that are not None, in order."""
        return tuple(self.values())

    def __repr__(self) -> str:
        return _text(type(self).__name__, self.items())


def make_named_class(kind: str, name: str, fields: Sequence[str]) -> type[Any]:
    """A class of results, ``record`` or ``fields``, with these names."""
    if kind == "record":
        members = {field: property(itemgetter(k)) for k, field in enumerate(fields)}
        return type(name, (Record,), {**members, "_fields": tuple(fields)})
    members = {field: _attribute(field) for field in fields if not hasattr(dict, field)}
    return type(name, (Fields,), {**members, "_fields": tuple(fields)})


def _attribute(field: str) -> property:
    return property(lambda self: self.get(field))


def can_name(name: object) -> bool:
    """Whether a field may have this name: one that Python's own named tuples allow."""
    return isinstance(name, str) and name.isidentifier() and not name.startswith("_")


def _text(name: str, pairs: Any) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in pairs)})"
