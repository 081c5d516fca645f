"""Dataclasses that are quick to define.

The standard library writes and compiles the text of six methods for every dataclass. For the two
hundred classes that a first program needs, that takes longer than compiling the program. Here a
method that needs a text of its own gets it when it is first called or looked at, and is from then
on what the standard library would have made; the others are functions that need none. To type
checkers, ``inspect``, ``pickle`` and the functions of ``dataclasses``, and to standard dataclasses
that derive from them, these are like any others.
"""

from __future__ import annotations

import dataclasses
from contextvars import ContextVar
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
            return _define_methods(cls, frozen=frozen, eq=eq, repr=repr, slots=slots)

        return define if cls is None else define(cls)


_DEFINING: ContextVar[bool] = ContextVar("a class is being defined here", default=False)


class _Factory:
    """Stands for an argument that was not given, where a function makes the default."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _define_methods(cls: type, *, frozen: bool, eq: bool, repr: bool, slots: bool) -> type:
    """The class with the methods that it does not define itself."""
    own = set(cls.__dict__)
    of_its_own = cls.__dict__.get("__hash__", MISSING)
    hashed = of_its_own is not MISSING and (of_its_own is not None or "__eq__" not in own)
    cls.__doc__ = cls.__doc__ or cls.__name__  # else a signature would be worked out for it
    made = _with_fields(cls, frozen, slots)
    made.__dataclass_params__ = _Options(made.__dataclass_params__, frozen, eq, repr)
    if "__init__" not in own:
        made.__init__ = _WrittenWhenAsked(made, "__init__", _init_text)
    if repr and "__repr__" not in own:
        made.__repr__ = _repr
    if eq and "__eq__" not in own:
        made.__eq__ = _WrittenWhenAsked(made, "__eq__", _eq_text)
    if eq and not hashed:
        made.__hash__ = _WrittenWhenAsked(made, "__hash__", _hash_text) if frozen else None
    if frozen:
        made.__setattr__, made.__delattr__ = _guards(made)
    if frozen and slots and "__getstate__" not in own:  # else such an object could not be copied
        made.__getstate__, made.__setstate__ = _state, _set_state
    defined: type = made  # the class that was given, or one like it
    return defined


def _with_fields(cls: type, frozen: bool, slots: bool) -> Any:
    """A dataclass without methods.

    To be frozen is left out, since the standard library would write methods for that; only below
    one of its own frozen classes it insists.
    """
    bases = [getattr(base, "__dataclass_params__", None) for base in cls.__mro__[1:-1]]
    for options in bases:
        if options is not None and options.frozen != frozen:
            kinds = ("frozen", "non-frozen") if frozen else ("non-frozen", "frozen")
            raise TypeError(f"cannot inherit {kinds[0]} dataclass from a {kinds[1]} one")
    insists = frozen and any(each and not isinstance(each, _Options) for each in bases)
    token = _DEFINING.set(not insists)
    try:
        return dataclasses.dataclass(init=False, repr=False, eq=False, frozen=insists, slots=slots)(
            cls
        )
    finally:
        _DEFINING.reset(token)


class _Options:
    """What a class was made with, as the standard library asks it of a base.

    While a class is defined here no base seems frozen: the standard library, told that the class
    itself is not, would refuse it.
    """

    __slots__ = ("_frozen", "_standard", "eq", "init", "repr")

    def __init__(self, standard: Any, frozen: bool, eq: bool, repr: bool) -> None:
        self._standard, self._frozen = standard, frozen
        self.init, self.eq, self.repr = True, eq, repr

    @property
    def frozen(self) -> bool:
        return self._frozen and not _DEFINING.get()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._standard, name)


class _WrittenWhenAsked:
    """In a class, a method that takes its own place with one written for the class.

    That happens when it is first called, or looked at: by ``inspect.signature``, say, or ``help``.
    """

    __slots__ = ("_cls", "_name", "_text_of")

    def __init__(
        self, cls: type, name: str, text_of: Callable[[type, dict[str, Any]], str]
    ) -> None:
        self._cls, self._name, self._text_of = cls, name, text_of

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        cls, name = self._cls, self._name
        known: dict[str, Any] = {"__name__": cls.__module__, "_set": object.__setattr__}
        exec(self._text_of(cls, known), known)
        written = known[name]
        written.__qualname__ = f"{cls.__qualname__}.{name}"
        if name == "__init__":
            arguments = {each.name: each.type for each in dataclasses.fields(cls) if each.init}
            written.__annotations__ = {**arguments, "return": None}
        setattr(cls, name, written)
        return written.__get__(instance, owner)


def _init_text(cls: Any, known: dict[str, Any]) -> str:
    """Assigns each argument; ``known`` receives the defaults."""
    frozen = cls.__setattr__ is not object.__setattr__
    known["_factory"] = _FACTORY
    positional, lines = ["self"], []
    named: list[str] = []
    for each in dataclasses.fields(cls):
        name, default = each.name, f"_default_{each.name}"
        value = name
        if each.default_factory is not MISSING:
            known[default] = each.default_factory
            made = f"{default}()"
            value = f"{made} if {name} is _factory else {name}" if each.init else made
        elif each.default is not MISSING:
            known[default] = each.default
        elif not each.init:
            continue  # which __post_init__ sets
        if each.init:
            stands_for = default if each.default_factory is MISSING else "_factory"
            parameter = f"{name}={stands_for}" if default in known else name
            (named if each.kw_only else positional).append(parameter)
        elif each.default_factory is MISSING:
            value = default
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = [*positional, "*", *named] if named else positional
    return _function("__init__", parameters, lines or ["pass"])


def _eq_text(cls: type, known: dict[str, Any]) -> str:
    ours, theirs = (_list_compared_fields(cls, each) for each in ("self", "other"))
    lines = [
        "if other.__class__ is self.__class__:",
        f"    return {ours} == {theirs}",
        "return NotImplemented",
    ]
    return _function("__eq__", ["self", "other"], lines)


def _hash_text(cls: type, known: dict[str, Any]) -> str:
    return _function(
        "__hash__", ["self"], [f"return hash({_list_compared_fields(cls, 'self', hashed=True)})"]
    )


def _list_compared_fields(cls: type, of: str, *, hashed: bool = False) -> str:
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
