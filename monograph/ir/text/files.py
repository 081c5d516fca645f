"""Graphs as files: ``model.ir`` holds the text, ``model.safetensors`` beside it the weights.

Weights are mapped into memory and read when asked for; the first read checks the digest that the
text gives. Nothing in the text can name another file, and nothing read is ever executed.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from monograph.errors import EvaluationError, InputError, ParseError
from monograph.ir.data import STORED, ArrayData, Data, MissingData, pack, raw_bytes, unpack
from monograph.ir.graph import Graph, check_graph
from monograph.ir.paths import as_path, file_behind, is_device
from monograph.ir.text.parser import parse_with
from monograph.ir.text.printer import print_graph
from monograph.ir.types import Array, TensorType, string

_METADATA = "__metadata__"  # the one key that the format keeps for itself


def save_graph(graph: Graph, path: str | os.PathLike[str], *, locations: bool = False) -> Path:
    """Write a graph to ``path``, a ``.ir`` file, and its weights beside it.

    Weights whose contents were never loaded stay that way: the text is written, and a weights file
    that is already there is left alone. Returns the path of the text.
    """
    check_graph(graph)
    text_path = as_path(path)
    if text_path.suffix == ".safetensors":
        raise InputError(
            f"{text_path} is a name for weights", expected="a file name that ends in .ir"
        )
    weights = _weights(graph)
    if any(not isinstance(data, MissingData) for data in weights.values()):
        _save_weights(weights, _weights_path(text_path))
    text = print_graph(graph, locations=locations) + "\n"
    _write(text_path, lambda target: target.write_text(text, encoding="utf-8", newline="\n"))
    return text_path


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """Read a graph and, where they are needed, the weights that lie beside it."""
    text_path = as_path(path)
    try:
        text = text_path.read_bytes().decode("utf-8")
    except OSError as problem:
        raise InputError(f"{text_path} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise ParseError(
            "the file is not text",
            expected="UTF-8",
            found=f"the byte 0x{problem.object[problem.start]:02x} at offset {problem.start}",
            where=str(text_path),
        ) from None
    return parse_with(text, _Weights(_weights_path(text_path)).find, str(text_path))


class StoredData(Data):
    """Contents that lie in a weights file until they are asked for."""

    def __init__(
        self, type_: TensorType, digest: str, label: str, read: Callable[[], Array]
    ) -> None:
        self.dtype = type_.dtype
        self.shape = type_.static_shape()
        self._digest = digest
        self._label = label
        self._read = read
        self._checked: ArrayData | None = None

    @property
    def digest(self) -> str:
        """The digest that the text gives; the contents are held against it when they are read."""
        return self._digest

    def array(self) -> Array:
        """The contents, mapped from the file."""
        if self._checked is None:
            contents = ArrayData(self._read(), self.dtype)
            if contents.digest != self._digest:
                raise EvaluationError(
                    f"the weights file holds other contents for {self._label}",
                    expected=f"the digest {self._digest}",
                    found=contents.digest,
                    hint="save the graph again: text and weights belong together",
                )
            self._checked = contents
        return self._checked.array()

    def __repr__(self) -> str:
        return f"StoredData({self.type})"


class _Weights:
    """A weights file, opened when the first weight is looked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: Mapping[str, Any] | None = None
        self._offset = 0
        self._bytes: Array | None = None

    def find(self, label: str, digest: str, type_: TensorType) -> Data | None:
        if self._entries is None:
            self._open()
        assert self._entries is not None
        if self._bytes is None:
            return None
        entry = self._entries.get(_key(label, digest)) or self._entries.get(label)
        stored, shape = STORED.get(type_.dtype.name, "U8"), list(type_.static_shape())
        if entry is None:
            raise InputError(
                f"the weights file has no weight {label}", expected=f"{label} in {self._path}"
            )
        if entry["dtype"] != stored or (type_.dtype.name in STORED and entry["shape"] != shape):
            raise InputError(
                f"the weights file has another type for {label}",
                expected=f"{type_}, stored as {stored}",
                found=f"{entry['dtype']} {entry['shape']}",
            )
        begin, end = (self._offset + offset for offset in entry["data_offsets"])
        raw = self._bytes[begin:end]
        return StoredData(type_, digest, label, lambda: _decode(raw, type_, label))

    def _open(self) -> None:
        """Map the file, once the library that owns the format has checked its header."""
        self._entries = {}
        if not self._path.exists():
            return
        _check_inside(self._path)
        try:
            with safe_open(self._path, framework="numpy"):
                pass
        except (SafetensorError, OSError) as problem:
            raise InputError(f"{self._path} is not a weights file: {problem}") from None
        with self._path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            entries = json.loads(file.read(length))
        entries.pop(_METADATA, None)
        self._entries = entries
        self._offset = 8 + length
        self._bytes = np.memmap(self._path, np.uint8, mode="r")


