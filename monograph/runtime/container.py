"""A bundle as one file: a zip in which every byte is accounted for.

::

    program.o              the blobs, under their own names
    weights.safetensors    the arrays, if there are any; each aligned, to be mapped into memory
    manifest.json          the bundle's manifest, and size and SHA-256 of every other member
    (zip directory)
    (zip comment)          format version; place and SHA-256 of manifest.json

It is a zip so that people can look into it with their own tools. The reader does not follow the
zip's structures, which tell the same thing in two places and have fooled many readers: it goes from
the comment to the manifest, builds from it the frame that the file must have (all headers, the
directory, the header of the weights) and compares it byte by byte. So nothing can hide in the file:
no second member of a name, no link, no compressed bomb, no path that leads elsewhere, nothing
before, between or after the members. Nothing is unpickled, and no name in the file is opened.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import stat
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from monograph.errors import ArtifactError as ArtifactError
from monograph.errors import InputError
from monograph.ir.types import DTYPES, Array, dtype_of
from monograph.runtime.bundle import MANIFEST, MAX_BLOBS, WEIGHTS, Bundle, bad_blob_name, is_text
from monograph.runtime.tensors import Entry, decode, encode, lay_out
from monograph.runtime.zipframe import Member, directory, local_header

FORMAT = 1
"""Raised whenever a file that this module writes would not be read by the module before it."""

LARGEST_MANIFEST = 1 << 24
MOST_DIMENSIONS = 64
_CHUNK = 1 << 20

_COMMENT = "monograph artifact, format {:06d}; manifest at {:020d}, {:020d} bytes, sha256 {}"
_COMMENT_PATTERN = re.compile(
    rb"monograph artifact, format (\d{6}); "
    rb"manifest at (\d{20}), (\d{20}) bytes, sha256 ([0-9a-f]{64})"
)
_COMMENT_SIZE = len(_COMMENT.format(0, 0, 0, "0" * 64))

_T = TypeVar("_T")


def open_regular(path: Path, *, follow_links: bool) -> BinaryIO:
    """Open a file for reading, but nothing else that a path may name: no pipe is waited for."""
    if not follow_links and path.is_symlink():
        raise ArtifactError(f"{path} is a link", expected="a file")
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    flags |= 0 if follow_links else getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArtifactError(f"{path} is not a file", expected="a file")
    return open(descriptor, "rb")


def write_container(file: BinaryIO, bundle: Bundle, key: str | None = None) -> None:
    """Write a bundle to an empty file that can seek. ``key`` says which cache entry it is."""
    bundle.check()
    entries = [_entry(name, array) for name, array in bundle.arrays.items()]
    writer = _Writer(file)
    for name, blob in bundle.blobs.items():
        writer.add(name, [memoryview(blob)])
    if entries:
        writer.add(WEIGHTS, _weights(entries, bundle.arrays))
    document = {
        "key": key,
        "manifest": bundle.manifest,
        "members": [
            {"name": each.name, "size": each.size, "crc32": each.crc32, "sha256": each.sha256}
            for each, _ in writer.members
        ],
        "arrays": [
            {
                "name": each.name,
                "dtype": each.dtype.name,
                "shape": list(each.shape),
                "nbytes": each.nbytes,
            }
            for each in entries
        ],
    }
    writer.finish(_canonical(document))


def read_container(
    file: BinaryIO, label: str, *, key: str | None = None, verify: bool = True
) -> Bundle:
    """Read a bundle back; an ``ArtifactError`` if the file is not what ``write_container`` wrote.

    Blobs are read and always held against their digests; arrays are mapped. Without ``verify`` the
    contents of the arrays are taken on trust, which saves reading them.
    """
    reader = _Reader(file, label)
    document, members = reader.open()
    if document.get("key") != key:
        raise ArtifactError(
            f"{label} is an entry of a compilation cache under another name",
            expected="no key" if key is None else f"the key {key}",
            found=repr(document.get("key")),
        )
    entries = [_entry_from(record, reader) for record in reader.records(document, "arrays")]
    blobs = {
        member.name: reader.contents(member, begin)
        for member, begin in members
        if member.name != WEIGHTS
    }
    weights = [(member, begin) for member, begin in members if member.name == WEIGHTS]
    if bool(weights) != bool(entries):
        raise reader.damaged("arrays and weights do not belong together")
    arrays: dict[str, Array] = {}
    if weights:
        arrays = reader.arrays(entries, *weights[0], verify=verify)
    return Bundle(reader.typed(document.get("manifest"), dict), blobs, arrays)


def read_manifest(file: BinaryIO, label: str) -> tuple[object, Mapping[str, object]]:
    """The key and the manifest of a bundle's file; its frame is checked, its members are not."""
    reader = _Reader(file, label)
    document, _ = reader.open()
    return document.get("key"), reader.typed(document.get("manifest"), dict)


