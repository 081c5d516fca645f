"""Writing a file so that a reader sees the old one, the new one, or none: never half of one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from monograph.ir.paths import file_behind, is_device

_TEMPORARY = re.compile(r"\.monograph-[0-9a-f]{32}\.tmp")


def is_temporary(name: str) -> bool:
    """Whether a file's name is one that ``replacing`` gives to a file it has not finished."""
    return _TEMPORARY.fullmatch(name) is not None


@contextmanager
def replacing(path: Path, permissions: int) -> Iterator[BinaryIO]:
    """A new file to write, put in ``path``'s place when the block ends and the bytes are on disk.

    If the block raises, ``path`` stays as it was. A process killed within it leaves a file for
    which ``is_temporary`` holds. What a link leads to is replaced, not the link; a device or a pipe
    is written to, for nothing can take its place.
    """
    if is_device(path):
        with path.open("wb") as device:
            yield device
        return
    path = file_behind(path)
    temporary = path.with_name(f".monograph-{uuid4().hex}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, permissions)
    try:
        with open(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(OSError):  # after the replacement there is nothing to remove
            temporary.unlink()
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name last, where the system can (Windows cannot open a folder)."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
