"""Namespaces of ops outside ``monograph.ops``: which module defines each prefix.

``torch.call`` or ``onnx.deferred`` stand only in graphs that a frontend made, and the frontend that
defines them needs a package that may not be installed. So its modules are named here, as text, and
imported when the first such op is looked up; nothing here depends on them. Adding a namespace is
one line.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import NamedTuple

from monograph.errors import InputError


class Namespace(NamedTuple):
    """The modules that register the ops of a namespace, and the package (and extra) they need."""

    package: str
    modules: tuple[str, ...]


NAMESPACES: Mapping[str, Namespace] = {
    "onnx": Namespace("onnx", ("monograph.frontends.onnx.deferred",)),
    "torch": Namespace(
        "torch", ("monograph.frontends.torch.custom_ops", "monograph.frontends.torch.ops")
    ),
}


def load_namespace(name: str) -> None:
    """Import what registers an op of this name, if its first part is a namespace.

    A package that is not installed is an error that says how to install it.
    """
    prefix, dot, _ = name.partition(".")
    namespace = NAMESPACES.get(prefix)
    if namespace is None or not dot:
        return
    try:
        for module in namespace.modules:
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != namespace.package:
            raise
        raise InputError(
            f"the ops of {prefix!r} need the package {namespace.package}",
            found=f"{name}, and no package {namespace.package}",
            hint=f"pip install 'monograph[{namespace.package}]'",
        ) from error
