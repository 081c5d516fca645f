"""Static arguments: those that are part of a program, as ``jax.jit`` has them.

They are named by position, by name, or by the ``jax.jit`` that has wrapped the function. A position
stands for the name that the signature has there, and the other way round, so that a static argument
may be passed in either way. What is traced and compiled is the function of the others.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from monograph.dataclass import dataclass
from monograph.errors import InputError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class StaticParameters:
    """Which parameters of a function are static; positions may count from the end."""

    positions: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def split(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any], StaticValues]:
        """The arguments that are traced, by position and by name, and those that are not."""
        count = len(arguments)
        places = sorted({k % count for k in self.positions if -count <= k < count})
        free = [each for k, each in enumerate(arguments) if k not in places]
        keywords = {name: each for name, each in named.items() if name not in self.names}
        fixed = {name: each for name, each in named.items() if name in self.names}
        return free, keywords, StaticValues({k: arguments[k] for k in places}, fixed)


@dataclass(frozen=True)
class StaticValues:
    """The static arguments of one call."""

    by_position: Mapping[int, Any]
    by_name: Mapping[str, Any]

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells one program from another: values are the same if their types are, too."""
        everything = (*self.by_position.items(), *sorted(self.by_name.items()))
        return tuple((label, type(value), value) for label, value in everything)

    def bind(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of the other arguments."""
        if not self.by_position and not self.by_name:
            return function

        def call(*free: Any, **named: Any) -> Any:
            whole = list(free)
            for place, value in self.by_position.items():  # in ascending order
                whole.insert(place, value)
            return function(*whole, **named, **self.by_name)

        call.__name__ = getattr(function, "__name__", "main")
        signature = _signature(function)
        if signature is not None:
            kept = [
                parameter
                for place, parameter in enumerate(signature.parameters.values())
                if place not in self.by_position and parameter.name not in self.by_name
            ]
            vars(call)["__signature__"] = signature.replace(parameters=kept)
        return call

    def remove(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments without the static ones, which must be those of this program."""
        for place, value in self.by_position.items():
            if place < len(arguments):
                _check_same(f"argument {place}", value, arguments[place])
        for name, value in self.by_name.items():
            if name in named:
                _check_same(name, value, named[name])
        free = tuple(each for k, each in enumerate(arguments) if k not in self.by_position)
        return free, {k: each for k, each in named.items() if k not in self.by_name}


def _check_same(label: str, value: Any, given: Any) -> None:
    if type(value) is not type(given) or not value == given:
        raise InputError(
            f"this program was compiled for another value of its static {label}",
            expected=f"{value!r:.80}",
            found=f"{given!r:.80}",
            hint="monograph.jit(function, static_argnums=…) makes a program for each value",
        )


def static_parameters(
    function: Callable[..., Any],
    positions: int | Sequence[int] | None = None,
    names: str | Sequence[str] | None = None,
) -> StaticParameters:
    """The parameters that somebody calls static, each by position and by name."""
    numbers = (positions,) if isinstance(positions, int) else tuple(positions or ())
    words = (names,) if isinstance(names, str) else tuple(names or ())
    signature = _signature(function)
    if signature is None:
        return StaticParameters(numbers, words)
    parameters = list(signature.parameters.values())
    kinds = {parameter.kind for parameter in parameters}
    positional = [each.name for each in parameters if each.kind in _POSITIONAL]
    outside = [k for k in numbers if not -len(positional) <= k < len(positional)]
    if outside and inspect.Parameter.VAR_POSITIONAL not in kinds:
        raise InputError(
            f"there is no positional parameter {outside[0]} to be static",
            expected=f"the positions of {', '.join(positional) or 'none'}",
            found=f"static_argnums={positions}",
        )
    unknown = [word for word in words if word not in signature.parameters]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise InputError(
            f"there is no parameter {unknown[0]!r} to be static",
            expected=f"one of {', '.join(signature.parameters) or 'none'}",
            found=f"static_argnames={names!r}",
        )
    if numbers and words:
        return StaticParameters(numbers, words)
    named = tuple(positional[k] for k in numbers if k not in outside)
    placed = tuple(k for k, name in enumerate(positional) if name in words)
    return StaticParameters(numbers or placed, words or named)


def static_of_jitted(function: Callable[..., Any]) -> StaticParameters:
    """The parameters that the ``jax.jit`` around a function calls static; none without one.

    What JAX offers of a jitted function does not tell which positions are static; it is read where
    JAX keeps it.
    """
    inner, bound, named = _unbind(function)
    info = getattr(inner, "_jit_info", None)
    if info is None:
        return StaticParameters()
    positions = tuple(k if k < 0 else k - bound for k in info.static_argnums if not 0 <= k < bound)
    return StaticParameters(
        positions, tuple(each for each in info.static_argnames if each not in named)
    )


def is_jitted(function: object) -> bool:
    """Whether JAX has wrapped a function, or one that it is a method or a part of."""
    return type(_unbind(function)[0]).__module__.split(".")[0] in ("jax", "jaxlib")


def _unbind(function: Any) -> tuple[Any, int, set[str]]:
    """The function in a method or a partial one, and the arguments that it is bound to."""
    count, names = 0, set[str]()
    while inspect.ismethod(function) or isinstance(function, functools.partial):
        if inspect.ismethod(function):
            count, function = count + 1, function.__func__
        else:
            names |= set(function.keywords)
            count, function = count + len(function.args), function.func
    return function, count, names


def static_of(
    function: Callable[..., Any],
    positions: int | Sequence[int] | None = None,
    names: str | Sequence[str] | None = None,
) -> StaticParameters:
    """The static parameters of a function: those that are named here, and those of its jit."""
    own, told = static_of_jitted(function), static_parameters(function, positions, names)
    return StaticParameters(told.positions + own.positions, told.names + own.names)


def check_hashable(static: StaticValues) -> None:
    """Refuse static arguments by which programs cannot be told apart."""
    try:
        hash(static.key)
    except TypeError as error:
        raise InputError(
            "a static argument must be hashable", found=str(error), hint="use a tuple"
        ) from error


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
