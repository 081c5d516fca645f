"""What a compiled program consists of when it leaves the process: a ``Bundle``.

A bundle has a manifest (what JSON can say), named blobs (object code, the graph's text, assembly)
and named arrays (weights). The disk cache and ``.mono`` artifacts both store bundles, and what
comes back equals what went in, so that a program runs the same whether it was compiled or loaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.types import Array
from monograph.program.records import Json as Json

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
RESERVED = frozenset({MANIFEST, WEIGHTS})

MAX_JSON_DEPTH = 64
MAX_NAME_CHARACTERS = 1000
MAX_BLOBS = 10_000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bundle:
    """A manifest, named blobs and named arrays. Names are kept in order."""

    manifest: Mapping[str, Json]
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of blobs and arrays together."""
        blobs = sum(map(len, self.blobs.values()))
        return blobs + sum(array.nbytes for array in self.arrays.values())

    def __repr__(self) -> str:
        blobs, arrays = len(self.blobs), len(self.arrays)
        return f"Bundle({blobs} blobs, {arrays} arrays, {self.nbytes:,} bytes)"

    def check(self) -> None:
        """Refuse what would not come back as it is: an odd name, a tuple or NaN in the manifest."""
        _check_json(self.manifest, "manifest", 0)
        if len(self.blobs) > MAX_BLOBS:
            raise InputError(
                "a bundle has too many blobs",
                expected=f"at most {MAX_BLOBS:,}",
                found=f"{len(self.blobs):,}",
            )
        for name in self.blobs:
            reason = bad_blob_name(name)
            if reason is not None:
                raise InputError(f"{name!r} cannot name a blob: {reason}")
        for name in self.arrays:
            if not is_text(name):
                raise InputError(f"{name!r} cannot name an array", expected="a short text")


def bad_blob_name(name: str) -> str | None:
    """Why a blob may not have this name, or None: it must be a plain relative path."""
    if not is_text(name) or not name.isprintable():
        return "it is not a short printable text"
    if name in RESERVED:
        return "it is taken"
    if "\\" in name or ":" in name:
        return "it has a backslash or a colon"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "it is not a plain path below a folder"
    return None


def is_text(name: object) -> bool:
    """Whether a name is a non-empty text of bounded length that UTF-8 can hold."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _check_json(value: object, where: str, depth: int) -> None:
    """Refuse a value that JSON would change or cannot hold."""
    if depth > MAX_JSON_DEPTH:
        raise InputError(
            "a manifest is nested too deep", expected=f"at most {MAX_JSON_DEPTH} levels"
        )
    if value is None or type(value) in (str, bool):
        return
    if type(value) is int and value.bit_length() <= 64:
        return
    if type(value) is float and math.isfinite(value):
        return
    if type(value) is list:
        for index, item in enumerate(value):
            _check_json(item, f"{where}[{index}]", depth + 1)
        return
    if type(value) is dict and all(type(key) is str for key in value):
        for key, item in value.items():
            _check_json(item, f"{where}.{key}", depth + 1)
        return
    raise InputError(
        f"{where} is not a value that JSON gives back unchanged",
        expected="a str, 64-bit int, finite float, bool, None, list, or dict with str keys",
        found=f"{value!r}, a {type(value).__name__}",
    )
