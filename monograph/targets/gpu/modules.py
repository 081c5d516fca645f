"""The machine code of a GPU program as one object, which the cache and artifacts store.

    8 bytes      how long the list is
    the list     JSON: each kernel's name, entry, threads, memory, and its image by number
    the images   one after the other; equal ones are there once

Reading checks every number against what is there: an object comes from a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from monograph.dataclass import dataclass
from monograph.program.records import Json, require_type, unreadable

_LENGTH_BYTES = 8
MAX_THREADS = 1024
MAX_SCRATCH = 1 << 16


@dataclass(frozen=True)
class MachineCode:
    """A kernel as the driver loads it."""

    image: bytes
    entry: str
    threads: int
    shared: int
    """Bytes of shared memory that a program takes."""
    parameters: tuple[str, ...]
    """What it is given, in order: ``buffer``, ``error``, ``i32`` and ``i64`` for sizes."""
    scratch: int = 0
    """Bytes that each program wants for tensor descriptors (Triton's global scratch)."""
    begins_early: bool = False
    """Whether it may be launched while the kernel before it runs, for which it waits itself."""


def write_modules(kernels: Mapping[str, MachineCode]) -> bytes:
    """The object with these kernels, by the names that launches have for them."""
    images = list(dict.fromkeys(each.image for each in kernels.values()))
    listed: Json = {
        "images": [len(image) for image in images],
        "kernels": [
            {
                "name": name,
                "image": images.index(code.image),
                "entry": code.entry,
                "threads": code.threads,
                "shared": code.shared,
                "parameters": list(code.parameters),
                "scratch": code.scratch,
                "begins_early": code.begins_early,
            }
            for name, code in kernels.items()
        ],
    }
    text = json.dumps(listed, separators=(",", ":")).encode()
    return b"".join([len(text).to_bytes(_LENGTH_BYTES, "little"), text, *images])


def read_modules(data: bytes) -> dict[str, MachineCode]:
    """What ``write_modules`` wrote."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    start = _LENGTH_BYTES + length
    if len(data) < max(start, _LENGTH_BYTES):
        raise unreadable("its machine code is cut off")
    try:
        document = require_type(json.loads(data[_LENGTH_BYTES:start]), dict)
    except ValueError:
        raise unreadable("the list of its kernels is not JSON") from None
    images = _images(
        data,
        start,
        [require_type(each, int) for each in require_type(document.get("images"), list)],
    )
    found = {}
    for each in require_type(document.get("kernels"), list):
        given = require_type(each, dict)
        number = require_type(given.get("image"), int)
        if not 0 <= number < len(images):
            raise unreadable("a kernel has no machine code")
        parameters = tuple(
            require_type(kind, str) for kind in require_type(given.get("parameters"), list)
        )
        if not set(parameters) <= {"buffer", "error", "i32", "i64"}:
            raise unreadable("a kernel has parameters of an unknown kind")
        found[require_type(given.get("name"), str)] = MachineCode(
            images[number],
            require_type(given.get("entry"), str),
            _within(given.get("threads"), MAX_THREADS),
            _within(given.get("shared"), 1 << 20),
            parameters,
            _within(given.get("scratch"), MAX_SCRATCH),
            require_type(given.get("begins_early", False), bool),
        )
    return found


def _images(data: bytes, start: int, lengths: Sequence[int]) -> list[bytes]:
    if any(length < 0 for length in lengths) or start + sum(lengths) != len(data):
        raise unreadable("its machine code is cut off")
    images = []
    for length in lengths:
        images.append(data[start : start + length])
        start += length
    return images


def _within(value: Json, limit: int) -> int:
    number = require_type(value, int)
    if not 0 <= number <= limit:
        raise unreadable(f"a kernel wants {number} of what there are {limit} of")
    return number
