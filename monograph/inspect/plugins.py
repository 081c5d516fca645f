"""Ops and passes of a user's own, for the command line: ``--plugin my_passes.py``.

A plugin is a Python file, or a module that can be imported. Importing it is all that is done:
subclasses of ``Pass`` and classes under ``@op`` register themselves by their names.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from monograph.errors import InputError
from monograph.inspect.python_files import blaming, folder_on_path, load_file


def load_plugin(name: str) -> None:
    """Import a plugin: ``my_passes.py``, or ``package.module``."""
    if name.endswith(".py"):
        path = Path(name)
        if not path.is_file():
            raise InputError(f"there is no file {name!r}", expected="a plugin: a Python file")
        with folder_on_path(path):
            load_file(path)
        return
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError(
            f"{name!r} is not a plugin", expected="a Python file, or the name of a module"
        )
    here = Path.cwd() / name
    with folder_on_path(here), blaming(here, f"the module {name} cannot be imported"):
        importlib.import_module(name)
