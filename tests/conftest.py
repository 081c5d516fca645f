"""For the whole suite: nobody's own cache is read or written.

Compiling stores nothing unless a test asks for it (``cache=True``, or a ``MONOGRAPH_CACHE`` of its
own); what it then stores goes to a folder that is removed when the tests have ended.
"""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory

import pytest

_folder = pytest.StashKey["TemporaryDirectory[str]"]()


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported or collected."""
    folder = TemporaryDirectory(prefix="monograph-tests-")
    config.stash[_folder] = folder
    os.environ["MONOGRAPH_CACHE_DIR"] = folder.name
    os.environ["MONOGRAPH_CACHE"] = "0"


def pytest_unconfigure(config: pytest.Config) -> None:
    """After the last test."""
    config.stash[_folder].cleanup()
