"""Splits large tensors off a model's file before protobuf parses the rest.

Protobuf copies every byte of a file twice: once when it parses, once more when Python asks for a
tensor's ``raw_data``. This reads just enough of the wire format to find the initializers, and says
where their bytes lie; what is left is a small model without them. A file with anything unusual in
it is left as it is; protobuf then says what is wrong with it.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

MIN_BLOB_BYTES = 1 << 16
"""Bytes from which on a tensor is taken out."""

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto and TensorProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Spans = dict[int, tuple[int, int]]
"""Where the raw data of initializers lies, by position: the first byte, and the one after it."""


class _Unusual(Exception):
    """Something that is not as simple as what exporters write."""


def without_large_tensors(content: bytes | mmap.mmap) -> tuple[bytes, Spans]:
    """The model without the raw data of large initializers, and where that data lies."""
    view = memoryview(content)
    if len(view) < MIN_BLOB_BYTES:
        return bytes(view), {}
    try:
        return _strip_model(view)
    except (_Unusual, IndexError):
        return bytes(view), {}


def _strip_model(model: memoryview) -> tuple[bytes, Spans]:
    pieces: list[bytes | memoryview] = []
    spans: Spans = {}
    graphs = 0
    for number, kind, start, body, end in _fields(model):
        if number != _GRAPH:
            pieces.append(model[start:end])
            continue
        graphs += 1
        if kind != _BYTES or graphs > 1:  # protobuf would merge them
            raise _Unusual
        stripped = _strip_graph(model[body:end], body, spans)
        pieces += [_header(_GRAPH, len(stripped)), stripped]
    return b"".join(pieces), spans


def _strip_graph(graph: memoryview, offset: int, spans: Spans) -> bytes:
    pieces: list[bytes | memoryview] = []
    position = 0
    for number, kind, start, body, end in _fields(graph):
        if number != _INITIALIZER or kind != _BYTES:
            pieces.append(graph[start:end])
            continue
        tensor = graph[body:end]
        found = _raw_data(tensor) if len(tensor) >= MIN_BLOB_BYTES else None
        if found is None:
            pieces.append(graph[start:end])
        else:
            first, inside, last = found
            spans[position] = offset + body + inside, offset + body + last
            rest = bytes(tensor[:first]) + bytes(tensor[last:])
            pieces += [_header(_INITIALIZER, len(rest)), rest]
        position += 1
    return b"".join(pieces)


def _raw_data(tensor: memoryview) -> tuple[int, int, int] | None:
    """Where the large raw data of a tensor begins, its header included, and where it ends."""
    found = None
    for number, kind, start, body, end in _fields(tensor):
        if number != _RAW_DATA:
            continue
        if kind != _BYTES or found is not None:
            raise _Unusual
        found = start, body, end
    return found if found is not None and found[2] - found[1] >= MIN_BLOB_BYTES else None


def _fields(message: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    """(number, kind, start, start of the content, end) of each field of a message."""
    position, size = 0, len(message)
    while position < size:
        start = position
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            body = position
            _, position = _varint(message, position)
        elif kind == _BYTES:
            length, body = _varint(message, position)
            position = body + length
        elif kind in (_FIXED32, _FIXED64):
            body = position
            position += 4 if kind == _FIXED32 else 8
        else:
            raise _Unusual
        if position > size or tag < 8:
            raise _Unusual
        yield tag >> 3, kind, start, body, position


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise _Unusual


def _header(number: int, length: int) -> bytes:
    digits = bytearray([number << 3 | _BYTES])
    while length > 0x7F:
        digits.append(length & 0x7F | 0x80)
        length >>= 7
    digits.append(length)
    return bytes(digits)
