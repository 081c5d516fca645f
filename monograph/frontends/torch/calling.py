"""How a torch program may be called: by position or by name, as its own signature allows.

torch.export keeps the form of one call, that with the example inputs. A module takes the same
arguments in other forms too (``model(ids)`` and ``model(input_ids=ids)``), and so does what is
compiled from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from monograph.dataclass import dataclass


@dataclass(frozen=True)
class Parameters:
    """The parameters that have a position, by name, and the form of the call that was captured."""

    names: tuple[str, ...]
    positional: int
    named: tuple[str, ...]

    def arranged(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments of another call in the captured form; None if they are not the same."""
        if len(arguments) > len(self.names) or self.positional > len(self.names):
            return None
        given = dict(zip(self.names, arguments, strict=False))
        if given.keys() & named.keys():
            return None
        given |= named
        first = self.names[: self.positional]
        if given.keys() != {*first, *self.named}:
            return None
        return tuple(given[name] for name in first), {name: given[name] for name in self.named}


def parameters_of(
    model: Any, arguments: Sequence[Any], named: Mapping[str, Any]
) -> Parameters | None:
    """The parameters of a module or function, as it was called; None if it does not tell them."""
    called = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # an exported program, or a function written in C
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(each.name for each in parameters if each.kind in kinds)
    return Parameters(names, len(arguments), tuple(named))


def call_text(spec: Any) -> str:
    """The form of a call, with a star for each tensor or number: ``(*, [*, *], mask=*)``."""
    positional, named = spec.children()
    parts = [_text(each) for each in positional.children()]
    pairs = zip(named.context, named.children(), strict=True)
    parts += [f"{name}={_text(each)}" for name, each in pairs]
    return f"({', '.join(parts)})"


def _text(spec: Any) -> str:
    if spec.is_leaf():
        return "*"
    inner = [_text(each) for each in spec.children()]
    if spec.type is dict:
        pairs = zip(spec.context, inner, strict=True)
        return "{" + ", ".join(f"{key}: {each}" for key, each in pairs) + "}"
    if spec.type is list:
        return f"[{', '.join(inner)}]"
    name = "" if spec.type is tuple else spec.type.__name__
    return f"{name}({', '.join(inner)}{',' if len(inner) == 1 and not name else ''})"
