"""Whether a file can be written: said before minutes of work, not after them."""

from __future__ import annotations

import os
from pathlib import Path

from monograph.errors import InputError


def check_writable(path: Path) -> None:
    """That a file can be written there; an error for a folder, or where none is."""
    folder = path.parent
    if not folder.is_dir():
        raise InputError("there is no such folder", found=str(folder))
    if path.is_dir():
        raise InputError(f"{path} is a folder", expected="the name of a file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"{path} cannot be written", found="no permission to write there")
