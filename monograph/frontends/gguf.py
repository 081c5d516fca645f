"""GGUF files: tensors of llama.cpp, in blocks of a few bits with scales.

``read_gguf`` reads f32, f16, bf16, Q8_0, Q4_0 and Q4_K. A file is not trusted: every length is
checked against what is left of it before anything is made of it.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.frontends.packed_weights import PackedWeight
from monograph.ir.types import Array

MAGIC = b"GGUF"
MOST_ENTRIES = 1 << 20
"""Tensors, and pieces of metadata, that a file may have."""
MOST_DIMENSIONS = 8
MOST_NUMBERS = 1 << 48
"""What a tensor may hold, were no dimension 0: beyond, NumPy refuses its shape."""
MOST_DEPTH = 4
"""How deep arrays of arrays may be nested in metadata."""
NUMBERS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
STRING, ARRAY = 8, 9
PLAIN: dict[int, tuple[str, Any]] = {
    0: ("F32", np.float32),
    1: ("F16", np.float16),
    30: ("BF16", ml_dtypes.bfloat16),
}
BLOCKS = {2: ("Q4_0", 32, 18), 8: ("Q8_0", 32, 34), 12: ("Q4_K", 256, 144)}
"""Numbers and bytes of a block, by type."""


@dataclass(frozen=True, eq=False)
class GgufFile:
    """The metadata and the tensors of a file, by name."""

    metadata: dict[str, Any]
    tensors: dict[str, Array | PackedWeight]


class _Reader:
    """Reads bytes in order, and never beyond the end."""

    def __init__(self, data: memoryview, path: Path) -> None:
        self.data, self.path, self.place = data, path, 0

    def error(self, message: str, found: object) -> InputError:
        return InputError(f"{self.path}: {message}", found=repr(found)[:120])

    def take(self, count: int) -> memoryview:
        if count < 0 or count > len(self.data) - self.place:
            raise self.error("the file ends too early", f"{count} bytes at {self.place}")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        raw = bytes(self.take(self.number("<Q")))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.error("a name is not text", raw[:40]) from None

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY or depth >= MOST_DEPTH:
            raise self.error("metadata of an unknown kind", kind)
        inner, count = self.number("<I"), self.number("<Q")
        if count > len(self.data) - self.place:
            raise self.error("the file ends too early", f"an array of {count}")
        return [self.value(inner, depth + 1) for _ in range(count)]


def read_gguf(path: str | Path) -> GgufFile:
    """The metadata and tensors of a file; quantized matrices stay packed."""
    where = Path(path)
    try:
        raw = np.memmap(where, np.uint8, "r")
    except (OSError, ValueError) as problem:
        raise InputError(f"{where} cannot be read: {problem}") from None
    reader = _Reader(raw.data, where)
    if len(raw) < len(MAGIC) or bytes(reader.take(len(MAGIC))) != MAGIC:
        raise InputError(f"{where} is not a GGUF file", expected="GGUF as its first bytes")
    version = reader.number("<I")
    if version not in (2, 3):
        raise reader.error("GGUF of another version than 2 or 3", version)
    tensors, entries = reader.number("<Q"), reader.number("<Q")
    if tensors > MOST_ENTRIES or entries > MOST_ENTRIES:
        raise reader.error("too many entries", (tensors, entries))
    metadata = {}
    for _ in range(entries):
        name = reader.text()
        metadata[name] = reader.value(reader.number("<I"))
    listed = [_tensor_entry(reader) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 16:
        raise reader.error("an alignment that is none", alignment)
    start = -(-reader.place // alignment) * alignment
    found: dict[str, Array | PackedWeight] = {}
    left = len(raw) - start
    for name, shape, kind, offset in listed:
        if name in found:
            raise reader.error("two tensors of one name", name)
        found[name] = _tensor(reader, name, start, shape, kind, offset)
        left -= reader.place - start - offset
        if left < 0:  # they are unpacked one by one: a small file could fill the memory
            raise reader.error("its tensors overlap", name)
    return GgufFile(metadata, found)


def _tensor_entry(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    name, rank = reader.text(), reader.number("<I")
    if rank > MOST_DIMENSIONS:
        raise reader.error(f"{name!r:.80} has too many dimensions", rank)
    shape = tuple(reader.number("<Q") for _ in range(rank))
    if math.prod(max(1, size) for size in shape) > MOST_NUMBERS:
        raise reader.error(f"{name!r:.80} is too large", shape)
    return name, shape[::-1], reader.number("<I"), reader.number("<Q")


def _tensor(
    reader: _Reader, name: str, start: int, shape: tuple[int, ...], kind: int, offset: int
) -> Array | PackedWeight:
    count = math.prod(shape)
    if kind in PLAIN:
        dtype = np.dtype(PLAIN[kind][1])
        reader.place = start + offset
        return np.frombuffer(reader.take(count * dtype.itemsize), dtype).reshape(shape)
    if kind not in BLOCKS:
        names = [*(each[0] for each in PLAIN.values()), *(each[0] for each in BLOCKS.values())]
        known = ", ".join(names)
        raise InputError(
            f"{reader.path}: {name!r:.80} is of a type that is not read",
            expected=known,
            found=f"type {kind}",
        )
    form, numbers, size = BLOCKS[kind]
    if len(shape) != 2 or shape[1] == 0 or shape[1] % numbers:
        raise reader.error(f"{name!r:.80}: {form} wants rows of whole blocks", shape)
    reader.place = start + offset
    raw = np.frombuffer(reader.take(count // numbers * size), np.uint8)
    blocks = raw.reshape(shape[0], shape[1] // numbers, size)
    return {"Q8_0": _q8_0, "Q4_0": _q4_0, "Q4_K": _q4_k}[form](blocks, shape)


def _halves(raw: Array) -> Array:
    """Two bytes each as f16."""
    return np.ascontiguousarray(raw).view(np.float16)[..., 0].astype(np.float32)


def _q8_0(blocks: Array, shape: tuple[int, ...]) -> PackedWeight:
    numbers = np.ascontiguousarray(blocks[..., 2:]).view(np.int8).reshape(shape)
    return PackedWeight(numbers, _halves(blocks[..., :2]), 32)


def _q4_0(blocks: Array, shape: tuple[int, ...]) -> PackedWeight:
    packed = blocks[..., 2:]
    codes = np.concatenate([packed & 15, packed >> 4], -1).reshape(shape).astype(np.int8) - 8
    return PackedWeight(codes.astype(ml_dtypes.int4), _halves(blocks[..., :2]), 32)


def _q4_k(blocks: Array, shape: tuple[int, ...]) -> PackedWeight:
    """Eight groups of 32 in a block, whose scales and minima have six bits."""
    d, low = _halves(blocks[..., :2]), _halves(blocks[..., 2:4])
    s = blocks[..., 4:16]
    scales = np.concatenate([s[..., :4] & 63, (s[..., 8:] & 15) | ((s[..., :4] >> 6) << 4)], -1)
    minima = np.concatenate([s[..., 4:8] & 63, (s[..., 8:] >> 4) | ((s[..., 4:8] >> 6) << 4)], -1)
    packed = blocks[..., 16:].reshape(*blocks.shape[:2], 4, 32)
    codes = np.stack([packed & 15, packed >> 4], -2).reshape(shape)
    rows = shape[0]
    scale = (d[..., None] * scales).reshape(rows, -1).astype(np.float32)
    minimum = (low[..., None] * minima).reshape(rows, -1).astype(np.float32)
    return PackedWeight(codes.astype(ml_dtypes.uint4), scale, 32, None, minimum)
