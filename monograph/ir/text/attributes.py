"""Attributes of ops in the text form: how they are written, and which values a field accepts.

A field's declared type is the authority. ``verify`` asks whether a value fits it; the parser turns
a literal into it (``1`` becomes ``1.0`` where a float is declared).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from monograph.ir import dims, types
from monograph.ir.data import Data
from monograph.ir.dims import SymbolicDim
from monograph.ir.op import Op
from monograph.ir.text.lexer import quote, shorten, spell_name
from monograph.ir.types import (
    DTYPES,
    Device,
    DType,
    Layout,
    OptionalType,
    Quantization,
    SequenceType,
    TensorType,
    UnrankedType,
)

_PRINT_THEMSELVES = (
    *(DType, TensorType, UnrankedType, SequenceType, OptionalType, Layout, Quantization),
)

WORDS: Mapping[str, Any] = {
    "true": True,
    "false": False,
    "none": None,
    "inf": math.inf,
    "nan": math.nan,
    **DTYPES,
}
"""What bare words mean as attribute values; any other word is a symbol."""

# Names that annotations of ops mention through aliases without importing them.
_NAMES = {
    "SymbolicDim": SymbolicDim,
    "Dim": dims.Dim,
    "Shape": dims.Shape,
    "ValueType": types.ValueType,
}
_DEFAULTS: dict[type[Op], Mapping[str, str]] = {}  # both filled as ops are met
_TYPES: dict[type[Op], Mapping[str, Any]] = {}
_SPELLINGS: Mapping[Any, str] = {
    int: "an int",
    float: "a float",
    bool: "true or false",
    str: "a string",
    complex: "a complex number",
    NoneType: "none",
    SymbolicDim: "a dimension",
    DType: "a dtype",
    Device: "a device",
    Data: "data",
}


# Writing.


def spell(value: Any) -> str:
    """An attribute value as the text form writes it; equal values of one type spell alike."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(spell, value))}]"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return spell(value.value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, complex):
        return spell_complex(repr(value.real), repr(value.imag))
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, SymbolicDim):
        text = str(value)
        return f"({text})" if text in WORDS else text
    if isinstance(value, Device):
        return f"@{spell_name(str(value))}"
    if isinstance(value, _PRINT_THEMSELVES):
        return str(value)
    return f"opaque {quote(shorten(repr(value)))}"


def spell_complex(real: str, imaginary: str) -> str:
    """A complex number from the texts of its parts: ``1.0+2.0j``."""
    sign = "" if imaginary.startswith("-") else "+"
    return f"{real}{sign}{imaginary}j"


def spell_attributes(op: Op) -> list[str]:
    """``name = value`` for every attribute that is not its field's default."""
    if not op.attribute_names:
        return []
    defaults = _default_texts(type(op))
    texts = ((name, spell(getattr(op, name))) for name in op.attribute_names)
    return [f"{name} = {text}" for name, text in texts if defaults.get(name) != text]


def _default_texts(cls: type[Op]) -> Mapping[str, str]:
    found = _DEFAULTS.get(cls)
    if found is not None:
        return found
    missing = dataclasses.MISSING
    texts: dict[str, str] = {}
    for field in dataclasses.fields(cls):
        if field.default is not missing:
            texts[field.name] = spell(field.default)
        elif field.default_factory is not missing:
            texts[field.name] = spell(field.default_factory())
    _DEFAULTS[cls] = texts
    return texts


# Declared types.


def attribute_types(cls: type[Op]) -> Mapping[str, Any]:
    """The declared type of each attribute of an op, with the names in it resolved."""
    found = _TYPES.get(cls)
    if found is None:
        hints = get_type_hints(cls, localns=_NAMES) if cls.attribute_names else {}
        found = _TYPES[cls] = {name: hints[name] for name in cls.attribute_names}
    return found


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type: exactly, so a bool is no int and an int no float."""
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is Any:
        return True
    if hint is None:
        return value is None
    origin = get_origin(hint)
    if origin is Union or origin is UnionType:
        return any(fits(value, member) for member in get_args(hint))
    if origin is tuple:
        return isinstance(value, tuple) and _items_fit(value, get_args(hint))
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(hint))
    if isinstance(origin or hint, type):
        return isinstance(value, origin or hint)
    return True


def _items_fit(value: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(fits(item, hints[0]) for item in value)
    return len(value) == len(hints) and all(map(fits, value, hints))


def convert(value: Any, hint: Any) -> Any:
    """A literal as a value of a declared type; TypeError if it cannot be one."""
    if fits(value, hint):
        return value
    origin = get_origin(hint)
    if origin is Union or origin is UnionType:
        return _convert_to_member(value, get_args(hint))
    if origin is tuple and isinstance(value, tuple):
        return _convert_items(value, get_args(hint))
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and number:
        return float(value)
    if hint is complex and number:
        return complex(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _convert_to_choice(value, hint)
    raise TypeError


def _convert_to_member(value: Any, members: tuple[Any, ...]) -> Any:
    for member in members:
        try:
            return convert(value, member)
        except (TypeError, OverflowError):
            continue
    raise TypeError


def _convert_items(value: tuple[Any, ...], hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return tuple(convert(item, hints[0]) for item in value)
    if len(hints) != len(value):
        raise TypeError
    return tuple(map(convert, value, hints))


def _convert_to_choice(value: Any, choices: type[Enum]) -> Enum:
    for choice in choices:
        if type(choice.value) is type(value) and choice.value == value:
            return choice
    raise TypeError


# Words for messages.


def spell_type(hint: Any, sequence: str = "list") -> str:
    """A declared type in words: ``a list of ints``, ``an int or none``.

    Python calls a ``sequence`` a tuple, the text form a list.
    """
    if hint in (Any, None):
        return "none" if hint is None else "anything"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(spell(choice.value) for choice in hint)
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(spell, get_args(hint)))
    if origin is Union or origin is UnionType:
        return " or ".join(spell_type(member, sequence) for member in get_args(hint))
    if origin is tuple:
        return _spell_tuple(get_args(hint), sequence)
    return _SPELLINGS.get(hint) or f"a {getattr(hint, '__name__', hint)}"


def _spell_tuple(hints: tuple[Any, ...], sequence: str) -> str:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return f"a {sequence}, each {spell_type(hints[0], sequence)}"
    return f"a {sequence} of " + " and ".join(spell_type(hint, sequence) for hint in hints)
