"""Call signatures of programs: by position or by name, with defaults.

A program is captured in the form of one call, that with the example inputs. ``Parameters`` brings
the arguments of other calls into that form, as Python itself would pass them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from monograph.dataclass import dataclass
from monograph.errors import InputError

_EMPTY = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = inspect.Parameter.VAR_KEYWORD
_LISTED = inspect.Parameter.VAR_POSITIONAL


@dataclass(frozen=True)
class Parameters:
    """The signature of a program, and the form of the call that was captured.

    ``positional`` is how many of the example inputs had a position, ``named`` the names of others.
    """

    signature: inspect.Signature
    positional: int
    named: tuple[str, ...]

    def arranged(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments of another call in the captured form; None if the form is not known.

        What was captured and is not given has its default. What is given and was not captured
        must be the default, which the program holds for.
        """
        names = [each.name for each in self._parameters if each.kind in _POSITIONAL]
        if self.positional > len(names):  # some belong to *args
            return None
        given = self._bind(arguments, named)
        captured = (*names[: self.positional], *self.named)
        for name, value in given.items():
            if name not in captured:
                self._check_default(name, value)
        missing = [name for name in captured if self._lacks(name, given)]
        if missing:
            raise self._refusal(
                f"missing arguments: {', '.join(map(repr, missing))}", arguments, named
            )
        values = {
            name: given[name] if name in given else self.signature.parameters[name].default
            for name in captured
        }
        first = captured[: self.positional]
        return tuple(values[name] for name in first), {name: values[name] for name in self.named}

    @property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(self.signature.parameters.values())

    def _bind(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, as Python would pass them, or refuse to."""
        try:
            given = self.signature.bind_partial(*arguments, **named).arguments
        except TypeError as problem:
            raise self._refusal(str(problem), arguments, named) from None
        for each in self._parameters:
            if each.kind is _NAMED:
                given |= given.pop(each.name, {})
            elif each.kind is _LISTED and given.pop(each.name, ()):
                raise self._refusal("too many positional arguments", arguments, named)
        return given

    def _lacks(self, name: str, given: Mapping[str, Any]) -> bool:
        known = self.signature.parameters.get(name)
        return name not in given and (known is None or known.default is _EMPTY)

    def _check_default(self, name: str, value: Any) -> None:
        known = self.signature.parameters.get(name)
        default = _EMPTY if known is None else known.default
        if _are_equal(value, default):
            return
        raise InputError(
            f"argument {name!r} was not among the example inputs",
            expected=self._captured_text
            if default is _EMPTY
            else f"{self._captured_text}, for {name} = {default!r}",
            found=f"{name} = {value!r:.60}",
            hint="compile the model with an example of it, by position or in kwargs",
        )

    @property
    def _captured_text(self) -> str:
        names = [each.name for each in self._parameters if each.kind in _POSITIONAL]
        return f"({', '.join([*names[: self.positional], *(f'{n}=' for n in self.named)])})"

    def _refusal(
        self, problem: str, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> InputError:
        given = ["*"] * len(arguments) + [f"{name}=*" for name in named]
        return InputError(
            problem,
            expected=f"{self._captured_text}, of {self.signature}",
            found=f"called with ({', '.join(given)})",
        )


def _are_equal(value: Any, default: Any) -> bool:
    """Whether they are the same object, or equal numbers and words, in equal tuples and lists."""
    if value is default or type(value) is not type(default):
        return value is default
    if isinstance(value, tuple | list):
        return len(value) == len(default) and all(map(_are_equal, value, default))
    return isinstance(value, bool | int | float | str) and value == default
