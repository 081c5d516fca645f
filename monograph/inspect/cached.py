"""Lists the disk cache: entries with sizes and ages, and which may be removed."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from monograph.config import Config
from monograph.errors import InputError
from monograph.inspect.jsonable import jsonable
from monograph.inspect.page import count, table
from monograph.runtime.cache import Cache, StoredEntry, open_cache

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_AGES = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def open_disk_cache() -> Cache:
    """The cache that the environment names, even if it is switched off for compiling."""
    config = Config.from_environment()
    found = open_cache(Config(cache=True, cache_dir=config.cache_dir))
    reason = "there is no home folder" if found is None else found.unusable()
    if found is None or reason is not None:
        folder = "the cache folder" if found is None else str(found.folder)
        raise InputError(
            f"{folder} cannot be used: {reason}",
            expected="a folder that is yours, and that nobody else may write to",
            hint="MONOGRAPH_CACHE_DIR names another",
        )
    return found


def parse_bytes(text: str) -> int:
    """``500M`` or ``2G`` in bytes."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise InputError(f"{text!r} is no size", expected="a number of bytes, or 500K, 20M, 2G")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def parse_age(text: str) -> float:
    """``30d`` or ``12h`` in seconds."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([smhdw])", text.strip())
    if found is None:
        raise InputError(f"{text!r} is no age", expected="30d, or with s, m, h or w")
    return float(found[1]) * _AGES[found[2]]


def prunable(
    entries: Sequence[StoredEntry],
    *,
    keep_bytes: int | None = None,
    older_than: float | None = None,
    now: float | None = None,
) -> list[StoredEntry]:
    """Entries that were not used for so many seconds, then the least recently used above a size.

    Damaged ones are always among them: nothing can be read from them.
    """
    now = time.time() if now is None else now
    old = {
        entry.key for entry in entries if older_than is not None and now - entry.used > older_than
    }
    going = old | {entry.key for entry in entries if entry.kind is None}
    total = 0
    for entry in sorted(entries, key=lambda each: each.used, reverse=True):
        if entry.key in going:
            continue
        total += entry.nbytes
        if keep_bytes is not None and total > keep_bytes:
            going.add(entry.key)
    return [entry for entry in entries if entry.key in going]


def entries_text(folder: str, entries: Sequence[StoredEntry], now: float | None = None) -> str:
    """A table of entries, the one used last first."""
    now = time.time() if now is None else now
    total = size_text(sum(entry.nbytes for entry in entries))
    heading = f"{folder}: {count(len(entries), 'file')}, {total}"
    if not entries:
        return heading
    rows = [
        (
            printable(entry.model) or entry.key[:12],
            entry.kind or "damaged",
            printable(entry.target.partition(" (")[0]) or "-",
            "-" if entry.nodes is None else f"{entry.nodes:,}",
            size_text(entry.nbytes),
            age_text(now - entry.used),
        )
        for entry in entries
    ]
    headings = ("model", "kind", "target", "nodes", "size", "used")
    return "\n".join([heading, *table(headings, rows, left=3)])


def entries_json(folder: str, entries: Sequence[StoredEntry]) -> dict[str, Any]:
    """The same as plain dictionaries and lists."""
    told: dict[str, Any] = jsonable(
        {
            "folder": folder,
            "nbytes": sum(entry.nbytes for entry in entries),
            "entries": list(entries),
        }
    )
    return told


def size_text(nbytes: float) -> str:
    """``12 B``, ``3.4 KiB``."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"


def age_text(seconds: float) -> str:
    """``5 min ago``, in the largest unit that is not zero."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"


def printable(text: str) -> str:
    """Text out of a file without what a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in text)