def _weights(graph: Graph) -> dict[str, Data]:
    """The contents of every weight by the key that they are stored under.

    Two weights of one name and equal contents share an entry; where the contents differ, the later
    one's key has its digest behind the name. So has a name that the format keeps for itself.
    """
    found: dict[str, Data] = {}
    for node in graph.walk():
        if node.op.name != "weight":
            continue
        label: str = node.op.label  # type: ignore[attr-defined]  # ops/data.py is to our right
        data: Data = node.op.data  # type: ignore[attr-defined]  # same
        if label == _METADATA or found.setdefault(label, data) != data:
            found[_key(label, data.digest)] = data
    return found


def _key(label: str, digest: str) -> str:
    return f"{label}.{digest}"


def _save_weights(weights: Mapping[str, Data], path: Path) -> None:
    tensors = {key: _encode(data) for key, data in weights.items()}
    packed = {
        f"packed:{key}": str(data.type)
        for key, data in weights.items()
        if data.dtype.name not in STORED
    }
    _check_inside(path)
    _write(path, lambda target: save_file(tensors, target, packed or None))


def _encode(data: Data) -> npt.NDArray[Any]:
    """Contents as an array that the format can hold."""
    array = data.array()
    if data.dtype.name in STORED:
        return np.ascontiguousarray(array).reshape(data.shape)
    if data.dtype.is_packed:
        return pack(array, data.dtype.bits)
    return np.frombuffer(raw_bytes(array), np.uint8)


def _decode(raw: Array, type_: TensorType, label: str) -> Array:
    dtype, shape = type_.dtype, type_.static_shape()
    try:
        if dtype is string:
            return _strings(raw.tobytes(), shape)
        if dtype.is_packed:
            return unpack(raw, dtype, shape)
        return np.require(raw.view(np.ndarray).view(dtype.numpy), requirements="A").reshape(shape)
    except (ValueError, IndexError, UnicodeDecodeError, struct.error) as problem:
        raise EvaluationError(
            f"the weights file holds too little or too much for {label}",
            expected=str(type_),
            found=f"{raw.size} bytes",
        ) from problem


def _strings(raw: bytes, shape: tuple[int, ...]) -> Array:
    """Strings from bytes: undo ``raw_bytes``."""
    items = []
    position = 0
    while position < len(raw):
        (length,) = struct.unpack_from("<Q", raw, position)
        position += 8 + length
        items.append(raw[position - length : position].decode())
    array = np.empty(len(items), np.object_)
    array[:] = items
    return array.reshape(shape)


def _weights_path(text_path: Path) -> Path:
    return text_path.with_suffix(".safetensors")


def _check_inside(path: Path) -> None:
    """A weights file is a file of its folder; a link that leads out of it is refused."""
    if path.resolve().parent != path.parent.resolve():
        raise InputError(
            f"{path} leads out of its folder",
            expected=f"a file in {path.parent}",
            found=str(path.resolve()),
        )


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside the target, then put it in place: a reader never sees half a file."""
    if is_device(path):
        write(path)
        return
    path = file_behind(path)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as problem:
        raise InputError(
            f"{path} cannot be written: {problem.strerror}",
            hint="choose a folder that exists, is yours to write to, and has room",
        ) from problem
    finally:
        with suppress(OSError):  # of a folder that is none
            temporary.unlink(missing_ok=True)
