"""ONNX models as graphs: ``from_onnx``.

A model is loaded and checked (``model``), every op in it that has no meaning here is reported at
once (``support``), then its nodes are walked in order (``importer``) and each is handed to the
converter of its op (``converters/``, one file a family). A node whose result needs contents that
only the run knows stays whole and is converted when it runs (``deferred``). What exporters get
wrong without harm is accepted with a ``ModelWarning`` (``habits``, ``mixed_opsets``).

``onnx`` itself is imported by the modules of this package, never by the package's ``__init__``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from monograph.errors import InputError, Problem
from monograph.frontends.onnx.habits import ModelWarning
from monograph.ir.graph import Graph

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["ModelWarning", "find_unsupported", "from_onnx"]


def from_onnx(
    source: str | Path | bytes | ModelProto,
    *,
    weights_folder: str | Path | None = None,
    weights_may_be_absent: bool = False,
) -> Graph:
    """The graph of an ONNX model: a path, the bytes of a file, or a ``ModelProto``.

    Tensors that the model keeps in other files are memory-mapped from the folder that the model is
    in, or from ``weights_folder``; nothing outside that folder is ever read. With
    ``weights_may_be_absent`` a file that is missing is an error only when its contents are needed:
    enough to look a model over.
    """
    _need_onnx()
    from monograph.frontends.onnx.importer import import_model
    from monograph.frontends.onnx.model import load_model

    model = load_model(source, weights_folder, weights_may_be_absent=weights_may_be_absent)
    return import_model(model)


def find_unsupported(
    source: str | Path | bytes | ModelProto, *, weights_folder: str | Path | None = None
) -> list[Problem]:
    """Every op of the model that ``from_onnx`` would refuse; nothing is imported."""
    _need_onnx()
    from monograph.frontends.onnx.model import load_model
    from monograph.frontends.onnx.support import find_unsupported_ops

    return find_unsupported_ops(load_model(source, weights_folder))


def _need_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise InputError(
            "reading ONNX models needs the onnx package",
            hint="pip install 'monograph[onnx]'",
        ) from None