class _Writer:
    """Adds members to a zip, one after the other, and remembers what the frame needs."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0
        self.members: list[tuple[Member, int]] = []

    def add(self, name: str, parts: Iterable[memoryview]) -> int:
        """Write a member. Its header is written twice: the sums are known only afterwards."""
        begin = self._position
        header = local_header(Member(name, 0, 0, ""), begin)
        self._file.write(header)
        size, crc32, sha256 = 0, 0, hashlib.sha256()
        for part in parts:
            for start in range(0, len(part), _CHUNK):
                chunk = part[start : start + _CHUNK]
                self._file.write(chunk)
                crc32 = zlib.crc32(chunk, crc32)
                sha256.update(chunk)
            size += len(part)
        member = Member(name, size, crc32, sha256.hexdigest())
        self.members.append((member, begin))
        self._position = begin + len(header) + size
        self._file.seek(begin)
        self._file.write(local_header(member, begin))
        self._file.seek(self._position)
        return begin + len(header)

    def finish(self, manifest: bytes) -> None:
        """Write the manifest and the end of the zip."""
        if len(manifest) > LARGEST_MANIFEST:
            raise InputError(
                "a manifest is too large",
                expected=f"at most {LARGEST_MANIFEST:,} bytes",
                found=f"{len(manifest):,}",
                hint="put long texts into blobs",
            )
        begin = self.add(MANIFEST, [memoryview(manifest)])
        digest = self.members[-1][0].sha256
        self._file.write(
            directory(self.members, self._position, _comment(begin, len(manifest), digest))
        )


class _Reader:
    """A file under suspicion."""

    def __init__(self, file: BinaryIO, label: str) -> None:
        self._file = file
        self._label = label
        self._size = os.fstat(file.fileno()).st_size

    def open(self) -> tuple[Mapping[str, object], list[tuple[Member, int]]]:
        """Check the whole frame; the manifest's document and the members with their places."""
        begin, size, digest = self._end()
        if size > LARGEST_MANIFEST or begin + size > self._size:
            raise self.damaged("the manifest does not fit in the file")
        text = self._read(begin, size)
        if hashlib.sha256(text).hexdigest() != digest:
            raise self.damaged(f"{MANIFEST} has another SHA-256 than the file's end says")
        document = self._document(text)
        members = [self._member(record) for record in self.records(document, "members")]
        names = {member.name for member in members}
        if len(names) != len(members) or len(members) > MAX_BLOBS + 1:
            raise self.damaged("the manifest names a member twice, or names too many")
        manifest = Member(MANIFEST, size, zlib.crc32(text), digest)
        return document, self._check_frame([*members, manifest])

    def records(self, document: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
        """A list of JSON objects that the document must have."""
        return [self.typed(record, dict) for record in self.typed(document.get(name), list)]

    def typed(self, value: object, kind: type[_T]) -> _T:
        """A value that must be of a type, exactly (a bool is no int)."""
        if type(value) is not kind:
            raise self.damaged(f"{MANIFEST} has a {type(value).__name__}, not a {kind.__name__}")
        return value

    def contents(self, member: Member, begin: int) -> bytes:
        """A member's contents, held against their digest."""
        contents = self._read(begin, member.size)
        if hashlib.sha256(contents).hexdigest() != member.sha256:
            raise self.damaged(f"{member.name} has another SHA-256 than {MANIFEST} says")
        return contents

    def arrays(
        self, entries: list[Entry], member: Member, begin: int, *, verify: bool
    ) -> dict[str, Array]:
        """The arrays of the weights, mapped into memory."""
        if len({entry.name for entry in entries}) != len(entries):
            raise self.damaged("two arrays have one name")
        layout = lay_out(entries)
        if layout.size != member.size or self._read(begin, len(layout.header)) != layout.header:
            raise self.damaged(f"the header of {WEIGHTS} is not the one that {MANIFEST} describes")
        if verify and self._digest(begin, member.size) != member.sha256:
            raise self.damaged(f"{WEIGHTS} has another SHA-256 than {MANIFEST} says")
        # The map outlives the file object and lasts as long as any array does.
        mapping = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        everything: npt.NDArray[np.uint8] = np.frombuffer(mapping, np.uint8)
        found: dict[str, Array] = {}
        for entry, offset in zip(entries, layout.offsets, strict=True):
            raw = everything[begin + offset : begin + offset + entry.nbytes]
            try:
                found[entry.name] = decode(raw, entry)
            except ValueError as problem:
                raise self.damaged(f"the array {entry.name}: {problem}") from None
        return found

    def damaged(self, what: str) -> ArtifactError:
        """The error for a file that was an artifact once, or pretends to be one."""
        return ArtifactError(
            f"{self._label} is damaged",
            found=what,
            hint="copy the file again from where it came, or save the program again",
        )

    def _end(self) -> tuple[int, int, str]:
        """Place, size and digest of the manifest, from the zip's comment."""
        tail = self._read(max(0, self._size - _COMMENT_SIZE), min(_COMMENT_SIZE, self._size))
        match = _COMMENT_PATTERN.fullmatch(tail)
        if match is None and self._read(0, min(4, self._size)) not in (b"PK\3\4", b"PK\3", b"PK"):
            raise ArtifactError(
                f"{self._label} is not an artifact",
                expected="a file that was written by Executable.save",
                found=f"{self._size:,} bytes of another kind",
            )
        if match is None:
            raise self.damaged("the file's end is missing: it was cut short, or is another zip")
        version, begin, size = (int(match.group(index)) for index in (1, 2, 3))
        if version != FORMAT:
            raise ArtifactError(
                f"{self._label} has another format",
                expected=f"format {FORMAT}",
                found=f"format {version}",
                hint="save the program again with this version of Monograph",
            )
        return begin, size, match.group(4).decode()

    def _document(self, text: bytes) -> Mapping[str, object]:
        """The manifest's JSON, in the one spelling that the writer gives it."""
        try:
            document = json.loads(text)
            canonical = _canonical(document)
        except (ValueError, RecursionError) as problem:
            raise self.damaged(f"{MANIFEST} is not JSON: {problem}") from None
        if canonical != text:
            raise self.damaged(f"{MANIFEST} is not spelled as Monograph spells it")
        return self.typed(document, dict)

    def _member(self, record: Mapping[str, object]) -> Member:
        name = self.typed(record.get("name"), str)
        size = self.typed(record.get("size"), int)
        crc32 = self.typed(record.get("crc32"), int)
        reason = None if name == WEIGHTS else bad_blob_name(name)
        if reason is not None:
            raise self.damaged(f"a member has the name {name!r}: {reason}")
        if not 0 <= size <= self._size or not 0 <= crc32 < 1 << 32:
            raise self.damaged(f"{name} cannot have the size or sum that {MANIFEST} gives")
        return Member(name, size, crc32, self.typed(record.get("sha256"), str))

    def _check_frame(self, members: list[Member]) -> list[tuple[Member, int]]:
        """Hold every byte outside the members' contents against what it must be."""
        position = 0
        placed = []
        begins = []
        for member in members:
            header = local_header(member, position)
            if self._read(position, len(header)) != header:
                raise self.damaged(f"what stands before {member.name} is not its header")
            placed.append((member, position))
            begins.append(position + len(header))
            position = begins[-1] + member.size
        manifest = members[-1]
        end = directory(placed, position, _comment(begins[-1], manifest.size, manifest.sha256))
        if position + len(end) != self._size or self._read(position, len(end)) != end:
            raise self.damaged("the zip's directory does not list what the manifest does")
        return list(zip(members[:-1], begins, strict=False))

    def _read(self, begin: int, size: int) -> bytes:
        """Bytes of the file; fewer than asked for is damage (the file is being changed)."""
        self._file.seek(begin)
        found = self._file.read(size)
        if len(found) != size:
            raise self.damaged(f"it ends at byte {begin + len(found):,}")
        return found

    def _digest(self, begin: int, size: int) -> str:
        """The SHA-256 of a part of the file, in one buffer however long the part is."""
        state = hashlib.sha256()
        buffer = memoryview(bytearray(_CHUNK))
        self._file.seek(begin)
        while size:
            count = self._file.readinto(buffer[: min(size, _CHUNK)])  # type: ignore[attr-defined]  # of every binary file
            if not count:
                raise self.damaged("it became shorter while it was read")
            state.update(buffer[:count])
            size -= count
        return state.hexdigest()


def _entry(name: str, array: Array) -> Entry:
    """What the file will say of an array; only a packed or a string array is encoded for it."""
    dtype = dtype_of(array.dtype)
    size = encode(array).nbytes if dtype.is_packed or dtype.kind.name == "STRING" else array.nbytes
    return Entry(name, dtype, tuple(int(each) for each in array.shape), size)


def _entry_from(record: Mapping[str, object], reader: _Reader) -> Entry:
    """An entry as the manifest has it, if such an array can exist."""
    name = reader.typed(record.get("name"), str)
    dtype = DTYPES.get(reader.typed(record.get("dtype"), str))
    shape = tuple(reader.typed(each, int) for each in reader.typed(record.get("shape"), list))
    nbytes = reader.typed(record.get("nbytes"), int)
    if not is_text(name) or dtype is None or len(shape) > MOST_DIMENSIONS or nbytes < 0:
        raise reader.damaged(f"{MANIFEST} describes no array: {dict(record)!r}")
    if any(not 0 <= size < 1 << 62 for size in shape):
        raise reader.damaged(f"the array {name} cannot have the shape {list(shape)}")
    entry = Entry(name, dtype, shape, nbytes)
    if not entry.is_consistent():
        raise reader.damaged(f"the array {name} cannot have {nbytes:,} bytes")
    return entry


def _weights(entries: list[Entry], arrays: Mapping[str, Array]) -> Iterable[memoryview]:
    """The safetensors file, piece by piece, so that no second copy of the weights is made."""
    layout = lay_out(entries)
    yield memoryview(layout.header)
    position = len(layout.header)
    for entry, offset in zip(entries, layout.offsets, strict=True):
        if offset > position:
            yield memoryview(bytes(offset - position))
        yield encode(arrays[entry.name]).data
        position = offset + entry.nbytes


def _comment(begin: int, size: int, digest: str) -> bytes:
    return _COMMENT.format(FORMAT, begin, size, digest).encode()


def _canonical(document: object) -> bytes:
    """JSON in one spelling: short enough to store, with lines for those who look into the zip."""
    return json.dumps(document, indent=1, allow_nan=False).encode()
