"""Arrays as one safetensors file whose every tensor begins at a multiple of 64 bytes.

The format allows no holes, so the gaps are tensors too: bytes named ``__padding__.0`` and so on.
What the format has no name for is stored as bytes (types under eight bits packed, strings with
their lengths), and its type stands in the metadata. A header follows from the list of entries
alone: a reader builds it again and compares, and never has to believe what a file says of offsets.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.data import STORED, pack, raw_bytes, unpack
from monograph.ir.types import Array, DType, bool_, dtype_of, string

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """One array in the file: its name, type, and how many bytes it takes there."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int

    def is_consistent(self) -> bool:
        """Whether the bytes are as many as dtype and shape say; of strings nobody can tell."""
        if self.dtype is string:
            return True
        bits = 8 * self.dtype.numpy.itemsize if not self.dtype.is_packed else self.dtype.bits
        return self.nbytes == (math.prod(self.shape) * bits + 7) // 8


@dataclass(frozen=True, slots=True)
class SafetensorsLayout:
    """Where everything lies: the header (length and JSON), then each entry at its offset."""

    header: bytes
    offsets: tuple[int, ...]
    size: int


def lay_out(entries: Sequence[Entry]) -> SafetensorsLayout:
    """Place the entries one after the other, each aligned; offsets count from the file's start."""
    tensors: dict[str, object] = {}
    types = {
        f"packed:{entry.name}": f"{entry.dtype}{list(entry.shape)}"
        for entry in entries
        if entry.dtype.name not in STORED
    }
    if types:
        tensors["__metadata__"] = types
    position = 0
    begins: list[int] = []
    for entry in entries:
        gap = -position % ALIGNMENT
        if gap:
            tensors[f"__padding__.{len(begins)}"] = _tensor("U8", (gap,), position, gap)
        position += gap
        begins.append(position)
        stored = STORED.get(entry.dtype.name, "U8")
        shape = entry.shape if entry.dtype.name in STORED else (entry.nbytes,)
        tensors[_escape(entry.name)] = _tensor(stored, shape, position, entry.nbytes)
        position += entry.nbytes
    text = json.dumps(tensors, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    header = struct.pack("<Q", len(text)) + text
    offsets = tuple(len(header) + begin for begin in begins)
    return SafetensorsLayout(header, offsets, len(header) + position)


def encode(array: Array) -> npt.NDArray[np.uint8]:
    """The bytes that an array takes in the file; the array's own where they lie in order."""
    dtype = dtype_of(array.dtype)
    if dtype is string:
        try:
            return np.frombuffer(raw_bytes(array.astype(np.object_)), np.uint8)
        except UnicodeEncodeError as problem:
            raise InputError(f"a string cannot be stored: {problem}") from None
    native = np.ascontiguousarray(array.astype(dtype.numpy, copy=False)).reshape(-1)
    if dtype.is_packed:
        return pack(native, dtype.bits)
    return native.view(np.uint8)


def decode(raw: npt.NDArray[np.uint8], entry: Entry) -> Array:
    """The array that an entry's bytes stand for: a view of them, unless the type is packed.

    A ``ValueError`` says that the bytes cannot be such an array.
    """
    if entry.dtype is string:
        array = _strings(raw.tobytes(), entry.shape)
    elif entry.dtype.is_packed:
        array = unpack(raw, entry.dtype, entry.shape)
    else:
        if entry.dtype is bool_ and raw.size and raw.max() > 1:
            raise ValueError("a bool is neither 0 nor 1")
        array = raw.view(entry.dtype.numpy).reshape(entry.shape)
    array.flags.writeable = False
    return array


def _tensor(stored: str, shape: tuple[int, ...], begin: int, nbytes: int) -> dict[str, object]:
    return {"dtype": stored, "shape": list(shape), "data_offsets": [begin, begin + nbytes]}


def _escape(name: str) -> str:
    """Names that begin with two underscores get a third: those with two are the format's own."""
    return f"_{name}" if name.startswith("__") else name


def _strings(raw: bytes, shape: tuple[int, ...]) -> Array:
    """Strings from bytes: undo ``raw_bytes``."""
    items = []
    position = 0
    while position < len(raw):
        if position + 8 > len(raw):
            raise ValueError("a string's length is cut short")
        (length,) = struct.unpack_from("<Q", raw, position)
        position += 8 + length
        if position > len(raw):
            raise ValueError("a string is cut short")
        items.append(raw[position - length : position].decode())
    array = np.empty(len(items), np.object_)
    array[:] = items
    return array.reshape(shape)
