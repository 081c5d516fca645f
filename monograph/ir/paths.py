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


def file_behind(path: Path) -> Path:
    """The file to put another in the place of: where a link leads to one, that one."""
    return Path(os.path.realpath(path)) if path.is_file() else path


def is_device(path: Path) -> bool:
    """Whether a device or a pipe is there, which is written to and never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()
