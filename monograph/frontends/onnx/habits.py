"""Known mistakes of exporters that do no harm: accepted, with a warning that names each.

A habit is only accepted where the model still has one meaning: a declared type is not needed, as
inference finds the true one; a node written for another opset says which one by its form.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

PLACEHOLDERS = frozenset({"?", "*", "-1", "none", "null", "nan", "any", "unk", "unknown"})
"""Names of dimensions (in lower case) that say that the size is unknown, and not which it is."""

_PACKAGE = str(Path(__file__).parents[2])


class ModelWarning(UserWarning):
    """A model that contradicts itself or its format, and yet has one meaning."""


def warn(message: str) -> None:
    """Warn of a habit, at the line outside of this package that imports the model."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, ModelWarning, stacklevel=level)


def names_no_size(parameter: str) -> bool:
    """Whether a ``dim_param`` stands for any size at all, each time that it is used."""
    return parameter.strip().lower() in PLACEHOLDERS
