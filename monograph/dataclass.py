"""Dataclasses that are quick to define.

The standard library writes and compiles the text of six methods for every dataclass. For the two
hundred classes that a first program needs, that takes longer than compiling the program. Here a
method that needs a text of its own gets it when it is first called, and is from then on what the
standard library would have made; the others are functions that need none. To type checkers, and to
``dataclasses.fields`` and ``replace``, these are dataclasses like any others.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, slots=False):
        """What ``dataclasses.dataclass`` is, with those of its options that are used here."""

        def define(cls):
            return _defined(cls, frozen=frozen, eq=eq, repr=repr, slots=slots)

        return define if cls is None else define(cls)


_FACTORY = object()
"""Stands for an argument that was not given, where a function makes the default."""


def _defined(cls: type, *, frozen: bool, eq: bool, repr: bool, slots: bool) -> type:
    """The class with the methods that it does not define itself."""
    own = set(cls.__dict__)
    of_its_own = cls.__dict__.get("__hash__", MISSING)
    hashed = of_its_own is not MISSING and (of_its_own is not None or "__eq__" not in own)
    cls.__doc__ = cls.__doc__ or cls.__name__  # else a signature would be worked out for it
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    if "__init__" not in own:
        made.__init__ = _written_when_called(made, "__init__", _init_text)
    if repr and "__repr__" not in own:
        made.__repr__ = _repr
    if eq and "__eq__" not in own:
        made.__eq__ = _written_when_called(made, "__eq__", _eq_text)
    if eq and not hashed:
        made.__hash__ = _written_when_called(made, "__hash__", _hash_text) if frozen else None
    if frozen:
        made.__setattr__, made.__delattr__ = _guards(made)
    if frozen and slots:  # without which such an object could not be copied
        made.__getstate__, made.__setstate__ = _state, _set_state
    defined: type = made  # the class that was given, or one like it
    return defined


def _written_when_called(
    cls: type, name: str, text_of: Callable[[type, dict[str, Any]], str]
) -> Callable[..., Any]:
    """A method that takes its own place with one that is written for the class."""

    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        known: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _FACTORY}
        exec(text_of(cls, known), known)
        written = known[name]
        written.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, written)
        return written(self, *arguments, **named)

    return method


def _init_text(cls: Any, known: dict[str, Any]) -> str:
    """Assigns each argument; ``known`` receives the defaults."""
    frozen = cls.__setattr__ is not object.__setattr__
    parameters, lines = ["self"], []
    for each in dataclasses.fields(cls):
        name, default = each.name, f"_default_{each.name}"
        value = name
        if each.default_factory is not MISSING:
            known[default] = each.default_factory
            made = f"{default}()"
            value = f"{made} if {name} is _FACTORY else {name}" if each.init else made
        elif each.default is not MISSING:
            known[default] = each.default
        elif not each.init:
            continue  # which __post_init__ sets
        if each.init:
            stands_for = default if each.default_factory is MISSING else "_FACTORY"
            parameters.append(f"{name}={stands_for}" if default in known else name)
        elif each.default_factory is MISSING:
            value = default
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    return _function("__init__", parameters, lines or ["pass"])


def _eq_text(cls: type, known: dict[str, Any]) -> str:
    ours, theirs = (_compared(cls, each) for each in ("self", "other"))
    lines = [
        "if other.__class__ is self.__class__:",
        f"    return {ours} == {theirs}",
        "return NotImplemented",
    ]
    return _function("__eq__", ["self", "other"], lines)


def _hash_text(cls: type, known: dict[str, Any]) -> str:
    return _function("__hash__", ["self"], [f"return hash({_compared(cls, 'self', hashed=True)})"])


def _compared(cls: type, of: str, *, hashed: bool = False) -> str:
    """The tuple of the fields that decide whether two objects are equal, or of their hash."""
    names = [
        each.name
        for each in dataclasses.fields(cls)
        if (each.hash if hashed and each.hash is not None else each.compare)
    ]
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


def _function(name: str, parameters: list[str], lines: list[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"def {name}({', '.join(parameters)}):\n{body}\n"


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (each.name for each in dataclasses.fields(self) if each.repr)
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _guards(cls: Any) -> tuple[Callable[..., None], Callable[..., None]]:
    """What refuses to change a field; a class derived from this one may have other attributes."""
    names = frozenset(each.name for each in dataclasses.fields(cls))

    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
