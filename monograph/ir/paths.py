"""Checks of file paths that users pass to functions that read or write a file."""

from __future__ import annotations

import os
from pathlib import Path

from monograph.errors import InputError


def as_path(path: object) -> Path:
    """The path; an error if it is none."""
    if isinstance(path, str | os.PathLike):
        return Path(path)
    raise InputError(
        "this is not the name of a file", expected="a str or a path", found=type(path).__name__
    )
