"""The signature of a module in a saved program: names, kinds, and plain defaults."""

from __future__ import annotations

import inspect
import math
from typing import Any, cast

from monograph.ir.parameters import Parameters
from monograph.ir.tree import SIMPLE, Structure, flatten, unflatten
from monograph.program.records import require_type, unreadable
from monograph.runtime.bundle import Json
from monograph.runtime.storage import read_structure, write_structure


class NotStored:
    """Stands for a default that a file cannot hold: an object, say, or a tensor."""

    def __repr__(self) -> str:
        return "<not stored>"


NOT_STORED = NotStored()
_KINDS = {kind.name: kind for kind in inspect._ParameterKind}


def write_parameters(parameters: Parameters) -> dict[str, Json]:
    """As a manifest holds them."""
    signature = parameters.signature.parameters.values()
    listed: list[Json] = [
        [each.name, each.kind.name, _write_default(each.default)] for each in signature
    ]
    return {
        "signature": listed,
        "positional": parameters.positional,
        "named": list(parameters.named),
    }


def read_parameters(value: Json) -> Parameters:
    """What ``write_parameters`` wrote."""
    given = require_type(value, dict)
    listed = [_read_parameter(each) for each in require_type(given.get("signature"), list)]
    try:
        signature = inspect.Signature(listed)
    except ValueError as problem:
        raise unreadable(f"its parameters are none: {problem}") from None
    named = tuple(require_type(each, str) for each in require_type(given.get("named"), list))
    return Parameters(signature, require_type(given.get("positional"), int), named)


def _read_parameter(value: Json) -> inspect.Parameter:
    parts = require_type(value, list)
    if len(parts) != 3 or parts[1] not in _KINDS:
        raise unreadable("a parameter is described in an unknown way")
    default = _read_default(parts[2])
    try:
        return inspect.Parameter(require_type(parts[0], str), _KINDS[parts[1]], default=default)
    except ValueError as problem:
        raise unreadable(f"a parameter is none: {problem}") from None


def _write_default(default: Any) -> Json:
    """None if there is no default, an empty list if it cannot be stored."""
    if default is inspect.Parameter.empty:
        return None
    leaves, structure = flatten(default, as_given=True)
    if not _is_sequence(structure) or not all(_is_plain(leaf) for leaf in leaves):
        return []
    return [cast(Json, write_structure(structure)), leaves]


def _read_default(value: Json) -> Any:
    if value is None:
        return inspect.Parameter.empty
    parts = require_type(value, list)
    if not parts:
        return NOT_STORED
    if len(parts) != 2:
        raise unreadable("a default is described in an unknown way")
    structure, leaves = read_structure(parts[0]), require_type(parts[1], list)
    is_known = _is_sequence(structure) and structure.leaves == len(leaves)
    if not is_known or not all(_is_plain(leaf) for leaf in leaves):
        raise unreadable("a default is no plain value")
    return unflatten(structure, leaves)


def _is_sequence(structure: Structure) -> bool:
    """Whether it is made of leaves, None, tuples and lists alone."""
    is_known = structure.kind in ("leaf", "none", "tuple", "list")
    return is_known and all(map(_is_sequence, structure.children))


def _is_plain(leaf: Any) -> bool:
    return type(leaf) in SIMPLE and (type(leaf) is not float or math.isfinite(leaf))
