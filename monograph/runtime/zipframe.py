"""The bytes of a zip file that are not its members' contents, as functions of the member list.

Members are stored, never compressed, and each one's contents begin at a multiple of 64 bytes. All
sizes and offsets are written in the 64-bit form, so that a file of five gigabytes has no other
layout than one of five kilobytes. Nothing here reads: who wants to check a file builds its frame
again and compares.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from monograph.dataclass import dataclass

ALIGNMENT = 64

_NEEDS_ZIP64 = 45
_UTF8_NAMES = 1 << 11
_STORED = 0
_MIDNIGHT, _FIRST_OF_1980 = 0, 33  # a zip must have dates; ours would only make files differ
_REGULAR_FILE = 0o100644 << 16
_UNIX = 3 << 8
_ZIP64_FIELD, _ALIGNMENT_FIELD = 0x0001, 0xD935
_IN_ZIP64_16, _IN_ZIP64_32 = 0xFFFF, 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Member:
    """One file within the zip."""

    name: str
    size: int
    crc32: int
    sha256: str


def local_header(member: Member, offset: int) -> bytes:
    """What stands at ``offset``, before a member's contents; the contents come out aligned."""
    name = member.name.encode()
    fixed = 30 + len(name) + 20 + 6
    padding = bytes(-(offset + fixed) % ALIGNMENT)
    extra = struct.pack("<HHQQ", _ZIP64_FIELD, 16, member.size, member.size)
    extra += struct.pack("<HHH", _ALIGNMENT_FIELD, 2 + len(padding), ALIGNMENT) + padding
    header = struct.pack(
        "<4sHHHHHIIIHH",
        b"PK\3\4",
        *(_NEEDS_ZIP64, _UTF8_NAMES, _STORED, _MIDNIGHT, _FIRST_OF_1980),
        *(member.crc32, _IN_ZIP64_32, _IN_ZIP64_32),
        *(len(name), len(extra)),
    )
    return header + name + extra


def directory(members: Sequence[tuple[Member, int]], offset: int, comment: bytes) -> bytes:
    """The file's end, at ``offset``: every member with its place, then a comment."""
    listing = b"".join(_listing(member, begin) for member, begin in members)
    end = offset + len(listing)
    count = len(members)
    zip64_end = struct.pack(
        "<4sQHHIIQQQQ",
        *(b"PK\6\6", 44, _UNIX | _NEEDS_ZIP64, _NEEDS_ZIP64, 0, 0),
        *(count, count, len(listing), offset),
    )
    zip64_locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    end_record = struct.pack(
        "<4sHHHHIIH",
        *(b"PK\5\6", 0, 0, _IN_ZIP64_16, _IN_ZIP64_16),
        *(_IN_ZIP64_32, _IN_ZIP64_32, len(comment)),
    )
    return listing + zip64_end + zip64_locator + end_record + comment


def _listing(member: Member, offset: int) -> bytes:
    name = member.name.encode()
    extra = struct.pack("<HHQQQ", _ZIP64_FIELD, 24, member.size, member.size, offset)
    header = struct.pack(
        "<4sHHHHHHIIIHHHHHII",
        *(b"PK\1\2", _UNIX | _NEEDS_ZIP64, _NEEDS_ZIP64, _UTF8_NAMES, _STORED),
        *(_MIDNIGHT, _FIRST_OF_1980, member.crc32, _IN_ZIP64_32, _IN_ZIP64_32),
        *(len(name), len(extra), 0, 0, 0, _REGULAR_FILE, _IN_ZIP64_32),
    )
    return header + name + extra
