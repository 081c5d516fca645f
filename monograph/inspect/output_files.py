"""Whether a file can be written: said before minutes of work, not after them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from monograph.errors import InputError


def check_writable(path: Path) -> None:
    """That a file can be written there; an error for a folder, or where none is."""
    folder = path.parent
    if not folder.is_dir():
        raise InputError("there is no such folder", found=str(folder))
    if path.is_dir():
        raise InputError(f"{path} is a folder", expected="the name of a file")
    try:  # permissions alone do not tell: a disk may be full, and some folders take no files
        if path.is_file():
            path.open("ab").close()
        elif not path.exists():
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as problem:
        raise InputError(f"{path} cannot be written", found=problem.strerror) from None
